/* varve run: create, ls, inspect, rm. What runs in a run is cmd_run_exec.c. */
#include "cmd.h"
#include "output.h"

static int create_body(const char *image, const char *id, bool plain_upper, const char *size,
                       const char *token, json_t **ret, struct err *err)
{
    cleanup_json json_t *body = json_pack("{s:s, s:s*}", "image", image, "id", id);
    if (!body)
        return err_fail(err, ERR_INVALID, "the image or the ID is not UTF-8");
    if (plain_upper && json_object_set_new(body, "plain_upper", json_true()) < 0)
        return err_fail(err, ERR_INTERNAL, "no memory for a request");
    int rc = cmd_add_token(body, token, err);
    if (rc == 0)
        rc = cmd_add_size(body, size, err);
    if (rc == 0)
        *ret = steal_ptr(body);
    return rc;
}

int cmd_run_create(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    const char *id = NULL;
    const char *token = NULL;
    const char *size = NULL;
    bool plain_upper = false;
    const struct opts_option options[] = {
        {"--id", OPTS_VALUE, &id, "ID", "ID of the run (one is made up without it)"},
        {"--plain-upper", OPTS_FLAG, &plain_upper, NULL,
         "write into a plain directory of this node, not onto a volume"},
        {"--size", OPTS_VALUE, &size, "SIZE",
         "of its volume: 64M to 1T, such as 10G (varved's [volume] size without it)"},
        {"--token", OPTS_VALUE, &token, "N", "fencing token of the caller, a number that grows"},
    };
    cleanup_cmd_job struct cmd_job job = {0};
    int rc = cmd_parse_job(ctx, options, ARRAY_SIZE(options), 1, argc, argv, &job, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_json json_t *body = NULL;
    rc = create_body(job.words.items[0], id, plain_upper, size, token, &body, err);
    if (rc < 0)
        return rc;
    cleanup_json json_t *run = NULL;
    struct client_request request = {.method = "POST", .path = "/v1/runs", .body = body};
    rc = cmd_submit(ctx, request, &job.options, &run, err);
    if (rc < 0 && err->code == ERR_NOT_FOUND)
        err_hint(err, "`varve image ls` lists the images of this node; without a tag a name means "
                      "the tag latest");
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (ctx->json)
        return output_json(stdout, run, err);
    return cmd_print(err, "%s  %s", cmd_text(run, "id"), cmd_text(run, "rootfs"));
}

int cmd_run_ls(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    static const struct output_column columns[] = {
        {"ID", "id", OUTPUT_TEXT},
        {"STATE", "state", OUTPUT_TEXT},
        {"MOUNTED", "mounted", OUTPUT_TEXT},
        {"UPPER", "upper", OUTPUT_TEXT},
        {"SIZE", "volume.size", OUTPUT_SIZE},
        {"USED", "volume.filesystem.used", OUTPUT_SIZE},
        {"IMAGE", "image_name", OUTPUT_TEXT},
        {"DIGEST", "image", OUTPUT_DIGEST},
        {"AGE", "created", OUTPUT_AGE},
    };
    static const struct cmd_list list = {"/v1/runs", "runs", columns, ARRAY_SIZE(columns)};
    return cmd_list(ctx, &list, argc, argv, err);
}

int cmd_run_inspect(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    return cmd_show(ctx, "/v1/runs/", false, argc, argv, err);
}

int cmd_run_rm(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    return cmd_remove(ctx, "/v1/runs/", false, argc, argv, err);
}
