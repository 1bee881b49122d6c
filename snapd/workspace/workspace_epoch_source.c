/* Chunks of an open epoch, for the volume that shows it. */
#include "workspace_epoch.h"

#include "cleanup.h"
#include "log.h"
#include "volumes.h"
#include "workspace_line_shared.h"

#include <pthread.h>
#include <string.h>

struct workspace_epoch_source {
    struct node *node;
    char view[VOLUME_ID_LEN + 1];
    char of[VOLUME_ID_LEN + 1]; /* whose epoch it is */
    struct volumes_epoch epoch; /* its reader: lock */
    pthread_mutex_t lock;
    struct catalog_line line; /* of the source, as the catalog says; owned */
    struct volume_base base;  /* what the source is made of, as its directory says */
    struct workspace_line_shared checkpoint;
    _Atomic bool lost; /* told */
};

/* What one call of the fetch wants. */
struct reading {
    struct workspace_epoch_source *source;
    int (*stop)(void *arg, uint64_t done, uint64_t total);
    void *stop_arg;
    volume_fetch_take *take;
    void *take_arg;
    void *buffer; /* VOLUME_CHUNK bytes, aligned; owned */
};

/* What the source is made of, and its epoch. */
static int open_source(struct workspace_epoch_source *source, struct err *err)
{
    struct node *node = source->node;
    struct volume_status status = {0};
    int rc = catalog_line_get(node->catalog, source->of, &source->line, err);
    if (rc == 0)
        rc = volumes_epoch_open(node->volumes, source->of, workspace_epoch_token(source->view),
                                &source->epoch, err);
    if (rc == 0)
        rc = volumes_status(node->volumes, source->of, &status, err);
    if (rc < 0)
        return rc;
    source->base = status.base;
    source->checkpoint.lineage = source->line.lineage;
    source->checkpoint.digest = source->line.parent;
    return 0;
}

int workspace_epoch_source_new(struct node *node, const struct catalog_volume *view,
                               struct workspace_epoch_source **ret, struct err *err)
{
    struct workspace_epoch_source *source = calloc(1, sizeof *source);
    if (!source)
        return err_errno(err, ENOMEM, "cannot read an epoch of volume %s", view->view_of);
    (void)pthread_mutex_init(&source->lock, NULL);
    workspace_line_shared_init(&source->checkpoint, node);
    source->node = node;
    (void)snprintf(source->view, sizeof source->view, "%s", view->id);
    (void)snprintf(source->of, sizeof source->of, "%s", view->view_of);
    int rc = open_source(source, err);
    if (rc < 0) {
        workspace_epoch_source_free(source);
        return rc;
    }
    *ret = source;
    return 0;
}

void workspace_epoch_source_free(struct workspace_epoch_source *source)
{
    if (!source)
        return;
    volumes_epoch_leave(&source->epoch);
    workspace_line_shared_free(&source->checkpoint);
    catalog_line_free(&source->line);
    (void)pthread_mutex_destroy(&source->lock);
    free(source);
}

/* Nobody will ever know what the rest of the view was. */
static void lose(struct workspace_epoch_source *source, const char *why)
{
    if (atomic_exchange(&source->lost, true))
        return;
    log_event(LOG_ERROR, "view-lost", "volume", source->view, "of", source->of, "why", why, NULL);
    volumes_cut(source->node->volumes, source->view);
}

/* What was read before counts if it is; ends the view if it is not. */
static int check_whole(struct workspace_epoch_source *source, struct err *err)
{
    struct err why = ERR_INIT;
    int rc = volumes_epoch_is_whole(source->node->volumes, source->of, &source->epoch, &why);
    if (rc < 0)
        lose(source, why.text);
    return err_pass(err, rc, &why);
}

void workspace_epoch_source_check(struct workspace_epoch_source *source)
{
    struct err ignored = ERR_INIT;
    (void)check_whole(source, &ignored);
}

/* What a chunk was at the cut, and its bytes as far as they are here. */
static int read_epoch(const struct reading *reading, uint64_t chunk, struct epoch_chunk *ret,
                      struct err *err)
{
    struct workspace_epoch_source *source = reading->source;
    struct err why = ERR_INIT;
    (void)pthread_mutex_lock(&source->lock);
    int rc = epoch_reader_read(&source->epoch.reader, chunk, reading->buffer, ret, &why);
    (void)pthread_mutex_unlock(&source->lock);
    /* A failure of the epoch is told in the words of that. */
    int whole = check_whole(source, err);
    return whole < 0 ? whole : err_pass(err, rc, &why);
}

/* Not of one that the source's directory does not name: what is absent would be answered with the
 * chunks of another. */
static int open_checkpoint(const struct reading *reading, struct checkpoint **ret, struct err *err)
{
    struct workspace_epoch_source *source = reading->source;
    int rc = workspace_line_check(&source->line, &source->base, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot read what volume %s lacks", source->of);
    if (!source->line.parent)
        return err_fail(err, ERR_DAMAGED,
                        "volume %s lacks chunks, and the catalog knows no checkpoint that has them",
                        source->of);
    return workspace_line_shared_open(&source->checkpoint, reading->stop, reading->stop_arg, ret,
                                      err);
}

/* checkpoint_take: the blocks that are here go over those of the checkpoint. The chunk may be here
 * whole by now, as the source gets it too. */
static int take_absent(void *arg, uint64_t chunk, const void *bytes, struct err *err)
{
    const struct reading *reading = arg;
    struct epoch_chunk what;
    int rc = read_epoch(reading, chunk, &what, err);
    if (rc < 0)
        return rc;
    uint8_t *merged = reading->buffer;
    for (unsigned block = 0; what.state == VOLUME_ABSENT && block < VOLUME_CHUNK / VOLUME_BLOCK;
         block++) {
        uint8_t *at = merged + (size_t)block * VOLUME_BLOCK;
        if (what.mask & 1U << block)
            continue;
        if (bytes)
            memcpy(at, (const uint8_t *)bytes + (size_t)block * VOLUME_BLOCK, VOLUME_BLOCK);
        else
            memset(at, 0, VOLUME_BLOCK);
    }
    return reading->take(reading->take_arg, chunk, what.state == VOLUME_ZERO ? NULL : merged, err);
}

static int read_absent(struct reading *reading, const uint64_t *chunks, size_t count,
                       struct err *err)
{
    struct checkpoint *checkpoint;
    int rc = open_checkpoint(reading, &checkpoint, err);
    return rc < 0 ? rc
                  : checkpoint_read(checkpoint, chunks, count, reading->stop, reading->stop_arg,
                                    take_absent, reading, err);
}

/* 1: it is absent in the source as well. */
static int read_one(struct reading *reading, uint64_t chunk, struct err *err)
{
    struct epoch_chunk what;
    if (reading->stop && reading->stop(reading->stop_arg, 0, 0))
        return err_fail(err, ERR_CANCELLED, "reading a view was ended");
    int rc = read_epoch(reading, chunk, &what, err);
    if (rc < 0 || what.state == VOLUME_ABSENT)
        return rc < 0 ? rc : 1;
    return reading->take(reading->take_arg, chunk,
                         what.state == VOLUME_ZERO ? NULL : reading->buffer, err);
}

/* volume_fetch_source.read */
static int read_chunks(void *arg, const uint64_t *chunks, size_t count,
                       int (*stop)(void *arg, uint64_t done, uint64_t total), void *stop_arg,
                       volume_fetch_take *take, void *take_arg, struct err *err)
{
    struct reading reading = {
        .source = arg, .stop = stop, .stop_arg = stop_arg, .take = take, .take_arg = take_arg};
    cleanup_free void *buffer = reading.buffer = aligned_alloc(VOLUME_BLOCK, VOLUME_CHUNK);
    cleanup_free uint64_t *absent = calloc(count + 1, sizeof *absent);
    size_t absent_count = 0;
    if (!buffer || !absent)
        return err_errno(err, ENOMEM, "cannot read a view");
    for (size_t i = 0; i < count; i++) {
        int rc = read_one(&reading, chunks[i], err);
        if (rc < 0)
            return rc;
        if (rc > 0)
            absent[absent_count++] = chunks[i];
    }
    return absent_count > 0 ? read_absent(&reading, absent, absent_count, err) : 0;
}

struct volume_fetch_source workspace_epoch_fetch_source(struct workspace_epoch_source *source)
{
    return (struct volume_fetch_source){.read = read_chunks, .arg = source};
}
