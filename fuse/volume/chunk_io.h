/* chunk_io.h - reading, writing and discarding ranges of a volume: `data` and the live map
 * together.
 *
 * Job: keep what docs/FORMAT.md says under "Order" true for every request, on any number of
 * threads, whatever the instruction at which the process is killed. Requests are aligned to blocks;
 * anything else is -EINVAL, as the loop device asks for none.
 *
 * Locks: `gate` is held shared by every request and exclusively by what needs them all drained
 * (resize, close, later the cut). A chunk has a lock out of CHUNK_IO_LOCKS (its number modulo
 * that), taken in ascending order of the locks when a request spans several: shared by writes into
 * chunks that are changed already, exclusive where a state or a mask changes. Reads take none: a
 * read that runs beside a write to the same blocks may see either, as on any disk, but never bytes
 * from before a discard or a first write, since a word says "changed" only when all of the chunk
 * was written.
 *
 * Failures: 0 or -errno, no text, as this is the request path; -ENOSPC and -EDQUOT mean that
 * nothing was answered yet and the request can be repeated as a whole. -EAGAIN: a read of blocks
 * that are only in the remote, or a read that must wait for it.
 *
 * How `data` is opened: with O_DIRECT where the host's file system has it, so that the ext4 above
 * has the only page cache, and an error of the disk belongs to the request that met it; buffered
 * elsewhere.
 *
 * Nothing here allocates after chunk_io_open().
 */
#pragma once

#include "live_map.h"
#include "map_log.h"

#include <pthread.h>

enum {
    CHUNK_IO_LOCKS = 256,
};

enum chunk_io_mode {
    CHUNK_IO_DIRECT = 1,
    CHUNK_IO_BUFFERED = 2,
};

struct chunk_io {
    int data_fd; /* owned; holds the flock */
    enum chunk_io_mode mode;
    struct live_map *live; /* borrowed */
    struct map_log *log;   /* borrowed; under flush_lock */
    pthread_rwlock_t gate;
    pthread_rwlock_t locks[CHUNK_IO_LOCKS];
    pthread_mutex_t flush_lock;
    _Atomic uint64_t *unlogged; /* one bit for CHUNK_IO_GROUP chunks; owned */
    uint64_t group_count;       /* bits */
    int failed;                 /* -errno of a sync that failed for good; under flush_lock */
};

/* Opens DIR/data, waits for its lock (the predecessor's last write), takes the open file
 * description for itself, makes the summary of unlogged words. ERR_DAMAGED when its size is not the
 * volume's. */
int chunk_io_open(int dir_fd, struct live_map *live, struct map_log *log, struct chunk_io *ret,
                  struct err *err);
void chunk_io_close(struct chunk_io *io);

/* `buffer` is aligned to blocks. Bytes that are not in `data` read as zeros. */
int chunk_io_read(struct chunk_io *io, void *buffer, size_t len, uint64_t offset);
/* `spare` is a block-aligned buffer of VOLUME_CHUNK bytes of the calling thread, for first writes.
 */
int chunk_io_write(struct chunk_io *io, const void *buffer, size_t len, uint64_t offset,
                   void *spare);
/* Both punch and zeroing: the range reads as zeros afterwards. */
int chunk_io_discard(struct chunk_io *io, uint64_t len, uint64_t offset);
/* The flush. 0 when everything that was answered before the call is on disk with its map. */
int chunk_io_flush(struct chunk_io *io);
/* The final cut: flush, then the map written anew, closed. Afterwards writes and discards are -EIO.
 */
int chunk_io_finish(struct chunk_io *io, struct err *err);
/* Grows `data` and what depends on the size; the memfd has been extended. */
int chunk_io_resize(struct chunk_io *io, uint64_t size, struct err *err);
