#include "epochs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <sys/mman.h>

uint64_t epoch_of_word(const struct live_map_header *header, uint32_t word)
{
    uint32_t tag = word >> LIVE_TAG_SHIFT;
    if (tag < EPOCH_TAG_OLD)
        return 0;
    if (tag == EPOCH_TAG_OLD)
        return atomic_load(&header->old_before) - 1;
    uint64_t now = atomic_load(&header->epoch);
    uint64_t behind = (now + EPOCH_TAGS - (tag - EPOCH_TAG_FIRST)) % EPOCH_TAGS;
    return behind < now ? now - behind : 0;
}

int epoch_planes_map(int live_fd, struct epoch_planes *ret, struct err *err)
{
    uint64_t capacity;
    int rc = live_map_read_capacity(live_fd, &capacity, err);
    if (rc < 0)
        return rc;
    /* Without access first: where all memory is locked, what could be used would be made present.
     */
    const uint64_t offset = live_plane_at(capacity, 0);
    size_t bytes = live_file_bytes(capacity) - offset;
    char *at = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, live_fd, (off_t)offset);
    if (at == MAP_FAILED)
        return err_errno(err, errno, "cannot map the planes of the live map");
    (void)munlock(at, bytes);
    if (mprotect(at, bytes, PROT_READ | PROT_WRITE) < 0) {
        rc = err_errno(err, errno, "cannot use the planes of the live map");
        (void)munmap(at, bytes);
        return rc;
    }
    *ret = (struct epoch_planes){.mapped = bytes};
    for (unsigned i = 0; i < LIVE_MAP_SLOTS; i++)
        ret->words[i] = (_Atomic uint64_t *)(at + (live_plane_at(capacity, i) - offset));
    return 0;
}

void epoch_planes_unmap(struct epoch_planes *planes)
{
    if (planes->mapped > 0)
        (void)munmap(planes->words[0], planes->mapped);
    *planes = (struct epoch_planes){.mapped = 0};
}

void epoch_aside_name(unsigned slot, char ret[EPOCH_NAME_BYTES])
{
    (void)snprintf(ret, EPOCH_NAME_BYTES, "aside-%u", slot % 100);
}

static bool has_asides(enum live_slot_state state)
{
    return state == LIVE_SLOT_OPEN || state == LIVE_SLOT_KEPT;
}

void epoch_slots_look(const struct live_map_header *header, struct epoch_slots *ret)
{
    ret->count = 0;
    for (unsigned i = 0; i < LIVE_MAP_SLOTS; i++) {
        const struct live_slot *slot = &header->slots[i];
        enum live_slot_state state = (enum live_slot_state)atomic_load(&slot->state);
        if (!has_asides(state))
            continue;
        uint64_t number = atomic_load(&slot->number);
        unsigned at = ret->count++;
        for (; at > 0 && ret->at[at - 1].number > number; at--)
            ret->at[at] = ret->at[at - 1];
        ret->at[at].slot = i;
        ret->at[at].state = state;
        ret->at[at].uses = atomic_load(&slot->uses);
        ret->at[at].number = number;
    }
}

int epoch_slots_empty(struct live_map *live, struct err *err)
{
    for (unsigned i = 0; i < LIVE_MAP_SLOTS; i++) {
        struct live_slot *slot = &live->header->slots[i];
        if (atomic_load(&slot->state) != LIVE_SLOT_RELEASED)
            continue;
        const off_t at = (off_t)live_plane_at(live->capacity, i);
        const off_t end = (off_t)live_plane_at(live->capacity, i + 1);
        if (fallocate(live->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, end - at) < 0)
            return err_errno(err, errno, "cannot empty a plane of the live map");
        uint32_t released = LIVE_SLOT_RELEASED;
        (void)atomic_compare_exchange_strong(&slot->state, &released, LIVE_SLOT_FREE);
    }
    return 0;
}

int epoch_slot_find(const struct live_map_header *header, uint64_t epoch)
{
    for (unsigned i = 0; i < LIVE_MAP_SLOTS; i++) {
        const struct live_slot *slot = &header->slots[i];
        if (atomic_load(&slot->state) == LIVE_SLOT_OPEN && atomic_load(&slot->number) == epoch)
            return (int)i;
    }
    return -1;
}
