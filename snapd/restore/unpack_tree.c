#include "unpack_tree.h"

#include "fdio.h"
#include "tree.h"

#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

enum {
    SPACE_CHECK_BYTES = 1 << 20, /* look at the free space after so many bytes */
    SPACE_RESERVE_MAX = 1 << 30, /* bytes left to everybody else */
    SPACE_RESERVE_PART = 20,     /* or this part of a small disk */
};

int unpack_tree_open_dir(const struct unpack_tree *tree, const char *path)
{
    return fdio_open_beneath(tree->roots[0], path[0] == '\0' ? "." : path,
                             O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
}

int unpack_tree_set_opaque(int fd, const char *path, struct err *err)
{
    if (fsetxattr(fd, "trusted.overlay.opaque", "y", 1, 0) < 0)
        return err_errno(err, errno, "cannot mark %s as opaque", path_text(path).s);
    return 0;
}

/* The look of a directory that the archive implies. */
static int implied_attr(const struct unpack_tree *tree, const char *path, struct unpack_attr *ret,
                        struct err *err)
{
    cleanup_unpack_found struct unpack_found found = UNPACK_FOUND_INIT;
    int rc = unpack_lower_find(tree->roots + 1, tree->root_count - 1, path, &found, err);
    if (rc < 0)
        return rc;
    if (rc == 1 && S_ISDIR(found.st.st_mode))
        return unpack_attr_read(found.dir_fd, found.name, &found.st, ret, err);
    *ret = (struct unpack_attr){.perm = 0755};
    return 0;
}

/* Gives the new directory `fd` the look of an implied one. */
static int dress_implied(struct unpack_tree *tree, int fd, const char *path, struct err *err)
{
    cleanup_unpack_attr struct unpack_attr attr = {.xattrs = NULL};
    int rc = implied_attr(tree, path, &attr, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot make directory %s", path_text(path).s);
    tree->default_acls = tree->default_acls || attr.has_default_acl;
    const struct unpack_inode inode = {.fd = fd, .dir_fd = -1, .replaces = true};
    return unpack_attr_apply(&attr, &inode, path, err);
}

int unpack_tree_open(struct unpack_tree *tree, struct err *err)
{
    tree->dir_fd = -1;
    return dress_implied(tree, tree->roots[0], "", err);
}

int unpack_tree_leave(struct unpack_tree *tree, struct err *err)
{
    if (tree->dir_fd < 0)
        return 0;
    int rc = futimens(tree->dir_fd, tree->dir_times) < 0
                 ? err_errno(err, errno, "cannot set the times of %s", path_text(tree->dir_path).s)
                 : 0;
    cleanup_fdp(&tree->dir_fd);
    tree->dir_fd = -1;
    return rc;
}

/* Takes `fd` over as the open parent. */
static int adopt(struct unpack_tree *tree, int fd, const char *path, struct err *err)
{
    cleanup_fd int dir_fd = fd;
    struct stat st;
    if (fstat(dir_fd, &st) < 0)
        return err_errno(err, errno, "cannot stat %s", path_text(path).s);
    tree->dir_times[0] = st.st_atim;
    tree->dir_times[1] = st.st_mtim;
    tree->dir_sets_group = (st.st_mode & S_ISGID) != 0;
    tree->dir_has_acl =
        tree->default_acls && fgetxattr(dir_fd, "system.posix_acl_default", NULL, 0) > 0;
    memcpy(tree->dir_path, path, strlen(path) + 1);
    tree->dir_fd = steal_fd(&dir_fd);
    return 0;
}

/* Makes the missing directory `path`, whose last component is `name` in `dir_fd`, and puts the
 * times of its parent back. Returns its descriptor. */
static int make_implied(struct unpack_tree *tree, int dir_fd, const char *name, const char *path,
                        struct err *err)
{
    struct stat st;
    if (fstat(dir_fd, &st) < 0 || mkdirat(dir_fd, name, 0700) < 0)
        return err_errno(err, errno, "cannot make directory %s", path_text(path).s);
    cleanup_fd int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot open directory %s", path_text(path).s);
    int rc = dress_implied(tree, fd, path, err);
    if (rc < 0)
        return rc;
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    if (futimens(dir_fd, times) < 0)
        return err_errno(err, errno, "cannot set the times of the parent of %s", path_text(path).s);
    return steal_fd(&fd);
}

/* One step of the slow way. */
static int step(struct unpack_tree *tree, int dir_fd, const char *name, const char *path,
                struct err *err)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        return fd;
    if (errno == ENOENT)
        return make_implied(tree, dir_fd, name, path, err);
    if (errno != ENOTDIR && errno != ELOOP)
        return err_errno(err, errno, "cannot open directory %s", path_text(path).s);
    return err_fail(err, ERR_DAMAGED, "%s is not a directory in this archive", path_text(path).s);
}

/* Component by component, making what is missing. Returns a descriptor. */
static int walk(struct unpack_tree *tree, const char *path, struct err *err)
{
    cleanup_fd int fd = openat(tree->roots[0], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot open the target directory");
    char so_far[UNPACK_PATH_MAX];
    for (const char *at = path; *at != '\0';) {
        size_t len = strcspn(at, "/");
        size_t whole = (size_t)(at - path) + len;
        memcpy(so_far, path, whole);
        so_far[whole] = '\0';
        int next = step(tree, fd, unpack_path_base(so_far), so_far, err);
        if (next < 0)
            return next;
        close(fd);
        fd = next;
        at += len + (at[len] == '/');
    }
    return steal_fd(&fd);
}

int unpack_tree_enter(struct unpack_tree *tree, const char *path, struct err *err)
{
    if (tree->dir_fd >= 0 && strcmp(tree->dir_path, path) == 0)
        return 0;
    int rc = unpack_tree_leave(tree, err);
    if (rc < 0)
        return rc;
    int fd = unpack_tree_open_dir(tree, path);
    if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
        fd = walk(tree, path, err);
    else if (fd < 0)
        return err_errno(err, fd, "cannot open directory %s", path_text(path).s);
    return fd < 0 ? fd : adopt(tree, fd, path, err);
}

int unpack_tree_enter_parent(struct unpack_tree *tree, const char *path, struct err *err)
{
    char parent[UNPACK_PATH_MAX];
    size_t len = unpack_path_parent_len(path);
    memcpy(parent, path, len);
    parent[len] = '\0';
    int rc = unpack_tree_enter(tree, parent, err);
    return rc < 0 ? err_wrap(err, rc, "cannot unpack %s", path_text(path).s) : 0;
}

int unpack_tree_remove(struct unpack_tree *tree, const char *path, struct err *err)
{
    int rc = tree_remove(tree->dir_fd, unpack_path_base(path), err);
    return rc < 0 ? err_wrap(err, rc, "cannot replace %s", path_text(path).s) : 0;
}

int unpack_tree_account(struct unpack_tree *tree, uint64_t bytes, struct err *err)
{
    tree->bytes += bytes;
    if (tree->bytes > tree->bytes_max)
        return err_fail(err, ERR_TOO_LARGE, "the archive holds more than %llu bytes of data",
                        (unsigned long long)tree->bytes_max);
    if (tree->bytes - tree->bytes_checked < SPACE_CHECK_BYTES)
        return 0;
    tree->bytes_checked = tree->bytes;
    struct statvfs fs;
    if (fstatvfs(tree->roots[0], &fs) < 0)
        return err_errno(err, errno, "cannot read the free space");
    uint64_t reserve = (uint64_t)fs.f_blocks * fs.f_frsize / SPACE_RESERVE_PART;
    if (reserve > SPACE_RESERVE_MAX)
        reserve = SPACE_RESERVE_MAX;
    if ((uint64_t)fs.f_bavail * fs.f_frsize >= reserve)
        return 0;
    int rc = err_fail(err, ERR_NO_SPACE,
                      "unpacking stopped: the disk of the data directory has only %llu MiB left",
                      (unsigned long long)((uint64_t)fs.f_bavail * fs.f_frsize >> 20));
    err_hint(err, "free some space and try again");
    return rc;
}
