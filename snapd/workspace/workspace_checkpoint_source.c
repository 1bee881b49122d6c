#include "workspace_checkpoint_source.h"

static uint64_t next(void *arg, uint64_t from)
{
    const struct workspace_checkpoint_source *source = arg;
    const struct epoch_reader *reader = &source->epoch->reader;
    for (uint64_t chunk = from; chunk < reader->chunks; chunk++)
        if (source->whole || epoch_reader_is_dirty(reader, chunk))
            return chunk;
    return UINT64_MAX;
}

static int read_chunk(void *arg, uint64_t chunk, void *buffer, uint32_t *ret_mask, struct err *err)
{
    const struct workspace_checkpoint_source *source = arg;
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
