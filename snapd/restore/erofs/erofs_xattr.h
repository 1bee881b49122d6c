/* erofs_xattr.h - extended attributes as an image holds them.
 *
 * An attribute goes into the table of shared ones, once for all inodes that have it, and inodes
 * refer to it. The table waits in memory until the image's end and is bounded; what has no room in
 * it, and what an inode has above EROFS_XATTR_SHARED_MAX, lies behind the inode itself. Inodes of
 * files get half of the table, so that there is room left for directories, whose attributes
 * can change until the end and thus must all be in it.
 *
 * Attributes are put in the order of prefix and name.
 *
 * An internal header of this library.
 */
#pragma once

#include "erofs_hash.h"
#include "erofs_writer.h"

enum {
    EROFS_XATTR_SHARED_MAX = 255, /* of one inode; a count of one byte */
};

struct erofs_xattr_item;

struct erofs_xattr_table {
    uint64_t max; /* bytes that the table, its index and the sets of directories may take */
    uint64_t used;
    uint8_t *bytes; /* owned; entries of the format, each at a multiple of 4 */
    size_t len;
    size_t cap;
    uint32_t *slots; /* owned; hash table of offset / 4 + 1; 0 is free */
    size_t slot_count;
    size_t entries;
    struct erofs_hash_key key;
    struct erofs_xattr_item *items; /* owned; room for those of one inode */
    size_t item_cap;
};

void erofs_xattr_init(struct erofs_xattr_table *table, uint64_t max);
void erofs_xattr_free(struct erofs_xattr_table *table);

/* What stands behind an inode: nothing, or a header, references and attributes. */
struct erofs_xattr_body {
    uint8_t *bytes; /* owned */
    size_t len;
    size_t cap;
};
void erofs_xattr_body_free(struct erofs_xattr_body *body);

/* The attributes of a file, a link or a device. ERR_INVALID for names that are malformed or there
 * twice, ERR_UNSUPPORTED for a prefix that EROFS does not know, ERR_TOO_LARGE. */
int erofs_xattr_encode(struct erofs_xattr_table *table, const struct erofs_xattr *xattrs,
                       size_t count, struct erofs_xattr_body *ret, struct err *err);

/* The attributes of a directory: offsets / 4 in the table, in order. */
struct erofs_xattr_set {
    uint32_t count;
    uint32_t ids[];
};

/* `*ret` is NULL for no attributes. `body_max` is what may stand behind the inode. */
int erofs_xattr_set_make(struct erofs_xattr_table *table, const struct erofs_xattr *xattrs,
                         size_t count, size_t body_max, struct erofs_xattr_set **ret,
                         struct err *err);
/* A copy with one attribute more or replaced. `set` may be NULL. */
int erofs_xattr_set_with(struct erofs_xattr_table *table, const struct erofs_xattr_set *set,
                         const struct erofs_xattr *xattr, size_t body_max,
                         struct erofs_xattr_set **ret, struct err *err);
void erofs_xattr_set_free(struct erofs_xattr_table *table, struct erofs_xattr_set *set);
/* Bytes behind an inode with this set, and these bytes. */
size_t erofs_xattr_set_size(const struct erofs_xattr_table *table,
                            const struct erofs_xattr_set *set);
int erofs_xattr_set_encode(const struct erofs_xattr_table *table, const struct erofs_xattr_set *set,
                           struct erofs_xattr_body *ret, struct err *err);
