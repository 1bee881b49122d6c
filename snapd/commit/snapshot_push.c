#include "snapshot.h"

#include "catalog_event.h"
#include "commit_blobs.h"
#include "commit_image.h"
#include "fault.h"
#include "id.h"
#include "log.h"
#include "push_image.h"
#include "snapshot_internal.h"

#include <string.h>

struct pushing {
    struct job *job;
    struct node *node;
    struct catalog_snapshot row;
    struct commit_image image;
    enum catalog_durability level;
    struct push_image_result result;
    bool elsewhere; /* another remote has it from an earlier push, and keeps that */
};

/* Whatever happens to the rest of the push, who removes the snapshot looks there. */
static int note_remote(void *arg, struct err *err)
{
    const struct pushing *pushing = arg;
    int rc = catalog_snapshot_set_remote(pushing->node->catalog, pushing->row.id,
                                         pushing->node->remote->url, err);
    return rc == 0 ? FAULT_POINT("snapshot.remote-noted", err) : rc;
}

static struct push_image wanted_of(struct pushing *pushing)
{
    return (struct push_image){.job = pushing->job,
                               .repository = pushing->row.repository,
                               .tag = pushing->row.tag,
                               .image = &pushing->image,
                               .level = pushing->level,
                               .before_manifest = note_remote,
                               .arg = pushing};
}

static int record(struct pushing *pushing, struct err *err)
{
    struct catalog *catalog = pushing->node->catalog;
    char object[ID_LEN_MAX + 16];
    snprintf(object, sizeof object, "snapshot:%s", pushing->row.id);
    int rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    rc = job_settle(pushing->job, "record", err);
    if (rc == 0)
        rc = catalog_snapshot_set_durability(catalog, pushing->row.id, pushing->level,
                                             pushing->node->remote->url, err);
    if (rc == 0)
        rc = catalog_event_add(
            catalog, pushing->level == CATALOG_VERIFIED ? "snapshot-verified" : "snapshot-pushed",
            object, NULL, err);
    rc = catalog_end(catalog, rc, err);
    return rc == 0 ? FAULT_POINT("snapshot.push-recorded", err) : rc;
}

static int fetch_manifest(struct pushing *pushing, struct err *err)
{
    cleanup_remote_manifest struct remote_manifest there = {0};
    struct commit_image *image = &pushing->image;
    const struct catalog_snapshot *row = &pushing->row;
    struct remote *remote = pushing->node->remote;
    struct job_asker asker = {.job = pushing->job, .stop = ERR_INIT};
    struct err failure = ERR_INIT;
    int rc = remote_manifest_get_or_stop(remote, row->repository, row->image, job_asker_ask, &asker,
                                         &there, &failure);
    rc = job_asker_end(&asker, rc, &failure);
    if (rc < 0) {
        pushing->result.lost = failure.code == ERR_NOT_FOUND || failure.code == ERR_DIGEST;
        return err_pass(err, rc, &failure);
    }
    image->digest = there.digest;
    rc = buf_add(&image->manifest_text, there.bytes, there.len, "the manifest", err);
    return rc < 0 ? rc
                  : oci_manifest_parse(there.bytes, there.len, there.media_type, &image->manifest,
                                       err);
}

/* An earlier push was recorded, and what it pushed is not there any more. Who asks next shall not
 * believe that it is, nor drop the image that is here. */
static void record_loss(const struct pushing *pushing)
{
    struct catalog *catalog = pushing->node->catalog;
    char object[ID_LEN_MAX + 16];
    struct err failure = ERR_INIT;
    snprintf(object, sizeof object, "snapshot:%s", pushing->row.id);
    int rc = catalog_begin(catalog, &failure);
    if (rc == 0) {
        rc = catalog_snapshot_set_lost(catalog, pushing->row.id, pushing->node->remote->url,
                                       &failure);
        if (rc == 1)
            rc = catalog_event_add(catalog, "snapshot-lost", object, NULL, &failure);
        rc = catalog_end(catalog, rc, &failure);
    }
    if (rc < 0)
        log_event(LOG_WARN, "loss-not-recorded", "snapshot", pushing->row.id, "error", failure.text,
                  NULL);
}

/* The image was dropped here after an earlier push: the remote must still have all of it. */
static int prove_earlier_push(struct pushing *pushing, struct err *err)
{
    const struct catalog_snapshot *row = &pushing->row;
    const char *url = pushing->node->remote->url;
    if (row->durability == CATALOG_LOCAL || !row->remote || strcmp(row->remote, url) != 0)
        return err_fail(err, ERR_NOT_FOUND, "its image %.19s is not on this node any more",
                        row->image);
    int rc = fetch_manifest(pushing, err);
    if (rc == 0) {
        const struct push_image wanted = wanted_of(pushing);
        rc = push_image_prove(&wanted, &pushing->result, err);
    }
    if (rc < 0 && pushing->result.lost)
        record_loss(pushing);
    return rc == 0 ? record(pushing, err) : rc;
}

static int push_here(struct pushing *pushing, struct err *err)
{
    const struct push_image wanted = wanted_of(pushing);
    int rc = push_image_lease(pushing->job, &pushing->image, err);
    if (rc == 0)
        rc = push_image(&wanted, &pushing->result, err);
    if (rc < 0 && pushing->result.lost)
        record_loss(pushing);
    return rc == 0 ? record(pushing, err) : rc;
}

/* 1, 0: the image is not here any more, or -errno. */
static int get_image(struct pushing *pushing, struct err *err)
{
    const struct node *node = pushing->node;
    cleanup_catalog_image struct catalog_image image = {0};
    struct err missing = ERR_INIT;
    int rc = err_found(err, catalog_image_get(node->catalog, pushing->row.image, &image, &missing),
                       &missing);
    if (rc <= 0)
        return rc;
    rc = commit_image_of_catalog(node->blobs, &image, &pushing->image, err);
    return rc < 0 ? rc : 1;
}

static int push_snapshot(struct pushing *pushing, struct err *err)
{
    int rc = job_step(pushing->job, "check", err);
    if (rc == 0)
        rc = get_image(pushing, err);
    if (rc < 0)
        return rc;
    return rc == 1 ? push_here(pushing, err) : prove_earlier_push(pushing, err);
}

/* Uploads that an attempt before a kill has begun, or a push before, or this one for blobs whose
 * turn did not come again: nobody goes on with them. */
static void give_up(struct pushing *pushing, const struct err *cause)
{
    struct err ignored = ERR_INIT;
    if (cause->code != ERR_CANCELLED || !job_is_cancelled(pushing->job))
        return;
    commit_image_free(&pushing->image);
    commit_image_init(&pushing->image);
    const struct push_image wanted = wanted_of(pushing);
    if (get_image(pushing, &ignored) == 1)
        push_image_give_up(&wanted);
}

/* The snapshot's document and what came of the push. */
static int make_result(const struct pushing *pushing, json_t **ret, struct err *err)
{
    cleanup_json json_t *result = NULL;
    int rc = snapshot_result(pushing->node, pushing->row.id, &result, err);
    if (rc < 0)
        return rc;
    cleanup_json json_t *counts = push_image_json(&pushing->result);
    json_t *left = pushing->elsewhere ? json_string(pushing->row.remote) : json_null();
    if (!counts || json_object_set_new(counts, "left_in", left) < 0 ||
        json_object_update(result, counts) < 0)
        return err_errno(err, ENOMEM, "cannot describe snapshot %s", pushing->row.id);
    *ret = steal_ptr(result);
    return 0;
}

int snapshot_push(struct job *job, struct catalog_snapshot *row, enum catalog_durability level,
                  json_t **ret_result, struct err *err)
{
    struct pushing pushing = {.job = job, .node = job_node(job), .row = *row, .level = level};
    pushing.elsewhere = row->durability != CATALOG_LOCAL && row->remote &&
                        strcmp(row->remote, pushing.node->remote->url) != 0;
    commit_image_init(&pushing.image);
    int rc = push_snapshot(&pushing, err);
    if (rc == 0)
        rc = make_result(&pushing, ret_result, err);
    else if (err)
        give_up(&pushing, err);
    rc = commit_blobs_end(job, rc, err);
    if (rc < 0)
        err_wrap(err, rc, "cannot push snapshot %s", row->id);
    commit_image_free(&pushing.image);
    return rc;
}

static int push_run(struct job *job, json_t **ret_result, struct err *err)
{
    cleanup_catalog_snapshot struct catalog_snapshot row = {0};
    enum catalog_durability level = CATALOG_PUSHED;
    int rc = snapshot_of_params(job, &row, err);
    if (rc == 0)
        rc = snapshot_level_of(job_params(job), &level, err);
    if (rc == 0 && level == CATALOG_LOCAL)
        rc = err_fail(err, ERR_INVALID, "a push cannot leave a snapshot local");
    return rc < 0 ? rc : snapshot_push(job, &row, level, ret_result, err);
}

const struct job_kind snapshot_push_job = {
    .name = "snapshot.push", .run = push_run, .remote = true};
