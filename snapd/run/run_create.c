#include "run.h"

#include "catalog_event.h"
#include "catalog_volume.h"
#include "commit_blobs.h"
#include "fault.h"
#include "id.h"
#include "image_ref.h"
#include "layers.h"
#include "log.h"
#include "pull.h"
#include "run_internal.h"
#include "run_volume.h"
#include "wait_stop.h"
#include "workspace_admission.h"
#include "workspace_create.h"
#include "workspace_token.h"

#include <string.h>

struct request {
    const char *id;
    const char *image; /* what the user said */
    int64_t token;     /* 0: none was given */
    bool plain;        /* upper in a directory of this node */
    uint64_t size;     /* of its volume */
    bool has_size;     /* it was asked for */
};

static int read_request(struct job *job, struct request *ret, struct err *err)
{
    static const char what[] = "the request for a run";
    const json_t *params = job_params(job);
    struct request request = {.has_size = json_object_get(params, "size") != NULL};
    int rc = json_doc_get_str(params, "id", what, &request.id, err);
    if (rc == 0)
        rc = id_check(request.id, "run ID", err);
    if (rc == 0)
        rc = json_doc_get_str(params, "image", what, &request.image, err);
    if (rc == 0)
        rc = json_doc_opt_int(params, "token", what, &request.token, err);
    if (rc == 0)
        rc = json_doc_opt_bool(params, "plain_upper", what, &request.plain, err);
    if (rc == 0)
        rc = workspace_create_size(job_node(job), params, &request.size, err);
    if (rc < 0)
        return rc;
    if (request.token < 0)
        return err_fail(err, ERR_INVALID, "a fencing token is a positive number");
    if (request.plain && request.has_size)
        return err_fail(err, ERR_INVALID, "a run with a plain upper has no volume with a size");
    *ret = request;
    return 0;
}

/* The digest of the image, which is pulled when it is not here. Caller frees. */
static int get_image(struct job *job, const char *text, char **ret_digest, struct err *err)
{
    cleanup_image_ref struct image_ref ref = {0};
    int rc = job_mark(job, "resolve", err);
    if (rc == 0)
        rc = image_ref_resolve(job_node(job), text, &ref, err);
    if (rc < 0)
        return rc;
    if (ref.local_digest) {
        *ret_digest = steal_ptr(ref.local_digest);
        return 0;
    }
    rc = job_mark(job, "pull", err);
    return rc < 0 ? rc : pull_image(job, &ref, ret_digest, err);
}

static int add_rows(struct job *job, const struct request *request, struct catalog_run *run,
                    struct err *err)
{
    struct node *node = job_node(job);
    struct catalog *catalog = node->catalog;
    const struct catalog_volume volume = {.id = run->volume,
                                          .lineage = run->volume,
                                          .size = (int64_t)request->size,
                                          .job_id = run->job_id};
    int rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    if (run->volume)
        rc = catalog_volume_add(catalog, &volume, err);
    if (rc == 0)
        rc = catalog_run_add(catalog, run, err);
    if (rc == 0 && run->volume)
        rc = workspace_token_set(node, run->id, run->volume, run->token, err);
    return catalog_end(catalog, rc, err);
}

/* Admission and rows: from here on they say how much the volume may grow. */
static int record_on_volume(struct job *job, const struct request *request, struct catalog_run *run,
                            struct err *err)
{
    struct node *node = job_node(job);
    char volume[VOLUME_ID_LEN + 1];
    int rc = workspace_create_id(job, volume, err);
    if (rc == 0)
        rc = workspace_admission_reserve(node, request->size, err);
    if (rc < 0)
        return err_wrap(err, rc, "run %s is not made", run->id);
    run->upper = (char *)"volume";
    run->volume = volume;
    rc = add_rows(job, request, run, err);
    workspace_admission_release(node, request->size);
    return rc;
}

/* The row is the run's reference to its image: from here on nobody removes the image, its blobs or
 * its layer images, and nothing was relied on before (I5). */
static int record(struct job *job, const struct request *request, const char *digest,
                  struct err *err)
{
    struct catalog_run run = {.id = (char *)request->id,
                              .image = (char *)digest,
                              .image_name = (char *)request->image,
                              .upper = (char *)"plain",
                              .token = request->token,
                              .job_id = (char *)job_id(job)};
    int rc = run_dirs_check_unused(job_node(job), request->id, err);
    if (rc < 0)
        return rc;
    return request->plain ? add_rows(job, request, &run, err)
                          : record_on_volume(job, request, &run, err);
}

/* From a recorded run to a mounted one. */
static int build(struct job *job, const struct catalog_run *run, struct err *err)
{
    struct node *node = job_node(job);
    cleanup_catalog_image struct catalog_image image = {0};
    int rc = FAULT_POINT("run.recorded", err);
    if (rc == 0)
        rc = catalog_image_get(node->catalog, run->image, &image, err);
    if (rc == 0)
        rc = job_mark(job, "layers", err);
    if (rc == 0)
        rc = layers_ensure(node, &image, NULL, job_stop, job, err);
    if (rc == 0 && run->volume) {
        rc = job_mark(job, "volume", err);
        if (rc == 0)
            rc = run_volume_make(job, run, err);
    }
    if (rc == 0)
        rc = job_mark(job, "mount", err);
    if (rc == 0)
        rc = run_dirs_make(node, run->id, &image, err);
    if (rc == 0)
        rc = FAULT_POINT("run.dirs-made", err);
    if (rc == 0)
        rc = run_dirs_mount(node, run->id, &image, err);
    if (rc == 0)
        layers_note_use(node, &image);
    return rc == 0 ? FAULT_POINT("run.mounted", err) : rc;
}

static int mark_ready(struct job *job, const struct catalog_run *run, struct err *err)
{
    struct node *node = job_node(job);
    char object[ID_LEN_MAX + 8];
    snprintf(object, sizeof object, "run:%s", run->id);
    /* The end of the job is durable, and this with it. */
    int rc = catalog_begin_lazy(node->catalog, err);
    if (rc < 0)
        return rc;
    rc = job_settle(job, "record", err);
    if (rc == 0)
        rc = catalog_run_set_state(node->catalog, run->id, CATALOG_RUN_READY, err);
    if (rc == 0 && run->volume)
        rc = run_volume_note_ready(node, run, err);
    if (rc == 0)
        rc = catalog_event_add(node->catalog, "run-created", object, NULL, err);
    return catalog_end(node->catalog, rc, err);
}

/* The document comes before the last durable step, so that a failure to make it can be undone. */
static int finish(struct job *job, struct catalog_run *run, json_t **ret_result, struct err *err)
{
    run->state = CATALOG_RUN_READY;
    json_t *json = run_json(job_node(job), run, err);
    if (!json)
        return err_wrap(err, err->num ? -err->num : -ENOMEM, "cannot describe run %s", run->id);
    int rc = mark_ready(job, run, err);
    if (rc < 0) {
        json_decref(json);
        return rc;
    }
    *ret_result = json;
    return 0;
}

/* An interrupted job goes on at the next start, so its work stays. */
static void undo(struct node *node, const char *id, const struct err *cause)
{
    struct err failure = ERR_INIT;
    cleanup_wait_stop struct wait_stop nobody = {.ask = NULL};
    wait_stop_begin(&nobody);
    if (cause->code != ERR_INTERRUPTED && run_discard(node, id, NULL, &failure) < 0)
        log_event(LOG_WARN, "run-not-undone", "run", id, "error", failure.text, NULL);
}

static int go_on(struct job *job, struct catalog_run *run, json_t **ret_result, struct err *err)
{
    int rc = build(job, run, err);
    if (rc == 0)
        rc = finish(job, run, ret_result, err);
    if (rc < 0)
        undo(job_node(job), run->id, err);
    return rc;
}

static int make_new(struct job *job, const struct request *request, json_t **ret_result,
                    struct err *err)
{
    cleanup_free char *digest = NULL;
    cleanup_catalog_run struct catalog_run run = {0};
    int rc = get_image(job, request->image, &digest, err);
    if (rc == 0)
        rc = record(job, request, digest, err);
    if (rc == 0)
        rc = catalog_run_get(job_node(job)->catalog, request->id, &run, err);
    return rc == 0 ? go_on(job, &run, ret_result, err) : rc;
}

static int fail_other(const struct catalog_run *run, const char *what, struct err *err)
{
    int rc = err_fail(err, ERR_EXISTS, "run %s exists and has another %s", run->id, what);
    err_hint(err, "choose another ID, or remove that one with `varve run rm %s`", run->id);
    return rc;
}

static int check_size(struct node *node, const struct request *request,
                      const struct catalog_run *run, struct err *err)
{
    cleanup_catalog_volume struct catalog_volume volume = {0};
    int rc = catalog_volume_get(node->catalog, run->volume, &volume, err);
    return rc < 0 || (uint64_t)volume.size == request->size ? rc : fail_other(run, "size", err);
}

/* Whether a request asks for the run that is there already. */
static int check_same(struct node *node, const struct request *request,
                      const struct catalog_run *run, struct err *err)
{
    cleanup_image_ref struct image_ref ref = {0};
    int rc = image_ref_resolve(node, request->image, &ref, err);
    if (rc < 0)
        return rc;
    if (!ref.local_digest || strcmp(ref.local_digest, run->image) != 0)
        return fail_other(run, "image", err);
    if (request->token != 0 && request->token != run->token)
        return fail_other(run, "fencing token", err);
    if (request->plain != (run->volume == NULL))
        return fail_other(run, "kind of writable layer", err);
    return request->has_size ? check_size(node, request, run, err) : 0;
}

static int reuse(struct job *job, const struct request *request, const struct catalog_run *run,
                 json_t **ret_result, struct err *err)
{
    struct node *node = job_node(job);
    cleanup_catalog_run struct catalog_run current = {0};
    bool own = run->job_id && strcmp(run->job_id, job_id(job)) == 0;
    int rc = own ? 0 : check_same(node, request, run, err);
    /* The lock: `varve recover` may be about to mount it too. */
    if (rc == 0)
        rc = run_mount_idle(node, run->id, job_stop, job, err);
    if (rc == 0)
        rc = catalog_run_get(node->catalog, run->id, &current, err);
    if (rc < 0)
        return rc;
    *ret_result = run_json(node, &current, err);
    return *ret_result ? 0 : err_wrap(err, err->num ? -err->num : -ENOMEM, "cannot describe it");
}

static int create(struct job *job, json_t **ret_result, struct err *err)
{
    struct node *node = job_node(job);
    struct request request = {0};
    cleanup_catalog_run struct catalog_run run = {0};
    int rc = read_request(job, &request, err);
    int found = rc < 0 ? rc : run_find(node, request.id, &run, err);
    if (found < 0)
        return found;
    if (found && run.state == CATALOG_RUN_READY)
        return reuse(job, &request, &run, ret_result, err);
    if (found && run.state == CATALOG_RUN_REMOVING) {
        rc = err_fail(err, ERR_CONFLICT, "run %s is half removed", run.id);
        err_hint(err, "finish it with `varve run rm %s`, or choose another ID", run.id);
        return rc;
    }
    if (found && run.job_id && strcmp(run.job_id, job_id(job)) == 0)
        return go_on(job, &run, ret_result, err);
    /* What an earlier job could not undo; it has ended, as jobs of one run exclude each other. */
    if (found)
        rc = run_discard(node, run.id, NULL, err);
    return rc < 0 ? rc : make_new(job, &request, ret_result, err);
}

/* What an earlier attempt has pulled of an image goes with the failure. */
static int run_create(struct job *job, json_t **ret_result, struct err *err)
{
    int rc = create(job, ret_result, err);
    return rc < 0 ? commit_blobs_end(job, rc, err) : 0;
}

const struct job_kind run_create_job = {
    .name = "run.create", .run = run_create, .id_prefix = "r", .remote = true};
