#include "chunk_seen.h"

#include "cleanup.h"

#include <pthread.h>
#include <string.h>

enum {
    SLOTS_FIRST = 1024, /* a power of two; at least half of them are free */
};

struct slot {
    struct digest digest;
    struct pack_spot spot; /* length 0: the slot is free */
};

struct chunk_seen {
    pthread_mutex_t lock;
    struct slot *slots; /* lock, as all here */
    size_t slot_count;
    size_t count;
    size_t max;
};

int chunk_seen_new(size_t max, struct chunk_seen **ret, struct err *err)
{
    struct chunk_seen *seen = calloc(1, sizeof *seen);
    struct slot *slots = calloc(SLOTS_FIRST, sizeof *slots);
    if (!seen || !slots) {
        free(seen);
        free(slots);
        return err_errno(err, ENOMEM, "cannot note chunks");
    }
    *seen = (struct chunk_seen){.slots = slots, .slot_count = SLOTS_FIRST, .max = max};
    pthread_mutex_init(&seen->lock, NULL);
    *ret = seen;
    return 0;
}

void chunk_seen_free(struct chunk_seen *seen)
{
    if (!seen)
        return;
    pthread_mutex_destroy(&seen->lock);
    free(seen->slots);
    free(seen);
}

/* The digest's slot, or the free one that it would get. */
static struct slot *look(struct slot *slots, size_t count, const struct digest *digest)
{
    size_t at;
    memcpy(&at, digest->bytes, sizeof at);
    for (at &= count - 1; slots[at].spot.length > 0; at = (at + 1) & (count - 1))
        if (digest_equal(&slots[at].digest, digest))
            break;
    return &slots[at];
}

bool chunk_seen_find(struct chunk_seen *seen, const struct digest *digest, struct pack_spot *ret)
{
    pthread_mutex_lock(&seen->lock);
    const struct slot slot = *look(seen->slots, seen->slot_count, digest);
    pthread_mutex_unlock(&seen->lock);
    if (slot.spot.length > 0 && ret)
        *ret = slot.spot;
    return slot.spot.length > 0;
}

static int grow(struct chunk_seen *seen, struct err *err)
{
    struct slot *slots = calloc(2 * seen->slot_count, sizeof *slots);
    if (!slots)
        return err_errno(err, ENOMEM, "cannot note a chunk");
    for (size_t i = 0; i < seen->slot_count; i++)
        if (seen->slots[i].spot.length > 0)
            *look(slots, 2 * seen->slot_count, &seen->slots[i].digest) = seen->slots[i];
    free(seen->slots);
    seen->slots = slots;
    seen->slot_count *= 2;
    return 0;
}

int chunk_seen_add(struct chunk_seen *seen, const struct digest *digest,
                   const struct pack_spot *spot, struct err *err)
{
    int rc = 0;
    pthread_mutex_lock(&seen->lock);
    if (seen->count < seen->max && seen->count >= seen->slot_count / 2)
        rc = grow(seen, err);
    if (rc == 0 && seen->count < seen->max) {
        *look(seen->slots, seen->slot_count, digest) =
            (struct slot){.digest = *digest, .spot = *spot};
        seen->count++;
    }
    pthread_mutex_unlock(&seen->lock);
    return rc;
}
