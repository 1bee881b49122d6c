/* varve recover: what is not as it should be on this node. */
#include "cmd.h"
#include "output.h"

static int show(const json_t *result, struct err *err)
{
    static const struct output_column columns[] = {
        {"OBJECT", "object", OUTPUT_TEXT},
        {"FOUND", "found", OUTPUT_TEXT},
        {"ACTION", "action", OUTPUT_TEXT},
    };
    json_t *items;
    int rc = json_doc_get_array(result, "items", "the answer of varved", &items, err);
    if (rc < 0)
        return rc;
    if (json_array_size(items) == 0)
        return cmd_print(err, "everything is as it should be");
    return output_table(stdout, items, columns, ARRAY_SIZE(columns), 0, err);
}

/* What could not be mended makes the command fail. */
static bool has_failed(const json_t *result)
{
    size_t i;
    json_t *item;
    json_array_foreach (json_object_get(result, "items"), i, item)
        if (json_is_true(json_object_get(item, "failed")))
            return true;
    return false;
}

int cmd_recover(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    bool plan = false;
    const struct opts_option options[] = {
        {"--plan", OPTS_FLAG, &plan, NULL, "only show what would be done"},
    };
    cleanup_cmd_job struct cmd_job job = {0};
    int rc = cmd_parse_job(ctx, options, ARRAY_SIZE(options), 0, argc, argv, &job, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_json json_t *result = NULL;
    cleanup_json json_t *body = json_pack("{s:b}", "plan", plan);
    if (!body)
        return err_fail(err, ERR_INTERNAL, "no memory for a request");
    struct client_request request = {.method = "POST", .path = "/v1/recover", .body = body};
    rc = cmd_submit(ctx, request, &job.options, &result, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = ctx->json ? output_json(stdout, result, err) : show(result, err);
    return rc < 0 ? rc : has_failed(result);
}
