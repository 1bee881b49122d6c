#include "pull_internal.h"

#include "layers_busy.h"

/* One blob on its way. */
struct transfer {
    struct pull *pull;
    size_t index;
    convert_stop *stop;
    void *stop_arg;
    struct err cause; /* why the end was asked for */
};

static const struct oci_descriptor *blob_of(const struct pull *pull, size_t index)
{
    const struct oci_manifest *manifest = &pull->image.manifest;
    return index == OCI_LAYERS_MAX ? &manifest->config : &manifest->layers[index];
}

/* Notes how far one blob is; the sum over all. */
static uint64_t note(struct pull *pull, size_t index, uint64_t done)
{
    uint64_t sum = 0;
    pthread_mutex_lock(&pull->lock);
    pull->done[index] = done;
    for (size_t i = 0; i < ARRAY_SIZE(pull->done); i++)
        sum += pull->done[i];
    pthread_mutex_unlock(&pull->lock);
    return sum;
}

static int on_progress(void *arg, uint64_t done, uint64_t total)
{
    struct transfer *transfer = arg;
    struct pull *pull = transfer->pull;
    (void)total;
    return transfer->stop(transfer->stop_arg, &transfer->cause) < 0 ||
           job_progress(pull->job, note(pull, transfer->index, done), pull->total, "bytes",
                        &transfer->cause) < 0;
}

/* The blob is there. */
static int finish(struct pull *pull, size_t index, bool downloaded, struct err *err)
{
    uint64_t size = (uint64_t)blob_of(pull, index)->size;
    uint64_t sum = note(pull, index, size);
    pthread_mutex_lock(&pull->lock);
    pull->settled[index] = true;
    pull->downloaded += downloaded ? size : 0;
    pthread_mutex_unlock(&pull->lock);
    return job_progress(pull->job, sum, pull->total, "bytes", err);
}

int pull_blob(struct pull *pull, size_t index, const struct remote_watch *watch, convert_stop *stop,
              void *stop_arg, struct err *err)
{
    const struct oci_descriptor *blob = blob_of(pull, index);
    struct transfer transfer = {
        .pull = pull, .index = index, .stop = stop, .stop_arg = stop_arg, .cause = ERR_INIT};
    cleanup_layers_busy struct layers_busy busy = {.node = NULL};
    struct digest_text text = digest_format(&blob->digest);
    bool downloaded = false;
    int rc = layers_busy_enter(&busy, pull->node, "blob", text.s, stop, stop_arg, err);
    if (rc < 0)
        return rc;
    rc = remote_pull_blob(pull->remote, pull->ref->repository, pull->node->blobs, &blob->digest,
                          (uint64_t)blob->size, on_progress, &transfer, watch, &downloaded, err);
    layers_busy_leave(&busy);
    if (rc < 0 && transfer.cause.code != ERR_NONE) {
        err_clear(err);
        return err_pass(err, -transfer.cause.num, &transfer.cause);
    }
    return rc < 0 ? rc : finish(pull, index, downloaded, err);
}

void pull_blob_note_present(struct pull *pull, size_t index)
{
    const struct oci_descriptor *blob = blob_of(pull, index);
    uint64_t have;
    if (blobs_stat(pull->node->blobs, &blob->digest, &have, NULL) == 0 &&
        have == (uint64_t)blob->size)
        (void)note(pull, index, have);
}
