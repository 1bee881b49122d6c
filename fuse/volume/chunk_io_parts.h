/* chunk_io_parts.h - what the files of chunk_io share: ranges, locks, words. Internal. */
#pragma once

#include "chunk_io.h"

#include <sys/uio.h>

/* 0, or -EINVAL for a range that is not of whole blocks within the volume. Under the gate. */
int chunk_io_check(const struct chunk_io *io, uint64_t len, uint64_t offset);

/* The locks of the chunks from `first` to `last`, at most CHUNK_IO_RUN. */
void chunk_io_lock(struct chunk_io *io, uint64_t first, uint64_t last, bool exclusive);
/* Shared, if nobody has one of them exclusively and all these chunks are settled. */
bool chunk_io_try_lock_settled(struct chunk_io *io, uint64_t first, uint64_t last);
void chunk_io_unlock(struct chunk_io *io, uint64_t first, uint64_t last);

static inline uint32_t chunk_io_word(const struct chunk_io *io, uint64_t chunk)
{
    return atomic_load(&io->live->words[chunk]);
}

/* Whether a chunk can be written to without anything else: it is changed already, and what open
 * epochs need of it is set aside. */
static inline bool chunk_io_is_settled(const struct chunk_io *io, uint64_t chunk)
{
    return (chunk_io_word(io, chunk) & (LIVE_WORD_STATE | LIVE_WORD_TAG)) ==
           (((uint32_t)VOLUME_CHANGED << LIVE_WORD_SHIFT) | io->tag);
}

/* Sets aside what open epochs need of a chunk, whose lock is held exclusively, and gives it the
 * current tag. Before anything of it changes. A kill at a fault point is the only failure. */
int chunk_io_preserve(struct chunk_io *io, uint64_t chunk);

/* Gives what older epochs need of the asides of a slot that is kept (a position in io->slots) to
 * them. For the caller of cuts and releases. */
int chunk_io_hand_down(struct chunk_io *io, unsigned position);

/* Gives a chunk, whose lock is held exclusively and which was preserved, a new state (with `bits`
 * from LIVE_WORD_TOUCHED), unlogged, and keeps the counters and the summary up. */
void chunk_io_change(struct chunk_io *io, uint64_t chunk, enum volume_state state, uint32_t mask,
                     uint32_t bits);
/* An absent chunk, whose lock is held exclusively, has all its bytes now (or none): the new state,
 * unlogged. When it was last written stays what it was. */
void chunk_io_complete(struct chunk_io *io, uint64_t chunk, enum volume_state state);
void chunk_io_mark_group(struct chunk_io *io, uint64_t chunk);

/* Writes all of it; `iov` is used up. */
int chunk_io_write_vector(int fd, struct iovec *iov, int count, uint64_t offset);

/* A chunk that stays changed was written to. */
void chunk_io_touch(struct chunk_io *io, uint64_t chunk);

/* Zeros, aligned to blocks. */
extern const uint8_t chunk_io_zeros[VOLUME_CHUNK];

/* Flushes as the only one: the gate is held exclusively, or the caller is the flush that runs. */
int chunk_io_flush_alone(struct chunk_io *io);
/* Writes the map anew. The same. */
int chunk_io_rewrite(struct chunk_io *io, bool closed, struct err *err);
