/* varve workspace: create, mount, unmount, resize, ls, inspect, rm; cmd_checkpoint.c has the rest.
 */
#include "cmd.h"
#include "output.h"

#include <string.h>

#define WORKSPACES "/v1/workspaces/"

/* What a job has made of a workspace; for people a line. */
static int report(struct cmd_context *ctx, int rc, const json_t *workspace, struct err *err)
{
    if (rc < 0 && err->code == ERR_NOT_FOUND)
        err_hint(err, "`varve workspace ls` lists the workspaces of this node");
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (ctx->json)
        return output_json(stdout, workspace, err);
    const char *path = json_string_value(json_object_get(workspace, "path"));
    return cmd_print(err, "%s  %s  %s%s%s", cmd_text(workspace, "name"),
                     cmd_text(workspace, "state"),
                     text_size(json_integer_value(json_object_get(workspace, "size"))).s,
                     path ? "  " : "", path ? path : "");
}

int cmd_workspace_create(struct cmd_context *ctx, int argc, const char *const *argv,
                         struct err *err)
{
    const char *size = NULL;
    const char *from = NULL;
    const char *token = NULL;
    const struct opts_option options[] = {
        {"--size", OPTS_VALUE, &size, "SIZE",
         "64M to 1T, such as 10G (varved's [volume] size without it)"},
        {"--from", OPTS_VALUE, &from, "NAME[@CHECKPOINT]",
         "what it is made of: a checkpoint, the newest one, or a reference"},
        {"--token", OPTS_VALUE, &token, "N", "fencing token of its first writer"},
    };
    cleanup_cmd_job struct cmd_job job = {0};
    int rc = cmd_parse_job(ctx, options, ARRAY_SIZE(options), 1, argc, argv, &job, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_json json_t *workspace = NULL;
    cleanup_json json_t *body = json_pack("{s:s}", "name", job.words.items[0]);
    if (!body)
        return err_fail(err, ERR_INVALID, "the name is not UTF-8");
    rc = cmd_add_size(body, size, err);
    if (rc == 0 && from && json_object_set_new(body, "from", json_string(from)) < 0)
        rc = err_fail(err, ERR_INVALID, "'%.200s' is not UTF-8", from);
    if (rc == 0)
        rc = cmd_add_token(body, token, err);
    struct client_request request = {.method = "POST", .path = "/v1/workspaces", .body = body};
    if (rc == 0)
        rc = cmd_submit(ctx, request, &job.options, &workspace, err);
    return report(ctx, rc, workspace, err);
}

/* The daemon has another working directory. What the path means, the daemon finds out: whoever
 * looks waits for all file systems on the way, and here nobody could end that. */
static int absolute_path(const char *path, char **ret, struct err *err)
{
    bool relative = path[0] != '/';
    if (path[0] == '\0') {
        int rc = err_fail(err, ERR_INVALID, "cannot mount at '': that is no path");
        err_hint(err, "name the directory where the workspace is to appear");
        return rc;
    }
    cleanup_free char *cwd = relative ? getcwd(NULL, 0) : NULL;
    if (relative && !cwd)
        return err_errno(err, errno, "cannot mount at '%.1000s': no working directory", path);
    if (asprintf(ret, "%s%s%s", relative ? cwd : "", relative ? "/" : "", path) >= 0)
        return 0;
    *ret = NULL;
    return err_fail(err, ERR_INTERNAL, "no memory for a request");
}

static int mount_body(const char *path, bool read_only, json_t **ret, struct err *err)
{
    cleanup_free char *absolute = NULL;
    int rc = absolute_path(path, &absolute, err);
    if (rc < 0)
        return rc;
    cleanup_json json_t *body = json_pack("{s:s}", "path", absolute);
    if (!body)
        return err_fail(err, ERR_INVALID, "the path is not UTF-8");
    if (read_only && json_object_set_new(body, "read_only", json_true()) < 0)
        return err_fail(err, ERR_INTERNAL, "no memory for a request");
    *ret = steal_ptr(body);
    return 0;
}

int cmd_workspace_mount(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    bool read_only = false;
    const char *token = NULL;
    const char *consistency = NULL;
    const struct opts_option options[] = {
        {"--ro", OPTS_FLAG, &read_only, NULL, "nothing can be written there"},
        {"--token", OPTS_VALUE, &token, "N",
         "fencing token: higher than all that writers of it elsewhere were given"},
        {"--consistency", OPTS_VALUE, &consistency, "none|sync|freeze",
         "how a view of now is cut, as a checkpoint is (sync)"},
    };
    cleanup_cmd_job struct cmd_job job = {0};
    int rc = cmd_parse_job(ctx, options, ARRAY_SIZE(options), 2, argc, argv, &job, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_json json_t *workspace = NULL;
    cleanup_json json_t *body = NULL;
    const char *at = strchr(job.words.items[0], '@');
    cleanup_free char *name = strndup(job.words.items[0], at ? (size_t)(at - job.words.items[0])
                                                             : strlen(job.words.items[0]));
    if (!name)
        return err_fail(err, ERR_INTERNAL, "no memory for a request");
    rc = mount_body(job.words.items[1], read_only && !at, &body, err);
    if (rc == 0 && at && json_object_set_new(body, "checkpoint", json_string(at + 1)) < 0)
        rc = err_fail(err, ERR_INVALID, "the checkpoint is not UTF-8");
    if (rc == 0 && at && token)
        rc = err_fail(err, ERR_INVALID, "--token is for who writes, not for a view");
    if (rc == 0)
        rc = cmd_add_token(body, token, err);
    if (rc == 0 && consistency &&
        json_object_set_new(body, "consistency", json_string(consistency)) < 0)
        rc = err_fail(err, ERR_INVALID, "the consistency is not UTF-8");
    if (rc < 0)
        return rc;
    rc = cmd_submit_verb(ctx, WORKSPACES, name, at ? "view" : "mount", body, &job.options,
                         &workspace, err);
    /* A daemon that says nothing of it has all of the volume here. */
    if (rc == 0 && !json_object_get(workspace, "lazy") &&
        json_object_set_new(workspace, "lazy", json_false()) < 0)
        return err_fail(err, ERR_INTERNAL, "no memory for the output");
    if (rc == 0 && !ctx->json && json_is_false(json_object_get(workspace, "signed")))
        output_warning(stderr,
                       "%s is made of a checkpoint, and varved has no key ([trust] key_file): "
                       "nobody has checked who made that",
                       cmd_text(workspace, "name"));
    return report(ctx, rc, workspace, err);
}

int cmd_workspace_unmount(struct cmd_context *ctx, int argc, const char *const *argv,
                          struct err *err)
{
    bool abandon = false;
    const struct opts_option options[] = {
        {"--abandon", OPTS_FLAG, &abandon, NULL,
         "wait for nothing: what is not written yet is lost, who uses it gets errors"},
    };
    cleanup_cmd_job struct cmd_job job = {0};
    int rc = cmd_parse_job(ctx, options, ARRAY_SIZE(options), 1, argc, argv, &job, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_json json_t *workspace = NULL;
    cleanup_json json_t *body = json_object();
    if (!body || (abandon && json_object_set_new(body, "abandon", json_true()) < 0))
        return err_fail(err, ERR_INTERNAL, "no memory for a request");
    rc = cmd_submit_verb(ctx, WORKSPACES, job.words.items[0], "unmount", body, &job.options,
                         &workspace, err);
    return report(ctx, rc, workspace, err);
}

int cmd_workspace_resize(struct cmd_context *ctx, int argc, const char *const *argv,
                         struct err *err)
{
    cleanup_cmd_job struct cmd_job job = {0};
    int rc = cmd_parse_job(ctx, NULL, 0, 2, argc, argv, &job, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_json json_t *workspace = NULL;
    cleanup_json json_t *body = json_object();
    if (!body)
        return err_fail(err, ERR_INTERNAL, "no memory for a request");
    rc = cmd_add_size(body, job.words.items[1], err);
    if (rc == 0)
        rc = cmd_submit_verb(ctx, WORKSPACES, job.words.items[0], "resize", body, &job.options,
                             &workspace, err);
    /* One that is not mounted grows at its next mount anyway. */
    if (rc == 0 && strcmp(cmd_text(workspace, "state"), "mounted") == 0 &&
        json_is_false(json_object_get(workspace, "filesystem_grown")))
        output_warning(stderr, "the file system on it grows at its next mount: varved lacks "
                               "CAP_SYS_RESOURCE, which growing a mounted one takes");
    return report(ctx, rc, workspace, err);
}

int cmd_workspace_ls(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    static const struct output_column columns[] = {
        {"NAME", "name", OUTPUT_TEXT},     {"STATE", "state", OUTPUT_TEXT},
        {"SIZE", "size", OUTPUT_SIZE},     {"USED", "filesystem.used", OUTPUT_SIZE},
        {"STORED", "stored", OUTPUT_SIZE}, {"PATH", "path", OUTPUT_TEXT},
        {"AGE", "created", OUTPUT_AGE},
    };
    static const struct cmd_list list = {"/v1/workspaces", "workspaces", columns,
                                         ARRAY_SIZE(columns)};
    return cmd_list(ctx, &list, argc, argv, err);
}

int cmd_workspace_inspect(struct cmd_context *ctx, int argc, const char *const *argv,
                          struct err *err)
{
    return cmd_show(ctx, WORKSPACES, false, argc, argv, err);
}

/* What it has in the remote is removed by a job of its own, which may have to wait for that. */
static int print_removed(const char *name, const json_t *result, struct err *err)
{
    const json_t *remote = json_object_get(result, "remote");
    const char *job = cmd_text(remote, "job");
    int rc = cmd_print(err, "removed %s", name);
    if (rc < 0 || !json_is_object(remote))
        return rc;
    json_int_t count = json_integer_value(json_object_get(remote, "checkpoints"));
    return cmd_print(err, "its %" JSON_INTEGER_FORMAT " checkpoint%s in the remote %s%s%s", count,
                     count == 1 ? "" : "s", count == 1 ? "goes" : "go",
                     job[0] ? " by job " : " later", job);
}

int cmd_workspace_rm(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    bool keep = false;
    const struct opts_option options[] = {
        {"--keep-remote", OPTS_FLAG, &keep, NULL,
         "its checkpoints stay in the remote, for workspaces that are made of them there"},
    };
    cleanup_cmd_job struct cmd_job job = {0};
    int rc = cmd_parse_job(ctx, options, ARRAY_SIZE(options), 1, argc, argv, &job, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    const char *name = job.words.items[0];
    cleanup_free char *path = NULL;
    cleanup_json json_t *result = NULL;
    cleanup_json json_t *body = keep ? json_pack("{s:b}", "keep_remote", true) : NULL;
    if (keep && !body)
        return err_fail(err, ERR_INTERNAL, "no memory for a request");
    rc = client_path(WORKSPACES, name, "", false, &path, err);
    if (rc < 0)
        return rc;
    const struct client_request request = {.method = "DELETE", .path = path, .body = body};
    rc = cmd_submit(ctx, request, &job.options, &result, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    return ctx->json ? output_json(stdout, result, err) : print_removed(name, result, err);
}
