#include "node_internal.h"

#include "cleanup.h"
#include "fdio.h"
#include "json_doc.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

/* What a first start that was killed may leave behind before it wrote the marker. */
static bool is_harmless(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "lock") == 0 ||
           strcmp(name, "lost+found") == 0 || strncmp(name, ".tmp-", 5) == 0;
}

static int check_empty(int dir_fd, const char *path, const char *what, struct err *err)
{
    cleanup_dir DIR *dir = fdio_list(dir_fd, ".");
    if (!dir)
        return err_errno(err, errno, "cannot list the %s directory %s", what, path);
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry)
            return errno ? err_errno(err, errno, "cannot list the %s directory %s", what, path) : 0;
        if (is_harmless(entry->d_name))
            continue;
        int rc = err_fail(err, ERR_INVALID, "%s holds '%s' and is not the %s directory of a varve",
                          path, entry->d_name, what);
        err_hint(err, "name a directory that is empty or does not exist");
        return rc;
    }
}

static int check_owner(int dir_fd, const char *path, const char *what, struct err *err)
{
    struct stat st;
    if (fstat(dir_fd, &st) < 0)
        return err_errno(err, errno, "cannot stat the %s directory %s", what, path);
    if (st.st_uid != geteuid())
        return err_fail(err, ERR_DENIED, "the %s directory %s belongs to user %u, not to user %u",
                        what, path, st.st_uid, geteuid());
    return 0;
}

static bool has_file(int dir_fd, const char *name)
{
    struct stat st;
    return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

/* A directory that was just made lasts only when its parent is synced. */
static int make(const char *path, const char *what, struct err *err)
{
    if (mkdir(path, 0700) < 0) {
        int num = errno;
        if (num == EEXIST)
            return 0;
        int rc = err_errno(err, num, "cannot make the %s directory %s", what, path);
        if (num == ENOENT)
            err_hint(err, "make the directory that it lies in first");
        return rc;
    }
    cleanup_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    cleanup_fd int parent = fd < 0 ? -1 : openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0 || fsync(parent) < 0)
        return err_errno(err, errno, "cannot make the %s directory %s", what, path);
    return 0;
}

int node_dir_open(const char *path, const char *what, const char *marker, const char **ret_path,
                  struct err *err)
{
    if (!path || path[0] != '/')
        return err_fail(err, ERR_INVALID, "the %s directory '%s' is not an absolute path", what,
                        path ? path : "");
    int rc = make(path, what, err);
    if (rc < 0)
        return rc;
    cleanup_free char *real = realpath(path, NULL);
    if (!real)
        return err_errno(err, errno, "cannot resolve the %s directory %s", what, path);
    cleanup_fd int fd = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_errno(err, errno, "cannot open the %s directory %s", what, path);
    rc = check_owner(fd, path, what, err);
    if (rc == 0 && !has_file(fd, marker))
        rc = check_empty(fd, path, what, err);
    if (rc < 0)
        return rc;
    *ret_path = steal_ptr(real);
    return steal_fd(&fd);
}

int node_dir_protect(int dir_fd, const char *path, struct err *err)
{
    struct stat st;
    if (fstat(dir_fd, &st) < 0)
        return err_errno(err, errno, "cannot stat %s", path);
    if ((st.st_mode & 07777) == 0700)
        return 0;
    if (fchmod(dir_fd, 0700) < 0)
        return err_errno(err, errno, "cannot take rights of others on %s away", path);
    return 0;
}

static int mount_id(int fd, uint64_t *ret)
{
    struct statx stx;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &stx) < 0)
        return -errno;
    *ret = stx.stx_mnt_id;
    return 0;
}

int node_dir_sub(int dir_fd, const char *path, const char *name, struct err *err)
{
    cleanup_fd int fd = fdio_open_dir(dir_fd, name, 0700, NULL);
    if (fd < 0) {
        bool link = fd == -ELOOP || fd == -ENOTDIR;
        int rc = link ? err_fail(err, ERR_INVALID, "%s/%s is not a directory", path, name)
                      : err_errno(err, fd, "cannot make or open the directory %s/%s", path, name);
        if (link)
            err_hint(err, "a symbolic link is not followed there; mount the place instead");
        return rc;
    }
    uint64_t parent;
    uint64_t sub;
    int rc = mount_id(dir_fd, &parent);
    if (rc == 0)
        rc = mount_id(fd, &sub);
    if (rc < 0)
        return err_errno(err, rc, "cannot stat %s/%s", path, name);
    if (parent != sub)
        return err_fail(err, ERR_INVALID,
                        "%s/%s is a mount of its own, so nothing can be renamed "
                        "into it from %s",
                        path, name, path);
    return steal_fd(&fd);
}

static int check_format(int data_fd, const char *path, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(4096);
    cleanup_json json_t *json = NULL;
    int64_t format;
    int rc = fdio_read_file(data_fd, "format", &text, err);
    if (rc == 0)
        rc = json_doc_parse(buf_str(&text), text.len, "format", &json, err);
    if (rc == 0)
        rc = json_doc_get_int(json, "format", "format", &format, err);
    if (rc < 0)
        return rc;
    if (format < 1)
        return err_fail(err, ERR_DAMAGED, "the format %jd of %s does not exist", (intmax_t)format,
                        path);
    if (format > NODE_FORMAT) {
        rc = err_fail(err, ERR_TOO_NEW, "%s has format %jd, this varve knows up to %d", path,
                      (intmax_t)format, NODE_FORMAT);
        err_hint(err, "start the varve that wrote it, or a newer one");
        return rc;
    }
    return 0;
}

int node_dir_format(int data_fd, const char *path, struct err *err)
{
    if (has_file(data_fd, "format")) {
        int rc = check_format(data_fd, path, err);
        return rc < 0 ? err_wrap(err, rc, "cannot use the data directory %s", path) : 0;
    }
    char text[32];
    int len = snprintf(text, sizeof text, "{\"format\":%d}\n", NODE_FORMAT);
    int rc = publish_bytes(data_fd, "format", text, (size_t)len, 0600, PUBLISH_NOREPLACE, err);
    return rc < 0 ? err_wrap(err, rc, "cannot prepare the data directory %s", path) : 0;
}

static off_t file_size(int data_fd, const char *name)
{
    struct stat st;
    return fstatat(data_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_size : 0;
}

/* Whether a folder has an entry, other than one under a temporary name. */
static bool holds_things(int data_fd, const char *folder)
{
    cleanup_dir DIR *dir = fdio_list(data_fd, folder);
    if (!dir)
        return false;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.')
            return true;
    return false;
}

int node_dir_check_catalog(int data_fd, const char *path, struct err *err)
{
    static const char *const folders[] = {"runs", "layers", "volumes", "layout/blobs/sha256"};
    /* A first start that was killed may have left everything in the log. */
    if (file_size(data_fd, "catalog.db") > 0 || file_size(data_fd, "catalog.db-wal") > 0)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        if (!holds_things(data_fd, folders[i]))
            continue;
        int rc = err_fail(err, ERR_DAMAGED, "%s/catalog.db is missing or empty, but %s/%s is not",
                          path, path, folders[i]);
        err_hint(err, "put a backup of the catalog back, or start with another data directory");
        return rc;
    }
    return 0;
}
