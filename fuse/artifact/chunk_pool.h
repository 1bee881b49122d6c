/* chunk_pool.h - threads that hash and compress chunks.
 *
 * Job: a chunk's bytes to its digest and its frame (pack_frame.h), or the finding that it is zero.
 * Jobs are begun in the order in which they are submitted and end in any; whoever submits waits for
 * each. So what is made of them does not depend on how threads run.
 *
 * A frame is made only where it is needed: not for zeros, not for bytes whose digest is the one
 * that the job says is known, and not for a digest of which `is_stored` says so.
 *
 * Threads: one at a time submits and waits. `is_stored` is called by the threads, and what it has
 * said of a digest must stay true.
 */
#pragma once

#include "digest.h"
#include "volume_format.h"

struct chunk_job {
    uint64_t chunk; /* the caller's, as the next three */
    uint8_t *bytes; /* VOLUME_CHUNK bytes that stay until the job is waited for */
    uint8_t *frame; /* room for as many */
    bool has_known;
    struct digest known;

    bool is_zero; /* set: the bytes are zeros, and no digest was made */
    struct digest digest;
    size_t frame_len; /* 0: none was made */

    bool is_done; /* the pool's, as what follows */
    int rc;
    struct chunk_job *next;
};

struct chunk_pool;

/* `is_stored` may be NULL. */
int chunk_pool_new(unsigned threads, bool (*is_stored)(void *arg, const struct digest *digest),
                   void *arg, struct chunk_pool **ret, struct err *err);
/* NULL is fine. What was submitted and not begun is dropped. */
void chunk_pool_free(struct chunk_pool *pool);
void chunk_pool_submit(struct chunk_pool *pool, struct chunk_job *job);
int chunk_pool_wait(struct chunk_pool *pool, struct chunk_job *job, struct err *err);
