#include "unpack_attr.h"

#include "cleanup.h"
#include "path_text.h"

#include <fcntl.h>
#include <string.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

static const char acl_access[] = "system.posix_acl_access";
static const char acl_default[] = "system.posix_acl_default";

static bool begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool unpack_attr_is_wanted(const char *name)
{
    static const char *const refused[] = {
        "trusted.overlay.", "security.selinux", "security.apparmor",
        "security.SMACK64", "security.ima",     "security.evm",
    };
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        if (begins_with(name, refused[i]))
            return false;
    return begins_with(name, "user.") || begins_with(name, "trusted.") ||
           begins_with(name, "security.") || strcmp(name, acl_access) == 0 ||
           strcmp(name, acl_default) == 0;
}

static void xattr_clear(struct unpack_xattr *xattr)
{
    free(xattr->name);
    free(xattr->value);
    *xattr = (struct unpack_xattr){.name = NULL};
}

void unpack_attr_free(struct unpack_attr *attr)
{
    for (size_t i = 0; i < attr->xattr_count; i++)
        xattr_clear(&attr->xattrs[i]);
    free(attr->xattrs);
    *attr = (struct unpack_attr){.xattrs = NULL};
}

/* The place for an attribute: that of the same name, or a new one at the end. */
static struct unpack_xattr *xattr_slot(struct unpack_attr *attr, const char *name)
{
    for (size_t i = 0; i < attr->xattr_count; i++)
        if (strcmp(attr->xattrs[i].name, name) == 0)
            return &attr->xattrs[i];
    if (attr->xattr_count % 8 == 0) {
        struct unpack_xattr *more =
            realloc(attr->xattrs, (attr->xattr_count + 8) * sizeof *attr->xattrs);
        if (!more)
            return NULL;
        attr->xattrs = more;
    }
    attr->xattrs[attr->xattr_count] = (struct unpack_xattr){.name = NULL};
    return &attr->xattrs[attr->xattr_count++];
}

int unpack_attr_add(struct unpack_attr *attr, const char *name, const void *value, size_t size,
                    struct err *err)
{
    if (strlen(name) > UNPACK_ATTR_NAME_MAX || size > UNPACK_ATTR_VALUE_MAX)
        return err_fail(err, ERR_TOO_LARGE, "extended attribute %.64s of %zu bytes is too large",
                        path_text(name).s, size);
    if (attr->xattr_count >= UNPACK_ATTR_XATTRS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "more than %d extended attributes on one file",
                        UNPACK_ATTR_XATTRS_MAX);
    struct unpack_xattr xattr = {
        .name = strdup(name), .value = malloc(size > 0 ? size : 1), .size = size};
    struct unpack_xattr *slot = xattr.name && xattr.value ? xattr_slot(attr, name) : NULL;
    if (!slot) {
        xattr_clear(&xattr);
        return err_errno(err, ENOMEM, "cannot keep an extended attribute");
    }
    if (size > 0)
        memcpy(xattr.value, value, size);
    xattr_clear(slot);
    *slot = xattr;
    if (strcmp(name, acl_default) == 0)
        attr->has_default_acl = true;
    return 0;
}

/* Reads by name: the working directory becomes `dir_fd`, as these calls have no *at form. */
static int read_xattrs(int dir_fd, const char *name, struct unpack_attr *attr, struct err *err)
{
    if (fchdir(dir_fd) < 0)
        return err_errno(err, errno, "cannot enter a directory of a lower layer");
    cleanup_free char *names = malloc(XATTR_LIST_MAX);
    cleanup_free char *value = malloc(UNPACK_ATTR_VALUE_MAX);
    if (!names || !value)
        return err_errno(err, ENOMEM, "cannot read extended attributes");
    ssize_t len = llistxattr(name, names, XATTR_LIST_MAX);
    if (len < 0 && errno == EOPNOTSUPP)
        return 0;
    if (len < 0)
        return err_errno(err, errno, "cannot list extended attributes of a lower layer");
    for (const char *at = names; at < names + len; at += strlen(at) + 1) {
        if (!unpack_attr_is_wanted(at))
            continue;
        ssize_t size = lgetxattr(name, at, value, UNPACK_ATTR_VALUE_MAX);
        if (size < 0)
            return err_errno(err, errno, "cannot read extended attribute %s of a lower layer", at);
        int rc = unpack_attr_add(attr, at, value, (size_t)size, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int unpack_attr_read(int dir_fd, const char *name, const struct stat *st, struct unpack_attr *ret,
                     struct err *err)
{
    cleanup_unpack_attr struct unpack_attr attr = {
        .uid = st->st_uid,
        .gid = st->st_gid,
        .perm = st->st_mode & 07777,
        .mtime = st->st_mtim,
    };
    int rc = read_xattrs(dir_fd, name, &attr, err);
    if (rc < 0)
        return rc;
    *ret = attr;
    attr = (struct unpack_attr){.xattrs = NULL};
    return 0;
}

static int set_owner_and_mode(const struct unpack_attr *attr, const struct unpack_inode *inode)
{
    if (inode->fd >= 0) {
        if (fchown(inode->fd, attr->uid, attr->gid) < 0 || fchmod(inode->fd, attr->perm) < 0)
            return -errno;
        return 0;
    }
    if (fchownat(inode->dir_fd, inode->name, attr->uid, attr->gid, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!inode->is_link && fchmodat(inode->dir_fd, inode->name, attr->perm, 0) < 0)
        return -errno;
    return 0;
}

static int xattr_set(const struct unpack_inode *inode, const struct unpack_xattr *xattr)
{
    if (inode->fd >= 0)
        return fsetxattr(inode->fd, xattr->name, xattr->value, xattr->size, 0) < 0 ? -errno : 0;
    if (fchdir(inode->dir_fd) < 0)
        return -errno;
    return lsetxattr(inode->name, xattr->name, xattr->value, xattr->size, 0) < 0 ? -errno : 0;
}

static int xattr_remove(const struct unpack_inode *inode, const char *name)
{
    if (inode->fd >= 0)
        return fremovexattr(inode->fd, name) < 0 ? -errno : 0;
    if (fchdir(inode->dir_fd) < 0)
        return -errno;
    return lremovexattr(inode->name, name) < 0 ? -errno : 0;
}

/* A full disk and an inode whose attributes have no more room give the same errno. */
static bool disk_is_full(const struct unpack_inode *inode)
{
    struct statfs fs;
    return fstatfs(inode->fd >= 0 ? inode->fd : inode->dir_fd, &fs) < 0 || fs.f_bavail == 0;
}

static int xattr_failed(int num, const struct unpack_inode *inode, const struct unpack_xattr *xattr,
                        const char *path, struct err *err)
{
    bool unfit = num == -EOPNOTSUPP || num == -E2BIG || num == -EPERM || num == -ERANGE ||
                 (num == -ENOSPC && !disk_is_full(inode));
    if (!unfit)
        return err_errno(err, num, "cannot set extended attribute %s of %s",
                         path_text(xattr->name).s, path_text(path).s);
    int rc = err_fail(err, ERR_UNSUPPORTED,
                      "the file system of the data directory cannot hold extended attribute %s "
                      "(%zu bytes) of %s: %s",
                      path_text(xattr->name).s, xattr->size, path_text(path).s, strerror(-num));
    err_hint(err,
             "use a data directory on ext4 (with ea_inode for large attributes), xfs or btrfs");
    return rc;
}

static int remove_old(const struct unpack_inode *inode, const char *path, struct err *err)
{
    cleanup_free char *names = malloc(XATTR_LIST_MAX);
    if (!names)
        return err_errno(err, ENOMEM, "cannot replace extended attributes");
    ssize_t len = flistxattr(inode->fd, names, XATTR_LIST_MAX);
    if (len < 0 && errno == EOPNOTSUPP)
        return 0;
    if (len < 0)
        return err_errno(err, errno, "cannot list extended attributes of %s", path_text(path).s);
    for (const char *at = names; at < names + len; at += strlen(at) + 1) {
        int rc = unpack_attr_is_wanted(at) ? xattr_remove(inode, at) : 0;
        if (rc < 0 && rc != -ENODATA)
            return err_errno(err, rc, "cannot remove extended attribute %s of %s", path_text(at).s,
                             path_text(path).s);
    }
    return 0;
}

/* Takes away what the kernel copied from the parent's default ACL. */
static void remove_inherited(const struct unpack_inode *inode)
{
    if (inode->is_link)
        return;
    (void)xattr_remove(inode, acl_access);
    (void)xattr_remove(inode, acl_default);
}

int unpack_attr_apply(const struct unpack_attr *attr, const struct unpack_inode *inode,
                      const char *path, struct err *err)
{
    if (inode->replaces) {
        int rc = remove_old(inode, path, err);
        if (rc < 0)
            return rc;
    } else if (inode->inherits) {
        remove_inherited(inode);
    }
    if (!inode->has_mode || inode->inherits) {
        int rc = set_owner_and_mode(attr, inode);
        if (rc < 0)
            return err_errno(err, rc, "cannot set owner and mode of %s", path_text(path).s);
    }
    for (size_t i = 0; i < attr->xattr_count; i++) {
        int rc = xattr_set(inode, &attr->xattrs[i]);
        if (rc < 0)
            return xattr_failed(rc, inode, &attr->xattrs[i], path, err);
    }
    const struct timespec times[2] = {attr->mtime, attr->mtime};
    int rc = inode->fd >= 0 ? futimens(inode->fd, times)
                            : utimensat(inode->dir_fd, inode->name, times, AT_SYMLINK_NOFOLLOW);
    if (rc < 0)
        return err_errno(err, errno, "cannot set the times of %s", path_text(path).s);
    return 0;
}
