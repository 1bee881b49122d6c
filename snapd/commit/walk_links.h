/* walk_links.h - which inode was seen under which name first.
 *
 * A table of inodes that have several names. An inode leaves the table when as many of its names
 * were seen as it has, so that only inodes with names outside of the tree stay to the end.
 */
#pragma once

#include "err.h"

#include <stddef.h>
#include <stdint.h>

struct walk_link;

struct walk_links {
    struct walk_link **buckets; /* owned */
    size_t bucket_count;        /* a power of two, 0 before the first inode */
    size_t count;
    size_t bytes; /* memory of all nodes */
    size_t bytes_max;
    struct walk_link *spent; /* out of the table, its path still borrowed by the caller */
};

/* Notes one more name of an inode. *ret_first is the path of its first name, borrowed until the
 * next call, or NULL when `path` is the first. More memory than bytes_max is ERR_TOO_LARGE. */
int walk_links_note(struct walk_links *links, uint64_t dev, uint64_t ino, uint32_t names,
                    const char *path, const char **ret_first, struct err *err);
void walk_links_free(struct walk_links *links);
