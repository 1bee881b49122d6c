/* volume_resident.h - memory that stays: buffers, stacks and the heap of a worker.
 *
 * The kernel copies requests into a worker's memory and replies out of it. A process that is killed
 * while such a page is missing costs the request for good (I10; X5, X6), and a worker that has to
 * wait for memory may wait for its own disk. So everything that requests touch is allocated,
 * touched and locked before the first of them is read, and nothing is allocated afterwards:
 *
 *   one region   request buffers, spare buffers, the threads' stacks (each above a guard page)
 *   the heap     grown once, never given back: libfuse allocates a small record for each request
 *   the rest     code, data, the main thread's stack (touched), the live map: mlockall()
 *
 * Locking needs rights that are given up later, so what is mapped after volume_resident_lock()
 * (the longer live map of a resized volume) may be locked no more; the kernel copies nothing there.
 * The planes of epochs (epochs.h) are not locked, as they are mostly empty: nothing is copied there
 * either, and an aside that needs a page of its plane needs the host's memory for its bytes anyway.
 * A refusal to lock is no failure: the worker goes on, and says so in the live map.
 *
 * Sanitizers make mlockall() do nothing, so that there the region alone is locked, and they need
 * larger stacks.
 */
#pragma once

#include "err.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VOLUME_HEAP_BYTES = 512 * 1024,
    VOLUME_MAIN_STACK_BYTES = 256 * 1024,
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    VOLUME_STACK_BYTES = 1024 * 1024,
#else
    VOLUME_STACK_BYTES = 128 * 1024,
#endif
};

struct volume_resident {
    char *region; /* owned */
    size_t bytes;
    size_t used;
};

/* Before anything else allocates: one arena, no trimming, no mappings of the allocator's own, a
 * heap that is large enough. */
int volume_resident_heap(struct err *err);
/* Maps a region of `bytes`, readable and writable, touched. */
int volume_resident_map(size_t bytes, struct volume_resident *ret, struct err *err);
/* After the region is made: the kernel is asked not to move pages for its own purposes (balancing
 * between memory nodes, joining to large pages), as a page on the move is a missing one. What is
 * left is compaction, unless vm.compact_unevictable_allowed is 0. */
void volume_resident_keep(void);
void volume_resident_unmap(struct volume_resident *resident);
/* What volume_resident_take() takes for `bytes`: whole pages. */
size_t volume_resident_round(size_t bytes);
/* The next `bytes` of the region (whole pages), or NULL when it is used up. */
void *volume_resident_take(struct volume_resident *resident, size_t bytes);
/* How much of the region a stack needs, and the attributes of a detached thread with a stack out of
 * it. */
size_t volume_resident_stack_bytes(void);
int volume_resident_stack(struct volume_resident *resident, pthread_attr_t *ret, struct err *err);
/* Locks all there is, and where the limit allows what comes later. Returns the bytes that are
 * locked now; 0 when it was refused. */
uint64_t volume_resident_lock(const struct volume_resident *resident);
