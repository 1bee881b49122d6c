#include "checkpoint_write.h"

#include "checkpoint_upkeep.h"
#include "checkpoint_write_parts.h"
#include "cleanup.h"

#include <inttypes.h>

void checkpoint_written_free(struct checkpoint_written *written)
{
    free(steal_ptr(written->packs));
    written->pack_count = 0;
}

int checkpoint_write_stopped(const struct checkpoint_making *making, struct err *err)
{
    const struct checkpoint_write *write = making->write;
    if (write->stop && write->stop(write->stop_arg, pack_writer_sent(making->packs), 0) != 0)
        return err_fail(err, ERR_CANCELLED, "the checkpoint was cancelled");
    return 0;
}

int checkpoint_write_progress(struct checkpoint_making *making, struct err *err)
{
    const struct checkpoint_write *write = making->write;
    if (!write->progress)
        return 0;
    return write->progress(write->progress_arg, making->written.chunks_read,
                           pack_writer_sent(making->packs), err);
}

static void free_making(struct checkpoint_making **making)
{
    if (!*making)
        return;
    chunk_pool_free((*making)->pool); /* before what its threads ask */
    chunk_seen_free((*making)->seen);
    checkpoint_upkeep_free((*making)->upkeep);
    checkpoint_lists_free(&(*making)->lists);
    pack_writer_free((*making)->packs);
    free((*making)->changes);
    free((*making)->leaves);
    checkpoint_written_free(&(*making)->written);
    free(*making);
}

static bool is_stored(void *arg, const struct digest *digest)
{
    return chunk_seen_find(arg, digest, NULL);
}

static int begin(const struct checkpoint_write *write, const struct checkpoint_source *source,
                 struct checkpoint_making **ret, struct err *err)
{
    cleanup_with(free_making) struct checkpoint_making *making = calloc(1, sizeof *making);
    if (!making)
        return err_errno(err, ENOMEM, "cannot make a checkpoint");
    making->write = write;
    making->source = source;
    struct pack_writer_options options = {
        .remote = write->remote,
        .repository = write->repository,
        .temp_fd = write->temp_fd,
        .pack_bytes = source->size < PACK_LARGE_FROM ? PACK_BYTES : PACK_BYTES_LARGE,
        .id_bits = write->id_bits,
        .progress = write->stop,
        .arg = write->stop_arg,
    };
    if (write->pack_bytes > 0)
        options.pack_bytes = write->pack_bytes;
    if (write->parent)
        options.others = checkpoint_packs_of(write->parent, &options.other_count);
    if (write->fresh)
        options.fresh = (uint32_t)(write->config.generation % UINT32_MAX) + 1;
    int rc = pack_writer_new(&options, &making->packs, err);
    making->pack_bytes = options.pack_bytes;
    if (rc == 0)
        rc = checkpoint_upkeep_new(making, &making->upkeep, err);
    if (rc == 0)
        rc = chunk_seen_new(CHECKPOINT_SEEN_MAX, &making->seen, err);
    if (rc == 0)
        rc = chunk_pool_new(CHECKPOINT_WRITE_THREADS, is_stored, making->seen, &making->pool, err);
    if (rc == 0)
        *ret = steal_ptr(making);
    return rc;
}

static int check_size(const struct checkpoint_write *write, const struct checkpoint_source *source,
                      struct err *err)
{
    if (!volume_is_size(source->size))
        return err_fail(err, ERR_INVALID, "no volume has %" PRIu64 " bytes", source->size);
    if (!write->parent)
        return 0;
    uint64_t before = checkpoint_root_of(write->parent)->size;
    if (source->size >= before)
        return 0;
    int rc = err_fail(err, ERR_INVALID,
                      "the volume has %" PRIu64 " bytes, its last checkpoint %" PRIu64
                      ": volumes do not shrink",
                      source->size, before);
    err_hint(err, "its directory is an older one than the catalog: put the newer one back, or make "
                  "a workspace of the checkpoint (`varve workspace create NAME --from REFERENCE`)");
    return rc;
}

/* Whether the parent is what would be written. */
static bool is_unchanged(const struct checkpoint_making *making)
{
    const struct checkpoint_write *write = making->write;
    return write->parent && !write->always && making->leaf_count == 0 &&
           making->source->size == checkpoint_root_of(write->parent)->size;
}

static void note_unchanged(struct checkpoint_making *making)
{
    struct checkpoint *parent = making->write->parent;
    size_t count;
    const struct pack *packs = checkpoint_packs_of(parent, &count);
    making->written.unchanged = true;
    making->written.digest = *checkpoint_digest(parent);
    making->written.chunks = checkpoint_root_of(parent)->chunks;
    for (size_t i = 0; i < count; i++)
        making->written.bytes_total += packs[i].size;
}

int checkpoint_write(const struct checkpoint_write *write, const struct checkpoint_source *source,
                     struct checkpoint_written *ret, struct err *err)
{
    cleanup_with(free_making) struct checkpoint_making *making = NULL;
    int rc = check_size(write, source, err);
    if (rc == 0)
        rc = begin(write, source, &making, err);
    if (rc == 0)
        rc = checkpoint_write_chunks(making, err);
    if (rc == 0)
        rc = checkpoint_upkeep_move(making, true, err);
    if (rc == 0)
        rc = checkpoint_write_leaves(making, err);
    if (rc == 0)
        rc = checkpoint_write_progress(making, err);
    if (rc == 0 && is_unchanged(making)) {
        note_unchanged(making);
    } else if (rc == 0) {
        rc = checkpoint_write_root(making, err);
        if (rc == 0)
            rc = checkpoint_write_arrange(making, err);
        if (rc == 0)
            rc = checkpoint_write_blobs(making, err);
        if (rc == 0)
            rc = checkpoint_write_progress(making, err);
        if (rc == 0)
            rc = checkpoint_write_manifests(making, err);
    }
    if (rc < 0)
        return err_wrap(err, rc, "cannot write a checkpoint to %s", write->repository);
    *ret = making->written;
    making->written.packs = NULL;
    return 0;
}
