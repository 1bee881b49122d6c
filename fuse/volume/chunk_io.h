/* chunk_io.h - reading, writing and discarding ranges of a volume: `data` and the live map
 * together.
 *
 * Job: keep what docs/FORMAT.md says under "Order" true for every request, on any number of
 * threads, whatever the instruction at which the process is killed. Requests are aligned to blocks
 * and lie within the volume; anything else is -EINVAL, as the loop device asks for none.
 *
 * Locks: `gate` is held shared by every request and exclusively by what needs them all drained
 * (resize, close, later the cut); the live map is mapped anew under it, so nobody may keep a
 * pointer into `live` from one request to the next. A chunk has a lock out of CHUNK_IO_LOCKS (its
 * number modulo that), taken in ascending order of the locks when a request spans several: shared
 * by writes into chunks that are changed already, exclusive where a state or a mask changes. Reads
 * take none: a read that runs beside a write to the same blocks may see either, as on any disk, but
 * never bytes from before a discard or a first write, since a word says "changed" only when all of
 * the chunk was written.
 *
 * Unlogged words: whoever changes a state sets it and the bit "unlogged" in one exchange, then the
 * bit of the chunk's group in `unlogged`, then answers. A flush takes the bit of a group away and
 * then looks at its words; so what was answered before is seen by it, and what comes later sets the
 * bit again. It remembers what it has seen (`records`), syncs `data`, appends, syncs the map, and
 * only then takes "unlogged" away from the words that still say what was written. When there are
 * more than fit, it goes round again.
 *
 * Epochs (epochs.h): a write or discard into a chunk whose tag is not the current one takes its
 * lock exclusively too, and sets aside what open epochs need before anything of it changes. What
 * cannot be set aside breaks the epochs, never the write.
 *
 * Flushes that come while one runs wait for it and share the next one.
 *
 * Failures: 0 or -errno, no text, as this is the request path; -ENOSPC and -EDQUOT mean that
 * nothing was answered yet and the request can be repeated as a whole. -EAGAIN: a read of blocks
 * that are only in the remote. A sync that failed is final (the kernel may have dropped what it
 * could not write): every later flush fails, in every successor too (LIVE_FACT_FAILED), as the
 * kernel tells of it once, and the flush that it told may be asked of the successor again.
 *
 * How `data` is written: with O_DIRECT where the host's file system has it, so that the ext4 above
 * has the only page cache, and an error of the disk belongs to the request that met it; buffered
 * elsewhere. Builds with fault points read VARVE_VOLUME_DATA (direct, buffered).
 *
 * Of the live map's header it writes `size`, `local_chunks`, `absent_chunks`, `map_blocks`,
 * `data_mode` and the facts LIVE_FACT_CLOSED and LIVE_FACT_FAILED; the other counters are the
 * caller's.
 *
 * Nothing here allocates after chunk_io_open(), but chunk_io_finish() and flushes that write the
 * map anew open a file.
 */
#pragma once

#include "epochs.h"
#include "map_log.h"

#include <pthread.h>

enum {
    CHUNK_IO_LOCKS = 256,
    CHUNK_IO_GROUP = 64,      /* chunks that have one bit in `unlogged` */
    CHUNK_IO_RUN = 32,        /* chunks that are handled under their locks together */
    CHUNK_IO_RECORDS = 16384, /* that a flush remembers at once */
    CHUNK_IO_STEP_CHUNKS = 4, /* that a step spans at most */
    CHUNK_IO_COPIES = 4,      /* chunks that are set aside at the same time */
};
_Static_assert(CHUNK_IO_RUN < CHUNK_IO_LOCKS, "a run takes no lock twice");

enum chunk_io_mode {
    CHUNK_IO_DIRECT = LIVE_DATA_DIRECT,
    CHUNK_IO_BUFFERED = LIVE_DATA_BUFFERED,
};

struct chunk_io {
    int data_fd; /* owned; holds the flock */
    enum chunk_io_mode mode;
    struct live_map *live; /* borrowed */
    struct map_log *log;   /* borrowed; of the flush that runs, or under the gate */
    pthread_rwlock_t gate;
    bool finished; /* under the gate */
    pthread_rwlock_t locks[CHUNK_IO_LOCKS];
    _Atomic uint64_t *unlogged; /* one bit a group of the largest volume; owned */
    _Atomic bool dirty;         /* bytes were written to `data` since its last sync began */

    /* Of epochs. Changed with the gate held exclusively. */
    struct epoch_planes planes;
    struct epoch_slots slots;      /* that hold asides */
    uint32_t tag;                  /* of the current epoch, as in a word */
    int aside_fds[LIVE_MAP_SLOTS]; /* owned; -1 */

    pthread_mutex_t copy_lock; /* of the next two */
    pthread_cond_t copy_free;
    unsigned copies_free; /* a bit for each buffer */
    uint8_t *copies;      /* CHUNK_IO_COPIES chunks, aligned; owned */

    pthread_mutex_t flush_lock; /* of the next five */
    pthread_cond_t flush_ended;
    uint64_t flushes_begun;
    uint64_t flushes_ended; /* equal to begun when none runs */
    int flush_result;       /* of the last that ended */

    /* Of the flush that runs, or under the gate. */
    struct map_record *records; /* CHUNK_IO_RECORDS; owned */
    uint64_t rewrite_at;        /* length of the log after which it is written anew */
    int failed;                 /* -errno of a sync that failed for good */
};

/* A request under way, between chunk_io_begin_...() and chunk_io_end(). */
struct chunk_io_step {
    bool write;
    void *buffer;
    size_t len;
    uint64_t offset;
    uint64_t first, last; /* chunks; of a write they are locked, shared */
    uint32_t zeros;       /* of a read: a bit for each chunk that reads as zeros */
};

/* Takes `data_fd`, open for reading and writing and with its flock held (owned on success), finds
 * out how it can be written, makes the summary of unlogged words, and marks a map on disk that was
 * closed as in use, unless the live map says that the volume is closed for good. ERR_DAMAGED when
 * the file is smaller than the volume. (A kill in the middle of a resize leaves it larger.) */
int chunk_io_open(int data_fd, struct live_map *live, struct map_log *log, struct chunk_io *ret,
                  struct err *err);
void chunk_io_close(struct chunk_io *io);
/* Before the first request, and after all memory was locked: goes on with the epochs that a
 * predecessor had open. */
int chunk_io_begin(struct chunk_io *io, struct err *err);

/* `buffer` is aligned to blocks. Bytes that are not in `data` read as zeros. */
int chunk_io_read(struct chunk_io *io, void *buffer, size_t len, uint64_t offset);
/* `buffer` is aligned to blocks. */
int chunk_io_write(struct chunk_io *io, const void *buffer, size_t len, uint64_t offset);
/* The two above in two halves, for one that must not wait. 1: all that is left to do is to read or
 * write `len` bytes at `offset` of data_fd, then call chunk_io_end() with the result (bytes or
 * -errno), on the same thread; until then locks are held, so that thread must not call what may
 * wait for them (all but the begin functions). 0: a read is done. -EBUSY: nothing was done, it
 * takes chunk_io_read() or chunk_io_write(), which may wait or change states. */
int chunk_io_begin_read(struct chunk_io *io, void *buffer, size_t len, uint64_t offset,
                        struct chunk_io_step *ret);
int chunk_io_begin_write(struct chunk_io *io, const void *buffer, size_t len, uint64_t offset,
                         struct chunk_io_step *ret);
/* 0, -errno, or -EBUSY: not all of it was done, the request is to be repeated as a whole. */
int chunk_io_end(struct chunk_io *io, struct chunk_io_step *step, int result);
/* Both punch and zeroing: the range reads as zeros afterwards. Whole chunks give their room back,
 * parts of one are overwritten. */
int chunk_io_discard(struct chunk_io *io, uint64_t len, uint64_t offset);
/* The first stretch of chunks of which a read of the range would need blocks that only the remote
 * has: its first one in *ret_first, and how many there are; 0: none. */
uint64_t chunk_io_find_absent(struct chunk_io *io, uint64_t len, uint64_t offset,
                              uint64_t *ret_first);
/* What only the remote had of a chunk: its VOLUME_CHUNK bytes, aligned to blocks, or NULL when it
 * is zero. The blocks that are not here are written, and then it is clean, or changed when some
 * were written before. A chunk that is not absent is left alone: 0. -EINVAL: the volume has no such
 * chunk. -ENOSPC, -EDQUOT: nothing has changed. -EIO too once the volume is finished. */
int chunk_io_fill(struct chunk_io *io, uint64_t chunk, const void *bytes);
/* The flush. 0 when everything that was answered before the call is on disk with its map. */
int chunk_io_flush(struct chunk_io *io);
/* The final cut: flush, then the map written anew, closed; where there is no room for that the map
 * stays as it is, which costs the next start its reading and nothing else. Afterwards writes and
 * discards are -EIO, for every successor too (LIVE_FACT_CLOSED). Repeating it is fine. */
int chunk_io_finish(struct chunk_io *io, struct err *err);
/* Grows `data`, then the volume, and flushes: the size is on disk before anybody is told of it
 * (I3). Repeating it is fine. ERR_INVALID: a smaller size. ERR_CONFLICT: more than the live
 * map's capacity. */
int chunk_io_resize(struct chunk_io *io, uint64_t size, struct err *err);

/* The cut: ends the current epoch and has it open for `uses` (LIVE_USE_...). Every request that was
 * answered before the call is in it, none that is asked for afterwards. `token`, not 0, is the
 * caller's name for this cut: asked again with it, the same epoch is returned. ERR_CONFLICT: as
 * many are open as can be, or one has been open for a checkpoint for too many cuts. One caller at a
 * time, of this and the next. */
int chunk_io_cut(struct chunk_io *io, uint64_t token, uint32_t uses, uint64_t *ret_epoch,
                 struct err *err);
/* Ends an open epoch. One that is not open is no failure. */
int chunk_io_release(struct chunk_io *io, uint64_t epoch, struct err *err);
