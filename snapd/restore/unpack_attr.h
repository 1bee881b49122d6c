/* unpack_attr.h - owner, mode, extended attributes and times of what is made.
 *
 * Order matters: chown clears setuid bits and file capabilities, chmod changes an ACL's mask,
 * everything changes times; so owner, mode, extended attributes, times. The access time becomes the
 * modification time, as layers have none.
 *
 * Which extended attributes of an archive are set (unpack_attr_is_wanted):
 *   user.*                      yes; user.overlay.* too, which means nothing to mounts without
 *                               userxattr, as ours are, and is kept as data by capture
 *   trusted.*                   yes, but trusted.overlay.*: a layer must not write overlayfs's own
 *                               notes
 *   security.*                  yes (file capabilities), but the labels that this host's security
 *                               modules give: selinux, apparmor, SMACK64*, ima, evm
 *   system.posix_acl_access,    yes
 *   system.posix_acl_default
 *   others                      no: other systems' (com.apple...), or made by a file system itself
 * What is left out is counted; what is wanted and cannot be set is a failure that names it.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <time.h>

enum {
    UNPACK_ATTR_VALUE_MAX = 65536, /* bytes, the kernel's limit */
    UNPACK_ATTR_NAME_MAX = 255,
    UNPACK_ATTR_XATTRS_MAX = 4096, /* of one inode */
};

struct unpack_xattr {
    char *name;
    void *value;
    size_t size;
};

struct unpack_attr {
    uid_t uid;
    gid_t gid;
    mode_t perm; /* 07777 */
    struct timespec mtime;
    struct unpack_xattr *xattrs; /* owned array of owned names and values */
    size_t xattr_count;
    bool has_default_acl;
};

void unpack_attr_free(struct unpack_attr *attr);
#define cleanup_unpack_attr cleanup_with(unpack_attr_free)

bool unpack_attr_is_wanted(const char *name);

/* Adds an extended attribute, or replaces the one with this name. Copies both. */
int unpack_attr_add(struct unpack_attr *attr, const char *name, const void *value, size_t size,
                    struct err *err);

/* The attributes of `name` in `dir_fd`, which is described by `st`, without following it. */
int unpack_attr_read(int dir_fd, const char *name, const struct stat *st, struct unpack_attr *ret,
                     struct err *err);

/* An inode that is being made. */
struct unpack_inode {
    int fd;     /* open on it, or -1 for what is not opened (links, devices) */
    int dir_fd; /* its directory and name; used when fd is -1 */
    const char *name;
    bool is_link;  /* a symbolic link has no mode */
    bool has_mode; /* it was made with the right mode and owner: skip both */
    bool replaces; /* a directory that had attributes before: they go */
    bool inherits; /* its parent has a default ACL, which the kernel has applied to it */
};

/* Sets everything. `path` is for messages. */
int unpack_attr_apply(const struct unpack_attr *attr, const struct unpack_inode *inode,
                      const char *path, struct err *err);
