#include "unpack_entry.h"

#include "path_text.h"
#include "unpack_file.h"
#include "unpack_link.h"

#include <fcntl.h>
#include <string.h>

/* Calls `make` until the name is free: what an earlier member made is removed. Returns what `make`
 * returned, or -errno with err set. */
static int make_again(struct unpack_tree *tree, const struct unpack_member *member,
                      int (*make)(struct unpack_tree *, const struct unpack_member *),
                      struct err *err)
{
    int rc = make(tree, member);
    if (rc == -EEXIST) {
        rc = unpack_tree_remove(tree, member->path, err);
        if (rc < 0)
            return rc;
        rc = make(tree, member);
    }
    if (rc < 0)
        return err_errno(err, rc, "cannot make %s", path_text(member->path).s);
    return rc;
}

static int make_special(struct unpack_tree *tree, const struct unpack_member *member)
{
    const char *name = unpack_path_base(member->path);
    if (member->type == UNPACK_SYMLINK)
        return symlinkat(member->target, tree->dir_fd, name) < 0 ? -errno : 0;
    mode_t kind = S_IFIFO;
    if (member->type == UNPACK_CHAR)
        kind = S_IFCHR;
    else if (member->type == UNPACK_BLOCK)
        kind = S_IFBLK;
    mode_t mode = kind | (member->attr.perm & 0777);
    return mknodat(tree->dir_fd, name, mode, member->rdev) < 0 ? -errno : 0;
}

static int entry_special(struct unpack_tree *tree, const struct unpack_member *member,
                         struct err *err)
{
    int rc = make_again(tree, member, make_special, err);
    if (rc < 0)
        return rc;
    const struct unpack_inode inode = {
        .fd = -1,
        .dir_fd = tree->dir_fd,
        .name = unpack_path_base(member->path),
        .is_link = member->type == UNPACK_SYMLINK,
        .inherits = tree->dir_has_acl,
    };
    return unpack_attr_apply(&member->attr, &inode, member->path, err);
}

static int make_file(struct unpack_tree *tree, const struct unpack_member *member)
{
    int fd = openat(tree->dir_fd, unpack_path_base(member->path),
                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, member->attr.perm & 0777);
    return fd < 0 ? -errno : fd;
}

static int entry_file(struct unpack_tree *tree, const struct unpack_member *member,
                      unpack_source source, void *arg, struct err *err)
{
    cleanup_fd int fd = make_again(tree, member, make_file, err);
    if (fd < 0)
        return fd;
    int rc = unpack_file_write(tree, fd, member->size, source, arg, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot unpack %s", path_text(member->path).s);
    const struct unpack_attr *attr = &member->attr;
    const struct unpack_inode inode = {
        .fd = fd,
        .dir_fd = -1,
        /* The umask is 0, so a plain file of root was made right. */
        .has_mode =
            attr->uid == 0 && attr->gid == 0 && (attr->perm & 07000) == 0 && !tree->dir_sets_group,
        .inherits = tree->dir_has_acl,
    };
    return unpack_attr_apply(attr, &inode, member->path, err);
}

static int make_dir(struct unpack_tree *tree, const struct unpack_member *member)
{
    return mkdirat(tree->dir_fd, unpack_path_base(member->path), 0700) < 0 ? -errno : 0;
}

/* Opens or makes the directory of a member; *ret_was_there tells which. */
static int open_dir(struct unpack_tree *tree, const struct unpack_member *member,
                    bool *ret_was_there, struct err *err)
{
    const char *name = unpack_path_base(member->path);
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int rc = make_dir(tree, member);
    *ret_was_there = rc == -EEXIST;
    if (rc < 0 && rc != -EEXIST)
        return err_errno(err, rc, "cannot make directory %s", path_text(member->path).s);
    cleanup_fd int fd = openat(tree->dir_fd, name, flags);
    if (fd >= 0)
        return steal_fd(&fd);
    if (errno != ENOTDIR && errno != ELOOP)
        return err_errno(err, errno, "cannot open directory %s", path_text(member->path).s);
    rc = make_again(tree, member, make_dir, err);
    if (rc < 0)
        return rc;
    *ret_was_there = false;
    fd = openat(tree->dir_fd, name, flags);
    if (fd < 0)
        return err_errno(err, errno, "cannot open directory %s", path_text(member->path).s);
    rc = tree->is_layer ? unpack_tree_set_opaque(fd, member->path, err) : 0;
    return rc < 0 ? rc : steal_fd(&fd);
}

static int entry_dir(struct unpack_tree *tree, const struct unpack_member *member, struct err *err)
{
    bool was_there;
    cleanup_fd int fd = open_dir(tree, member, &was_there, err);
    if (fd < 0)
        return fd;
    const struct unpack_inode inode = {
        .fd = fd, .dir_fd = -1, .replaces = was_there, .inherits = tree->dir_has_acl};
    return unpack_attr_apply(&member->attr, &inode, member->path, err);
}

static int entry_root(struct unpack_tree *tree, const struct unpack_member *member, struct err *err)
{
    if (member->type != UNPACK_DIR)
        return err_fail(err, ERR_DAMAGED,
                        "the archive has an entry for its root that is not a directory");
    int rc = unpack_tree_leave(tree, err);
    if (rc < 0)
        return rc;
    const struct unpack_inode inode = {.fd = tree->roots[0], .dir_fd = -1, .replaces = true};
    return unpack_attr_apply(&member->attr, &inode, "", err);
}

int unpack_entry(struct unpack_tree *tree, const struct unpack_member *member, unpack_source source,
                 void *arg, struct err *err)
{
    tree->default_acls = tree->default_acls || member->attr.has_default_acl;
    if (member->path[0] == '\0')
        return entry_root(tree, member, err);
    int rc = unpack_tree_enter_parent(tree, member->path, err);
    if (rc < 0)
        return rc;
    switch (member->type) {
    case UNPACK_FILE:
        return entry_file(tree, member, source, arg, err);
    case UNPACK_DIR:
        return entry_dir(tree, member, err);
    case UNPACK_HARDLINK:
        return unpack_link(tree, member, err);
    default:
        return entry_special(tree, member, err);
    }
}
