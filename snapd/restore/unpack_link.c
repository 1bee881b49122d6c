#include "unpack_link.h"

#include "path_text.h"
#include "unpack_file.h"

#include <fcntl.h>
#include <string.h>

static int refuse(const struct unpack_member *member, const char *why, struct err *err)
{
    return err_fail(err, ERR_DAMAGED, "cannot make %s a hard link to %s: %s",
                    path_text(member->path).s, path_text(member->target).s, why);
}

/* Links within the layer. What is at the name already goes, unless it is that very inode. */
static int link_here(struct unpack_tree *tree, const struct unpack_member *member,
                     const struct unpack_found *found, struct err *err)
{
    const char *name = unpack_path_base(member->path);
    if (linkat(found->dir_fd, found->name, tree->dir_fd, name, 0) == 0)
        return 0;
    if (errno == EEXIST) {
        struct stat st;
        if (fstatat(tree->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            st.st_ino == found->st.st_ino && st.st_dev == found->st.st_dev)
            return 0;
        int rc = unpack_tree_remove(tree, member->path, err);
        if (rc < 0)
            return rc;
        if (linkat(found->dir_fd, found->name, tree->dir_fd, name, 0) == 0)
            return 0;
    }
    return err_errno(err, errno, "cannot make %s a hard link to %s", path_text(member->path).s,
                     path_text(member->target).s);
}

/* Describes the inode of a lower layer as a member of its own. `target` has room for a link's. */
static int describe(const struct unpack_member *member, const struct unpack_found *found,
                    char target[UNPACK_PATH_MAX], struct unpack_member *ret, struct err *err)
{
    struct unpack_member copy = {
        .path = member->path, .rdev = found->st.st_rdev, .size = (uint64_t)found->st.st_size};
    if (S_ISREG(found->st.st_mode)) {
        copy.type = UNPACK_FILE;
    } else if (S_ISLNK(found->st.st_mode)) {
        copy.type = UNPACK_SYMLINK;
        ssize_t n = readlinkat(found->dir_fd, found->name, target, UNPACK_PATH_MAX - 1);
        if (n < 0)
            return err_errno(err, errno, "cannot read link %s of a lower layer",
                             path_text(member->target).s);
        target[n] = '\0';
        copy.target = target;
    } else if (S_ISFIFO(found->st.st_mode)) {
        copy.type = UNPACK_FIFO;
    } else if (S_ISCHR(found->st.st_mode) || S_ISBLK(found->st.st_mode)) {
        copy.type = S_ISCHR(found->st.st_mode) ? UNPACK_CHAR : UNPACK_BLOCK;
    } else {
        return refuse(member, "a lower layer has a socket there", err);
    }
    int rc = unpack_attr_read(found->dir_fd, found->name, &found->st, &copy.attr, err);
    if (rc == 0)
        *ret = copy;
    return rc;
}

static int copy_lower(struct unpack_tree *tree, const struct unpack_member *member,
                      const struct unpack_found *found, struct err *err)
{
    char target[UNPACK_PATH_MAX];
    struct unpack_member copy;
    int rc = describe(member, found, target, &copy, err);
    if (rc < 0)
        return rc;
    cleanup_fd int from = -1;
    struct unpack_copy source = UNPACK_COPY_INIT;
    if (copy.type == UNPACK_FILE) {
        from = openat(found->dir_fd, found->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        rc = from < 0 ? err_errno(err, errno, "cannot open %s in a lower layer",
                                  path_text(member->target).s)
                      : unpack_copy_open(from, &source, err);
    }
    if (rc == 0)
        rc = unpack_entry(tree, &copy, unpack_copy_next, &source, err);
    unpack_copy_close(&source);
    unpack_attr_free(&copy.attr);
    return rc;
}

int unpack_link(struct unpack_tree *tree, const struct unpack_member *member, struct err *err)
{
    if (strcmp(member->path, member->target) == 0)
        return refuse(member, "that is its own name", err);
    if (unpack_path_is_within(member->target, member->path))
        return refuse(member, "the target lies below it", err);
    cleanup_unpack_found struct unpack_found found = UNPACK_FOUND_INIT;
    int rc = unpack_lower_find(tree->roots, tree->root_count, member->target, &found, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot make hard link %s", path_text(member->path).s);
    if (rc == 0)
        return refuse(member,
                      tree->is_layer
                          ? "neither the archive up to here nor a lower layer has the target"
                          : "the archive up to here does not have the target",
                      err);
    if (S_ISDIR(found.st.st_mode))
        return refuse(member, "the target is a directory", err);
    return found.layer == 0 ? link_here(tree, member, &found, err)
                            : copy_lower(tree, member, &found, err);
}
