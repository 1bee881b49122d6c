/* varve job: ls, show, wait, cancel. */
#include "cmd.h"
#include "output.h"

#include <string.h>

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

/* Waits, with progress; the job's document in *ret. */
static int wait_for(struct cmd_context *ctx, const char *id, json_t **ret, struct err *err)
{
    struct progress progress;
    progress_init(&progress, STDERR_FILENO, false);
    struct client_wait wait = {.id = id, .progress = &progress};
    int rc = client_job_wait(&ctx->client, &wait, ret, err);
    progress_end(&progress);
    return rc;
}

static int print_job(const json_t *job, struct err *err)
{
    return cmd_print(err, "%s  %s  %s", cmd_text(job, "id"), cmd_text(job, "kind"),
                     cmd_text(job, "state"));
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
    cleanup_json json_t *job = NULL;
    rc = wait_for(ctx, id, &job, err);
    if (rc == 0 && ctx->json)
        rc = output_json(stdout, job, err);
    if (rc == 0)
        rc = client_job_outcome(job, err);
    return rc < 0 || ctx->json ? rc : print_job(job, err);
}

/* A job may have ended by itself before it was told. */
static int check_cancelled(const json_t *job, struct err *err)
{
    const char *state = cmd_text(job, "state");
    const json_t *error = json_object_get(job, "error");
    if (!client_job_is_final(job) || strcmp(state, "cancelled") == 0)
        return 0;
    int rc =
        err_fail(err, ERR_CONFLICT, "job %s was not cancelled, it is %s%s%s", cmd_text(job, "id"),
                 state, error ? ": " : "", error ? cmd_text(error, "message") : "");
    err_hint(err, "it ended by itself before it was told; see `varve job show %s`",
             cmd_text(job, "id"));
    return rc;
}

int cmd_job_cancel(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    bool detach = false;
    const struct opts_option options[] = {
        {"--detach", OPTS_FLAG, &detach, NULL, "do not wait until the job has ended"}};
    struct cmd_syntax syntax = {{options, ARRAY_SIZE(options), NULL}, 1, 1, false};
    cleanup_opts_words struct opts_words words = {0};
    cleanup_free char *path = NULL;
    cleanup_json json_t *asked = NULL;
    cleanup_json json_t *job = NULL;
    int rc = cmd_parse(ctx, &syntax, argc, argv, &words, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    const char *id = words.words.items[0];
    rc = client_path("/v1/jobs/", id, "/cancel", false, &path, err);
    struct client_request request = {.method = "POST", .path = path};
    if (rc == 0)
        rc = client_call(&ctx->client, &request, &asked, err);
    if (rc == 0 && !detach && !client_job_is_final(asked))
        rc = wait_for(ctx, id, &job, err);
    const json_t *shown = job ? job : asked;
    if (rc == 0 && ctx->json)
        rc = output_json(stdout, shown, err);
    if (rc == 0)
        rc = check_cancelled(shown, err);
    return rc < 0 || ctx->json ? rc : print_job(shown, err);
}
