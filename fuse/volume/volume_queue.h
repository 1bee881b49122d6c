/* volume_queue.h - requests between the kernel and the disk: buffers, threads, and what has to
 * wait.
 *
 * A fixed number of buffers, each large enough for the largest request, allocated, touched and
 * locked at start (I10: the kernel copies requests into them and replies out of them, and a kill
 * while such a page is missing costs the request). The payload of a write, and of a read's reply,
 * lies at a block boundary, as `data` is opened with O_DIRECT.
 *
 * VOLUME_THREADS threads take turns at /dev/fuse, each with a buffer of its own. A request that
 * can't be done now keeps its buffer and is *parked*, and the thread goes on with another buffer,
 * so that reads go on while writes wait:
 *
 *   held     the host's disk is full: never answered with ENOSPC, which the loop device would make
 * lost data of. Tried again every VOLUME_RETRY_MS, oldest first paced    the volume's rate limit
 * says "later" absent   blocks that only the remote has
 *
 * The kernel sends at most VOLUME_MAX_BACKGROUND requests with payload at once, and there are as
 * many buffers and one for each thread, so there is always one to go on with. Order: a flush covers
 * what was answered, and what is parked was not.
 */
#pragma once

#include "chunk_io.h"

enum {
    VOLUME_THREADS = 16,
    VOLUME_BUFFERS = VOLUME_MAX_BACKGROUND + VOLUME_THREADS + 4,
    VOLUME_STACK_BYTES = 128 * 1024,
    VOLUME_RETRY_MS = 200,
};
