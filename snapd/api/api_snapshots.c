#include "api_handlers.h"

#include "catalog_image.h"
#include "catalog_run.h"
#include "reference.h"
#include "snapshot.h"

#include <string.h>

enum {
    REPOSITORY_MAX = 255, /* bytes, prefix included (OCI distribution-spec) */
};

struct snapshot_request {
    struct node *node;
    const char *run;
    const char *name; /* local name, "NAME:TAG"; NULL when it is made of the snapshot's ID */
};

static int check_create(void *arg, struct err *err)
{
    const struct snapshot_request *wanted = arg;
    cleanup_catalog_run struct catalog_run run = {0};
    int rc = catalog_run_get(wanted->node->catalog, wanted->run, &run, err);
    if (rc < 0 || !wanted->name)
        return rc;
    struct err missing = ERR_INIT;
    cleanup_free char *digest = NULL;
    rc = catalog_image_name_get(wanted->node->catalog, wanted->name, &digest, &missing);
    rc = err_found(err, rc, &missing);
    if (rc <= 0)
        return rc;
    rc = err_fail(err, ERR_EXISTS, "the name %s stands for another image (%.19s)", wanted->name,
                  digest);
    err_hint(err, "choose another tag, or none: then it is the snapshot's ID");
    return rc;
}

/* A snapshot's name is a repository below this node's remote, perhaps with a tag. *ret_local
 * (caller frees) is the name it will have here, NULL without a tag. */
static int check_name(const struct node *node, const char *name, char **ret_local, struct err *err)
{
    cleanup_reference struct reference reference = {0};
    int rc = api_request_blame(err, reference_parse(name, &reference, err), name);
    if (rc < 0)
        return rc;
    if (reference.host || reference.has_digest) {
        rc = err_fail(err, ERR_INVALID, "'%.300s' is no name for a snapshot", name);
        err_hint(err, "use NAME or NAME:TAG, without a host and without a digest; the configured "
                      "remote is put in front");
        return rc;
    }
    size_t prefix = strlen(node->remote->prefix);
    size_t len = prefix + (prefix > 0) + strlen("images/") + strlen(reference.repository);
    if (len > REPOSITORY_MAX)
        return err_fail(err, ERR_INVALID,
                        "the name of the snapshot is too long: with the remote's prefix it has %zu "
                        "bytes, more than the limit of %d",
                        len, REPOSITORY_MAX);
    if (!reference.tag)
        return 0;
    char *local = reference_name(&reference);
    if (!local)
        return err_fail(err, ERR_INTERNAL, "no memory for the request");
    *ret_local = local;
    return 0;
}

/* "pushed" or "verified", and where a snapshot may stay on this node "local". */
static int check_durability(const json_t *params, bool local, struct err *err)
{
    const char *word = json_string_value(json_object_get(params, "durability"));
    if (!word || strcmp(word, "pushed") == 0 || strcmp(word, "verified") == 0 ||
        (local && strcmp(word, "local") == 0))
        return 0;
    int rc = err_fail(err, ERR_INVALID, "'%.40s' is no durability for this", word);
    err_hint(err, "it is one of: %spushed, verified", local ? "local, " : "");
    return rc;
}

int api_snapshots_create(struct api_request *request, struct api_reply *reply, struct err *err)
{
    static const struct api_member members[] = {{"run", API_STRING, true, 0},
                                                {"name", API_STRING, false, 0},
                                                {"comment", API_STRING, false, API_COMMENT_MAX},
                                                {"labels", API_LABELS, false, 0},
                                                {"durability", API_STRING, false, 0}};
    cleanup_json json_t *params = NULL;
    int rc = api_request_params(request, members, ARRAY_SIZE(members), &params, err);
    if (rc < 0)
        return rc;
    struct snapshot_request wanted = {.node = request->node,
                                      .run = json_string_value(json_object_get(params, "run"))};
    const char *name = json_string_value(json_object_get(params, "name"));
    cleanup_free char *local = NULL;
    rc = id_check(wanted.run, "run ID", err);
    if (rc >= 0)
        rc = check_durability(params, true, err);
    if (rc >= 0 && name)
        rc = check_name(request->node, name, &local, err);
    if (rc < 0)
        return rc;
    wanted.name = local;
    char object[ID_LEN_MAX + 8];
    snprintf(object, sizeof object, "run:%s", wanted.run);
    struct job_request job = {.kind = snapshot_create_job.name,
                              .object = object,
                              .params = params,
                              .check = check_create,
                              .check_arg = &wanted};
    return api_jobs_submit(request, &job, reply, err);
}

static json_t *list_json(struct node *node, const struct catalog_snapshot *snapshots, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(list, snapshot_json(node, &snapshots[i]));
    return json_pack("{s:o}", "snapshots", list);
}

static void free_list(struct catalog_snapshot *snapshots, size_t count)
{
    for (size_t i = 0; i < count; i++)
        catalog_snapshot_free(&snapshots[i]);
    free(snapshots);
}

int api_snapshots_list(struct api_request *request, struct api_reply *reply, struct err *err)
{
    struct catalog_snapshot *snapshots = NULL;
    size_t count = 0;
    int rc = catalog_snapshot_list(request->node->catalog, &snapshots, &count, err);
    if (rc < 0)
        return rc;
    json_t *body = list_json(request->node, snapshots, count);
    free_list(snapshots, count);
    return api_reply_set(reply, 200, body, err);
}

/* "NAME:TAG" and "images/NAME:TAG" name what is "[PREFIX/]images/NAME" and TAG in the record. */
static bool has_name(const struct node *node, const struct catalog_snapshot *snapshot,
                     const char *name)
{
    const char *repository = snapshot->repository;
    size_t prefix = strlen(node->remote->prefix);
    if (prefix > 0 && strncmp(repository, node->remote->prefix, prefix) == 0 &&
        repository[prefix] == '/')
        repository += prefix + 1;
    char full[1024];
    snprintf(full, sizeof full, "%s:%s", repository, snapshot->tag);
    if (strcmp(full, name) == 0)
        return true;
    return strncmp(full, "images/", 7) == 0 && strcmp(full + 7, name) == 0;
}

static int get_by_name(struct node *node, const char *name, json_t **ret, struct err *err)
{
    struct catalog_snapshot *snapshots = NULL;
    size_t count = 0;
    int rc = catalog_snapshot_list(node->catalog, &snapshots, &count, err);
    if (rc < 0)
        return rc;
    size_t i = 0;
    while (i < count && !has_name(node, &snapshots[i], name))
        i++;
    if (i < count)
        *ret = snapshot_json(node, &snapshots[i]);
    else
        rc = err_fail(err, ERR_NOT_FOUND, "there is no snapshot %.300s", name);
    free_list(snapshots, count);
    return rc;
}

int api_snapshots_get(struct api_request *request, struct api_reply *reply, struct err *err)
{
    if (id_check(request->arg, "snapshot ID", NULL) < 0) {
        json_t *body = NULL;
        cleanup_reference struct reference reference = {0};
        int rc =
            api_request_blame(err, reference_parse(request->arg, &reference, err), request->arg);
        if (rc >= 0)
            rc = get_by_name(request->node, request->arg, &body, err);
        return rc < 0 ? rc : api_reply_set(reply, 200, body, err);
    }
    cleanup_catalog_snapshot struct catalog_snapshot snapshot = {0};
    int rc = catalog_snapshot_get(request->node->catalog, request->arg, &snapshot, err);
    if (rc < 0)
        return rc;
    return api_reply_set(reply, 200, snapshot_json(request->node, &snapshot), err);
}

static int check_exists(void *arg, struct err *err)
{
    const struct api_request *request = arg;
    cleanup_catalog_snapshot struct catalog_snapshot snapshot = {0};
    return catalog_snapshot_get(request->node->catalog, request->arg, &snapshot, err);
}

/* Push and removal. `params` gets the snapshot. */
static int submit_for(struct api_request *request, const char *kind, json_t *params,
                      struct api_reply *reply, struct err *err)
{
    int rc = id_check(request->arg, "snapshot ID", err);
    if (rc < 0)
        return rc;
    if (json_object_set_new(params, "snapshot", json_string(request->arg)) < 0)
        return err_fail(err, ERR_INTERNAL, "no memory for the request");
    char object[ID_LEN_MAX + 16];
    snprintf(object, sizeof object, "snapshot:%s", request->arg);
    struct job_request job = {.kind = kind,
                              .object = object,
                              .params = params,
                              .check = check_exists,
                              .check_arg = request};
    return api_jobs_submit(request, &job, reply, err);
}

int api_snapshots_push(struct api_request *request, struct api_reply *reply, struct err *err)
{
    static const struct api_member members[] = {{"durability", API_STRING, false, 0}};
    cleanup_json json_t *params = NULL;
    int rc = api_request_params(request, members, ARRAY_SIZE(members), &params, err);
    if (rc == 0)
        rc = check_durability(params, false, err);
    return rc < 0 ? rc : submit_for(request, snapshot_push_job.name, params, reply, err);
}

int api_snapshots_remove(struct api_request *request, struct api_reply *reply, struct err *err)
{
    cleanup_json json_t *params = json_object();
    return submit_for(request, snapshot_rm_job.name, params, reply, err);
}
