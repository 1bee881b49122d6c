/* The leaves of a checkpoint: each is fetched once for all who want it, and kept for a while. */
#include "checkpoint_parts.h"

#include "cleanup.h"
#include "clock.h"

#include <string.h>

static int check_leaf(struct checkpoint *checkpoint, uint32_t number, const uint8_t *bytes,
                      struct volume_leaf *ret, struct err *err)
{
    const struct volume_entry *entry = &checkpoint->root->leaves[number];
    struct digest got;
    int rc = digest_bytes(bytes, entry->place.length, &got, err);
    if (rc == 0 && !digest_equal(&got, &entry->digest))
        rc = err_fail(err, ERR_DIGEST, "its bytes have the digest %s instead of %s",
                      digest_format(&got).s, digest_format(&entry->digest).s);
    return rc < 0 ? rc : volume_leaf_decode(bytes, entry->place.length, number, ret, err);
}

static int pack_up(const struct volume_leaf *leaf, struct checkpoint_leaf **ret, struct err *err)
{
    struct checkpoint_leaf *kept = malloc(sizeof *kept + leaf->count * sizeof(struct volume_entry));
    if (!kept)
        return err_errno(err, ENOMEM, "no memory");
    kept->count = 0;
    for (uint32_t i = 0; i < VOLUME_LEAF_CHUNKS; i++) {
        kept->at[i] = 0;
        if (!leaf->set[i] || kept->count == leaf->count)
            continue;
        kept->entries[kept->count++] = leaf->entries[i];
        kept->at[i] = (uint16_t)kept->count;
    }
    *ret = kept;
    return 0;
}

/* From the remote. Without lock. */
static int fetch(struct checkpoint *checkpoint, uint32_t number, remote_progress stop, void *arg,
                 struct checkpoint_leaf **ret, struct err *err)
{
    const struct volume_place *place = &checkpoint->root->leaves[number].place;
    uint32_t pack;
    if (place->length < VOLUME_LEAF_BYTES_MIN || place->length > VOLUME_LEAF_BYTES_MAX)
        return err_fail(err, ERR_DAMAGED, "no leaf has %u bytes", place->length);
    cleanup_free uint8_t *bytes = malloc(place->length);
    cleanup_free struct volume_leaf *leaf = malloc(sizeof *leaf);
    if (!bytes || !leaf)
        return err_errno(err, ENOMEM, "no memory");
    int rc = checkpoint_find_pack(checkpoint, place, &pack, err);
    if (rc == 0)
        rc = remote_blob_read(checkpoint->remote, checkpoint->repository,
                              &checkpoint->packs[pack].digest, place->offset, bytes, place->length,
                              stop, arg, err);
    if (rc == 0)
        rc = check_leaf(checkpoint, number, bytes, leaf, err);
    return rc < 0 ? rc : pack_up(leaf, ret, err);
}

/* The slot of a leaf, as long as it has not failed. NULL: none has it. Under lock, as all below. */
static struct checkpoint_slot *find_slot(struct checkpoint *checkpoint, uint32_t number)
{
    for (size_t i = 0; i < CHECKPOINT_LEAVES_KEPT; i++) {
        struct checkpoint_slot *slot = &checkpoint->slots[i];
        if (slot->number == number &&
            (slot->state == CHECKPOINT_SLOT_READY || slot->state == CHECKPOINT_SLOT_FETCHING))
            return slot;
    }
    return NULL;
}

/* One that is free, or whose leaf was not used for longest. NULL: all are being fetched, or have
 * just come for somebody. */
static struct checkpoint_slot *take_slot(struct checkpoint *checkpoint)
{
    struct checkpoint_slot *best = NULL;
    for (size_t i = 0; i < CHECKPOINT_LEAVES_KEPT; i++) {
        struct checkpoint_slot *slot = &checkpoint->slots[i];
        if (slot->state == CHECKPOINT_SLOT_FREE)
            return slot;
        if (slot->state == CHECKPOINT_SLOT_READY && slot->waiters == 0 &&
            (!best || slot->used < best->used))
            best = slot;
    }
    if (best) {
        free(best->leaf);
        best->leaf = NULL;
        best->state = CHECKPOINT_SLOT_FREE;
    }
    return best;
}

static int fetch_into(struct checkpoint *checkpoint, struct checkpoint_slot *slot, uint32_t number,
                      remote_progress stop, void *arg, struct err *err)
{
    struct checkpoint_leaf *leaf = NULL;
    struct err failure = ERR_INIT;
    slot->state = CHECKPOINT_SLOT_FETCHING;
    slot->number = number;
    slot->waiters = 0;
    (void)pthread_mutex_unlock(&checkpoint->lock);
    int rc = fetch(checkpoint, number, stop, arg, &leaf, &failure);
    if (rc < 0)
        err_wrap(&failure, rc, "leaf %u of a checkpoint", number);
    (void)pthread_mutex_lock(&checkpoint->lock);
    slot->leaf = leaf;
    slot->state = CHECKPOINT_SLOT_READY;
    if (rc < 0) {
        slot->failure = failure;
        slot->state = slot->waiters > 0 ? CHECKPOINT_SLOT_FAILED : CHECKPOINT_SLOT_FREE;
    }
    (void)pthread_cond_broadcast(&checkpoint->changed);
    return rc < 0 ? err_pass(err, rc, &failure) : 0;
}

/* Waits for a while, without lock asks whether to go on. */
static int wait_a_little(struct checkpoint *checkpoint, remote_progress stop, void *arg,
                         struct err *err)
{
    const struct timespec until = clock_in_ms(CHECKPOINT_LEAF_LOOK_MS);
    if (pthread_cond_timedwait(&checkpoint->changed, &checkpoint->lock, &until) == 0)
        return 0;
    (void)pthread_mutex_unlock(&checkpoint->lock);
    int rc = checkpoint_ask_stop(stop, arg, err);
    (void)pthread_mutex_lock(&checkpoint->lock);
    return rc;
}

/* Until another one's fetch has ended. Its failure is that of all who waited, unless somebody asked
 * for its end: then 0, as after success. */
static int await_fetch(struct checkpoint *checkpoint, struct checkpoint_slot *slot,
                       remote_progress stop, void *arg, struct err *err)
{
    int rc = 0;
    slot->waiters++;
    while (rc == 0 && slot->state == CHECKPOINT_SLOT_FETCHING)
        rc = wait_a_little(checkpoint, stop, arg, err);
    slot->waiters--;
    if (slot->state != CHECKPOINT_SLOT_FAILED)
        return rc;
    if (rc == 0 && slot->failure.code != ERR_CANCELLED)
        rc = err_pass(err, -slot->failure.num, &slot->failure);
    if (slot->waiters == 0)
        slot->state = CHECKPOINT_SLOT_FREE;
    return rc;
}

int checkpoint_leaves_lock(struct checkpoint *checkpoint, uint32_t number, remote_progress stop,
                           void *arg, const struct checkpoint_leaf **ret, struct err *err)
{
    int rc = 0;
    (void)pthread_mutex_lock(&checkpoint->lock);
    while (rc == 0) {
        struct checkpoint_slot *slot = find_slot(checkpoint, number);
        if (slot && slot->state == CHECKPOINT_SLOT_READY) {
            slot->used = ++checkpoint->uses;
            *ret = slot->leaf;
            return 0;
        }
        if (slot) {
            rc = await_fetch(checkpoint, slot, stop, arg, err);
        } else {
            slot = take_slot(checkpoint);
            rc = slot ? fetch_into(checkpoint, slot, number, stop, arg, err)
                      : wait_a_little(checkpoint, stop, arg, err);
        }
    }
    (void)pthread_mutex_unlock(&checkpoint->lock);
    return rc;
}

void checkpoint_leaves_free(struct checkpoint *checkpoint)
{
    for (size_t i = 0; i < CHECKPOINT_LEAVES_KEPT; i++)
        free(checkpoint->slots[i].leaf);
}

int checkpoint_leaf(struct checkpoint *checkpoint, uint32_t number, remote_progress stop, void *arg,
                    struct volume_leaf *ret, struct err *err)
{
    const struct checkpoint_leaf *leaf;
    if (number >= checkpoint->root->leaf_count)
        return err_fail(err, ERR_INVALID, "the checkpoint has no leaf %u", number);
    if (!checkpoint->root->set[number]) {
        volume_leaf_init(ret, number);
        return 0;
    }
    int rc = checkpoint_leaves_lock(checkpoint, number, stop, arg, &leaf, err);
    if (rc < 0)
        return rc;
    volume_leaf_init(ret, number);
    for (uint32_t i = 0; i < VOLUME_LEAF_CHUNKS; i++)
        if (leaf->at[i] > 0)
            volume_leaf_set(ret, i, &leaf->entries[leaf->at[i] - 1]);
    (void)pthread_mutex_unlock(&checkpoint->lock);
    return 0;
}

int checkpoint_find(struct checkpoint *checkpoint, uint64_t chunk, remote_progress stop, void *arg,
                    struct volume_entry *ret, struct err *err)
{
    const struct checkpoint_leaf *leaf;
    if (chunk >= checkpoint->root->size / VOLUME_CHUNK)
        return err_fail(err, ERR_INVALID, "the checkpoint has no chunk %llu",
                        (unsigned long long)chunk);
    const uint32_t number = (uint32_t)(chunk / VOLUME_LEAF_CHUNKS);
    if (!checkpoint->root->set[number])
        return 0;
    int rc = checkpoint_leaves_lock(checkpoint, number, stop, arg, &leaf, err);
    if (rc < 0)
        return rc;
    const uint16_t at = leaf->at[chunk % VOLUME_LEAF_CHUNKS];
    if (at > 0)
        *ret = leaf->entries[at - 1];
    (void)pthread_mutex_unlock(&checkpoint->lock);
    return at > 0;
}
