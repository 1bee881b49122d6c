/* varve job: ls, show, wait. */
#include "cmd.h"
#include "output.h"

int cmd_job_ls(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    static const struct output_column columns[] = {
        {"ID", "id", OUTPUT_TEXT},         {"KIND", "kind", OUTPUT_TEXT},
        {"OBJECT", "object", OUTPUT_TEXT}, {"STATE", "state", OUTPUT_TEXT},
        {"STEP", "step", OUTPUT_TEXT},     {"ERROR", "error.code", OUTPUT_TEXT},
        {"AGE", "created", OUTPUT_AGE},
    };
    static const struct cmd_list list = {"/v1/jobs", "jobs", columns, ARRAY_SIZE(columns)};
    return cmd_list(ctx, &list, argc, argv, err);
}

int cmd_job_show(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    return cmd_show(ctx, "/v1/jobs/", false, argc, argv, err);
}

int cmd_job_wait(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    struct cmd_syntax syntax = {.words_min = 1, .words_max = 1};
    cleanup_opts_words struct opts_words words = {0};
    int rc = cmd_parse(ctx, &syntax, argc, argv, &words, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    /* Asked once before the waiting, which would look for a daemon that never was. */
    const char *id = words.words.items[0];
    cleanup_json json_t *first = NULL;
    rc = client_get(&ctx->client, "/v1/jobs/", id, false, &first, err);
    if (rc < 0)
        return rc;
    struct progress progress;
    progress_init(&progress, STDERR_FILENO, false);
    struct client_wait wait = {.id = id, .progress = &progress};
    cleanup_json json_t *job = NULL;
    rc = client_job_wait(&ctx->client, &wait, &job, err);
    progress_end(&progress);
    if (rc == 0 && ctx->json)
        rc = output_json(stdout, job, err);
    if (rc == 0)
        rc = client_job_outcome(job, err);
    if (rc < 0 || ctx->json)
        return rc;
    return cmd_print(err, "%s  %s  %s", cmd_text(job, "id"), cmd_text(job, "kind"),
                     cmd_text(job, "state"));
}
