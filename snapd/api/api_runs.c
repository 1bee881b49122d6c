#include "api_handlers.h"

#include "image_ref.h"
#include "log.h"
#include "run.h"
#include "workspace_create.h"

#include <string.h>

struct run_request {
    struct node *node;
    const char *id; /* NULL: none was given */
    const char *image;
};

/* A word that cannot name an image, and an ID that stands for a run of another image, are known
 * before any work. The same ID and image again is a repeat, which the job answers. */
static int check_create(void *arg, struct err *err)
{
    const struct run_request *wanted = arg;
    cleanup_image_ref struct image_ref ref = {0};
    int rc = api_request_blame(err, image_ref_resolve(wanted->node, wanted->image, &ref, err),
                               wanted->image);
    if (rc < 0 || !wanted->id || !ref.local_digest)
        return rc;
    struct err missing = ERR_INIT;
    cleanup_catalog_run struct catalog_run run = {0};
    rc = catalog_run_get(wanted->node->catalog, wanted->id, &run, &missing);
    rc = err_found(err, rc, &missing);
    if (rc <= 0)
        return rc;
    if (strcmp(run.image, ref.local_digest) == 0)
        return 0;
    rc = err_fail(err, ERR_EXISTS, "run %s exists and was made from another image (%s)", wanted->id,
                  run.image_name ? run.image_name : run.image);
    err_hint(err, "choose another ID, or remove that run first");
    return rc;
}

/* How much a volume may have is known before any work; and what the default is, is said. */
static int check_upper(const struct node *node, json_t *params, struct err *err)
{
    uint64_t size;
    bool plain = json_is_true(json_object_get(params, "plain_upper"));
    bool has_size = json_object_get(params, "size") != NULL;
    int rc = has_size ? workspace_create_size(node, params, &size, err) : 0;
    if (rc == 0 && plain && has_size)
        rc = err_fail(err, ERR_INVALID, "a run with a plain upper has no volume with a size");
    if (rc == 0 && json_object_set_new(params, "plain_upper", json_boolean(plain)) < 0)
        rc = err_fail(err, ERR_INTERNAL, "no memory for the request");
    return rc;
}

/* Takes what the client said and brings it into the one form that is recorded. */
static int create_params(struct api_request *request, json_t **ret, struct err *err)
{
    static const struct api_member members[] = {{"image", API_STRING, true, 0},
                                                {"id", API_STRING, false, 0},
                                                {"plain_upper", API_BOOL, false, 0},
                                                {"size", API_INTEGER, false, 0},
                                                {"token", API_INTEGER, false, 0}};
    cleanup_json json_t *params = NULL;
    int rc = api_request_params(request, members, ARRAY_SIZE(members), &params, err);
    if (rc < 0)
        return rc;
    const char *id = json_string_value(json_object_get(params, "id"));
    rc = id ? id_check(id, "run ID", err) : 0;
    if (rc < 0)
        return rc;
    rc = check_upper(request->node, params, err);
    if (rc < 0)
        return rc;
    *ret = steal_ptr(params);
    return 0;
}

int api_runs_create(struct api_request *request, struct api_reply *reply, struct err *err)
{
    cleanup_json json_t *params = NULL;
    int rc = create_params(request, &params, err);
    if (rc < 0)
        return rc;
    struct run_request wanted = {.node = request->node,
                                 .id = json_string_value(json_object_get(params, "id")),
                                 .image = json_string_value(json_object_get(params, "image"))};
    /* Without an ID the run has the job's (engine.h), which has to be known for the object. */
    struct id job_id;
    rc = id_new("j", &job_id, err);
    if (rc < 0)
        return rc;
    char object[ID_LEN_MAX + 8];
    if (wanted.id)
        snprintf(object, sizeof object, "run:%s", wanted.id);
    else
        snprintf(object, sizeof object, "run:r%s", strchr(job_id.s, '-'));
    struct job_request job = {.kind = run_create_job.name,
                              .id = job_id.s,
                              .object = object,
                              .params = params,
                              .check = check_create,
                              .check_arg = &wanted};
    return api_jobs_submit(request, &job, reply, err);
}

/* A run that cannot be shown is listed all the same, with the reason. */
static json_t *listed(const struct catalog_run *run, json_t *json, const struct err *failure)
{
    if (json)
        return json;
    log_event(LOG_WARN, "run-unreadable", "run", run->id, "error", failure->text, NULL);
    return json_pack("{s:o, s:s, s:o}", "id", api_text(run->id), "state",
                     catalog_run_state_name(run->state), "error",
                     api_error(err_code_name(failure->code), failure->text, failure->hint));
}

static int list(struct node *node, const struct catalog_run *runs, size_t count, json_t *ret,
                struct err *err)
{
    cleanup_free json_t **documents = calloc(count + 1, sizeof *documents);
    cleanup_free struct err *failures = calloc(count + 1, sizeof *failures);
    if (!documents || !failures)
        return err_errno(err, ENOMEM, "cannot list the runs");
    int rc = run_json_each(node, runs, count, documents, failures, err);
    for (size_t i = 0; i < count && rc == 0; i++)
        if (documents[i] || failures[i].code != ERR_NONE)
            (void)json_array_append_new(ret, listed(&runs[i], documents[i], &failures[i]));
    return rc;
}

int api_runs_list(struct api_request *request, struct api_reply *reply, struct err *err)
{
    struct catalog_run *runs = NULL;
    size_t count = 0;
    int rc = catalog_run_list(request->node->catalog, &runs, &count, err);
    if (rc < 0)
        return rc;
    cleanup_json json_t *documents = json_array();
    rc = list(request->node, runs, count, documents, err);
    for (size_t i = 0; i < count; i++)
        catalog_run_free(&runs[i]);
    free(runs);
    return rc < 0 ? rc : api_reply_set(reply, 200, json_pack("{s:O}", "runs", documents), err);
}

int api_runs_get(struct api_request *request, struct api_reply *reply, struct err *err)
{
    int rc = id_check(request->arg, "run ID", err);
    if (rc < 0)
        return rc;
    cleanup_catalog_run struct catalog_run run = {0};
    rc = catalog_run_get(request->node->catalog, request->arg, &run, err);
    if (rc < 0)
        return rc;
    return api_reply_set(reply, 200, run_json(request->node, &run, err), err);
}

static int check_exists(void *arg, struct err *err)
{
    const struct run_request *wanted = arg;
    cleanup_catalog_run struct catalog_run run = {0};
    return catalog_run_get(wanted->node->catalog, wanted->id, &run, err);
}

int api_runs_remove(struct api_request *request, struct api_reply *reply, struct err *err)
{
    int rc = id_check(request->arg, "run ID", err);
    if (rc < 0)
        return rc;
    struct run_request wanted = {.node = request->node, .id = request->arg};
    cleanup_json json_t *params = json_pack("{s:s}", "id", request->arg);
    char object[ID_LEN_MAX + 8];
    snprintf(object, sizeof object, "run:%s", request->arg);
    struct job_request job = {.kind = run_rm_job.name,
                              .object = object,
                              .params = params,
                              .check = check_exists,
                              .check_arg = &wanted};
    return api_jobs_submit(request, &job, reply, err);
}
