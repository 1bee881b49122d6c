/* unpack_entry.h - one member of an archive becomes one entry of the tree.
 *
 * The last member of a path wins whole: what an earlier one made is removed first, trees too. Only
 * a directory over a directory keeps the content and replaces the attributes. A directory that
 * takes the place of a file of the same layer hides what lower layers have in it, as when the
 * members were applied one after the other to a full tree.
 *
 * Regular files are written with holes where the archive has holes or whole pages of zeros.
 */
#pragma once

#include "unpack_tree.h"

#include <stdint.h>
#include <sys/types.h>

enum unpack_type {
    UNPACK_FILE,
    UNPACK_DIR,
    UNPACK_SYMLINK,
    UNPACK_HARDLINK,
    UNPACK_FIFO,
    UNPACK_CHAR,
    UNPACK_BLOCK,
};

struct unpack_member {
    const char *path; /* unpack_path.h; "" is the root */
    enum unpack_type type;
    const char *target; /* of links: as stored for symbolic ones, normalised for hard ones */
    dev_t rdev;
    uint64_t size; /* of regular files, holes included */
    struct unpack_attr attr;
};

/* Gives the next piece of a file's data and its offset. Returns its length, 0 at the end, or
 * -errno. */
typedef ssize_t (*unpack_source)(void *arg, const void **ret_bytes, uint64_t *ret_offset,
                                 struct err *err);

int unpack_entry(struct unpack_tree *tree, const struct unpack_member *member, unpack_source source,
                 void *arg, struct err *err);
