/* volume_ring.h - reads and writes of `data` that are under way while their thread does something
 * else (io_uring).
 *
 * Each serving thread has a ring of its own (volume_queue.h); only the thread that reads requests
 * has anything under way in it, so nothing here is locked. A ring that could not be made (io_uring
 * is forbidden, or older than Linux 5.19) is not open, and its thread does everything with system
 * calls that wait.
 *
 * A ring is made before the worker gives up its rights, and limited by the kernel to reads, writes
 * and polls, so that the call that remains allowed does nothing that read(2) and write(2) could
 * not. Results come in any order. Nothing is allocated by this process after volume_ring_open().
 *
 * A kill: the kernel lets go of the open file, and so of the lock on `data` that a successor waits
 * for, when the last of what is under way has ended.
 *
 * The only user of liburing.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct volume_ring;

enum {
    VOLUME_RING_ENTRIES = 128, /* under way at once */
};

/* `result` is what pread(2) or pwrite(2) would have returned, or -errno. */
typedef void volume_ring_done(void *arg, void *token, int result);

int volume_ring_open(struct volume_ring **ret, struct err *err);
void volume_ring_close(struct volume_ring *ring);
/* Begins one. False: the ring is full, nothing was done. `buffer` stays as it is until it ends. */
bool volume_ring_read(struct volume_ring *ring, int fd, void *buffer, size_t len, uint64_t offset,
                      void *token);
bool volume_ring_write(struct volume_ring *ring, int fd, const void *buffer, size_t len,
                       uint64_t offset, void *token);
unsigned volume_ring_under_way(const struct volume_ring *ring);
/* Hands over what has ended; returns how many. */
unsigned volume_ring_reap(struct volume_ring *ring, volume_ring_done *done, void *arg);
/* Waits until something has ended, or `fd` (unless it is -1) can be read. Also returns for no
 * reason. */
void volume_ring_wait(struct volume_ring *ring, int fd);
