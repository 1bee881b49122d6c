/* From the source to packs: chunks are read in batches; while one is hashed and compressed by the
 * pool, the next one is read, and what the one before it came to is put into packs, in order. */
#include "checkpoint_write_parts.h"
#include "cleanup.h"

#include <inttypes.h>
#include <string.h>

enum {
    BATCH = 32,
    LOOKS_MAX = 4096, /* chunks that a batch may pass over */
};

struct batch {
    struct chunk_job jobs[BATCH];
    uint32_t masks[BATCH]; /* blocks that the source gave; 0: all of them */
    bool is_whole[BATCH];  /* nothing of the parent's is needed */
    bool is_set[BATCH];    /* in the parent */
    bool is_zero[BATCH];   /* without looking at its bytes: there is no job */
    size_t count;
};

struct reading {
    struct checkpoint_making *making;
    struct batch batches[2];
    uint8_t *buffers; /* of all jobs: bytes and frame */
    uint64_t next;    /* where the source is asked next; UINT64_MAX: it has ended */
    uint64_t run_end; /* of the run of chunks that `next` is in, */
    bool run_has;     /* in each of whose leaves the parent has something, or in none */
    struct volume_leaf parent_leaf;
    bool has_parent_leaf; /* parent_leaf.number is loaded */
};

static void free_reading(struct reading **reading)
{
    if (*reading)
        free((*reading)->buffers);
    free(*reading);
}

static int new_reading(struct checkpoint_making *making, struct reading **ret, struct err *err)
{
    cleanup_with(free_reading) struct reading *reading = calloc(1, sizeof *reading);
    if (reading)
        reading->buffers = aligned_alloc(VOLUME_BLOCK, (size_t)2 * BATCH * 2 * VOLUME_CHUNK);
    if (!reading || !reading->buffers)
        return err_errno(err, ENOMEM, "cannot read chunks");
    reading->making = making;
    uint8_t *at = reading->buffers;
    for (size_t i = 0; i < (size_t)2 * BATCH; i++) {
        struct chunk_job *job = &reading->batches[i / BATCH].jobs[i % BATCH];
        job->bytes = at;
        job->frame = at + VOLUME_CHUNK;
        at += (size_t)2 * VOLUME_CHUNK;
    }
    *ret = steal_ptr(reading);
    return 0;
}

/* Reading */

/* What the parent has at a chunk. Its leaf is fetched when anything is set there, once for all of
 * its chunks, as these come in order. */
static int look_at_parent(struct reading *reading, uint64_t chunk, struct chunk_job *job,
                          bool *ret_set, struct err *err)
{
    uint32_t number = (uint32_t)(chunk / VOLUME_LEAF_CHUNKS);
    *ret_set = false;
    job->has_known = false;
    if (!checkpoint_write_parent_has(reading->making, number))
        return 0;
    if (!reading->has_parent_leaf || reading->parent_leaf.number != number) {
        reading->has_parent_leaf = false;
        int rc = checkpoint_write_parent_leaf(reading->making, number, &reading->parent_leaf, err);
        if (rc < 0)
            return rc;
        reading->has_parent_leaf = true;
    }
    uint32_t at = (uint32_t)(chunk % VOLUME_LEAF_CHUNKS);
    *ret_set = job->has_known = reading->parent_leaf.set[at];
    job->known = reading->parent_leaf.entries[at].digest;
    return 0;
}

static void done(struct reading *reading, uint64_t chunk)
{
    const struct checkpoint_source *source = reading->making->source;
    if (source->done)
        source->done(source->arg, chunk);
}

static int fail_without_parent(uint64_t chunk, struct err *err)
{
    int rc = err_fail(
        err, ERR_NOT_FOUND,
        "chunk %" PRIu64 " is not here, and there is no checkpoint before that has it", chunk);
    err_hint(err,
             "the remote has lost the checkpoint that has the rest of it: put that back, from a "
             "copy of the remote");
    return rc;
}

/* One chunk into the next place of the batch, which stays free when the chunk is the parent's. */
static int read_chunk(struct reading *reading, struct batch *batch, uint64_t chunk, struct err *err)
{
    const struct checkpoint_source *source = reading->making->source;
    const size_t at = batch->count;
    struct chunk_job *job = &batch->jobs[at];
    uint32_t mask = 0;
    int what = source->read(source->arg, chunk, job->bytes, &mask, err);
    if (what < 0)
        return what;
    reading->making->written.chunks_read++;
    job->chunk = chunk;
    batch->masks[at] = mask;
    batch->is_zero[at] = what == CHECKPOINT_CHUNK_ZERO;
    batch->is_whole[at] =
        what != CHECKPOINT_CHUNK_PARENT || (mask & VOLUME_MASK_ALL) == VOLUME_MASK_ALL;
    if (!batch->is_whole[at] && !reading->making->write->parent)
        return fail_without_parent(chunk, err);
    if (what == CHECKPOINT_CHUNK_PARENT && mask == 0) {
        done(reading, chunk);
        return 0;
    }
    int rc = look_at_parent(reading, chunk, job, &batch->is_set[at], err);
    if (rc < 0)
        return rc;
    if (batch->is_zero[at] && !batch->is_set[at])
        done(reading, chunk);
    else
        batch->count++;
    return 0;
}

/* Puts the parent's blocks (NULL: zeros) where the source gave none. */
static void merge(uint8_t *bytes, uint32_t mask, const uint8_t *parents)
{
    for (unsigned i = 0; i < VOLUME_CHUNK_BLOCKS; i++) {
        uint8_t *block = bytes + (size_t)i * VOLUME_BLOCK;
        if (mask & 1u << i)
            continue;
        if (parents)
            memcpy(block, parents + (size_t)i * VOLUME_BLOCK, VOLUME_BLOCK);
        else
            memset(block, 0, VOLUME_BLOCK);
    }
}

static int take(void *arg, uint64_t chunk, const void *bytes, struct err *err)
{
    (void)err;
    struct batch *batch = arg;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->jobs[i].chunk == chunk)
            merge(batch->jobs[i].bytes, batch->masks[i], bytes);
    return 0;
}

static int merge_batch(struct reading *reading, struct batch *batch, struct err *err)
{
    uint64_t chunks[BATCH];
    size_t count = 0;
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->is_whole[i])
            continue;
        if (batch->is_set[i])
            chunks[count++] = batch->jobs[i].chunk;
        else
            merge(batch->jobs[i].bytes, batch->masks[i], NULL);
    }
    return checkpoint_write_parent_read(reading->making, chunks, count, take, batch, err);
}

/* Finds the run that begins at a chunk of the volume. */
static void begin_run(struct reading *reading, uint64_t from)
{
    const struct checkpoint_making *making = reading->making;
    const uint64_t end = making->source->size / VOLUME_CHUNK;
    uint32_t leaf = (uint32_t)(from / VOLUME_LEAF_CHUNKS);
    reading->run_has = checkpoint_write_parent_has(making, leaf);
    do
        reading->run_end = (uint64_t)++leaf * VOLUME_LEAF_CHUNKS;
    while (reading->run_end < end && checkpoint_write_parent_has(making, leaf) == reading->run_has);
    if (reading->run_end > end)
        reading->run_end = end;
}

/* The next chunk that may differ from the parent; UINT64_MAX: none. Zeros do not where the parent
 * has nothing. */
static int next_chunk(struct reading *reading, uint64_t *ret, struct err *err)
{
    const struct checkpoint_source *source = reading->making->source;
    const uint64_t end = source->size / VOLUME_CHUNK;
    uint64_t chunk = UINT64_MAX;
    for (uint64_t from = reading->next; chunk == UINT64_MAX && from < end;
         from = reading->run_end) {
        if (from >= reading->run_end)
            begin_run(reading, from);
        chunk = source->next(source->arg, from, reading->run_end, reading->run_has);
        if (chunk != UINT64_MAX && (chunk < from || chunk >= reading->run_end))
            return err_fail(err, ERR_INTERNAL,
                            "chunk %" PRIu64 " comes of those from %" PRIu64 " to %" PRIu64, chunk,
                            from, reading->run_end);
    }
    *ret = chunk;
    return 0;
}

static int read_batch(struct reading *reading, struct batch *batch, struct err *err)
{
    batch->count = 0;
    int rc = checkpoint_write_stopped(reading->making, err);
    for (int i = 0; rc == 0 && i < LOOKS_MAX && batch->count < BATCH; i++) {
        uint64_t chunk;
        rc = next_chunk(reading, &chunk, err);
        if (rc == 0 && chunk == UINT64_MAX) {
            reading->next = UINT64_MAX;
            break;
        }
        if (rc == 0)
            rc = read_chunk(reading, batch, chunk, err);
        if (rc == 0)
            reading->next = chunk + 1;
    }
    return rc == 0 ? merge_batch(reading, batch, err) : rc;
}

/* Putting into packs */

int checkpoint_write_add_change(struct checkpoint_making *making,
                                const struct checkpoint_change *change, struct err *err)
{
    if (making->change_count == making->change_room) {
        size_t room = making->change_room ? 2 * making->change_room : 256;
        struct checkpoint_change *changes = realloc(making->changes, room * sizeof *changes);
        if (!changes)
            return err_errno(err, ENOMEM, "cannot note what changed");
        making->changes = changes;
        making->change_room = room;
    }
    making->changes[making->change_count++] = *change;
    return 0;
}

/* They come in order. */
static int note_change(struct checkpoint_making *making, const struct checkpoint_change *change,
                       struct err *err)
{
    size_t count = making->change_count;
    uint32_t leaf = change->chunk / VOLUME_LEAF_CHUNKS;
    bool is_new = count == 0 || making->changes[count - 1].chunk / VOLUME_LEAF_CHUNKS != leaf;
    if (is_new && making->changed_leaves == CHECKPOINT_LEAVES_PENDING) {
        int rc = checkpoint_write_leaves(making, err);
        if (rc < 0)
            return rc;
    }
    making->changed_leaves += is_new;
    return checkpoint_write_add_change(making, change, err);
}

/* Where a chunk's bytes are, which this may be the first one to have. */
static int store(struct checkpoint_making *making, const struct chunk_job *job,
                 struct pack_spot *ret, struct err *err)
{
    if (chunk_seen_find(making->seen, &job->digest, ret))
        return 0;
    if (job->frame_len == 0)
        return err_fail(err, ERR_INTERNAL, "chunk %" PRIu64 " has no frame", job->chunk);
    int rc = pack_writer_add(making->packs, job->frame, job->frame_len, ret, err);
    if (rc == 0)
        rc = chunk_seen_add(making->seen, &job->digest, ret, err);
    making->written.chunks_new += rc == 0;
    making->stored_bytes += rc == 0 ? job->frame_len : 0;
    return rc;
}

static int finish_chunk(struct reading *reading, const struct batch *batch, size_t at,
                        struct err *err)
{
    struct checkpoint_making *making = reading->making;
    const struct chunk_job *job = &batch->jobs[at];
    const bool was_set = batch->is_set[at];
    const bool is_zero = batch->is_zero[at] || job->is_zero;
    struct checkpoint_change change = {.chunk = (uint32_t)job->chunk, .is_set = !is_zero};
    bool is_same = is_zero ? !was_set : was_set && digest_equal(&job->digest, &job->known);
    int rc = 0;
    if (!is_same && change.is_set) {
        change.digest = job->digest;
        rc = store(making, job, &change.spot, err);
    }
    if (rc == 0 && !is_same)
        rc = note_change(making, &change, err);
    if (rc == 0)
        done(reading, job->chunk);
    return rc;
}

static void submit_batch(struct reading *reading, struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (!batch->is_zero[i])
            chunk_pool_submit(reading->making->pool, &batch->jobs[i]);
}

static int finish_batch(struct reading *reading, struct batch *batch, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < batch->count; i++) {
        if (!batch->is_zero[i])
            rc = chunk_pool_wait(reading->making->pool, &batch->jobs[i], err);
        if (rc == 0)
            rc = finish_chunk(reading, batch, i, err);
    }
    batch->count = 0;
    return rc == 0 ? checkpoint_write_progress(reading->making, err) : rc;
}

static int run(struct reading *reading, struct err *err)
{
    struct batch *now = &reading->batches[0];
    struct batch *before = &reading->batches[1];
    while (reading->next != UINT64_MAX || before->count > 0) {
        int rc = 0;
        if (reading->next != UINT64_MAX)
            rc = read_batch(reading, now, err);
        if (rc == 0)
            submit_batch(reading, now);
        if (rc == 0)
            rc = finish_batch(reading, before, err);
        if (rc < 0)
            return rc;
        struct batch *finished = before;
        before = now;
        now = finished;
    }
    return 0;
}

int checkpoint_write_chunks(struct checkpoint_making *making, struct err *err)
{
    cleanup_with(free_reading) struct reading *reading = NULL;
    int rc = new_reading(making, &reading, err);
    if (rc == 0)
        rc = run(reading, err);
    if (rc < 0) { /* its threads may still have jobs, whose memory goes with this */
        chunk_pool_free(making->pool);
        making->pool = NULL;
    }
    return rc;
}
