/* varve run reset and rollback: a run as it was before. */
#include "cmd.h"
#include "cmd_run.h"
#include "output.h"

#include <string.h>

int cmd_run_need_mount(struct cmd_context *ctx, const char *id, struct err *err)
{
    const struct cmd_job_options job = {.detach = false};
    cleanup_json json_t *run = NULL;
    cleanup_json json_t *result = NULL;
    const char *state = NULL;
    bool mounted = true; /* a run that is being made or removed: what follows says so */
    int rc = client_get(&ctx->client, "/v1/runs/", id, false, &run, err);
    if (rc == 0)
        rc = json_doc_opt_bool(run, "mounted", "the document of the run", &mounted, err);
    if (rc == 0)
        rc = json_doc_opt_str(run, "state", "the document of the run", &state, err);
    /* One whose volume was fenced takes no writes until it was mounted anew. */
    if (rc < 0 || (mounted && (!state || strcmp(state, "fenced") != 0)))
        return rc;
    return cmd_submit_verb(ctx, "/v1/runs/", id, "mount", NULL, &job, &result, err);
}

int cmd_run_reset(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    cleanup_cmd_job struct cmd_job job = {0};
    cleanup_json json_t *run = NULL;
    int rc = cmd_parse_job(ctx, NULL, 0, 1, argc, argv, &job, err);
    if (rc == 0)
        rc = cmd_submit_verb(ctx, "/v1/runs/", job.words.items[0], "reset", NULL, &job.options,
                             &run, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    return ctx->json ? output_json(stdout, run, err)
                     : cmd_print(err, "%s is as its image is", cmd_text(run, "id"));
}

static int report(const json_t *result, struct err *err)
{
    const char *safety = json_string_value(json_object_get(result, "safety_snapshot"));
    int64_t killed = json_integer_value(json_object_get(result, "killed"));
    if (killed > 0)
        output_warning(stderr, "%jd %s that used the run %s ended", (intmax_t)killed,
                       killed == 1 ? "process" : "processes", killed == 1 ? "was" : "were");
    if (!safety)
        return cmd_print(err, "%s  %s", cmd_text(result, "id"), cmd_text(result, "image"));
    int rc = cmd_print(err, "%s  %s", cmd_text(result, "id"), cmd_text(result, "image"));
    return rc < 0 ? rc
                  : cmd_print(err, "what it was is kept for a day: varve run rollback %s %s",
                              cmd_text(result, "id"), safety);
}

int cmd_run_rollback(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    bool kill = false;
    const struct opts_option options[] = {
        {"--kill", OPTS_FLAG, &kill, NULL, "end the processes that use the run"},
    };
    cleanup_cmd_job struct cmd_job job = {0};
    int rc = cmd_parse_job(ctx, options, ARRAY_SIZE(options), 2, argc, argv, &job, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_json json_t *result = NULL;
    cleanup_json json_t *body = json_pack("{s:s}", "snapshot", job.words.items[1]);
    if (!body || (kill && json_object_set_new(body, "kill", json_true()) < 0))
        return err_fail(err, ERR_INVALID, "'%.80s' is not UTF-8", job.words.items[1]);
    rc = cmd_submit_verb(ctx, "/v1/runs/", job.words.items[0], "rollback", body, &job.options,
                         &result, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    return ctx->json ? output_json(stdout, result, err) : report(result, err);
}
