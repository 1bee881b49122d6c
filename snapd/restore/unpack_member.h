/* unpack_member.h - what libarchive says about a member, checked and in our own terms.
 *
 * Refused by name: owners that are no 32-bit IDs, device numbers beyond Linux's, 0:0 character
 * devices (overlayfs would take them for whiteouts), sockets, links without a target, files that
 * are larger than UNPACK_FILE_MAX.
 */
#pragma once

#include "unpack_entry.h"

struct archive_entry;

#define UNPACK_FILE_MAX (UINT64_C(1) << 43) /* bytes, holes included: 8 TiB */

/* Storage for what a member points to. */
struct unpack_member_store {
    char target[UNPACK_PATH_MAX];
};

/* Describes the member at `path`. Attributes that are left out are counted in the tree. The caller
 * frees ret->attr. */
int unpack_member_read(struct unpack_tree *tree, struct archive_entry *entry, const char *path,
                       struct unpack_member_store *store, struct unpack_member *ret,
                       struct err *err);
