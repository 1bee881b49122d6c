#include "checkpoint_walk.h"

int checkpoint_walk_begin(struct checkpoint *checkpoint, remote_progress stop, void *stop_arg,
                          struct checkpoint_walk *ret, struct err *err)
{
    struct checkpoint_walk walk = {.checkpoint = checkpoint, .stop = stop, .stop_arg = stop_arg};
    walk.leaf = malloc(sizeof *walk.leaf);
    if (!walk.leaf)
        return err_errno(err, ENOMEM, "cannot read a checkpoint");
    *ret = walk;
    return 0;
}

void checkpoint_walk_end(struct checkpoint_walk *walk)
{
    free(walk->leaf);
    walk->leaf = NULL;
}

/* 1, 0: there is none any more. */
static int load(struct checkpoint_walk *walk)
{
    const struct volume_root *root = checkpoint_root_of(walk->checkpoint);
    while (walk->leaf_at < root->leaf_count && !root->set[walk->leaf_at])
        walk->leaf_at++;
    if (walk->leaf_at >= root->leaf_count)
        return 0;
    int rc = checkpoint_leaf(walk->checkpoint, walk->leaf_at, walk->stop, walk->stop_arg,
                             walk->leaf, &walk->failure);
    if (rc < 0)
        return rc;
    walk->leaf_at++;
    walk->chunk_at = 0;
    walk->loaded = true;
    return 1;
}

int checkpoint_walk_next(void *arg, uint64_t *ret_chunk)
{
    struct checkpoint_walk *walk = arg;
    for (;;) {
        while (walk->loaded && walk->chunk_at < VOLUME_LEAF_CHUNKS) {
            uint32_t chunk = walk->chunk_at++;
            if (walk->leaf->set[chunk]) {
                *ret_chunk = (uint64_t)walk->leaf->number * VOLUME_LEAF_CHUNKS + chunk;
                return 1;
            }
        }
        int rc = load(walk);
        if (rc <= 0)
            return rc;
    }
}
