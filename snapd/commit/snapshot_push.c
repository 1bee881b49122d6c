#include "snapshot.h"

#include "catalog_event.h"
#include "commit_blobs.h"
#include "commit_image.h"
#include "fault.h"
#include "id.h"
#include "snapshot_internal.h"

#include <string.h>

struct push {
    struct job *job;
    struct node *node;
    struct catalog_snapshot row;
    struct commit_image image;
    uint64_t done; /* bytes of the blobs before the current one */
    uint64_t total;
    struct err stop; /* why progress asked for the end; not set while it has not */
};

/* A remote's callback has no error of its own. */
static int progress(void *arg, uint64_t done, uint64_t total)
{
    struct push *push = arg;
    (void)total;
    return job_progress(push->job, push->done + done, push->total, "bytes", &push->stop);
}

static int push_blob(struct push *push, const struct digest *digest, int64_t size, struct err *err)
{
    int rc = remote_push_blob(push->node->remote, push->row.repository, push->node->blobs, digest,
                              progress, push, NULL, err);
    push->done += (uint64_t)size;
    if (rc < 0 && push->stop.code != ERR_NONE && err)
        *err = push->stop;
    if (rc < 0)
        return rc;
    return job_progress(push->job, push->done, push->total, "bytes", err);
}

static int lease_all(struct push *push, struct err *err)
{
    const struct commit_image *image = &push->image;
    int rc = commit_blobs_lease(push->job, &image->digest, err);
    if (rc == 0)
        rc = commit_blobs_lease(push->job, &image->manifest.config.digest, err);
    for (size_t i = 0; i < image->manifest.layer_count && rc == 0; i++)
        rc = commit_blobs_lease(push->job, &image->manifest.layers[i].digest, err);
    return rc;
}

static int push_blobs(struct push *push, struct err *err)
{
    const struct oci_manifest *manifest = &push->image.manifest;
    push->total = (uint64_t)commit_image_bytes(&push->image) - push->image.manifest_text.len;
    int rc = job_step(push->job, "blobs", err);
    for (size_t i = 0; i < manifest->layer_count && rc == 0; i++)
        rc = push_blob(push, &manifest->layers[i].digest, manifest->layers[i].size, err);
    if (rc == 0)
        rc = push_blob(push, &manifest->config.digest, manifest->config.size, err);
    return rc == 0 ? FAULT_POINT("snapshot.blobs-sent", err) : rc;
}

/* Somebody else's image under this tag is not replaced. */
static int check_tag(const struct push *push, struct err *err)
{
    cleanup_remote_manifest struct remote_manifest there = {0};
    struct err missing = ERR_INIT;
    int rc = remote_manifest_get(push->node->remote, push->row.repository, push->row.tag, &there,
                                 &missing);
    rc = err_found(err, rc, &missing);
    if (rc <= 0)
        return rc;
    if (digest_equal(&there.digest, &push->image.digest))
        return 0;
    rc = err_fail(err, ERR_EXISTS, "%s:%s stands for another image in the remote (%.19s)",
                  push->row.repository, push->row.tag, digest_format(&there.digest).s);
    err_hint(err, "make a snapshot with another tag");
    return rc;
}

static int push_manifest(struct push *push, struct err *err)
{
    int rc = job_step(push->job, "manifest", err);
    if (rc == 0)
        rc = check_tag(push, err);
    if (rc == 0)
        rc = remote_manifest_put(push->node->remote, push->row.repository, push->row.tag,
                                 push->image.manifest.media_type,
                                 buf_str(&push->image.manifest_text), push->image.manifest_text.len,
                                 err);
    return rc == 0 ? FAULT_POINT("snapshot.manifest-sent", err) : rc;
}

/* Before the local copy may go, everything that the manifest names is there with its size. */
static int confirm_all(struct push *push, struct err *err)
{
    struct remote *remote = push->node->remote;
    const char *repository = push->row.repository;
    const struct oci_manifest *manifest = &push->image.manifest;
    int rc = job_step(push->job, "confirm", err);
    if (rc == 0)
        rc = remote_confirm_blob(remote, repository, &manifest->config.digest,
                                 (uint64_t)manifest->config.size, progress, push, err);
    for (size_t i = 0; i < manifest->layer_count && rc == 0; i++)
        rc = remote_confirm_blob(remote, repository, &manifest->layers[i].digest,
                                 (uint64_t)manifest->layers[i].size, progress, push, err);
    return rc;
}

static int record(struct push *push, struct err *err)
{
    struct catalog *catalog = push->node->catalog;
    char object[ID_LEN_MAX + 16];
    snprintf(object, sizeof object, "snapshot:%s", push->row.id);
    int rc = job_step(push->job, "record", err);
    if (rc == 0)
        rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    rc = catalog_snapshot_set_durability(catalog, push->row.id, CATALOG_PUSHED,
                                         push->node->remote->url, err);
    if (rc == 0)
        rc = catalog_event_add(catalog, "snapshot-pushed", object, NULL, err);
    rc = catalog_end(catalog, rc, err);
    return rc == 0 ? FAULT_POINT("snapshot.push-recorded", err) : rc;
}

/* The image was dropped here after an earlier push: the remote must still have all of it. */
static int confirm_earlier_push(struct push *push, struct err *err)
{
    cleanup_remote_manifest struct remote_manifest there = {0};
    const struct catalog_snapshot *row = &push->row;
    struct remote *remote = push->node->remote;
    if (row->durability == CATALOG_LOCAL || !row->remote || strcmp(row->remote, remote->url) != 0)
        return err_fail(err, ERR_NOT_FOUND, "its image %.19s is not on this node any more",
                        row->image);
    int rc = remote_manifest_get(remote, row->repository, row->image, &there, err);
    if (rc == 0)
        rc = oci_manifest_parse(there.bytes, there.len, there.media_type, &push->image.manifest,
                                err);
    return rc == 0 ? confirm_all(push, err) : rc;
}

static int push_image(struct push *push, struct err *err)
{
    int rc = lease_all(push, err);
    if (rc == 0)
        rc = push_blobs(push, err);
    if (rc == 0)
        rc = push_manifest(push, err);
    if (rc == 0)
        rc = confirm_all(push, err);
    return rc == 0 ? record(push, err) : rc;
}

static int push_snapshot(struct push *push, struct err *err)
{
    struct node *node = push->node;
    cleanup_catalog_image struct catalog_image image = {0};
    struct err missing = ERR_INIT;
    int rc = job_step(push->job, "check", err);
    if (rc < 0)
        return rc;
    rc = err_found(err, catalog_image_get(node->catalog, push->row.image, &image, &missing),
                   &missing);
    if (rc <= 0)
        return rc < 0 ? rc : confirm_earlier_push(push, err);
    rc = commit_image_of_catalog(node->blobs, &image, &push->image, err);
    return rc == 0 ? push_image(push, err) : rc;
}

static int push_run(struct job *job, json_t **ret_result, struct err *err)
{
    struct push push = {.job = job, .node = job_node(job), .stop = ERR_INIT};
    int rc = snapshot_of_params(job, &push.row, err);
    if (rc < 0)
        return rc;
    commit_image_init(&push.image);
    rc = push_snapshot(&push, err);
    if (rc == 0)
        rc = snapshot_result(push.node, push.row.id, ret_result, err);
    rc = commit_blobs_end(job, rc, err);
    if (rc < 0)
        err_wrap(err, rc, "cannot push snapshot %s", push.row.id);
    commit_image_free(&push.image);
    catalog_snapshot_free(&push.row);
    return rc;
}

const struct job_kind snapshot_push_job = {.name = "snapshot.push", .run = push_run};
