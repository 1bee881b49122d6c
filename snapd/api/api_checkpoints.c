/* Routes of a workspace's checkpoints. */
#include "api_handlers.h"

#include "catalog_workspace.h"
#include "id.h"
#include "workspace_checkpoint.h"
#include "workspace_consistency.h"
#include "workspace_view.h"

#include <string.h>

enum {
    OBJECT_MAX = ID_LEN_MAX + 24,
};

struct wanted {
    struct node *node;
    const char *name;
};

static int check_there(void *arg, struct err *err)
{
    const struct wanted *wanted = arg;
    cleanup_catalog_workspace struct catalog_workspace workspace = {0};
    return catalog_workspace_get(wanted->node->catalog, wanted->name, &workspace, err);
}

static int check_durability(const json_t *params, struct err *err)
{
    const char *text = json_string_value(json_object_get(params, "durability"));
    if (!text || strcmp(text, "pushed") == 0 || strcmp(text, "verified") == 0)
        return 0;
    return err_fail(err, ERR_INVALID,
                    "the durability of a checkpoint is pushed or verified, not '%s'", text);
}

int api_checkpoints_create(struct api_request *request, struct api_reply *reply, struct err *err)
{
    static const struct api_member members[] = {{"consistency", API_STRING, false, 16},
                                                {"freeze_budget_ms", API_INTEGER, false, 0},
                                                {"durability", API_STRING, false, 16}};
    struct workspace_stillness ignored;
    char object[OBJECT_MAX];
    cleanup_json json_t *params = NULL;
    int rc = workspace_name_check(request->arg, err);
    if (rc == 0)
        rc = workspace_view_check_checkpoint(request->arg, err);
    if (rc == 0)
        rc = api_request_params(request, members, ARRAY_SIZE(members), &params, err);
    if (rc == 0)
        rc = workspace_consistency_read(params, &ignored, err);
    if (rc == 0)
        rc = check_durability(params, err);
    if (rc < 0)
        return rc;
    if (json_object_set_new(params, "name", json_string(request->arg)) < 0)
        return err_fail(err, ERR_INTERNAL, "no memory for the request");
    (void)snprintf(object, sizeof object, WORKSPACE_CHECKPOINT_OBJECT "%s", request->arg);
    struct wanted wanted = {request->node, request->arg};
    struct job_request job = {.kind = workspace_checkpoint_job.name,
                              .object = object,
                              .params = params,
                              .check = check_there,
                              .check_arg = &wanted};
    return api_jobs_submit(request, &job, reply, err);
}

static int read_line(struct node *node, const char *name, struct catalog_workspace *ret_row,
                     struct catalog_line *ret_line, struct err *err)
{
    int rc = id_check(name, "workspace name", err);
    if (rc == 0)
        rc = catalog_workspace_get(node->catalog, name, ret_row, err);
    return rc == 0 ? catalog_line_get(node->catalog, ret_row->volume.id, ret_line, err) : rc;
}

int api_checkpoints_list(struct api_request *request, struct api_reply *reply, struct err *err)
{
    struct node *node = request->node;
    struct catalog_checkpoint *checkpoints = NULL;
    size_t count = 0;
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    cleanup_catalog_line struct catalog_line line = {0};
    int rc = read_line(node, request->arg, &row, &line, err);
    if (rc == 0)
        rc = catalog_checkpoint_list(node->catalog, row.volume.id, &checkpoints, &count, err);
    if (rc < 0)
        return rc;
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        bool is_head = line.head && strcmp(line.head, checkpoints[i].digest) == 0;
        (void)json_array_append_new(list,
                                    workspace_checkpoint_json(node, &checkpoints[i], is_head));
        catalog_checkpoint_free(&checkpoints[i]);
    }
    free(checkpoints);
    if (json_array_size(list) != count) {
        json_decref(list);
        return err_errno(err, ENOMEM, "cannot list the checkpoints");
    }
    return api_reply_set(
        reply, 200, json_pack("{s:o, s:s?}", "checkpoints", list, "made_of", line.parent), err);
}
