/* convert_attr.h - owner, mode, time and extended attributes of one inode.
 *
 * Which extended attributes of an archive are taken over (convert_attr_is_wanted):
 *   user.*                      yes; user.overlay.* too, which means nothing to mounts without
 *                               userxattr, as ours are, and is kept as data by capture
 *   trusted.*                   yes, but trusted.overlay.* and trusted.varve.*: a layer must not
 *                               write overlayfs's notes, or ours
 *   security.*                  yes (file capabilities), but the labels that this host's security
 *                               modules give: selinux, apparmor, SMACK64*, ima, evm
 *   system.posix_acl_access,    yes (convert_acl.h)
 *   system.posix_acl_default
 *   others                      no: other systems' (com.apple..., access lists of NFSv4), or made
 * by a file system itself What is left out is listed. What is wanted and what Linux would not show
 * of a mounted image, or would fail over, is refused with the attribute's name: attributes of users
 * on what is neither file nor directory, values of more than 65,535 bytes, lists of names beyond 64
 * KiB, malformed capabilities.
 */
#pragma once

#include "cleanup.h"
#include "erofs_writer.h"
#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    CONVERT_ATTR_VALUE_MAX = 65536, /* bytes, the kernel's limit; the image holds one less */
    CONVERT_ATTR_NAME_MAX = 255,
    CONVERT_ATTR_XATTRS_MAX = 4096,       /* of one inode */
    CONVERT_ATTR_NAMES_BYTES_MAX = 65536, /* what listxattr(2) can give */
};

struct convert_attr {
    uint32_t uid;
    uint32_t gid;
    uint16_t perm; /* 07777 */
    int64_t mtime;
    uint32_t mtime_ns;
    /* Owned array, sorted by name; each name is the beginning of an owned allocation that holds the
     * value too. */
    struct erofs_xattr *xattrs;
    size_t xattr_count;
    size_t xattr_cap;
};

void convert_attr_free(struct convert_attr *attr);
#define cleanup_convert_attr cleanup_with(convert_attr_free)

bool convert_attr_is_wanted(const char *name);

/* Adds an extended attribute unless there is one with this name: libarchive lists the newest record
 * first, and that one counts. Copies name and value. */
int convert_attr_add(struct convert_attr *attr, const char *name, const void *value, size_t size,
                     struct err *err);
/* NULL when there is none of this name; borrowed. */
const struct erofs_xattr *convert_attr_find(const struct convert_attr *attr, const char *name);
/* No failure when there is none. */
void convert_attr_remove(struct convert_attr *attr, const char *name);

/* Whether an inode of this type (S_IFMT) can have them, after an archive was read. */
int convert_attr_check(const struct convert_attr *attr, mode_t type, struct err *err);

/* The same for the writer; borrows from `attr`. */
struct erofs_attr convert_attr_erofs(const struct convert_attr *attr);
