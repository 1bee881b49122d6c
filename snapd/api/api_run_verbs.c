/* What is done with a run that is there: mount, reset, rollback (jobs), bundle and user (answered
 * at once). */
#include "api_handlers.h"

#include "catalog_run.h"
#include "image_ref.h"
#include "run.h"
#include "run_bundle.h"
#include "run_rollback.h"

struct verb {
    struct node *node;
    const char *id;
    const char *snapshot; /* NULL: none is needed */
};

/* The run is there and, for a rollback, the image too: what is not is known before any job. */
static int check_verb(void *arg, struct err *err)
{
    const struct verb *verb = arg;
    cleanup_catalog_run struct catalog_run run = {0};
    int rc = catalog_run_get(verb->node->catalog, verb->id, &run, err);
    if (rc < 0 || !verb->snapshot)
        return rc;
    cleanup_free char *digest = NULL;
    rc = api_request_blame(err, image_ref_local(verb->node, verb->snapshot, &digest, err),
                           verb->snapshot);
    if (rc < 0 && err && err->code == ERR_NOT_FOUND)
        err_hint(err, "`varve snapshot ls` and `varve image ls` list what is here; `varve image "
                      "pull` fetches an image");
    return rc;
}

/* `params` gets the ID. */
static int submit(struct api_request *request, const char *kind, json_t *params,
                  struct api_reply *reply, struct err *err)
{
    int rc = id_check(request->arg, "run ID", err);
    if (rc < 0)
        return rc;
    if (json_object_set_new(params, "id", json_string(request->arg)) < 0)
        return err_fail(err, ERR_INTERNAL, "no memory for the request");
    struct verb verb = {.node = request->node,
                        .id = request->arg,
                        .snapshot = json_string_value(json_object_get(params, "snapshot"))};
    char object[ID_LEN_MAX + 8];
    snprintf(object, sizeof object, "run:%s", request->arg);
    struct job_request job = {
        .kind = kind, .object = object, .params = params, .check = check_verb, .check_arg = &verb};
    return api_jobs_submit(request, &job, reply, err);
}

static int submit_plain(struct api_request *request, const char *kind, struct api_reply *reply,
                        struct err *err)
{
    cleanup_json json_t *params = NULL;
    int rc = api_request_params(request, NULL, 0, &params, err);
    return rc < 0 ? rc : submit(request, kind, params, reply, err);
}

int api_run_verbs_mount(struct api_request *request, struct api_reply *reply, struct err *err)
{
    return submit_plain(request, run_mount_job.name, reply, err);
}

int api_run_verbs_reset(struct api_request *request, struct api_reply *reply, struct err *err)
{
    return submit_plain(request, run_reset_job.name, reply, err);
}

int api_run_verbs_rollback(struct api_request *request, struct api_reply *reply, struct err *err)
{
    static const struct api_member members[] = {{"snapshot", API_STRING, true, 0},
                                                {"kill", API_BOOL, false, 0}};
    cleanup_json json_t *params = NULL;
    int rc = api_request_params(request, members, ARRAY_SIZE(members), &params, err);
    return rc < 0 ? rc : submit(request, run_rollback_job.name, params, reply, err);
}

static int get_run(struct api_request *request, struct catalog_run *ret, struct err *err)
{
    int rc = id_check(request->arg, "run ID", err);
    return rc < 0 ? rc : catalog_run_get(request->node->catalog, request->arg, ret, err);
}

int api_run_verbs_bundle(struct api_request *request, struct api_reply *reply, struct err *err)
{
    static const struct api_member members[] = {{"args", API_STRINGS, false, 0},
                                                {"env", API_STRINGS, false, 0},
                                                {"cwd", API_STRING, false, 4095},
                                                {"user", API_STRING, false, 0},
                                                {"terminal", API_BOOL, false, 0}};
    cleanup_json json_t *params = NULL;
    cleanup_catalog_run struct catalog_run run = {0};
    int rc = api_request_params(request, members, ARRAY_SIZE(members), &params, err);
    if (rc == 0)
        rc = get_run(request, &run, err);
    if (rc < 0)
        return rc;
    struct run_bundle wanted = {
        .args = json_object_get(params, "args"),
        .env = json_object_get(params, "env"),
        .cwd = json_string_value(json_object_get(params, "cwd")),
        .user = json_string_value(json_object_get(params, "user")),
        .terminal = json_is_true(json_object_get(params, "terminal")),
    };
    json_t *body = NULL;
    rc = run_bundle_make(request->node, &run, &wanted, &body, err);
    return rc < 0 ? rc : api_reply_set(reply, 200, body, err);
}

int api_run_verbs_user(struct api_request *request, struct api_reply *reply, struct err *err)
{
    static const struct api_member members[] = {{"user", API_STRING, false, 0}};
    cleanup_json json_t *params = NULL;
    cleanup_catalog_run struct catalog_run run = {0};
    int rc = api_request_params(request, members, ARRAY_SIZE(members), &params, err);
    if (rc == 0)
        rc = get_run(request, &run, err);
    if (rc < 0)
        return rc;
    json_t *body =
        run_user_json(request->node, &run, json_string_value(json_object_get(params, "user")), err);
    return body ? api_reply_set(reply, 200, body, err) : -(err && err->num ? err->num : ENOMEM);
}
