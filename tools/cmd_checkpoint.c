/* varve workspace: checkpoint, history, rollback, fork. */
#include "cmd.h"
#include "output.h"

#include "units.h"

#include <string.h>

#define WORKSPACES "/v1/workspaces/"

enum {
    FORKS_MAX = 1000,
    NS_PER_MS = 1000000,
};

static int report_checkpoint(const json_t *result, struct err *err)
{
    const json_t *ms = json_object_get(result, "ms");
    char frozen[64] = "";
    if (json_is_string(json_object_get(result, "frozen_by")))
        (void)snprintf(frozen, sizeof frozen, ", frozen for %.1f ms",
                       json_number_value(json_object_get(ms, "freeze")) +
                           json_number_value(json_object_get(ms, "frozen")));
    const char *diverged = json_is_true(json_object_get(result, "diverged"))
                               ? "  diverged: the remote has what does not come before it"
                               : "";
    json_int_t generation = json_integer_value(json_object_get(result, "generation"));
    if (json_is_true(json_object_get(result, "unchanged")))
        return cmd_print(err, "%s  checkpoint %lld  nothing has changed%s",
                         cmd_text(result, "name"), (long long)generation, diverged);
    return cmd_print(err, "%s  checkpoint %lld  %s new, %s in all%s%s%s  (cut in %.1f ms%s)",
                     cmd_text(result, "name"), (long long)generation,
                     text_size(json_integer_value(json_object_get(result, "bytes_new"))).s,
                     text_size(json_integer_value(json_object_get(result, "bytes_total"))).s,
                     diverged,
                     json_is_true(json_object_get(result, "parent_lost"))
                         ? "  stored without the one before, which the remote has lost"
                         : "",
                     strcmp(cmd_text(result, "durability"), "verified") == 0 ? "  verified" : "",
                     json_number_value(json_object_get(ms, "cut")), frozen);
}

/* 0 with the result, 1 when detached. */
static int checkpoint(struct cmd_context *ctx, const char *name, const char *consistency,
                      const char *budget, const char *durability,
                      const struct cmd_job_options *options, json_t **ret, struct err *err)
{
    int64_t budget_ns = 0;
    cleanup_json json_t *body = json_object();
    int rc = budget ? units_parse_duration(budget, &budget_ns, err) : 0;
    if (rc < 0)
        return err_wrap(err, rc, "--freeze-budget");
    if (!body ||
        (consistency && json_object_set_new(body, "consistency", json_string(consistency)) < 0) ||
        (budget &&
         json_object_set_new(body, "freeze_budget_ms", json_integer(budget_ns / NS_PER_MS)) < 0))
        return err_fail(err, ERR_INVALID, "the consistency is not UTF-8");
    if (durability && json_object_set_new(body, "durability", json_string(durability)) < 0)
        return err_fail(err, ERR_INVALID, "the durability is not UTF-8");
    return cmd_submit_verb(ctx, WORKSPACES, name, "checkpoints", body, options, ret, err);
}

int cmd_workspace_checkpoint(struct cmd_context *ctx, int argc, const char *const *argv,
                             struct err *err)
{
    const char *consistency = NULL;
    const char *budget = NULL;
    const char *durability = NULL;
    const struct opts_option options[] = {
        {"--consistency", OPTS_VALUE, &consistency, "none|sync|freeze",
         "sync (the default): what is written before is in it; none: what was synced inside; "
         "freeze: synced, and all writers stand still for the cut"},
        {"--freeze-budget", OPTS_VALUE, &budget, "TIME",
         "for how long they may at most (default 1s); over it, it fails"},
        {"--durability", OPTS_VALUE, &durability, "pushed|verified",
         "pushed (the default): the remote has it; verified: it was read back, too"},
    };
    cleanup_cmd_job struct cmd_job job = {0};
    int rc = cmd_parse_job(ctx, options, ARRAY_SIZE(options), 1, argc, argv, &job, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_json json_t *result = NULL;
    rc = checkpoint(ctx, job.words.items[0], consistency, budget, durability, &job.options, &result,
                    err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    return ctx->json ? output_json(stdout, result, err) : report_checkpoint(result, err);
}

int cmd_workspace_history(struct cmd_context *ctx, int argc, const char *const *argv,
                          struct err *err)
{
    static const struct output_column columns[] = {
        {"GENERATION", "generation", OUTPUT_TEXT},
        {"CHECKPOINT", "checkpoint", OUTPUT_DIGEST},
        {"HEAD", "head", OUTPUT_TEXT},
        {"DIVERGED", "diverged", OUTPUT_TEXT},
        {"DURABILITY", "durability", OUTPUT_TEXT},
        {"TOKEN", "token", OUTPUT_TEXT},
        {"REASON", "reason", OUTPUT_TEXT},
        {"NEW", "bytes_new", OUTPUT_SIZE},
        {"ALL", "bytes_total", OUTPUT_SIZE},
        {"AGE", "created", OUTPUT_AGE},
    };
    static const struct cmd_list list = {WORKSPACES, "checkpoints", columns, ARRAY_SIZE(columns),
                                         "/checkpoints"};
    return cmd_list(ctx, &list, argc, argv, err);
}

static int print_killed(const json_t *killed, struct err *err)
{
    size_t i;
    json_t *process;
    json_array_foreach (killed, i, process) {
        int rc = cmd_print(err, "killed %s (%lld)", cmd_text(process, "name"),
                           (long long)json_integer_value(json_object_get(process, "pid")));
        if (rc < 0)
            return rc;
    }
    return 0;
}

int cmd_workspace_rollback(struct cmd_context *ctx, int argc, const char *const *argv,
                           struct err *err)
{
    bool kill = false;
    const char *token = NULL;
    const struct opts_option options[] = {
        {"--kill", OPTS_FLAG, &kill, NULL, "end the processes that use the workspace"},
        {"--token", OPTS_VALUE, &token, "N", "fencing token of who writes to it from then on"},
    };
    cleanup_cmd_job struct cmd_job job = {0};
    int rc = cmd_parse_job(ctx, options, ARRAY_SIZE(options), 2, argc, argv, &job, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_json json_t *result = NULL;
    cleanup_json json_t *body = json_pack("{s:s}", "checkpoint", job.words.items[1]);
    if (!body || (kill && json_object_set_new(body, "kill", json_true()) < 0))
        return err_fail(err, ERR_INVALID, "the checkpoint is not UTF-8");
    rc = cmd_add_token(body, token, err);
    if (rc < 0)
        return rc;
    rc = cmd_submit_verb(ctx, WORKSPACES, job.words.items[0], "rollback", body, &job.options,
                         &result, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (ctx->json)
        return output_json(stdout, result, err);
    rc = print_killed(json_object_get(result, "killed"), err);
    if (rc < 0)
        return rc;
    return cmd_print(err, "%s  %s  back at %s; before: %s", cmd_text(result, "name"),
                     cmd_text(result, "state"), job.words.items[1], cmd_text(result, "before"));
}

/* "NAME@CHECKPOINT" of what is to be forked: as it is now, a checkpoint is made. */
static int find_source(struct cmd_context *ctx, const char *name, const char *at, char **ret,
                       struct err *err)
{
    const struct cmd_job_options attached = {.detach = false};
    cleanup_json json_t *result = NULL;
    if (!at) {
        int rc = checkpoint(ctx, name, NULL, NULL, NULL, &attached, &result, err);
        if (rc < 0)
            return err_wrap(err, rc, "cannot fork %s as it is now", name);
        at = cmd_text(result, "reference");
        *ret = strdup(at);
        return *ret ? 0 : err_fail(err, ERR_INTERNAL, "no memory for a request");
    }
    if (asprintf(ret, "%s@%s", name, at) >= 0)
        return 0;
    *ret = NULL;
    return err_fail(err, ERR_INTERNAL, "no memory for a request");
}

static int make_one(struct cmd_context *ctx, const char *from, const char *name, const char *token,
                    const struct cmd_job_options *options, json_t *made, struct err *err)
{
    cleanup_json json_t *workspace = NULL;
    cleanup_json json_t *body = json_pack("{s:s, s:s}", "name", name, "from", from);
    if (!body)
        return err_fail(err, ERR_INVALID, "the name is not UTF-8");
    struct client_request request = {.method = "POST", .path = "/v1/workspaces", .body = body};
    int rc = cmd_add_token(body, token, err);
    if (rc < 0)
        return rc;
    rc = cmd_submit(ctx, request, options, &workspace, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (!ctx->json)
        return cmd_print(err, "%s  %s  %s", cmd_text(workspace, "name"),
                         cmd_text(workspace, "state"),
                         text_size(json_integer_value(json_object_get(workspace, "size"))).s);
    return json_array_append(made, workspace) < 0
               ? err_fail(err, ERR_INTERNAL, "no memory for the output")
               : 0;
}

/* NEW, or NEW-1 to NEW-COUNT. */
static int make_all(struct cmd_context *ctx, const char *from, const char *name, uint64_t count,
                    const char *token, const struct cmd_job_options *options, struct err *err)
{
    cleanup_json json_t *made = json_array();
    int rc = made ? 0 : err_fail(err, ERR_INTERNAL, "no memory for the output");
    for (uint64_t i = 1; i <= count && rc == 0; i++) {
        cleanup_free char *numbered = NULL;
        if (count > 1 && asprintf(&numbered, "%s-%llu", name, (unsigned long long)i) < 0)
            return err_fail(err, ERR_INTERNAL, "no memory for a request");
        rc = make_one(ctx, from, count > 1 ? numbered : name, token, options, made, err);
    }
    if (rc < 0 || !ctx->json || options->detach)
        return rc;
    return output_json(stdout, count > 1 ? made : json_array_get(made, 0), err);
}

static int parse_count(const char *text, uint64_t *ret, struct err *err)
{
    uint64_t count = 1;
    int rc = text ? units_parse_size(text, &count, err) : 0;
    if (rc == 0 && (count < 1 || count > FORKS_MAX))
        rc = err_fail(err, ERR_INVALID, "--count is 1 to %d, not '%.64s'", FORKS_MAX, text);
    if (rc == 0)
        *ret = count;
    return rc;
}

int cmd_workspace_fork(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    const char *at = NULL;
    const char *count_text = NULL;
    const char *token = NULL;
    uint64_t count = 1;
    const struct opts_option options[] = {
        {"--at", OPTS_VALUE, &at, "CHECKPOINT",
         "a generation or digest of `workspace history`; without it, as it is now"},
        {"--count", OPTS_VALUE, &count_text, "N", "makes NEW-1 to NEW-N"},
        {"--token", OPTS_VALUE, &token, "N", "fencing token of the first writer of each"},
    };
    cleanup_cmd_job struct cmd_job job = {0};
    int rc = cmd_parse_job(ctx, options, ARRAY_SIZE(options), 2, argc, argv, &job, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_free char *from = NULL;
    rc = parse_count(count_text, &count, err);
    if (rc == 0)
        rc = find_source(ctx, job.words.items[0], at, &from, err);
    return rc < 0 ? rc : make_all(ctx, from, job.words.items[1], count, token, &job.options, err);
}
