#include "workspace_checkpoint_source.h"

/* Whether its word alone says that a chunk was zero at the cut: it is, and has not been written
 * since. Most chunks are told so, at the cost of one load. */
static bool is_zero_still(const struct epoch_reader *reader, uint64_t chunk)
{
    const uint32_t word = atomic_load(&reader->live.words[chunk]);
    if (live_word_state(word) != VOLUME_ZERO)
        return false;
    return (word & LIVE_WORD_TAG) == 0 || epoch_of_word(reader->live.header, word) <= reader->epoch;
}

static uint64_t next(void *arg, uint64_t from, uint64_t until, bool zeros)
{
    const struct workspace_checkpoint_source *source = arg;
    const struct epoch_reader *reader = &source->epoch->reader;
    for (uint64_t chunk = from; chunk < until && chunk < reader->chunks; chunk++) {
        if (!zeros && is_zero_still(reader, chunk))
            continue;
        if (source->whole || epoch_reader_is_dirty(reader, chunk))
            return chunk;
    }
    return UINT64_MAX;
}

static int read_chunk(void *arg, uint64_t chunk, void *buffer, uint32_t *ret_mask, struct err *err)
{
    const struct workspace_checkpoint_source *source = arg;
    if (is_zero_still(&source->epoch->reader, chunk))
        return CHECKPOINT_CHUNK_ZERO;
    struct epoch_chunk what;
    int rc = epoch_reader_read(&source->epoch->reader, chunk, buffer, &what, err);
    if (rc < 0)
        return rc;
    switch (what.state) {
    case VOLUME_ZERO:
        return CHECKPOINT_CHUNK_ZERO;
    case VOLUME_ABSENT:
        *ret_mask = what.mask;
        return CHECKPOINT_CHUNK_PARENT;
    case VOLUME_CLEAN:
    case VOLUME_CHANGED:
    default:
        return CHECKPOINT_CHUNK_BYTES;
    }
}

static void done(void *arg, uint64_t chunk)
{
    const struct workspace_checkpoint_source *source = arg;
    if (!source->whole)
        epoch_reader_done(&source->epoch->reader, chunk);
}

struct checkpoint_source workspace_checkpoint_source(struct workspace_checkpoint_source *source)
{
    return (struct checkpoint_source){.size = source->epoch->reader.chunks * VOLUME_CHUNK,
                                      .next = next,
                                      .read = read_chunk,
                                      .done = done,
                                      .arg = source};
}
