/* What only the remote had, brought. */
#include "chunk_io.h"
#include "chunk_io_parts.h"
#include "fault.h"

#include <errno.h>

/* The blocks that are not in `mask`, each stretch of them at once. */
static int write_missing(struct chunk_io *io, uint64_t chunk, uint32_t mask, const uint8_t *bytes)
{
    unsigned block = 0;
    while (block < VOLUME_CHUNK_BLOCKS) {
        unsigned end = block;
        while (end < VOLUME_CHUNK_BLOCKS && !(mask >> end & 1))
            end++;
        if (end > block) {
            const size_t at = (size_t)block * VOLUME_BLOCK;
            struct iovec iov = {(void *)(bytes + at), (size_t)(end - block) * VOLUME_BLOCK};
            int rc = chunk_io_write_vector(io->data_fd, &iov, 1, chunk * VOLUME_CHUNK + at);
            if (rc < 0)
                return rc;
        }
        block = end + 1;
    }
    return 0;
}

/* Content and time of the last write stay what they were, so epochs need nothing. */
static int fill(struct chunk_io *io, uint64_t chunk, const uint8_t *bytes)
{
    uint32_t word = chunk_io_word(io, chunk);
    if (live_word_state(word) != VOLUME_ABSENT)
        return 0;
    uint32_t mask = word & LIVE_WORD_MASK;
    enum volume_state state = mask ? VOLUME_CHANGED : bytes ? VOLUME_CLEAN : VOLUME_ZERO;
    if (state != VOLUME_ZERO) {
        int rc = write_missing(io, chunk, mask, bytes ? bytes : chunk_io_zeros);
        atomic_store(&io->dirty, true);
        if (rc == 0)
            rc = FAULT_POINT("volume.fill-written", NULL);
        if (rc < 0)
            return rc;
    }
    chunk_io_complete(io, chunk, state);
    return FAULT_POINT("volume.fill-set", NULL);
}

int chunk_io_fill(struct chunk_io *io, uint64_t chunk, const void *bytes)
{
    (void)pthread_rwlock_rdlock(&io->gate);
    int rc = io->finished ? -EIO : 0;
    if (rc == 0 && chunk >= atomic_load(&io->live->header->size) / VOLUME_CHUNK)
        rc = -EINVAL;
    if (rc == 0) {
        chunk_io_lock(io, chunk, chunk, true);
        rc = fill(io, chunk, bytes);
        chunk_io_unlock(io, chunk, chunk);
    }
    (void)pthread_rwlock_unlock(&io->gate);
    return rc;
}
