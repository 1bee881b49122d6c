/* The cut, the end of an epoch, and what a successor finds of both. */
#include "chunk_io.h"
#include "chunk_io_parts.h"
#include "cleanup.h"
#include "fault.h"

#include <errno.h>
#include <fcntl.h>

static struct live_slot *slot_at(const struct chunk_io *io, unsigned slot)
{
    return &io->live->header->slots[slot];
}

static bool is_state(const struct chunk_io *io, unsigned slot, enum live_slot_state state)
{
    return atomic_load(&slot_at(io, slot)->state) == state;
}

/* What requests go by. With the gate held exclusively, or before the first of them. */
static void look(struct chunk_io *io)
{
    io->tag = epoch_tag(atomic_load(&io->live->header->epoch));
    epoch_slots_look(io->live->header, &io->slots);
}

static int open_aside(struct chunk_io *io, unsigned slot, int flags, struct err *err)
{
    char name[EPOCH_NAME_BYTES];
    epoch_aside_name(slot, name);
    if (io->mode == CHUNK_IO_DIRECT)
        flags |= O_DIRECT;
    int fd = openat(io->log->dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s", name);
    cleanup_fdp(&io->aside_fds[slot]);
    io->aside_fds[slot] = fd;
    return 0;
}

static int remove_aside(struct chunk_io *io, unsigned slot, struct err *err)
{
    char name[EPOCH_NAME_BYTES];
    epoch_aside_name(slot, name);
    cleanup_fdp(&io->aside_fds[slot]);
    io->aside_fds[slot] = -1;
    if (unlinkat(io->log->dir_fd, name, 0) == 0)
        return FAULT_POINT("volume.aside-removed", err);
    return errno == ENOENT ? 0 : err_errno(err, errno, "cannot remove %s", name);
}

static int free_slots(struct chunk_io *io, struct err *err)
{
    for (unsigned i = 0; i < LIVE_MAP_SLOTS; i++) {
        if (!is_state(io, i, LIVE_SLOT_FREEING))
            continue;
        int rc = remove_aside(io, i, err);
        if (rc < 0)
            return rc;
        atomic_store(&slot_at(io, i)->state, LIVE_SLOT_RELEASED);
    }
    return 0;
}

/* The cut */

static int find_repeated(const struct chunk_io *io, uint64_t token)
{
    for (unsigned i = 0; i < LIVE_MAP_SLOTS; i++)
        if (is_state(io, i, LIVE_SLOT_OPEN) && atomic_load(&slot_at(io, i)->token) == token)
            return (int)i;
    return -1;
}

/* The oldest epoch that a checkpoint has open, or the current one. */
static uint64_t oldest_checkpoint(const struct chunk_io *io)
{
    for (unsigned i = 0; i < io->slots.count; i++)
        if (io->slots.at[i].state == LIVE_SLOT_OPEN && (io->slots.at[i].uses & LIVE_USE_CHECKPOINT))
            return io->slots.at[i].number;
    return atomic_load(&io->live->header->epoch);
}

static int choose_slot(const struct chunk_io *io, uint32_t uses, struct err *err)
{
    unsigned open = 0;
    unsigned views = 0;
    int free = -1;
    for (unsigned i = 0; i < LIVE_MAP_SLOTS; i++) {
        bool is_open = is_state(io, i, LIVE_SLOT_OPEN);
        open += is_open;
        views += is_open && epoch_is_of_view(atomic_load(&slot_at(io, i)->uses));
        if (is_state(io, i, LIVE_SLOT_FREE))
            free = (int)i;
    }
    if (epoch_is_of_view(uses) && views >= LIVE_EPOCHS_VIEWS_MAX)
        return err_fail(err, ERR_CONFLICT, "%u views of the volume are open, as many as can be",
                        views);
    if (open >= LIVE_EPOCHS_OPEN_MAX || free < 0)
        return err_fail(err, ERR_CONFLICT, "%u cuts of the volume are in use, as many as can be",
                        open);
    uint64_t epoch = atomic_load(&io->live->header->epoch);
    uint64_t oldest = oldest_checkpoint(io);
    if (epoch - oldest >= EPOCH_BEHIND_MAX)
        return err_fail(err, ERR_CONFLICT, "a checkpoint of the volume is %llu cuts behind",
                        (unsigned long long)(epoch - oldest));
    return free;
}

/* Tags of long ago, before the same ones mean other epochs. */
static void renew_tags(struct chunk_io *io)
{
    struct live_map_header *header = io->live->header;
    uint64_t clean = atomic_load(&header->clean_epoch);
    uint64_t before = atomic_load(&header->epoch) - EPOCH_RENEW_EVERY;
    uint64_t oldest = oldest_checkpoint(io);
    if (before > oldest + 1)
        before = oldest + 1;
    uint64_t chunks = atomic_load(&header->size) / VOLUME_CHUNK;
    for (uint64_t chunk = 0; chunk < chunks; chunk++) {
        uint32_t word = chunk_io_word(io, chunk);
        uint64_t last = epoch_of_word(header, word);
        uint32_t tag = word & LIVE_WORD_TAG;
        if (tag == 0 || last >= before)
            continue;
        tag = last <= clean ? 0 : (uint32_t)EPOCH_TAG_OLD << LIVE_TAG_SHIFT;
        while (!atomic_compare_exchange_weak(&io->live->words[chunk], &word,
                                             (word & ~LIVE_WORD_TAG) | tag))
            ;
    }
    atomic_store(&header->old_before, before);
}

static int cut(struct chunk_io *io, unsigned slot, uint64_t token, uint32_t uses, struct err *err)
{
    struct live_map_header *header = io->live->header;
    struct live_slot *at = slot_at(io, slot);
    uint64_t epoch = atomic_load(&header->epoch);
    atomic_store(&at->number, epoch);
    atomic_store(&at->token, token);
    atomic_store(&at->uses, uses);
    atomic_store(&at->size, atomic_load(&header->size));
    atomic_store(&at->shared, 0);
    atomic_store(&at->broken, 0);
    atomic_store(&at->asides, 0);
    atomic_store(&at->state, LIVE_SLOT_OPENING);
    int rc = FAULT_POINT("volume.cut-opening", err);
    if (rc < 0) {
        atomic_store(&at->state, LIVE_SLOT_FREEING);
        return rc;
    }
    atomic_store(&header->epoch, epoch + 1);
    rc = FAULT_POINT("volume.cut-counted", err);
    atomic_store(&at->state, LIVE_SLOT_OPEN);
    look(io);
    if ((epoch + 1) % EPOCH_RENEW_EVERY == 0)
        renew_tags(io);
    return rc;
}

static int cut_gated(struct chunk_io *io, uint64_t token, uint32_t uses, uint64_t *ret_epoch,
                     struct err *err)
{
    int slot = find_repeated(io, token);
    int rc = 0;
    if (slot < 0) {
        slot = choose_slot(io, uses, err);
        if (slot < 0)
            return slot;
        rc = open_aside(io, (unsigned)slot, O_CREAT | O_TRUNC, err);
        if (rc == 0)
            rc = cut(io, (unsigned)slot, token, uses, err);
    }
    if (rc == 0)
        *ret_epoch = atomic_load(&slot_at(io, (unsigned)slot)->number);
    return rc;
}

int chunk_io_cut(struct chunk_io *io, uint64_t token, uint32_t uses, uint64_t *ret_epoch,
                 struct err *err)
{
    if (token == 0 || uses == 0 || (uses & ~(uint32_t)(LIVE_USE_CHECKPOINT | LIVE_USE_VIEW)))
        return err_fail(err, ERR_INVALID, "a cut needs a token and a use");
    (void)pthread_rwlock_wrlock(&io->gate);
    int rc = cut_gated(io, token, uses, ret_epoch, err);
    (void)pthread_rwlock_unlock(&io->gate);
    return rc;
}

/* The end of an epoch */

/* What older ones need of the kept slots goes to them; then nobody needs those. */
static int empty_kept(struct chunk_io *io)
{
    for (unsigned i = io->slots.count; i-- > 0;) {
        if (io->slots.at[i].state != LIVE_SLOT_KEPT)
            continue;
        int rc = chunk_io_hand_down(io, i);
        if (rc < 0)
            return rc;
        atomic_store(&slot_at(io, io->slots.at[i].slot)->state, LIVE_SLOT_FREEING);
    }
    return 0;
}

static void look_again(struct chunk_io *io)
{
    (void)pthread_rwlock_wrlock(&io->gate);
    look(io);
    (void)pthread_rwlock_unlock(&io->gate);
}

/* Those that are released: kept while they are emptied, then freed. */
static int finish_release(struct chunk_io *io, struct err *err)
{
    int rc = empty_kept(io);
    look_again(io);
    if (rc < 0)
        return err_errno(err, rc, "cannot empty a slot of the live map");
    return free_slots(io, err);
}

static void let_go(struct chunk_io *io, unsigned slot)
{
    struct live_slot *at = slot_at(io, slot);
    atomic_store(&at->state, atomic_load(&at->shared) ? LIVE_SLOT_KEPT : LIVE_SLOT_FREEING);
    look(io);
}

int chunk_io_release(struct chunk_io *io, uint64_t epoch, struct err *err)
{
    (void)pthread_rwlock_wrlock(&io->gate);
    int slot = epoch_slot_find(io->live->header, epoch);
    if (slot >= 0)
        let_go(io, (unsigned)slot);
    (void)pthread_rwlock_unlock(&io->gate);
    int rc = FAULT_POINT("volume.epoch-released", err);
    return rc == 0 ? finish_release(io, err) : rc;
}

/* A successor */

/* An aside that is not there any more. */
static void break_from(struct chunk_io *io, unsigned slot, int num)
{
    uint64_t number = atomic_load(&slot_at(io, slot)->number);
    for (unsigned i = 0; i < LIVE_MAP_SLOTS; i++)
        if (atomic_load(&slot_at(io, i)->number) <= number)
            atomic_store(&slot_at(io, i)->broken, (uint32_t)num);
}

static int settle_slot(struct chunk_io *io, unsigned slot, struct err *err)
{
    struct live_slot *at = slot_at(io, slot);
    struct err why = ERR_INIT;
    if (is_state(io, slot, LIVE_SLOT_OPENING)) {
        bool counts = atomic_load(&io->live->header->epoch) > atomic_load(&at->number);
        atomic_store(&at->state, counts ? LIVE_SLOT_OPEN : LIVE_SLOT_FREEING);
    }
    if (is_state(io, slot, LIVE_SLOT_OPEN) || is_state(io, slot, LIVE_SLOT_KEPT)) {
        if (open_aside(io, slot, 0, &why) < 0)
            break_from(io, slot, why.num);
        err_clear(&why);
        return 0;
    }
    /* One that is free may have a file of a live map that is gone. */
    return remove_aside(io, slot, err);
}

int chunk_io_begin(struct chunk_io *io, struct err *err)
{
    int rc = epoch_planes_map(io->live->fd, &io->planes, err);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; rc == 0 && i < LIVE_MAP_SLOTS; i++)
        rc = settle_slot(io, i, err);
    look(io);
    return rc == 0 ? finish_release(io, err) : rc;
}
