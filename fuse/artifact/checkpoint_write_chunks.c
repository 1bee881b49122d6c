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
    size_t count;
};

struct reading {
    struct checkpoint_making *making;
    struct batch batches[2];
    uint8_t *buffers; /* of all jobs: bytes and frame */
    uint64_t next;    /* where the source is asked next; UINT64_MAX: it has ended */
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

static int stop(void *arg, uint64_t done, uint64_t total)
{
    const struct checkpoint_write *write = arg;
    return write->stop ? write->stop(write->stop_arg, done, total) : 0;
}

/* Reading */

/* What the parent has at a chunk. */
static int look_at_parent(struct reading *reading, uint64_t chunk, struct chunk_job *job,
                          bool *ret_set, struct err *err)
{
    const struct checkpoint_write *write = reading->making->write;
    uint32_t number = (uint32_t)(chunk / VOLUME_LEAF_CHUNKS);
    *ret_set = false;
    job->has_known = false;
    if (!write->parent || number >= checkpoint_root_of(write->parent)->leaf_count)
        return 0;
    if (!reading->has_parent_leaf || reading->parent_leaf.number != number) {
        reading->has_parent_leaf = false;
        int rc =
            checkpoint_leaf(write->parent, number, stop, (void *)write, &reading->parent_leaf, err);
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

/* One chunk into the next place of the batch, which stays free when the chunk is the parent's. */
static int read_chunk(struct reading *reading, struct batch *batch, uint64_t chunk, struct err *err)
{
    const struct checkpoint_source *source = reading->making->source;
    struct chunk_job *job = &batch->jobs[batch->count];
    uint32_t mask = 0;
    int what = source->read(source->arg, chunk, job->bytes, &mask, err);
    if (what < 0)
        return what;
    reading->making->written.chunks_read++;
    if (what == CHECKPOINT_CHUNK_PARENT && !reading->making->write->parent)
        return err_fail(err, ERR_INTERNAL, "chunk %" PRIu64 " is a parent's, and there is none",
                        chunk);
    if (what == CHECKPOINT_CHUNK_PARENT && mask == 0) {
        done(reading, chunk);
        return 0;
    }
    if (what == CHECKPOINT_CHUNK_ZERO)
        memset(job->bytes, 0, VOLUME_CHUNK);
    job->chunk = chunk;
    batch->masks[batch->count] = mask;
    batch->is_whole[batch->count] =
        what != CHECKPOINT_CHUNK_PARENT || (mask & VOLUME_MASK_ALL) == VOLUME_MASK_ALL;
    int rc = look_at_parent(reading, chunk, job, &batch->is_set[batch->count], err);
    if (rc == 0)
        batch->count++;
    return rc;
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
    const struct checkpoint_write *write = reading->making->write;
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
    if (count == 0)
        return 0;
    return checkpoint_read(write->parent, chunks, count, stop, (void *)write, take, batch, err);
}

static int read_batch(struct reading *reading, struct batch *batch, struct err *err)
{
    const struct checkpoint_source *source = reading->making->source;
    batch->count = 0;
    int rc = checkpoint_write_stopped(reading->making, err);
    for (int i = 0; rc == 0 && i < LOOKS_MAX && batch->count < BATCH; i++) {
        uint64_t chunk = source->next(source->arg, reading->next);
        if (chunk == UINT64_MAX) {
            reading->next = UINT64_MAX;
            break;
        }
        if (chunk < reading->next || chunk >= source->size / VOLUME_CHUNK)
            return err_fail(err, ERR_INTERNAL,
                            "chunk %" PRIu64 " comes after %" PRIu64 " of a volume with %" PRIu64,
                            chunk, reading->next, source->size / VOLUME_CHUNK);
        rc = read_chunk(reading, batch, chunk, err);
        reading->next = chunk + 1;
    }
    return rc == 0 ? merge_batch(reading, batch, err) : rc;
}

/* Putting into packs */

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
    if (making->change_count == making->change_room) {
        size_t room = making->change_room ? 2 * making->change_room : 256;
        struct checkpoint_change *changes = realloc(making->changes, room * sizeof *changes);
        if (!changes)
            return err_errno(err, ENOMEM, "cannot note what changed");
        making->changes = changes;
        making->change_room = room;
    }
    making->changes[making->change_count++] = *change;
    making->changed_leaves += is_new;
    return 0;
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
    return rc;
}

static int finish_chunk(struct reading *reading, struct chunk_job *job, bool was_set,
                        struct err *err)
{
    struct checkpoint_making *making = reading->making;
    struct checkpoint_change change = {.chunk = (uint32_t)job->chunk};
    int rc = chunk_pool_wait(making->pool, job, err);
    if (rc < 0)
        return rc;
    change.is_set = !job->is_zero;
    bool is_same = job->is_zero ? !was_set : was_set && digest_equal(&job->digest, &job->known);
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

static int finish_batch(struct reading *reading, struct batch *batch, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < batch->count; i++)
        rc = finish_chunk(reading, &batch->jobs[i], batch->is_set[i], err);
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
        for (size_t i = 0; rc == 0 && i < now->count; i++)
            chunk_pool_submit(reading->making->pool, &now->jobs[i]);
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
