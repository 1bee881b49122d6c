#include "snapshot.h"

#include "catalog_event.h"
#include "catalog_leftover.h"
#include "catalog_run.h"
#include "commit_blobs.h"
#include "commit_image.h"
#include "commit_step.h"
#include "fault.h"
#include "id.h"
#include "snapshot_internal.h"
#include "snapshot_remote.h"

#include <string.h>

struct removal {
    struct job *job;
    struct node *node;
    struct catalog_snapshot row;
    char *name; /* of its image on this node; owned */
    struct snapshot_outcome remote;
    struct snapshot_outcome image;
};

static const char last_step[] = "remove";

/* Refuses before anything is removed. */
static int check_unused(const struct removal *removal, struct err *err)
{
    struct catalog_run *runs = NULL;
    size_t count = 0;
    int rc = catalog_run_list(removal->node->catalog, &runs, &count, err);
    for (size_t i = 0; i < count; i++) {
        if (rc == 0 && strcmp(runs[i].image, removal->row.image) == 0) {
            rc = err_fail(err, ERR_CONFLICT, "its image is in use by the run %s", runs[i].id);
            err_hint(err, "remove the run first: varve run rm %s", runs[i].id);
        }
        catalog_run_free(&runs[i]);
    }
    free(runs);
    return rc;
}

/* Removes what this node pushed, for whose tag it has no other record. */
static int remove_remote(struct removal *removal, struct err *err)
{
    int rc = snapshot_remote_remove(removal->job, &removal->row, &removal->remote, err);
    return rc == 0 && removal->row.durability != CATALOG_LOCAL
               ? FAULT_POINT("snapshot.remote-removed", err)
               : rc;
}

static json_t *outcome_json(const struct snapshot_outcome *outcome)
{
    return json_pack("{s:s, s:s?}", "state", outcome->state, "message",
                     outcome->message[0] ? outcome->message : NULL);
}

/* Whether another name, or the record of another snapshot, needs the image. */
static int is_needed(const struct removal *removal, bool *ret, struct err *err)
{
    struct catalog *catalog = removal->node->catalog;
    cleanup_catalog_image struct catalog_image image = {0};
    struct catalog_snapshot *rows = NULL;
    size_t count = 0;
    int rc = catalog_image_get(catalog, removal->row.image, &image, err);
    if (rc == 0)
        rc = catalog_snapshot_list(catalog, &rows, &count, err);
    *ret = image.name_count > 0;
    for (size_t i = 0; i < count; i++) {
        *ret = *ret || strcmp(rows[i].image, removal->row.image) == 0;
        catalog_snapshot_free(&rows[i]);
    }
    free(rows);
    return rc;
}

/* Removes the name if it stands for this snapshot's image. */
static int remove_name(const struct removal *removal, struct err *err)
{
    cleanup_free char *digest = NULL;
    struct err missing = ERR_INIT;
    struct catalog *catalog = removal->node->catalog;
    int rc = catalog_image_name_get(catalog, removal->name, &digest, &missing);
    rc = err_found(err, rc, &missing);
    if (rc <= 0)
        return rc;
    if (strcmp(digest, removal->row.image) != 0)
        return 0;
    return catalog_image_name_remove(catalog, removal->name, err);
}

/* A run may have begun to use the image since it was asked for; then the image stays. */
static int remove_image(struct removal *removal, struct err *err)
{
    struct err failure = ERR_INIT;
    bool needed = false;
    int rc = is_needed(removal, &needed, &failure);
    if (rc == 0 && needed) {
        snapshot_outcome_set(&removal->image, "kept", "it has another name or snapshot");
        return 0;
    }
    if (rc == 0)
        rc = catalog_image_remove(removal->node->catalog, removal->row.image, &failure);
    if (rc == 0)
        snapshot_outcome_set(&removal->image, "removed", "");
    else if (failure.code == ERR_NOT_FOUND)
        snapshot_outcome_set(&removal->image, "absent", "");
    else if (failure.code == ERR_CONFLICT)
        snapshot_outcome_set(&removal->image, "kept", failure.text);
    else
        return err_pass(err, rc, &failure);
    return 0;
}

static int remove_rows(struct removal *removal, struct err *err)
{
    struct catalog *catalog = removal->node->catalog;
    char object[ID_LEN_MAX + 16];
    snprintf(object, sizeof object, "snapshot:%s", removal->row.id);
    int rc = remove_name(removal, err);
    if (rc == 0)
        rc = catalog_snapshot_remove(catalog, removal->row.id, err);
    if (rc == 0 && removal->remote.waits)
        rc = catalog_leftover_add(catalog, removal->row.remote, removal->row.repository,
                                  removal->row.image, err);
    if (rc == 0)
        rc = remove_image(removal, err);
    cleanup_json json_t *detail = json_pack("{s:o}", "remote", outcome_json(&removal->remote));
    cleanup_free char *text = detail ? json_doc_dump(detail) : NULL;
    if (rc == 0 && !text)
        rc = err_errno(err, ENOMEM, "cannot record the removal");
    return rc == 0 ? catalog_event_add(catalog, "snapshot-removed", object, text, err) : rc;
}

static int remove_local(struct removal *removal, struct err *err)
{
    struct catalog *catalog = removal->node->catalog;
    int rc = job_settle(removal->job, last_step, err);
    if (rc == 0)
        rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    rc = catalog_end(catalog, remove_rows(removal, err), err);
    if (rc == 0)
        rc = FAULT_POINT("snapshot.removed", err);
    return rc == 0 ? node_sync_index(removal->node, err) : rc;
}

static int remove_all(struct removal *removal, json_t **ret_result, struct err *err)
{
    int rc = job_step(removal->job, "check", err);
    if (rc == 0)
        rc = check_unused(removal, err);
    if (rc == 0)
        rc = remove_remote(removal, err);
    if (rc == 0)
        rc = remove_local(removal, err);
    if (rc < 0)
        return rc;
    *ret_result =
        json_pack("{s:s, s:s, s:o, s:o}", "id", removal->row.id, "digest", removal->row.image,
                  "remote", outcome_json(&removal->remote), "image", outcome_json(&removal->image));
    return *ret_result ? 0 : err_errno(err, ENOMEM, "cannot describe the removal");
}

int snapshot_drop(struct node *node, const char *id, struct err *err)
{
    struct removal removal = {.node = node};
    struct err missing = ERR_INIT;
    int rc =
        err_found(err, catalog_snapshot_get(node->catalog, id, &removal.row, &missing), &missing);
    if (rc <= 0)
        return rc;
    snapshot_outcome_set(&removal.remote, "not_pushed", "");
    removal.name = snapshot_local_name(node, &removal.row);
    rc = removal.name ? catalog_begin(node->catalog, err) : err_errno(err, ENOMEM, "out of memory");
    if (rc == 0)
        rc = catalog_end(node->catalog, remove_rows(&removal, err), err);
    if (rc == 0)
        rc = node_sync_index(node, err);
    free(removal.name);
    catalog_snapshot_free(&removal.row);
    return rc;
}

/* Without a record: another attempt of this job has removed it, or there never was one. */
static int finish_earlier(struct job *job, const char *id, json_t **ret_result,
                          const struct err *missing, struct err *err)
{
    bool reached = false;
    int rc = commit_step_reached(job, last_step, &reached, err);
    if (rc == 0 && !reached)
        rc = err_pass(err, -missing->num, missing);
    if (rc == 0)
        rc = node_sync_index(job_node(job), err);
    if (rc < 0)
        return rc;
    *ret_result = json_pack("{s:s}", "id", id);
    return *ret_result ? 0 : err_errno(err, ENOMEM, "cannot describe the removal");
}

static int rm_run(struct job *job, json_t **ret_result, struct err *err)
{
    struct removal removal = {.job = job, .node = job_node(job)};
    struct err missing = ERR_INIT;
    const char *id;
    int rc = json_doc_get_str(job_params(job), "snapshot", "the request", &id, err);
    if (rc < 0)
        return rc;
    rc = catalog_snapshot_get(removal.node->catalog, id, &removal.row, &missing);
    if (rc == 0) {
        removal.name = snapshot_local_name(removal.node, &removal.row);
        rc = removal.name ? remove_all(&removal, ret_result, err)
                          : err_errno(err, ENOMEM, "out of memory");
        if (rc < 0)
            err_wrap(err, rc, "cannot remove snapshot %s", id);
    } else if (missing.code == ERR_NOT_FOUND) {
        rc = finish_earlier(job, id, ret_result, &missing, err);
    } else {
        rc = err_pass(err, rc, &missing);
    }
    rc = commit_blobs_end(job, rc, err);
    free(removal.name);
    catalog_snapshot_free(&removal.row);
    return rc;
}

const struct job_kind snapshot_rm_job = {
    .name = "snapshot.rm", .run = rm_run, .frees_space = true, .remote = true};
