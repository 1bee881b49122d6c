/* From changes to leaves, and to the root. */
#include "checkpoint_upkeep.h"
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
    making->is_made[leaf->number] = true;
    return 0;
}

/* Whether somebody needs the leaf anew. */
static bool is_needed(const struct checkpoint_change *changes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!changes[i].is_moved)
            return true;
    return false;
}

static int apply(struct checkpoint_making *making, const struct checkpoint_change *change,
                 struct volume_leaf *leaf, struct err *err)
{
    const uint32_t at = change->chunk % VOLUME_LEAF_CHUNKS;
    struct volume_entry entry = {.digest = change->digest};
    int rc = 0;
    if (change->is_nothing)
        return 0;
    if (leaf->set[at])
        checkpoint_upkeep_uncount(making, &leaf->entries[at].place);
    if (change->is_set) {
        entry.place = pack_writer_place(making->packs, &change->spot);
        rc = checkpoint_upkeep_count(making, leaf->number, &change->spot, err);
    }
    volume_leaf_set(leaf, at, change->is_set ? &entry : NULL);
    return rc;
}

/* The leaf of these changes. */
static int make_leaf(struct checkpoint_making *making, const struct checkpoint_change *changes,
                     size_t count, struct work *work, struct err *err)
{
    struct checkpoint_new_leaf made = {.number = changes[0].chunk / VOLUME_LEAF_CHUNKS};
    struct err failure = ERR_INIT;
    int rc = begin_leaf(making, made.number, &work->leaf, &failure);
    if (rc < 0 && failure.code != ERR_CANCELLED && !is_needed(changes, count)) {
        checkpoint_upkeep_miss(making, made.number);
        return 0;
    }
    if (rc < 0)
        return err_pass(err, rc, &failure);
    made.before = work->leaf.count;
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = apply(making, &changes[i], &work->leaf, err);
    made.count = work->leaf.count;
    if (rc == 0 && made.count > 0) {
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
    int rc = checkpoint_upkeep_move(making, false, err);
    if (rc == 0)
        rc = pack_writer_seal(making->packs, err); /* from here on, places are known */
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

static int set_leaf(struct checkpoint_making *making, const struct checkpoint_new_leaf *leaf,
                    struct err *err)
{
    struct volume_root *root = &making->root;
    struct volume_entry entry = {.digest = leaf->digest};
    int rc = 0;
    if (root->set[leaf->number])
        checkpoint_upkeep_uncount(making, &root->leaves[leaf->number].place);
    if (leaf->count > 0) {
        entry.place = pack_writer_place(making->packs, &leaf->spot);
        rc = checkpoint_upkeep_count(making, leaf->number, &leaf->spot, err);
    }
    volume_root_set(root, leaf->number, &entry, leaf->count, leaf->before);
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
    root->has_usage = true;
    for (size_t i = 0; rc == 0 && i < making->leaf_count; i++)
        rc = set_leaf(making, &making->leaves[i], err);
    making->written.chunks = root->chunks;
    return rc;
}
