/* convert_acl.h - POSIX ACLs.
 *
 * An archive has them as text (SCHILY.acl.access, SCHILY.acl.default) or as the attributes
 * themselves. Text becomes the kernel's own form, the extended attributes system.posix_acl_access
 * and system.posix_acl_default (linux/posix_acl_xattr.h: version 2, entries of tag, permissions and
 * ID, little endian, sorted). An archive that has those attributes itself keeps them.
 *
 * A file system that is written to checks a list and makes the mode agree with it. Nobody does so
 * for an image, so it is done here, by the same rules: a list that is none is ERR_DAMAGED, the
 * permission bits follow the access list, an access list that says no more than the mode is left
 * out, and so is an empty one.
 */
#pragma once

#include "convert_attr.h"

struct archive_entry;

enum {
    CONVERT_ACL_ENTRIES_MAX = 4096, /* 8 bytes each; more do not fit an attribute's 64 KiB by far */
};

/* Adds the ACLs that an entry has as text to `attr`. ERR_DAMAGED for one that is none. */
int convert_acl_add(struct archive_entry *entry, struct convert_attr *attr, struct err *err);
/* Checks the ACLs of `attr` and makes its mode agree with them. */
int convert_acl_settle(struct convert_attr *attr, struct err *err);
