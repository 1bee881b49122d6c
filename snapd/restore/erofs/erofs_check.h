/* erofs_check.h - looks at a whole image before the kernel mounts it.
 *
 * The program that wrote the image has read a hostile archive; should one have taken it over, then
 * what it left behind must still be an image that harms neither the kernel nor whoever walks the
 * mounted tree. Checked, from the root on, once per inode:
 *
 *   - every structure lies inside the image, and nothing is a feature that we do not write
 *     (erofs_reader.h)
 *   - directories: names legal, not empty, at most 255 bytes, in strictly ascending order over all
 *     blocks; "." and ".." there once and right; the type in each entry is the inode's; every
 *     directory has one name only (so there is no cycle); depth at most EROFS_CHECK_DEPTH_MAX
 *   - link counts are the number of names (directories: 2 and one per subdirectory), but for
 *     whiteouts (character device 0:0), which may be one inode with any count but 0
 *   - links have 1 to 4095 bytes without NUL, inline ones in the block where their inode ends, as
 *     older kernels demand; file modes have a known type; owners are not 2^32-1; nanoseconds are
 *     below 10^9
 *   - data of files: blocks inside the image, behind the superblock
 *   - attributes: known prefixes, legal names, no name twice, together not more than listxattr()
 *     can give; only what a layer may have (erofs_check_xattr.h), of overlayfs's own only
 *     trusted.overlay.opaque="y", on directories
 *   - inodes, attributes, directories, chunk maps and data claim no more bytes than the image has
 *   - the number of inodes is what the superblock says, within the limits
 *
 * Memory is bounded by the number of inodes (15 bytes each, 24 more for each directory that waits),
 * time by the bytes of names and metadata; the data of files is not read. The bytes claimed bound
 * the time also when an image makes its structures overlap.
 */
#pragma once

#include "erofs_reader.h"

enum {
    EROFS_CHECK_DEPTH_MAX = 1100, /* directories; archives may hold 1024 (convert_path.h) */
};

struct erofs_check_result {
    uint64_t inodes;
    uint64_t names;
};

/* ERR_DAMAGED says which inode and what is wrong with it; ERR_TOO_LARGE above `inodes_max`. */
int erofs_check(const struct erofs_image *image, uint64_t inodes_max,
                struct erofs_check_result *ret, struct err *err);
