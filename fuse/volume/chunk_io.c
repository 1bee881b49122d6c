#include "chunk_io.h"

#include "chunk_io_parts.h"
#include "cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

_Alignas(VOLUME_BLOCK) const uint8_t chunk_io_zeros[VOLUME_CHUNK];

int chunk_io_check(const struct chunk_io *io, uint64_t len, uint64_t offset)
{
    uint64_t size = atomic_load(&io->live->header->size);
    if ((len | offset) % VOLUME_BLOCK != 0 || offset > size || len > size - offset)
        return -EINVAL;
    return 0;
}

static void lock_one(pthread_rwlock_t *lock, bool exclusive)
{
    if (exclusive)
        (void)pthread_rwlock_wrlock(lock);
    else
        (void)pthread_rwlock_rdlock(lock);
}

/* A run that goes over the end of the table takes the locks at its beginning first. */
void chunk_io_lock(struct chunk_io *io, uint64_t first, uint64_t last, bool exclusive)
{
    uint64_t from = first % CHUNK_IO_LOCKS;
    uint64_t to = last % CHUNK_IO_LOCKS;
    if (to < from) {
        for (uint64_t i = 0; i <= to; i++)
            lock_one(&io->locks[i], exclusive);
        to = CHUNK_IO_LOCKS - 1;
    }
    for (uint64_t i = from; i <= to; i++)
        lock_one(&io->locks[i], exclusive);
}

void chunk_io_unlock(struct chunk_io *io, uint64_t first, uint64_t last)
{
    for (uint64_t chunk = first; chunk <= last; chunk++)
        (void)pthread_rwlock_unlock(&io->locks[chunk % CHUNK_IO_LOCKS]);
}

void chunk_io_mark_group(struct chunk_io *io, uint64_t chunk)
{
    uint64_t group = chunk / CHUNK_IO_GROUP;
    atomic_fetch_or(&io->unlogged[group / 64], UINT64_C(1) << (group % 64));
}

static bool is_local(uint32_t word)
{
    enum volume_state state = live_word_state(word);
    return state == VOLUME_CLEAN || state == VOLUME_CHANGED;
}

static bool is_absent(uint32_t word)
{
    return live_word_state(word) == VOLUME_ABSENT;
}

/* By one more or one less, as a chunk has become what is counted, or is it no more. */
static void count(_Atomic uint64_t *counter, bool before, bool now)
{
    if (now && !before)
        atomic_fetch_add(counter, 1);
    else if (before && !now)
        atomic_fetch_sub(counter, 1);
}

static void note_change(struct chunk_io *io, uint64_t chunk, uint32_t old, uint32_t word)
{
    chunk_io_mark_group(io, chunk);
    count(&io->live->header->local_chunks, is_local(old), is_local(word));
    count(&io->live->header->absent_chunks, is_absent(old), is_absent(word));
}

void chunk_io_change(struct chunk_io *io, uint64_t chunk, enum volume_state state, uint32_t mask,
                     uint32_t bits)
{
    uint32_t word = live_word(state, mask) | LIVE_WORD_UNLOGGED | bits | io->tag;
    note_change(io, chunk, atomic_exchange(&io->live->words[chunk], word), word);
}

void chunk_io_complete(struct chunk_io *io, uint64_t chunk, enum volume_state state)
{
    uint32_t old = chunk_io_word(io, chunk);
    uint32_t word;
    do /* varved may change the bit TOUCHED meanwhile */
        word = live_word(state, state == VOLUME_ZERO ? 0 : VOLUME_MASK_ALL) | LIVE_WORD_UNLOGGED |
               (old & (LIVE_WORD_TOUCHED | LIVE_WORD_TAG));
    while (!atomic_compare_exchange_weak(&io->live->words[chunk], &old, word));
    note_change(io, chunk, old, word);
}

/* Reads what is in `data`. */
static int read_data(int fd, uint8_t *buffer, size_t len, uint64_t offset)
{
    while (len > 0) {
        ssize_t got = pread(fd, buffer, len, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            return -EIO; /* the file has been cut off */
        buffer += got;
        offset += (uint64_t)got;
        len -= (size_t)got;
    }
    return 0;
}

enum source {
    SOURCE_ZEROS,
    SOURCE_DATA,
    SOURCE_REMOTE
};

/* Where the bytes from `offset` up to `end`, in one chunk, are. */
static enum source source_of(const struct chunk_io *io, uint64_t offset, uint64_t end)
{
    uint32_t word = chunk_io_word(io, offset / VOLUME_CHUNK);
    uint32_t wanted = 0;
    switch (live_word_state(word)) {
    case VOLUME_ZERO:
        return SOURCE_ZEROS;
    case VOLUME_ABSENT:
        for (uint64_t at = offset; at < end; at += VOLUME_BLOCK)
            wanted |= 1u << (at / VOLUME_BLOCK % VOLUME_CHUNK_BLOCKS);
        return (word & wanted) == wanted ? SOURCE_DATA : SOURCE_REMOTE;
    case VOLUME_CLEAN:
    case VOLUME_CHANGED:
    default:
        return SOURCE_DATA;
    }
}

static uint64_t chunk_end(uint64_t offset, uint64_t end)
{
    uint64_t next = (offset / VOLUME_CHUNK + 1) * VOLUME_CHUNK;
    return next < end ? next : end;
}

/* The longest piece from `offset` on that has one source. */
static enum source next_piece(const struct chunk_io *io, uint64_t *offset, uint64_t end)
{
    uint64_t at = chunk_end(*offset, end);
    enum source source = source_of(io, *offset, at);
    while (at < end) {
        uint64_t next = chunk_end(at, end);
        if (source_of(io, at, next) != source)
            break;
        at = next;
    }
    *offset = at;
    return source;
}

static int read_pieces(struct chunk_io *io, uint8_t *buffer, uint64_t offset, uint64_t end)
{
    while (offset < end) {
        uint64_t next = offset;
        enum source source = next_piece(io, &next, end);
        size_t len = (size_t)(next - offset);
        if (source == SOURCE_REMOTE)
            return -EAGAIN;
        if (source == SOURCE_ZEROS) {
            memset(buffer, 0, len);
        } else {
            int rc = read_data(io->data_fd, buffer, len, offset);
            if (rc < 0)
                return rc;
        }
        buffer += len;
        offset = next;
    }
    return 0;
}

static uint64_t find_absent(const struct chunk_io *io, uint64_t offset, uint64_t end,
                            uint64_t *ret_first)
{
    while (offset < end && source_of(io, offset, chunk_end(offset, end)) != SOURCE_REMOTE)
        offset = chunk_end(offset, end);
    uint64_t first = offset / VOLUME_CHUNK;
    uint64_t count = 0;
    for (; offset < end && source_of(io, offset, chunk_end(offset, end)) == SOURCE_REMOTE; count++)
        offset = chunk_end(offset, end);
    *ret_first = first;
    return count;
}

uint64_t chunk_io_find_absent(struct chunk_io *io, uint64_t len, uint64_t offset,
                              uint64_t *ret_first)
{
    (void)pthread_rwlock_rdlock(&io->gate);
    uint64_t count =
        chunk_io_check(io, len, offset) == 0 ? find_absent(io, offset, offset + len, ret_first) : 0;
    (void)pthread_rwlock_unlock(&io->gate);
    return count;
}

int chunk_io_read(struct chunk_io *io, void *buffer, size_t len, uint64_t offset)
{
    (void)pthread_rwlock_rdlock(&io->gate);
    int rc = chunk_io_check(io, len, offset);
    if (rc == 0)
        rc = read_pieces(io, buffer, offset, offset + len);
    (void)pthread_rwlock_unlock(&io->gate);
    return rc;
}

/* Shorter and marked as closed, but with nothing in it that the old one lacks once that has been
 * flushed: where there is no room for it, the old one goes on. */
static int close_map(struct chunk_io *io, struct err *err)
{
    struct err why = ERR_INIT;
    int rc = chunk_io_rewrite(io, true, &why);
    if (rc == 0 || (why.code == ERR_NO_SPACE && !io->log->broken))
        return 0;
    return err_pass(err, rc, &why);
}

static int finish_gated(struct chunk_io *io, struct err *err)
{
    int rc = chunk_io_flush_alone(io);
    if (rc < 0)
        return err_errno(err, rc, "cannot flush the volume");
    rc = close_map(io, err);
    if (rc < 0)
        return rc;
    io->finished = true;
    atomic_fetch_or(&io->live->header->facts, LIVE_FACT_CLOSED);
    return 0;
}

int chunk_io_finish(struct chunk_io *io, struct err *err)
{
    (void)pthread_rwlock_wrlock(&io->gate);
    int rc = io->finished ? 0 : finish_gated(io, err);
    (void)pthread_rwlock_unlock(&io->gate);
    return rc;
}

static int resize_gated(struct chunk_io *io, uint64_t size, struct err *err)
{
    uint64_t now = atomic_load(&io->live->header->size);
    if (size < now || size > VOLUME_SIZE_MAX || size % VOLUME_SIZE_UNIT != 0)
        return err_fail(err, ERR_INVALID, "a volume of %llu bytes cannot become one of %llu",
                        (unsigned long long)now, (unsigned long long)size);
    struct stat st;
    if (fstat(io->data_fd, &st) < 0)
        return err_errno(err, errno, "cannot stat the data of the volume");
    if ((uint64_t)st.st_size < size && ftruncate(io->data_fd, (off_t)size) < 0)
        return err_errno(err, errno, "cannot make the data of the volume %llu bytes large",
                         (unsigned long long)size);
    atomic_store(&io->dirty, true);
    int rc = live_map_remap(io->live, size, err);
    if (rc == 0)
        atomic_store(&io->live->header->size, size);
    return rc;
}

int chunk_io_resize(struct chunk_io *io, uint64_t size, struct err *err)
{
    (void)pthread_rwlock_wrlock(&io->gate);
    int rc = resize_gated(io, size, err);
    (void)pthread_rwlock_unlock(&io->gate);
    if (rc < 0)
        return rc;
    rc = chunk_io_flush(io);
    return rc < 0 ? err_errno(err, rc, "cannot sync the larger data of the volume") : 0;
}
