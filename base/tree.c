#include "tree.h"

#include "cleanup.h"
#include "publish.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

/* How it works: the tree is flattened while it is removed. A non-empty directory two levels down
 * is renamed into the top directory under a temporary name, so that no walk is ever deeper than
 * two levels, whatever the depth of the tree. */

static int mount_id(int fd, uint64_t *ret)
{
    struct statx stx;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &stx) < 0)
        return -errno;
    *ret = stx.stx_mnt_id;
    return 0;
}

/* Opens a directory that must be on the mount `mnt`. Returns a descriptor or -errno. */
static int open_on_mount(int dir_fd, const char *name, uint64_t mnt, struct err *err)
{
    cleanup_fd int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_errno(err, errno, "cannot open directory %s for removal", name);
    uint64_t have;
    int rc = mount_id(fd, &have);
    if (rc < 0)
        return err_errno(err, rc, "cannot stat directory %s for removal", name);
    if (have != mnt)
        return err_fail(err, ERR_CONFLICT, "%s is a mount point and is not removed", name);
    return steal_fd(&fd);
}

/* Removes one entry, unless it is a directory that is not empty. Returns 1 in that case. */
static int remove_entry(int dir_fd, const char *name, struct err *err)
{
    if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return err_errno(err, errno, "cannot remove %s", name);
    if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0)
        return 0;
    if (errno == ENOTEMPTY || errno == EEXIST)
        return 1;
    return err_errno(err, errno, "cannot remove directory %s", name);
}

/* Calls `fn` for every entry but "." and ".." of a directory, which it consumes. */
static int for_each_entry(int fd, int (*fn)(int dir_fd, const char *name, int top, struct err *err),
                          int top, struct err *err)
{
    cleanup_dir DIR *dir = fdopendir(fd);
    if (!dir) {
        int rc = err_errno(err, errno, "cannot list a directory for removal");
        close(fd);
        return rc;
    }
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry)
            return errno ? err_errno(err, errno, "cannot list a directory for removal") : 0;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        int rc = fn(dirfd(dir), entry->d_name, top, err);
        if (rc < 0)
            return rc;
    }
}

static int remove_or_lift(int dir_fd, const char *name, int top, struct err *err)
{
    int rc = remove_entry(dir_fd, name, err);
    if (rc != 1)
        return rc;
    char temp[32];
    rc = publish_temp_name(temp, err);
    if (rc < 0)
        return rc;
    if (renameat(dir_fd, name, top, temp) < 0)
        return err_errno(err, errno, "cannot move directory %s for removal", name);
    return 0;
}

static int remove_in_top(int dir_fd, const char *name, int top, struct err *err)
{
    int rc = remove_entry(dir_fd, name, err);
    if (rc != 1)
        return rc;
    uint64_t mnt;
    rc = mount_id(top, &mnt);
    if (rc < 0)
        return err_errno(err, rc, "cannot stat a directory for removal");
    int fd = open_on_mount(dir_fd, name, mnt, err);
    if (fd < 0)
        return fd;
    rc = for_each_entry(fd, remove_or_lift, top, err);
    if (rc < 0)
        return rc;
    rc = remove_entry(dir_fd, name, err);
    return rc < 0 ? rc : 0; /* 1: somebody added an entry meanwhile; the next round sees it */
}

int tree_remove(int dir_fd, const char *name, struct err *err)
{
    int rc = remove_entry(dir_fd, name, err);
    if (rc != 1)
        return rc;
    uint64_t mnt;
    rc = mount_id(dir_fd, &mnt);
    if (rc < 0)
        return err_errno(err, rc, "cannot stat the parent of %s", name);
    cleanup_fd int top = open_on_mount(dir_fd, name, mnt, err);
    if (top < 0)
        return top;
    for (;;) {
        int fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            return err_errno(err, errno, "cannot open directory %s for removal", name);
        rc = for_each_entry(fd, remove_in_top, top, err);
        if (rc < 0)
            return err_wrap(err, rc, "cannot remove %s", name);
        rc = remove_entry(dir_fd, name, err);
        if (rc != 1)
            return rc;
    }
}
