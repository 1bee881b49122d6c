/* Routes of workspaces. What the catalog and a look at the path tell is refused at once; both may
 * change until the job runs, which looks again. */
#include "api_handlers.h"

#include "catalog_workspace.h"
#include "log.h"
#include "volume_format.h"
#include "workspace.h"
#include "workspace_fork.h"
#include "workspace_now.h"
#include "workspace_path.h"
#include "workspace_rollback.h"
#include "workspace_token.h"
#include "workspace_view.h"

#include <limits.h>
#include <string.h>

enum {
    FROM_MAX = 1024, /* bytes of what names a checkpoint */
};

struct workspace_request {
    struct node *node;
    const char *name;
    const char *path; /* mount; NULL else */
    bool read_only;
    int64_t size;  /* resize; 0 else */
    int64_t token; /* of a writer; 0: none */
    bool remove;
};

static int check_size(const json_t *params, struct err *err)
{
    const json_t *size = json_object_get(params, "size");
    if (!size)
        return 0;
    json_int_t bytes = json_integer_value(size);
    if (bytes >= (json_int_t)VOLUME_SIZE_MIN && bytes <= (json_int_t)VOLUME_SIZE_MAX)
        return 0;
    int rc = err_fail(err, ERR_INVALID, "a workspace cannot have %lld bytes", (long long)bytes);
    err_hint(err, "sizes go from 64 MiB to 1 TiB");
    return rc;
}

/* Where it is mounted already: the same again is a repeat, which the job answers. */
static int check_mount(const struct workspace_request *wanted,
                       const struct catalog_workspace *workspace, struct err *err)
{
    const struct catalog_mount *mount = &workspace->mount;
    if (!workspace->wanted ||
        (strcmp(mount->path, wanted->path) == 0 && mount->read_only == wanted->read_only))
        return 0;
    int rc = err_fail(err, ERR_CONFLICT, "workspace %s is mounted at %s%s", wanted->name,
                      mount->path, mount->read_only ? " read-only" : " for writing");
    err_hint(err, "unmount it there first: varve workspace unmount %s", wanted->name);
    return rc;
}

static int fail_not_free(const struct workspace_request *wanted, const char *other,
                         const char *path, struct err *err)
{
    int rc = err_fail(err, ERR_CONFLICT,
                      "workspace %s cannot be mounted at %s: workspace %s is mounted at %s",
                      wanted->name, wanted->path, other, path);
    err_hint(err, "name a directory that is neither in that one nor above it, or unmount %s",
             other);
    return rc;
}

/* A path belongs to one workspace, mounted or about to be, and so do those above and below it. */
static int check_free(struct node *node, const struct workspace_request *wanted, struct err *err)
{
    struct catalog_workspace *list = NULL;
    size_t count = 0;
    int rc = catalog_workspace_list(node->catalog, &list, &count, err);
    for (size_t i = 0; i < count; i++) {
        const char *path = list[i].mount.path;
        if (rc == 0 && list[i].wanted && strcmp(list[i].name, wanted->name) != 0 &&
            (workspace_path_is_below(wanted->path, path) ||
             workspace_path_is_below(path, wanted->path)))
            rc = fail_not_free(wanted, list[i].name, path, err);
        catalog_workspace_free(&list[i]);
    }
    free(list);
    return rc;
}

static int check_known(const struct workspace_request *wanted,
                       const struct catalog_workspace *workspace, struct err *err)
{
    if (wanted->path) {
        int rc = check_mount(wanted, workspace, err);
        return rc < 0 ? rc : check_free(wanted->node, wanted, err);
    }
    if (wanted->size > 0 &&
        (int64_t)volume_round_size((uint64_t)wanted->size) < workspace->volume.size) {
        int rc = err_fail(err, ERR_INVALID, "workspace %s has %lld bytes and cannot become smaller",
                          wanted->name, (long long)workspace->volume.size);
        err_hint(err, "make a smaller one and copy; unused space is given back by itself");
        return rc;
    }
    if (wanted->remove && workspace->wanted) {
        int rc = err_fail(err, ERR_CONFLICT, "workspace %s is mounted at %s", wanted->name,
                          workspace->mount.path);
        err_hint(err, "unmount it first: varve workspace unmount %s", wanted->name);
        return rc;
    }
    return 0;
}

/* Only what this node knows; the remote is the job's. */
static int check_token(const struct workspace_request *wanted,
                       const struct catalog_workspace *workspace, struct err *err)
{
    cleanup_catalog_line struct catalog_line line = {0};
    if (wanted->token == 0)
        return 0;
    int rc = catalog_line_get(wanted->node->catalog, workspace->volume.id, &line, err);
    return rc == 0 ? workspace_token_check(wanted->name, &line, wanted->token, err) : rc;
}

static int check_verb(void *arg, struct err *err)
{
    const struct workspace_request *wanted = arg;
    cleanup_catalog_workspace struct catalog_workspace workspace = {0};
    int rc = catalog_workspace_get(wanted->node->catalog, wanted->name, &workspace, err);
    if (rc == 0)
        rc = check_token(wanted, &workspace, err);
    return rc == 0 ? check_known(wanted, &workspace, err) : rc;
}

static int check_create(void *arg, struct err *err)
{
    const struct workspace_request *wanted = arg;
    struct err missing = ERR_INIT;
    cleanup_catalog_workspace struct catalog_workspace workspace = {0};
    int rc = catalog_workspace_get(wanted->node->catalog, wanted->name, &workspace, &missing);
    rc = err_found(err, rc, &missing);
    if (rc <= 0)
        return rc;
    rc = err_fail(err, ERR_EXISTS, "workspace %s exists", wanted->name);
    err_hint(err, "choose another name; varve workspace inspect %s shows it", wanted->name);
    return rc;
}

/* One that is there is mounted there already, or is a conflict. */
static int check_view(void *arg, struct err *err)
{
    const struct workspace_request *wanted = arg;
    struct err missing = ERR_INIT;
    cleanup_catalog_workspace struct catalog_workspace workspace = {0};
    int rc = catalog_workspace_get(wanted->node->catalog, wanted->name, &workspace, &missing);
    rc = err_found(err, rc, &missing);
    if (rc == 0)
        return check_free(wanted->node, wanted, err);
    return rc < 0 ? rc : check_known(wanted, &workspace, err);
}

static int submit(struct api_request *request, const char *kind, const json_t *params,
                  struct workspace_request *wanted, int (*check)(void *arg, struct err *err),
                  struct api_reply *reply, struct err *err)
{
    char object[2 * ID_LEN_MAX];
    snprintf(
        object, sizeof object, "%s%s",
        kind == workspace_abandon_job.name ? WORKSPACE_ABANDON_OBJECT : "workspace:", wanted->name);
    wanted->node = request->node;
    struct job_request job = {
        .kind = kind, .object = object, .params = params, .check = check, .check_arg = wanted};
    return api_jobs_submit(request, &job, reply, err);
}

/* Checks the workspace's name in the path and the body; `ret` gets the name too. */
static int verb_params(struct api_request *request, const struct api_member *members, size_t count,
                       json_t **ret, struct err *err)
{
    cleanup_json json_t *params = NULL;
    int rc = workspace_name_check(request->arg, err);
    if (rc == 0)
        rc = api_request_params(request, members, count, &params, err);
    if (rc < 0)
        return rc;
    if (json_object_set_new(params, "name", json_string(request->arg)) < 0)
        return err_fail(err, ERR_INTERNAL, "no memory for the request");
    *ret = steal_ptr(params);
    return 0;
}

/* Only the catalog is asked; the remote is the job's. */
static int check_from(struct node *node, const json_t *params, struct err *err)
{
    cleanup_workspace_source struct workspace_source source = {NULL};
    if (json_object_get(params, "size")) {
        int rc = err_fail(err, ERR_INVALID, "a fork is as large as what it is made of");
        err_hint(err, "make it larger afterwards with `varve workspace resize`");
        return rc;
    }
    return workspace_source_find(node, json_string_value(json_object_get(params, "from")), &source,
                                 err);
}

int api_workspaces_create(struct api_request *request, struct api_reply *reply, struct err *err)
{
    static const struct api_member members[] = {{"name", API_STRING, true, 0},
                                                {"size", API_INTEGER, false, 0},
                                                {"from", API_STRING, false, FROM_MAX},
                                                {"token", API_INTEGER, false, 0}};
    cleanup_json json_t *params = NULL;
    int rc = api_request_params(request, members, ARRAY_SIZE(members), &params, err);
    if (rc < 0)
        return rc;
    struct workspace_request wanted = {.name = json_string_value(json_object_get(params, "name"))};
    rc = id_check(wanted.name, "workspace name", err);
    if (rc == 0)
        rc = check_size(params, err);
    if (rc == 0)
        rc = workspace_token_read(params, "the request for a workspace", &wanted.token, err);
    bool fork = json_object_get(params, "from") != NULL;
    if (rc == 0 && fork)
        rc = check_from(request->node, params, err);
    const struct job_kind *kind = fork ? &workspace_fork_job : &workspace_create_job;
    return rc < 0 ? rc : submit(request, kind->name, params, &wanted, check_create, reply, err);
}

int api_workspaces_mount(struct api_request *request, struct api_reply *reply, struct err *err)
{
    static const struct api_member members[] = {{"path", API_STRING, true, PATH_MAX - 1},
                                                {"read_only", API_BOOL, false, 0},
                                                {"token", API_INTEGER, false, 0}};
    cleanup_json json_t *params = NULL;
    int rc = verb_params(request, members, ARRAY_SIZE(members), &params, err);
    if (rc < 0)
        return rc;
    /* One spelling of it, so that two requests can be compared. The job looks once more. */
    cleanup_free char *path = NULL;
    rc = workspace_path_resolve(request->node, json_string_value(json_object_get(params, "path")),
                                &path, err);
    if (rc < 0)
        return rc;
    if (json_object_set_new(params, "path", json_string(path)) < 0)
        return err_fail(err, ERR_INVALID, "%s is not UTF-8", path);
    struct workspace_request wanted = {.name = request->arg,
                                       .path = path,
                                       .read_only =
                                           json_is_true(json_object_get(params, "read_only"))};
    rc = workspace_token_read(params, "the request to mount a workspace", &wanted.token, err);
    if (rc == 0 && wanted.token && wanted.read_only)
        rc = err_fail(err, ERR_INVALID,
                      "a fencing token is for who writes, not for a read-only mount");
    if (rc < 0)
        return rc;
    return submit(request, workspace_mount_job.name, params, &wanted, check_verb, reply, err);
}

/* Where it is, and of what: as the job sees it, too. */
static int check_now(void *arg, struct err *err)
{
    const struct workspace_request *wanted = arg;
    cleanup_free char *source = strndup(wanted->name, strcspn(wanted->name, "@"));
    cleanup_catalog_workspace struct catalog_workspace workspace = {0};
    if (!source)
        return err_errno(err, ENOMEM, "cannot look at a workspace");
    int rc = catalog_workspace_get(wanted->node->catalog, source, &workspace, err);
    return rc == 0 ? check_free(wanted->node, wanted, err) : rc;
}

/* The view gets its name of the job's ID (engine.h), which has to be known for the object. */
static int view_now(struct api_request *request, const json_t *params, const char *path,
                    struct api_reply *reply, struct err *err)
{
    struct workspace_stillness ignored;
    char name[WORKSPACE_NAME_MAX];
    char object[WORKSPACE_OBJECT_MAX];
    struct id job_id;
    int rc = workspace_consistency_read(params, &ignored, err);
    if (rc == 0)
        rc = id_new("j", &job_id, err);
    if (rc < 0)
        return rc;
    workspace_now_name(request->arg, job_id.s, name);
    (void)snprintf(object, sizeof object, "workspace:%s", name);
    cleanup_json json_t *body =
        json_pack("{s:s, s:s, s:O*, s:O*}", "workspace", request->arg, "path", path, "consistency",
                  json_object_get(params, "consistency"), "freeze_budget_ms",
                  json_object_get(params, "freeze_budget_ms"));
    if (!body)
        return err_fail(err, ERR_INVALID, "%s is not UTF-8", path);
    struct workspace_request wanted = {
        .node = request->node, .name = name, .path = path, .read_only = true};
    struct job_request job = {.kind = workspace_now_job.name,
                              .id = job_id.s,
                              .object = object,
                              .params = body,
                              .check = check_now,
                              .check_arg = &wanted};
    return api_jobs_submit(request, &job, reply, err);
}

static int fail_consistency(struct err *err)
{
    int rc =
        err_fail(err, ERR_INVALID, "a checkpoint is as it is: it has no consistency to choose");
    err_hint(err, "leave it out, or look at what the workspace is now: NAME@now");
    return rc;
}

/* The view's name says which checkpoint it is of, however that was named. */
int api_workspaces_view(struct api_request *request, struct api_reply *reply, struct err *err)
{
    static const struct api_member members[] = {{"checkpoint", API_STRING, true, FROM_MAX},
                                                {"path", API_STRING, true, PATH_MAX - 1},
                                                {"consistency", API_STRING, false, 16},
                                                {"freeze_budget_ms", API_INTEGER, false, 0}};
    cleanup_json json_t *params = NULL;
    cleanup_free char *path = NULL;
    cleanup_free char *name = NULL;
    cleanup_free char *from = NULL;
    int rc = verb_params(request, members, ARRAY_SIZE(members), &params, err);
    if (rc < 0)
        return rc;
    const char *checkpoint = json_string_value(json_object_get(params, "checkpoint"));
    bool now = strcmp(checkpoint, WORKSPACE_NOW_WORD) == 0;
    if (now)
        rc = id_check(request->arg, "workspace name", err);
    else if (json_object_get(params, "consistency") || json_object_get(params, "freeze_budget_ms"))
        rc = fail_consistency(err);
    else
        rc = workspace_view_find(request->node, request->arg, checkpoint, &name, &from, err);
    if (rc == 0)
        rc = workspace_path_resolve(request->node,
                                    json_string_value(json_object_get(params, "path")), &path, err);
    if (rc < 0)
        return rc;
    if (now)
        return view_now(request, params, path, reply, err);
    cleanup_json json_t *body =
        json_pack("{s:s, s:s, s:s}", "name", name, "from", from, "path", path);
    if (!body)
        return err_fail(err, ERR_INVALID, "%s is not UTF-8", path);
    struct workspace_request wanted = {.name = name, .path = path, .read_only = true};
    return submit(request, workspace_view_job.name, body, &wanted, check_view, reply, err);
}

int api_workspaces_unmount(struct api_request *request, struct api_reply *reply, struct err *err)
{
    static const struct api_member members[] = {{"abandon", API_BOOL, false, 0}};
    cleanup_json json_t *params = NULL;
    int rc = verb_params(request, members, ARRAY_SIZE(members), &params, err);
    struct workspace_request wanted = {.name = request->arg};
    const struct job_kind *kind = json_is_true(json_object_get(params, "abandon"))
                                      ? &workspace_abandon_job
                                      : &workspace_unmount_job;
    return rc < 0 ? rc : submit(request, kind->name, params, &wanted, check_verb, reply, err);
}

int api_workspaces_resize(struct api_request *request, struct api_reply *reply, struct err *err)
{
    static const struct api_member members[] = {{"size", API_INTEGER, true, 0}};
    cleanup_json json_t *params = NULL;
    int rc = verb_params(request, members, ARRAY_SIZE(members), &params, err);
    if (rc == 0)
        rc = check_size(params, err);
    if (rc < 0)
        return rc;
    struct workspace_request wanted = {.name = request->arg,
                                       .size = json_integer_value(json_object_get(params, "size"))};
    return submit(request, workspace_resize_job.name, params, &wanted, check_verb, reply, err);
}

int api_workspaces_rollback(struct api_request *request, struct api_reply *reply, struct err *err)
{
    static const struct api_member members[] = {{"checkpoint", API_STRING, true, FROM_MAX},
                                                {"token", API_INTEGER, false, 0},

                                                {"kill", API_BOOL, false, 0}};
    cleanup_json json_t *params = NULL;
    int rc = verb_params(request, members, ARRAY_SIZE(members), &params, err);
    struct workspace_request wanted = {.name = request->arg};
    if (rc == 0)
        rc = workspace_token_read(params, "the request to roll a workspace back", &wanted.token,
                                  err);
    return rc < 0 ? rc
                  : submit(request, workspace_rollback_job.name, params, &wanted, check_verb, reply,
                           err);
}

int api_workspaces_remove(struct api_request *request, struct api_reply *reply, struct err *err)
{
    static const struct api_member members[] = {{"keep_remote", API_BOOL, false, 0}};
    cleanup_json json_t *params = NULL;
    int rc = verb_params(request, members, ARRAY_SIZE(members), &params, err);
    struct workspace_request wanted = {.name = request->arg, .remove = true};
    return rc < 0 ? rc
                  : submit(request, workspace_rm_job.name, params, &wanted, check_verb, reply, err);
}

/* A workspace that cannot be shown is listed all the same, with the reason. */
static json_t *unreadable(const struct catalog_workspace *workspace, const struct err *failure)
{
    log_event(LOG_WARN, "workspace-unreadable", "workspace", workspace->name, "error",
              failure->text, NULL);
    return json_pack("{s:o, s:s, s:o}", "name", api_text(workspace->name), "state",
                     catalog_volume_state_name(workspace->volume.state), "error",
                     api_error(err_code_name(failure->code), failure->text, failure->hint));
}

static int list_all(struct node *node, const struct catalog_workspace *workspaces, size_t count,
                    json_t *list, struct err *err)
{
    cleanup_free json_t **documents = calloc(count + 1, sizeof *documents);
    cleanup_free struct err *failures = calloc(count + 1, sizeof *failures);
    if (!documents || !failures)
        return err_errno(err, ENOMEM, "cannot list the workspaces");
    int rc = workspace_json_each(node, workspaces, count, documents, failures, err);
    for (size_t i = 0; i < count && rc == 0; i++)
        (void)json_array_append_new(list, documents[i] ? documents[i]
                                                       : unreadable(&workspaces[i], &failures[i]));
    return rc;
}

int api_workspaces_list(struct api_request *request, struct api_reply *reply, struct err *err)
{
    struct catalog_workspace *workspaces = NULL;
    size_t count = 0;
    int rc = catalog_workspace_list(request->node->catalog, &workspaces, &count, err);
    if (rc < 0)
        return rc;
    json_t *list = json_array();
    rc = list_all(request->node, workspaces, count, list, err);
    for (size_t i = 0; i < count; i++)
        catalog_workspace_free(&workspaces[i]);
    free(workspaces);
    if (rc < 0) {
        json_decref(list);
        return rc;
    }
    return api_reply_set(reply, 200, json_pack("{s:o}", "workspaces", list), err);
}

int api_workspaces_get(struct api_request *request, struct api_reply *reply, struct err *err)
{
    cleanup_catalog_workspace struct catalog_workspace workspace = {0};
    int rc = workspace_name_check(request->arg, err);
    if (rc == 0)
        rc = catalog_workspace_get(request->node->catalog, request->arg, &workspace, err);
    if (rc < 0)
        return rc;
    json_t *body = workspace_json(request->node, &workspace, err);
    return body ? api_reply_set(reply, 200, body, err) : -(err && err->num ? err->num : ENOMEM);
}
