#include "walk_names.h"

#include "cleanup.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum {
    LIST_BUFFER = 64 * 1024, /* bytes per call; about 2,000 entries */
    RANK_WHITEOUT = 1,
    RANK_OTHER = 2,
};

static int grow(struct walk_names *names, size_t more, size_t bytes_max, struct err *err)
{
    if (names->len + more > bytes_max)
        return err_fail(err, ERR_TOO_LARGE, "more than %zu bytes of names", bytes_max);
    if (names->len + more > names->cap) {
        size_t cap = names->cap ? 2 * names->cap : 4096;
        char *bytes = realloc(names->bytes, cap);
        if (!bytes)
            return err_errno(err, ENOMEM, "cannot hold its names");
        names->bytes = bytes;
        names->cap = cap;
    }
    if (names->count == names->at_cap) {
        size_t cap = names->at_cap ? 2 * names->at_cap : 64;
        size_t *at = reallocarray(names->at, cap, sizeof *at);
        if (!at)
            return err_errno(err, ENOMEM, "cannot hold its names");
        names->at = at;
        names->at_cap = cap;
    }
    return 0;
}

/* Gives back what growing reserved in excess: a deep tree has one of these per level. */
static void shrink(struct walk_names *names)
{
    char *bytes = names->len ? realloc(names->bytes, names->len) : NULL;
    size_t *at = names->count ? reallocarray(names->at, names->count, sizeof *at) : NULL;
    if (bytes) {
        names->bytes = bytes;
        names->cap = names->len;
    }
    if (at) {
        names->at = at;
        names->at_cap = names->count;
    }
}

static bool is_whiteout(int fd, const char *name, unsigned char type)
{
    struct stat st;
    if (type != DT_CHR && type != DT_UNKNOWN)
        return false;
    return fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISCHR(st.st_mode) &&
           st.st_rdev == makedev(0, 0);
}

static int add_block(int fd, const char *block, size_t block_len, bool whiteouts_first,
                     size_t bytes_max, struct walk_names *names, struct err *err)
{
    for (size_t at = 0; at < block_len;) {
        const struct dirent64 *entry = (const struct dirent64 *)(const void *)(block + at);
        at += entry->d_reclen;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        size_t len = strlen(entry->d_name) + 1;
        int rc = grow(names, len + 1, bytes_max, err);
        if (rc < 0)
            return rc;
        bool first = whiteouts_first && is_whiteout(fd, entry->d_name, entry->d_type);
        names->bytes[names->len] = first ? RANK_WHITEOUT : RANK_OTHER;
        memcpy(names->bytes + names->len + 1, entry->d_name, len);
        names->at[names->count++] = names->len;
        names->len += len + 1;
    }
    return 0;
}

/* The rank is the first byte, so one comparison of strings decides. strcmp() compares unsigned. */
static int compare(const void *a, const void *b, void *bytes)
{
    return strcmp((const char *)bytes + *(const size_t *)a,
                  (const char *)bytes + *(const size_t *)b);
}

int walk_names_read(int fd, bool whiteouts_first, size_t bytes_max, struct walk_names *ret,
                    struct err *err)
{
    struct walk_names names = {0};
    *ret = names;
    cleanup_free char *block = malloc(LIST_BUFFER);
    if (!block)
        return err_errno(err, ENOMEM, "cannot list the directory");
    for (;;) {
        ssize_t n = getdents64(fd, block, LIST_BUFFER);
        int rc = n < 0 ? err_errno(err, errno, "cannot list the directory")
                       : add_block(fd, block, (size_t)n, whiteouts_first, bytes_max, &names, err);
        if (rc < 0) {
            walk_names_free(&names);
            return rc;
        }
        if (n == 0)
            break;
    }
    shrink(&names);
    if (names.count > 1)
        qsort_r(names.at, names.count, sizeof *names.at, compare, names.bytes);
    *ret = names;
    return 0;
}

const char *walk_names_get(const struct walk_names *names, size_t index)
{
    return names->bytes + names->at[index] + 1;
}

void walk_names_free(struct walk_names *names)
{
    free(names->bytes);
    free(names->at);
    *names = (struct walk_names){0};
}
