/* epoch_read.h - the bytes of a volume as they were at a cut, while the worker goes on.
 *
 * Job: give the content of any chunk of an open epoch, to any process that has the volume's
 * directory and its live map; the worker is not asked and not held up.
 *
 * How: a chunk is read from the first slot, from the epoch's own on, that has it set aside; else
 * from `data`, and then the slots are looked at again, as the worker may have set it aside and
 * overwritten it meanwhile. `data` and asides are read with O_DIRECT where the worker writes so: a
 * page cache beside it would keep bytes that are gone.
 *
 * Limits: the caller keeps the epoch open (it was given it by a cut, and has not released it) and,
 * when it is open for a checkpoint alone, asks for dirty chunks only; of others what comes is
 * undefined. One thread at a time for a reader.
 *
 * The files belong to the worker's user, who may put anything there: they are opened without
 * following links, and must be regular.
 */
#pragma once

#include "epochs.h"

struct epoch_reader {
    int dir_fd; /* borrowed: the volume's directory */
    struct live_map live;
    struct epoch_planes planes;
    uint64_t epoch;
    uint64_t chunks; /* that the volume had at the cut */
    int slot;        /* of the epoch */
    int data_fd;     /* owned */
    struct {
        int fd; /* owned; -1 not open */
        uint64_t number;
    } asides[LIVE_MAP_SLOTS];
};

/* What a chunk is. Of one that is absent, the bytes of the blocks in `mask` are here. */
struct epoch_chunk {
    enum volume_state state;
    uint32_t mask;
    uint64_t last; /* epoch of its last write; 0: at or before the last checkpoint */
};

/* `live_fd` is borrowed as long as the reader lives. ERR_NOT_FOUND: that epoch is not open. */
int epoch_reader_open(int dir_fd, int live_fd, uint64_t epoch, struct epoch_reader *ret,
                      struct err *err);
void epoch_reader_close(struct epoch_reader *reader);
/* Whether a chunk is dirty in the epoch; until the checkpoint is done with it. */
bool epoch_reader_is_dirty(const struct epoch_reader *reader, uint64_t chunk);
/* What a chunk is, and its bytes into `buffer` (VOLUME_CHUNK, aligned to blocks; zeros for a zero
 * chunk). ERR_CONFLICT: the epoch is broken or open no more, what it was cannot be read. */
int epoch_reader_read(struct epoch_reader *reader, uint64_t chunk, void *buffer,
                      struct epoch_chunk *ret, struct err *err);
/* ERR_CONFLICT: it is broken, or open no more. After bytes were read, as what breaks or ends it
 * comes before what overwrites them. */
int epoch_reader_check(const struct epoch_reader *reader, struct err *err);
/* The same without the bytes, at the cost of a few loads. Of an epoch that is open for a view. What
 * was not written since is told by its word alone: looking into planes takes memory. It is what
 * the chunk was only if epoch_reader_check() says so afterwards. ERR_CONFLICT: slots come and go
 * all the time. */
int epoch_reader_look(const struct epoch_reader *reader, uint64_t chunk, struct epoch_chunk *ret,
                      struct err *err);
/* The checkpoint has read this chunk and needs it no more. */
void epoch_reader_done(struct epoch_reader *reader, uint64_t chunk);
