/* unpack_acl.h - POSIX ACLs that an archive has as text (SCHILY.acl.access, SCHILY.acl.default).
 *
 * They become the kernel's own form, the extended attributes system.posix_acl_access and
 * system.posix_acl_default (linux/posix_acl_xattr.h: version 2, entries of tag, permissions and ID,
 * little endian, sorted). An archive that has those attributes itself keeps them.
 */
#pragma once

#include "unpack_attr.h"

struct archive_entry;

enum {
    UNPACK_ACL_ENTRIES_MAX = 4096, /* 8 bytes each; more do not fit an attribute's 64 KiB by far */
};

/* Adds the ACLs of an entry to `attr`. ERR_DAMAGED for one that is none. */
int unpack_acl_add(struct archive_entry *entry, struct unpack_attr *attr, struct err *err);
