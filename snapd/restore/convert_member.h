/* convert_member.h - what libarchive says about a member, checked and in our own terms.
 *
 * Refused by name: owners that are no 32-bit IDs, device numbers beyond Linux's, 0:0 character
 * devices (overlayfs would take them for whiteouts), sockets, links without a target, files that
 * are larger than CONVERT_FILE_MAX, and attributes that Linux would not take (convert_attr.h,
 * convert_acl.h).
 */
#pragma once

#include "convert.h"
#include "convert_entry.h"
#include "path_text.h"

struct archive_entry;

#define CONVERT_FILE_MAX (UINT64_C(1) << 43) /* bytes, holes included: 8 TiB */

/* Storage for what a member points to. */
struct convert_member_store {
    char target[CONVERT_PATH_MAX];
};

/* The extended attributes that were left out. */
struct convert_dropped {
    uint64_t count;
    size_t text_len;
    char text[CONVERT_DROPPED_MAX * 2 * PATH_TEXT_MAX]; /* the first ones, a line each */
};

/* Describes the member at `path`. The caller frees ret->attr. */
int convert_member_read(struct archive_entry *entry, const char *path,
                        struct convert_member_store *store, struct convert_dropped *dropped,
                        struct convert_member *ret, struct err *err);
