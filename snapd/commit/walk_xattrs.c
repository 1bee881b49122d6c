#include "walk_xattrs.h"

#include "cleanup.h"

#include <limits.h>
#include <string.h>
#include <sys/xattr.h>

#ifndef XATTR_LIST_MAX
#define XATTR_LIST_MAX 65536 /* linux/limits.h */
#endif

/* One inode, named in one of the two ways in which its attributes can be reached. */
struct source {
    int fd;
    const char *path; /* NULL: use fd */
};

static ssize_t list_names(const struct source *source, char *names, size_t size)
{
    return source->path ? llistxattr(source->path, names, size)
                        : flistxattr(source->fd, names, size);
}

static ssize_t get_value(const struct source *source, const char *name, void *value, size_t size)
{
    return source->path ? lgetxattr(source->path, name, value, size)
                        : fgetxattr(source->fd, name, value, size);
}

int walk_xattrs_init(struct walk_xattrs *xattrs, struct err *err)
{
    *xattrs = (struct walk_xattrs){0};
    xattrs->names = malloc(XATTR_LIST_MAX);
    xattrs->values = malloc(WALK_XATTRS_MAX);
    if (!xattrs->names || !xattrs->values) {
        walk_xattrs_free(xattrs);
        return err_errno(err, ENOMEM, "cannot read extended attributes");
    }
    return 0;
}

void walk_xattrs_free(struct walk_xattrs *xattrs)
{
    free(xattrs->list);
    free(xattrs->names);
    free(xattrs->values);
    *xattrs = (struct walk_xattrs){0};
}

static int add(struct walk_xattrs *xattrs, const char *name, const void *value, size_t len,
               struct err *err)
{
    if (xattrs->count == xattrs->cap) {
        size_t cap = xattrs->cap ? 2 * xattrs->cap : 16;
        struct walk_xattr *list = reallocarray(xattrs->list, cap, sizeof *list);
        if (!list)
            return err_errno(err, ENOMEM, "cannot read extended attributes");
        xattrs->list = list;
        xattrs->cap = cap;
    }
    xattrs->list[xattrs->count++] = (struct walk_xattr){.name = name, .value = value, .len = len};
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct walk_xattr *)a)->name, ((const struct walk_xattr *)b)->name);
}

static int read_all(struct walk_xattrs *xattrs, const struct source *source, struct err *err)
{
    xattrs->count = 0;
    ssize_t names_len = list_names(source, xattrs->names, XATTR_LIST_MAX);
    if (names_len < 0 && errno == EOPNOTSUPP)
        return 0;
    if (names_len < 0)
        return err_errno(err, errno, "cannot list extended attributes");
    size_t used = 0;
    for (char *name = xattrs->names; name < xattrs->names + names_len; name += strlen(name) + 1) {
        size_t room = WALK_XATTRS_MAX - used;
        /* A size of 0 would ask for the length only. */
        ssize_t len = room ? get_value(source, name, xattrs->values + used, room) : -1;
        if (len < 0 && (room == 0 || errno == ERANGE))
            return err_fail(err, ERR_TOO_LARGE, "more than %d bytes of extended attributes",
                            WALK_XATTRS_MAX);
        if (len < 0)
            return err_errno(err, errno, "cannot read the extended attribute %s", name);
        int rc = add(xattrs, name, xattrs->values + used, (size_t)len, err);
        if (rc < 0)
            return rc;
        used += (size_t)len;
    }
    if (xattrs->count > 1)
        qsort(xattrs->list, xattrs->count, sizeof *xattrs->list, by_name);
    return 0;
}

int walk_xattrs_of_fd(struct walk_xattrs *xattrs, int fd, struct err *err)
{
    struct source source = {.fd = fd};
    return read_all(xattrs, &source, err);
}

int walk_xattrs_of_name(struct walk_xattrs *xattrs, int dir_fd, const char *name, struct err *err)
{
    /* There is no such call for a name in an open directory before Linux 6.13; the last component
     * of this path is not followed. */
    char path[PATH_MAX];
    snprintf(path, sizeof path, "/proc/self/fd/%d/%.255s", dir_fd, name);
    struct source source = {.fd = -1, .path = path};
    return read_all(xattrs, &source, err);
}
