/* A request as one read or write of `data` that somebody else carries out. */
#include "chunk_io.h"
#include "chunk_io_parts.h"
#include "fault.h"

#include <errno.h>
#include <string.h>

static bool is_one_step(const struct chunk_io *io, size_t len, uint64_t offset)
{
    return !io->finished && len > 0 && chunk_io_check(io, len, offset) == 0 &&
           (offset + len - 1) / VOLUME_CHUNK - offset / VOLUME_CHUNK < CHUNK_IO_STEP_CHUNKS;
}

/* Which chunks of the range read as zeros; false when blocks of one are elsewhere. */
static bool find_zeros(const struct chunk_io *io, const struct chunk_io_step *step, uint32_t *ret)
{
    uint32_t zeros = 0;
    for (uint64_t chunk = step->first; chunk <= step->last; chunk++) {
        enum volume_state state = live_word_state(chunk_io_word(io, chunk));
        if (state == VOLUME_ABSENT)
            return false;
        if (state == VOLUME_ZERO)
            zeros |= 1u << (chunk - step->first);
    }
    *ret = zeros;
    return true;
}

static void fill_zeros(const struct chunk_io_step *step)
{
    uint64_t end = step->offset + step->len;
    for (uint64_t chunk = step->first; chunk <= step->last; chunk++) {
        if (!(step->zeros >> (chunk - step->first) & 1))
            continue;
        uint64_t from = chunk * VOLUME_CHUNK;
        uint64_t to = from + VOLUME_CHUNK;
        if (from < step->offset)
            from = step->offset;
        if (to > end)
            to = end;
        memset((uint8_t *)step->buffer + (from - step->offset), 0, (size_t)(to - from));
    }
}

static void begin(struct chunk_io_step *step, bool write, void *buffer, size_t len, uint64_t offset)
{
    *step = (struct chunk_io_step){.write = write,
                                   .buffer = buffer,
                                   .len = len,
                                   .offset = offset,
                                   .first = offset / VOLUME_CHUNK,
                                   .last = (offset + len - 1) / VOLUME_CHUNK};
}

int chunk_io_begin_read(struct chunk_io *io, void *buffer, size_t len, uint64_t offset,
                        struct chunk_io_step *ret)
{
    if (pthread_rwlock_tryrdlock(&io->gate) != 0)
        return -EBUSY;
    int rc = -EBUSY;
    if (is_one_step(io, len, offset)) {
        begin(ret, false, buffer, len, offset);
        if (find_zeros(io, ret, &ret->zeros)) {
            uint32_t all = (1u << (ret->last - ret->first + 1)) - 1;
            rc = ret->zeros == all ? 0 : 1;
        }
    }
    if (rc == 0)
        fill_zeros(ret);
    if (rc != 1)
        (void)pthread_rwlock_unlock(&io->gate);
    return rc;
}

int chunk_io_begin_write(struct chunk_io *io, const void *buffer, size_t len, uint64_t offset,
                         struct chunk_io_step *ret)
{
    if (pthread_rwlock_tryrdlock(&io->gate) != 0)
        return -EBUSY;
    if (is_one_step(io, len, offset)) {
        begin(ret, true, (void *)buffer, len, offset);
        if (chunk_io_try_lock_settled(io, ret->first, ret->last))
            return 1;
    }
    (void)pthread_rwlock_unlock(&io->gate);
    return -EBUSY;
}

/* What the disk says; of all else (a ring has failures of its own, as no memory, or no thread that
 * may wait) pread(2) or pwrite(2) will tell the truth. */
static bool is_final(const struct chunk_io_step *step, int result)
{
    return result == -EIO || (step->write && (result == -ENOSPC || result == -EDQUOT));
}

int chunk_io_end(struct chunk_io *io, struct chunk_io_step *step, int result)
{
    int rc = is_final(step, result) ? result : -EBUSY;
    if (result >= 0 && (size_t)result == step->len)
        rc = 0;
    if (step->write) {
        atomic_store(&io->dirty, true);
        if (rc == 0)
            rc = FAULT_POINT("volume.step-written", NULL);
        for (uint64_t chunk = step->first; rc == 0 && chunk <= step->last; chunk++)
            chunk_io_touch(io, chunk);
        chunk_io_unlock(io, step->first, step->last);
    } else if (rc == 0) {
        fill_zeros(step);
    }
    (void)pthread_rwlock_unlock(&io->gate);
    return rc;
}
