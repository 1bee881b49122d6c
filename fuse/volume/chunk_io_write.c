/* Writing and discarding. */
#include "chunk_io.h"
#include "chunk_io_parts.h"
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int chunk_io_write_vector(int fd, struct iovec *iov, int count, uint64_t offset)
{
    while (count > 0) {
        ssize_t got = pwritev(fd, iov, count, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EIO;
        offset += (uint64_t)got;
        while (count > 0 && (size_t)got >= iov->iov_len) {
            got -= (ssize_t)iov->iov_len;
            iov++;
            count--;
        }
        if (count > 0) {
            iov->iov_base = (uint8_t *)iov->iov_base + got;
            iov->iov_len -= (size_t)got;
        }
    }
    return 0;
}

static bool all_settled(const struct chunk_io *io, uint64_t first, uint64_t last)
{
    for (uint64_t chunk = first; chunk <= last; chunk++) {
        if (!chunk_io_is_settled(io, chunk))
            return false;
    }
    return true;
}

void chunk_io_touch(struct chunk_io *io, uint64_t chunk)
{
    if (!(chunk_io_word(io, chunk) & LIVE_WORD_TOUCHED))
        atomic_fetch_or(&io->live->words[chunk], LIVE_WORD_TOUCHED);
}

/* A chunk after a write of `from` to `end`, all of it or not. Its lock is held exclusively unless
 * it is changed already. */
static void note_write(struct chunk_io *io, uint64_t chunk, uint64_t from, uint64_t end)
{
    uint32_t word = chunk_io_word(io, chunk);
    if (live_word_state(word) == VOLUME_CHANGED) {
        chunk_io_touch(io, chunk);
        return;
    }
    uint32_t mask = VOLUME_MASK_ALL;
    if (live_word_state(word) == VOLUME_ABSENT) {
        mask = word & LIVE_WORD_MASK;
        uint64_t start = chunk * VOLUME_CHUNK;
        for (uint64_t block = 0; block < VOLUME_CHUNK_BLOCKS; block++) {
            uint64_t at = start + block * VOLUME_BLOCK;
            if (at >= from && at < end)
                mask |= 1u << block;
        }
    }
    chunk_io_change(io, chunk, mask == VOLUME_MASK_ALL ? VOLUME_CHANGED : VOLUME_ABSENT, mask,
                    LIVE_WORD_TOUCHED);
}

/* Writes under the locks. What the range leaves free of a zero chunk is written as zeros with it,
 * as one sequential write. */
static int write_locked(struct chunk_io *io, const void *buffer, size_t len, uint64_t offset)
{
    uint64_t end = offset + len;
    uint64_t first = offset / VOLUME_CHUNK;
    uint64_t last = (end - 1) / VOLUME_CHUNK;
    struct iovec iov[3];
    int count = 0;
    size_t before = 0;
    size_t after = 0;
    if (live_word_state(chunk_io_word(io, first)) == VOLUME_ZERO)
        before = offset % VOLUME_CHUNK;
    if (live_word_state(chunk_io_word(io, last)) == VOLUME_ZERO)
        after = (size_t)((last + 1) * VOLUME_CHUNK - end);
    if (before > 0)
        iov[count++] = (struct iovec){(void *)chunk_io_zeros, before};
    iov[count++] = (struct iovec){(void *)buffer, len};
    if (after > 0)
        iov[count++] = (struct iovec){(void *)chunk_io_zeros, after};
    int rc = chunk_io_write_vector(io->data_fd, iov, count, offset - before);
    atomic_store(&io->dirty, true);
    if (rc == 0)
        rc = FAULT_POINT("volume.data-written", NULL);
    if (rc < 0)
        return rc;
    for (uint64_t chunk = first; chunk <= last; chunk++)
        note_write(io, chunk, offset, end);
    return FAULT_POINT("volume.state-set", NULL);
}

bool chunk_io_try_lock_settled(struct chunk_io *io, uint64_t first, uint64_t last)
{
    for (uint64_t chunk = first; chunk <= last; chunk++) {
        if (pthread_rwlock_tryrdlock(&io->locks[chunk % CHUNK_IO_LOCKS]) == 0)
            continue;
        if (chunk > first)
            chunk_io_unlock(io, first, chunk - 1);
        return false;
    }
    if (all_settled(io, first, last))
        return true;
    chunk_io_unlock(io, first, last);
    return false;
}

/* A write into at most CHUNK_IO_RUN chunks. */
static int write_run(struct chunk_io *io, const void *buffer, size_t len, uint64_t offset)
{
    uint64_t first = offset / VOLUME_CHUNK;
    uint64_t last = (offset + len - 1) / VOLUME_CHUNK;
    bool exclusive = !all_settled(io, first, last);
    chunk_io_lock(io, first, last, exclusive);
    if (!exclusive && !all_settled(io, first, last)) { /* discarded meanwhile */
        chunk_io_unlock(io, first, last);
        exclusive = true;
        chunk_io_lock(io, first, last, exclusive);
    }
    int rc = 0;
    for (uint64_t chunk = first; rc == 0 && exclusive && chunk <= last; chunk++)
        rc = chunk_io_preserve(io, chunk);
    if (rc == 0)
        rc = write_locked(io, buffer, len, offset);
    chunk_io_unlock(io, first, last);
    return rc;
}

static uint64_t run_end(uint64_t offset, uint64_t end)
{
    uint64_t next = (offset / VOLUME_CHUNK + CHUNK_IO_RUN) * VOLUME_CHUNK;
    return next < end ? next : end;
}

static int write_gated(struct chunk_io *io, const uint8_t *buffer, size_t len, uint64_t offset)
{
    int rc = io->finished ? -EIO : chunk_io_check(io, len, offset);
    uint64_t end = offset + len;
    while (rc == 0 && offset < end) {
        size_t piece = (size_t)(run_end(offset, end) - offset);
        rc = write_run(io, buffer, piece, offset);
        buffer += piece;
        offset += piece;
    }
    return rc;
}

int chunk_io_write(struct chunk_io *io, const void *buffer, size_t len, uint64_t offset)
{
    (void)pthread_rwlock_rdlock(&io->gate);
    int rc = write_gated(io, buffer, len, offset);
    (void)pthread_rwlock_unlock(&io->gate);
    return rc;
}

static bool all_zero(const struct chunk_io *io, uint64_t first, uint64_t last)
{
    for (uint64_t chunk = first; chunk <= last; chunk++) {
        if (live_word_state(chunk_io_word(io, chunk)) != VOLUME_ZERO)
            return false;
    }
    return true;
}

/* Where the next bytes of `data` are. A worker that was killed between state and punch may have
 * left some in zero chunks. `known`: what this has said for an earlier offset, or 0. */
static uint64_t next_data(const struct chunk_io *io, uint64_t offset, uint64_t known)
{
    if (known > offset)
        return known;
    off_t data = lseek(io->data_fd, (off_t)offset, SEEK_DATA);
    if (data < 0)
        return errno == ENXIO ? UINT64_MAX : offset;
    return (uint64_t)data;
}

static int punch(struct chunk_io *io, uint64_t offset, uint64_t end)
{
    if (fallocate(io->data_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                  (off_t)(end - offset)) == 0)
        return 0;
    /* The chunks are zero whatever is in `data`; only the room is not given back. */
    bool is_harmless = errno == EOPNOTSUPP || errno == ENOSPC || errno == EDQUOT;
    return is_harmless ? 0 : -errno;
}

/* Whole chunks, at most CHUNK_IO_RUN. `data` as next_data() keeps it. */
static int discard_run(struct chunk_io *io, uint64_t first, uint64_t last, uint64_t *data)
{
    uint64_t offset = first * VOLUME_CHUNK;
    uint64_t end = (last + 1) * VOLUME_CHUNK;
    if (all_zero(io, first, last)) {
        *data = next_data(io, offset, *data);
        if (*data >= end)
            return 0;
    }
    chunk_io_lock(io, first, last, true);
    int rc = 0;
    for (uint64_t chunk = first; rc == 0 && chunk <= last; chunk++) {
        if (live_word_state(chunk_io_word(io, chunk)) == VOLUME_ZERO)
            continue;
        rc = chunk_io_preserve(io, chunk);
        if (rc == 0)
            chunk_io_change(io, chunk, VOLUME_ZERO, 0, 0);
    }
    if (rc == 0)
        rc = FAULT_POINT("volume.discard-state-set", NULL);
    if (rc == 0)
        rc = punch(io, offset, end);
    atomic_store(&io->dirty, true);
    chunk_io_unlock(io, first, last);
    return rc;
}

/* Part of one chunk. */
static int discard_part(struct chunk_io *io, size_t len, uint64_t offset)
{
    uint64_t chunk = offset / VOLUME_CHUNK;
    if (all_zero(io, chunk, chunk))
        return 0;
    return write_run(io, chunk_io_zeros, len, offset);
}

static int discard_gated(struct chunk_io *io, uint64_t len, uint64_t offset)
{
    int rc = io->finished ? -EIO : chunk_io_check(io, len, offset);
    uint64_t end = offset + len;
    uint64_t data = 0;
    while (rc == 0 && offset < end) {
        uint64_t first = offset / VOLUME_CHUNK;
        uint64_t next = run_end(offset, end);
        if (offset % VOLUME_CHUNK != 0 || end - offset < VOLUME_CHUNK) {
            next = (first + 1) * VOLUME_CHUNK < end ? (first + 1) * VOLUME_CHUNK : end;
            rc = discard_part(io, (size_t)(next - offset), offset);
        } else {
            next -= next % VOLUME_CHUNK;
            rc = discard_run(io, first, next / VOLUME_CHUNK - 1, &data);
        }
        offset = next;
    }
    return rc;
}

int chunk_io_discard(struct chunk_io *io, uint64_t len, uint64_t offset)
{
    (void)pthread_rwlock_rdlock(&io->gate);
    int rc = discard_gated(io, len, offset);
    (void)pthread_rwlock_unlock(&io->gate);
    return rc;
}
