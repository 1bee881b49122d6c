/* Setting aside: what open epochs need of a chunk is kept before it changes. */
#include "chunk_io.h"
#include "chunk_io_parts.h"
#include "fault.h"

#include <errno.h>
#include <unistd.h>

static unsigned take_copy(struct chunk_io *io)
{
    (void)pthread_mutex_lock(&io->copy_lock);
    while (io->copies_free == 0)
        (void)pthread_cond_wait(&io->copy_free, &io->copy_lock);
    unsigned i = (unsigned)__builtin_ctz(io->copies_free);
    io->copies_free &= ~(1u << i);
    (void)pthread_mutex_unlock(&io->copy_lock);
    return i;
}

static void give_copy(struct chunk_io *io, unsigned i)
{
    (void)pthread_mutex_lock(&io->copy_lock);
    io->copies_free |= 1u << i;
    (void)pthread_cond_signal(&io->copy_free);
    (void)pthread_mutex_unlock(&io->copy_lock);
}

typedef ssize_t io_call(int fd, void *buffer, size_t len, off_t offset);

static ssize_t call_write(int fd, void *buffer, size_t len, off_t offset)
{
    return pwrite(fd, buffer, len, offset);
}

static int move_all(io_call *call, int fd, uint8_t *buffer, uint64_t offset)
{
    for (size_t done = 0; done < VOLUME_CHUNK;) {
        ssize_t n = call(fd, buffer + done, VOLUME_CHUNK - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        done += (size_t)n;
    }
    return 0;
}

static int copy_bytes(struct chunk_io *io, int from_fd, unsigned slot, uint64_t chunk)
{
    unsigned i = take_copy(io);
    uint8_t *buffer = io->copies + (size_t)i * VOLUME_CHUNK;
    int rc = move_all(pread, from_fd, buffer, chunk * VOLUME_CHUNK);
    if (rc == 0)
        rc = move_all(call_write, io->aside_fds[slot], buffer, chunk * VOLUME_CHUNK);
    give_copy(io, i);
    return rc;
}

static bool has_bytes(uint32_t word)
{
    enum volume_state state = live_word_state(word);
    return state != VOLUME_ZERO && (state != VOLUME_ABSENT || (word & LIVE_WORD_MASK) != 0);
}

/* Who needs a chunk whose last write was in `last`, that was as `word` says, and that no slot from
 * `below` on has: positions in io->slots, a bit each. */
static uint32_t find_needers(const struct chunk_io *io, unsigned below, uint64_t chunk,
                             uint32_t word, uint64_t last)
{
    const struct live_map_header *header = io->live->header;
    uint32_t needers = 0;
    for (unsigned i = below; i-- > 0;) {
        unsigned slot = io->slots.at[i].slot;
        uint64_t plane = atomic_load(&io->planes.words[slot][chunk]);
        if (plane & PLANE_PRESENT) /* older ones read it there */
            break;
        if (io->slots.at[i].state != LIVE_SLOT_OPEN || atomic_load(&header->slots[slot].broken))
            continue;
        bool is_read = (io->slots.at[i].uses & LIVE_USE_CHECKPOINT) && !(plane & PLANE_DONE) &&
                       epoch_is_dirty(header, word, last, io->slots.at[i].number);
        if (is_read || (io->slots.at[i].uses & LIVE_USE_VIEW))
            needers |= 1u << i;
    }
    return needers;
}

static void break_epochs(struct chunk_io *io, uint32_t needers, int num)
{
    for (unsigned i = 0; i < io->slots.count; i++)
        if (needers >> i & 1)
            atomic_store(&io->live->header->slots[io->slots.at[i].slot].broken, (uint32_t)num);
}

/* Into the newest that needs it, from `from_fd`. `plane` is what its plane is to say. */
static int set_aside(struct chunk_io *io, int from_fd, uint64_t chunk, uint64_t plane,
                     uint32_t needers)
{
    unsigned newest = 31 - (unsigned)__builtin_clz(needers);
    unsigned slot = io->slots.at[newest].slot;
    struct live_slot *at = &io->live->header->slots[slot];
    const bool copied = has_bytes((uint32_t)(plane & PLANE_WORD));
    int rc = copied ? copy_bytes(io, from_fd, slot, chunk) : 0;
    if (rc < 0) {
        break_epochs(io, needers, -rc);
        return 0;
    }
    rc = FAULT_POINT("volume.aside-written", NULL);
    if (rc < 0)
        return rc;
    /* What older ones read there is moved to them when it is released. */
    if (needers & (needers - 1))
        atomic_store(&at->shared, 1);
    atomic_fetch_or(&io->planes.words[slot][chunk], plane);
    if (copied)
        atomic_fetch_add(&at->asides, 1);
    return FAULT_POINT("volume.aside-set", NULL);
}

int chunk_io_preserve(struct chunk_io *io, uint64_t chunk)
{
    uint32_t word = chunk_io_word(io, chunk);
    if ((word & LIVE_WORD_TAG) == io->tag)
        return 0;
    uint64_t last = epoch_of_word(io->live->header, word);
    uint32_t needers = find_needers(io, io->slots.count, chunk, word, last);
    uint64_t plane = PLANE_PRESENT | last << PLANE_EPOCH_SHIFT | (word & PLANE_WORD);
    int rc = needers ? set_aside(io, io->data_fd, chunk, plane, needers) : 0;
    if (rc < 0)
        return rc;
    while (!atomic_compare_exchange_weak(&io->live->words[chunk], &word,
                                         (word & ~LIVE_WORD_TAG) | io->tag))
        ;
    return FAULT_POINT("volume.tag-set", NULL);
}

/* The next chunk, from `chunk` on, of which the plane has a word: reading the others would take
 * memory. */
static uint64_t next_chunk(const struct chunk_io *io, unsigned slot, uint64_t chunk)
{
    const uint64_t start = live_plane_at(io->live->capacity, slot);
    off_t at = lseek(io->live->fd, (off_t)(start + chunk * sizeof(uint64_t)), SEEK_DATA);
    return at < 0 ? UINT64_MAX : ((uint64_t)at - start) / sizeof(uint64_t);
}

int chunk_io_hand_down(struct chunk_io *io, unsigned position)
{
    unsigned slot = io->slots.at[position].slot;
    uint64_t end = io->live->capacity / VOLUME_CHUNK;
    int rc = 0;
    for (uint64_t chunk = 0; rc == 0 && chunk < end; chunk++) {
        chunk = next_chunk(io, slot, chunk);
        if (chunk >= end)
            break;
        uint64_t plane = atomic_load(&io->planes.words[slot][chunk]);
        if (!(plane & PLANE_PRESENT))
            continue;
        uint64_t last = (plane & PLANE_EPOCH) >> PLANE_EPOCH_SHIFT;
        uint32_t needers = find_needers(io, position, chunk, (uint32_t)(plane & PLANE_WORD), last);
        if (needers)
            rc = set_aside(io, io->aside_fds[slot], chunk, plane & ~PLANE_DONE, needers);
    }
    return rc;
}
