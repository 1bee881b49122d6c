/* erofs_check_seen.h - the inodes that a check has met, each with its type and missing names.
 *
 * A hash table with open addressing that is made once, for as many inodes as the superblock tells
 * of; 12 bytes a slot, five slots for four inodes. Where an inode goes depends on random bytes of
 * the process, so an image cannot be made to collide.
 */
#pragma once

#include "err.h"

#include <stddef.h>
#include <stdint.h>

enum {
    EROFS_SEEN_UNCOUNTED = UINT32_MAX, /* of an inode with any number of names */
};

struct erofs_seen {
    uint64_t *keys;    /* owned; nid * 8 + type, 0: free */
    uint32_t *missing; /* owned; names that have not been met yet */
    uint64_t slots;
    uint64_t count;
    uint64_t max; /* inodes */
    uint64_t seed;
};

int erofs_seen_init(struct erofs_seen *seen, uint64_t max, struct err *err);
void erofs_seen_free(struct erofs_seen *seen);

/* The slot of an inode: 1, or 0 and the slot where it belongs. nid < 2^40. */
int erofs_seen_find(const struct erofs_seen *seen, uint64_t nid, uint64_t *ret_slot);
/* Fills a slot that erofs_seen_find() has given; the caller has seen that count < max. `type` is
 * 1 to 7. */
void erofs_seen_add(struct erofs_seen *seen, uint64_t slot, uint64_t nid, uint8_t type,
                    uint32_t missing);

static inline uint64_t erofs_seen_nid(const struct erofs_seen *seen, uint64_t slot)
{
    return seen->keys[slot] >> 3;
}

static inline uint8_t erofs_seen_type(const struct erofs_seen *seen, uint64_t slot)
{
    return seen->keys[slot] & 7;
}
