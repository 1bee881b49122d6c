/* checkpoint_walk.h - all chunks of a checkpoint that are not zero, one after the other.
 *
 * Job: for whoever makes a volume of it and needs to know which chunks there are, not their bytes.
 * Leaf after leaf is fetched.
 */
#pragma once

#include "checkpoint.h"

struct checkpoint_walk {
    struct checkpoint *checkpoint; /* borrowed */
    remote_progress stop;          /* NULL */
    void *stop_arg;
    struct volume_leaf *leaf; /* owned */
    uint32_t leaf_at;         /* the next one */
    uint32_t chunk_at;        /* the next chunk in `leaf` */
    bool loaded;
    struct err failure; /* of a leaf that could not be had */
};

int checkpoint_walk_begin(struct checkpoint *checkpoint, remote_progress stop, void *stop_arg,
                          struct checkpoint_walk *ret, struct err *err);
void checkpoint_walk_end(struct checkpoint_walk *walk); /* harmless on a zeroed one */
#define cleanup_checkpoint_walk cleanup_with(checkpoint_walk_end)
/* 1 and the next chunk, in ascending order; 0 at the end, or -errno with `failure` set. `walk` is a
 * struct checkpoint_walk; the type is that of volume_create_give (volume_create.h). */
int checkpoint_walk_next(void *walk, uint64_t *ret_chunk);
