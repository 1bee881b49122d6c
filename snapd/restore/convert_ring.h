/* convert_ring.h - a ring of buffers between one thread that fills them and two that use them.
 *
 * The writer fills the buffers in turn; each of the two readers gets every one of them, in order.
 * A buffer is filled again when both are through with it. Each side waits for the others; any of
 * them can end it for all with a failure, the first of which is kept.
 *
 * Every field but the buffers' bytes is guarded by `lock`; a buffer's bytes belong to the writer
 * until convert_ring_put() and are only read afterwards.
 */
#pragma once

#include "cleanup.h"
#include "err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    CONVERT_RING_READERS = 2,
};

struct convert_ring {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    char *memory;                        /* owned */
    size_t *lens;                        /* owned; bytes in each buffer */
    size_t count;                        /* of buffers */
    size_t chunk;                        /* bytes of each */
    uint64_t put;                        /* buffers filled so far */
    uint64_t used[CONVERT_RING_READERS]; /* buffers that each reader is through with */
    bool end;                            /* the writer has filled its last one */
    struct err err;
};

int convert_ring_open(struct convert_ring *ring, size_t count, size_t chunk, struct err *err);
void convert_ring_close(struct convert_ring *ring);

/* The buffer to fill next, of `chunk` bytes; or the failure that ended the ring. */
int convert_ring_room(struct convert_ring *ring, void **ret, struct err *err);
/* Passes on that buffer with what was put in; 0 bytes say that it was the last. */
void convert_ring_put(struct convert_ring *ring, size_t len);
/* The next buffer of a reader, which it has until convert_ring_done(). Bytes, 0 at the end, or the
 * failure that ended the ring. */
ssize_t convert_ring_get(struct convert_ring *ring, unsigned reader, const void **ret,
                         struct err *err);
void convert_ring_done(struct convert_ring *ring, unsigned reader);
/* Ends the ring for all. A failure that is there already is kept. */
void convert_ring_fail(struct convert_ring *ring, const struct err *err);
