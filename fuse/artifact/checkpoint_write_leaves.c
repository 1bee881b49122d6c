/* From changes to leaves, and to the root. */
#include "checkpoint_write_parts.h"
#include "cleanup.h"

struct work {
    struct volume_leaf leaf;
    uint8_t bytes[VOLUME_LEAF_BYTES_MAX];
};

/* What the parent says of these chunks. */
static int begin_leaf(const struct checkpoint_making *making, uint32_t number,
                      struct volume_leaf *ret, struct err *err)
{
    if (checkpoint_write_parent_has(making, number))
        return checkpoint_write_parent_leaf(making, number, ret, err);
    volume_leaf_init(ret, number);
    return 0;
}

static int note_leaf(struct checkpoint_making *making, const struct checkpoint_new_leaf *leaf,
                     struct err *err)
{
    if (making->leaf_count == making->leaf_room) {
        size_t room = making->leaf_room ? 2 * making->leaf_room : 64;
        struct checkpoint_new_leaf *leaves = realloc(making->leaves, room * sizeof *leaves);
        if (!leaves)
            return err_errno(err, ENOMEM, "cannot note the leaves of a checkpoint");
        making->leaves = leaves;
        making->leaf_room = room;
    }
    making->leaves[making->leaf_count++] = *leaf;
    return 0;
}

/* The leaf of these changes. */
static int make_leaf(struct checkpoint_making *making, const struct checkpoint_change *changes,
                     size_t count, struct work *work, struct err *err)
{
    struct checkpoint_new_leaf made = {.number = changes[0].chunk / VOLUME_LEAF_CHUNKS};
    int rc = begin_leaf(making, made.number, &work->leaf, err);
    if (rc < 0)
        return rc;
    made.before = work->leaf.count;
    for (size_t i = 0; i < count; i++) {
        struct volume_entry entry = {.digest = changes[i].digest};
        if (changes[i].is_set)
            entry.place = pack_writer_place(making->packs, &changes[i].spot);
        volume_leaf_set(&work->leaf, changes[i].chunk % VOLUME_LEAF_CHUNKS,
                        changes[i].is_set ? &entry : NULL);
    }
    made.count = work->leaf.count;
    if (made.count > 0) {
        size_t len = volume_leaf_encode(&work->leaf, work->bytes);
        rc = digest_bytes(work->bytes, len, &made.digest, err);
        if (rc == 0)
            rc = pack_writer_add(making->packs, work->bytes, len, &made.spot, err);
    }
    return rc == 0 ? note_leaf(making, &made, err) : rc;
}

int checkpoint_write_leaves(struct checkpoint_making *making, struct err *err)
{
    if (making->change_count == 0)
        return 0;
    cleanup_free struct work *work = malloc(sizeof *work);
    if (!work)
        return err_errno(err, ENOMEM, "cannot make the leaves of a checkpoint");
    int rc = pack_writer_seal(making->packs, err); /* from here on, places are known */
    for (size_t at = 0; rc == 0 && at < making->change_count;) {
        const struct checkpoint_change *changes = &making->changes[at];
        uint32_t number = changes[0].chunk / VOLUME_LEAF_CHUNKS;
        size_t count = 1;
        while (at + count < making->change_count &&
               changes[count].chunk / VOLUME_LEAF_CHUNKS == number)
            count++;
        rc = make_leaf(making, changes, count, work, err);
        at += count;
    }
    making->change_count = 0;
    making->changed_leaves = 0;
    return rc;
}

int checkpoint_write_root(struct checkpoint_making *making, struct err *err)
{
    const struct checkpoint *parent = making->write->parent;
    struct volume_root *root = &making->root;
    int rc = pack_writer_seal(making->packs, err);
    if (rc < 0)
        return rc;
    volume_root_init(root, making->source->size);
    if (parent) {
        const uint32_t leaf_count = root->leaf_count;
        *root = *checkpoint_root_of(parent);
        root->size = making->source->size;
        root->leaf_count = leaf_count;
    }
    for (size_t i = 0; i < making->leaf_count; i++) {
        const struct checkpoint_new_leaf *leaf = &making->leaves[i];
        struct volume_entry entry = {.digest = leaf->digest};
        if (leaf->count > 0)
            entry.place = pack_writer_place(making->packs, &leaf->spot);
        volume_root_set(root, leaf->number, &entry, leaf->count, leaf->before);
    }
    making->written.chunks = root->chunks;
    return 0;
}
