/* convert_entry.h - one member of an archive becomes one name of the tree.
 *
 * The last member of a path wins whole; what an earlier one made goes, trees too. Only a directory
 * over a directory keeps the content and replaces the attributes. A directory that takes the place
 * of a file of the same layer hides what lower layers have in it, as when the members were applied
 * one after the other to a full tree.
 */
#pragma once

#include "convert_attr.h"
#include "convert_tree.h"

#include <stdint.h>
#include <sys/types.h>

struct convert_member {
    const char *path; /* convert_path.h; "" is the root */
    mode_t type;      /* S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFCHR, S_IFBLK; of hard links 0 */
    bool is_hardlink;
    const char *target; /* of links: as stored for symbolic ones, normalised for hard ones */
    dev_t rdev;
    uint64_t size; /* of regular files, holes included */
    struct convert_attr attr;
};

/* Gives the next piece of a file's data and its offset. Returns its length, 0 at the end, or
 * -errno. */
typedef ssize_t (*convert_source)(void *arg, const void **ret_bytes, uint64_t *ret_offset,
                                  struct err *err);

/* Makes a member that is no hard link. */
int convert_entry(struct convert_tree *tree, const struct convert_member *member,
                  convert_source source, void *arg, struct err *err);
