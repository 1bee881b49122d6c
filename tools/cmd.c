#include "cmd.h"

#include "clock.h"
#include "output.h"
#include "units.h"

#include <stdarg.h>
#include <string.h>

static void print_help(const struct cmd *cmd, const struct opts_table *own,
                       const struct opts_table *globals)
{
    printf("usage: varve %s%s%s%s%s\n\n%s\n", cmd->noun, cmd->action ? " " : "",
           cmd->action ? cmd->action : "", *cmd->usage ? " " : "", cmd->usage, cmd->summary);
    if (own->count > 0) {
        printf("\noptions:\n");
        opts_help(stdout, own);
    }
    printf("\nglobal options:\n");
    opts_help(stdout, globals);
}

static int wrong_words(const struct cmd *cmd, const struct cmd_syntax *syntax,
                       const struct opts_words *words, struct err *err)
{
    const char *action = cmd->action ? cmd->action : "";
    const char *space = cmd->action ? " " : "";
    if (words->words.count > syntax->words_max)
        return err_fail(err, ERR_INVALID, "unexpected word '%.200s' after varve %s%s%s",
                        words->words.items[syntax->words_max], cmd->noun, space, action);
    return err_fail(err, ERR_INVALID, "varve %s%s%s needs %s", cmd->noun, space, action,
                    cmd->usage);
}

/* Without a command of its own a verb takes what follows "--" as words. */
static int join_rest(struct opts_words *words, struct err *err)
{
    struct opts_table none = {0};
    struct opts_words all = {.dashes = true};
    int rc = 0;
    if (words->words.count > 0)
        rc = opts_parse(&none, (int)words->words.count, words->words.items, &all, err);
    if (rc == 0 && words->rest.count > 0)
        rc = opts_parse(&none, (int)words->rest.count, words->rest.items, &all, err);
    opts_words_free(words);
    *words = (struct opts_words){.words = all.rest};
    return rc;
}

int cmd_parse(struct cmd_context *ctx, const struct cmd_syntax *syntax, int argc,
              const char *const *argv, struct opts_words *ret, struct err *err)
{
    const struct opts_table globals = {ctx->globals, ctx->global_count, NULL};
    /* The globals stand behind the last of the verb's own tables. */
    struct opts_table second = syntax->options.next ? *syntax->options.next : globals;
    if (syntax->options.next)
        second.next = &globals;
    struct opts_table own = syntax->options;
    own.next = &second;
    int rc = opts_parse(&own, argc, argv, ret, err);
    if (ctx->help) {
        second.next = NULL;
        own.next = syntax->options.next ? &second : NULL;
        print_help(ctx->cmd, &own, &globals);
        err_clear(err);
        return 1;
    }
    if (rc == 0 && ctx->version) {
        printf("varve %s\n", VARVE_VERSION);
        return 1;
    }
    if (rc < 0 && syntax->command && !ret->dashes && ret->words.count > 1)
        err_hint(err, "options of the command stand behind --: varve %s %s ID -- COMMAND...",
                 ctx->cmd->noun, ctx->cmd->action);
    if (rc == 0 && !syntax->command)
        rc = join_rest(ret, err);
    if (rc == 0 && (ret->words.count < syntax->words_min || ret->words.count > syntax->words_max))
        rc = wrong_words(ctx->cmd, syntax, ret, err);
    if (rc < 0) {
        err_hint(err, "see varve %s%s%s --help", ctx->cmd->noun, ctx->cmd->action ? " " : "",
                 ctx->cmd->action ? ctx->cmd->action : "");
        return rc;
    }
    return client_open(ctx->host, &ctx->client, err);
}

int cmd_parse_job(struct cmd_context *ctx, const struct opts_option *options, size_t count,
                  size_t words, int argc, const char *const *argv, struct cmd_job *ret,
                  struct err *err)
{
    const struct opts_option own[] = {
        {"--detach", OPTS_FLAG, &ret->options.detach, NULL,
         "print the job's ID at once and do not wait"},
        {"--key", OPTS_VALUE, &ret->options.key, "KEY", "the same key joins the same job"},
    };
    const struct opts_table job_table = {own, ARRAY_SIZE(own), NULL};
    struct cmd_syntax syntax = {{options, count, &job_table}, words, words, false};
    if (count == 0)
        syntax.options = job_table;
    cleanup_opts_words struct opts_words parsed = {0};
    int rc = cmd_parse(ctx, &syntax, argc, argv, &parsed, err);
    if (rc == 0) {
        ret->words = parsed.words;
        parsed.words = (struct opts_list){0};
    }
    return rc;
}

void cmd_job_free(struct cmd_job *job)
{
    opts_list_free(&job->words);
}

static int print_job_id(const struct cmd_context *ctx, const char *id, struct err *err)
{
    if (!ctx->json)
        return cmd_print(err, "%s", id);
    cleanup_json json_t *document = json_pack("{s:s}", "job", id);
    if (!document)
        return err_fail(err, ERR_INTERNAL, "no memory for the output");
    return output_json(stdout, document, err);
}

static int wait_for_result(struct cmd_context *ctx, const char *id, json_t **ret_result,
                           struct err *err)
{
    struct progress progress;
    progress_init(&progress, STDERR_FILENO, false);
    struct client_wait wait = {.id = id, .progress = &progress};
    cleanup_json json_t *job = NULL;
    int rc = client_job_wait(&ctx->client, &wait, &job, err);
    progress_end(&progress);
    if (rc == 0)
        rc = client_job_outcome(job, err);
    if (rc < 0)
        return rc;
    json_t *result = json_object_get(job, "result");
    *ret_result = json_incref(json_is_object(result) ? result : job);
    return 0;
}

int cmd_submit(struct cmd_context *ctx, struct client_request request,
               const struct cmd_job_options *options, json_t **ret_result, struct err *err)
{
    request.key = options->key;
    cleanup_json json_t *reply = NULL;
    int rc = client_call(&ctx->client, &request, &reply, err);
    if (rc < 0)
        return rc;
    const char *id;
    rc = json_doc_get_str(reply, "job", "the answer of varved", &id, err);
    if (rc < 0)
        return rc;
    if (options->detach) {
        rc = print_job_id(ctx, id, err);
        return rc < 0 ? rc : 1;
    }
    return wait_for_result(ctx, id, ret_result, err);
}

int cmd_submit_verb(struct cmd_context *ctx, const char *prefix, const char *name, const char *verb,
                    const json_t *body, const struct cmd_job_options *options, json_t **ret_result,
                    struct err *err)
{
    cleanup_free char *path = NULL;
    char suffix[32];
    snprintf(suffix, sizeof suffix, "/%s", verb);
    int rc = client_path(prefix, name, suffix, false, &path, err);
    struct client_request request = {.method = "POST", .path = path, .body = body};
    return rc < 0 ? rc : cmd_submit(ctx, request, options, ret_result, err);
}

static int64_t wall_ns(void)
{
    struct clock clock = clock_system();
    return clock_wall_ns(&clock);
}

int cmd_show(struct cmd_context *ctx, const char *prefix, bool slashes, int argc,
             const char *const *argv, struct err *err)
{
    struct cmd_syntax syntax = {.words_min = 1, .words_max = 1};
    cleanup_opts_words struct opts_words words = {0};
    int rc = cmd_parse(ctx, &syntax, argc, argv, &words, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_json json_t *document = NULL;
    rc = client_get(&ctx->client, prefix, words.words.items[0], slashes, &document, err);
    if (rc < 0)
        return rc;
    return ctx->json ? output_json(stdout, document, err)
                     : output_record(stdout, document, wall_ns(), err);
}

/* What a removal had to leave stands in the result, with the reason: nothing of it is hidden. */
static void warn_of_rest(const json_t *result)
{
    static const struct {
        const char *key;
        const char *what;
    } parts[] = {{"remote", "the copy in the remote"}, {"image", "the image on this node"}};
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        const json_t *part = json_object_get(result, parts[i].key);
        const char *state = cmd_text(part, "state");
        bool waits = strcmp(state, "waits") == 0;
        if (waits || strcmp(state, "kept") == 0 || strcmp(state, "refused") == 0)
            output_warning(stderr, "%s %s: %s", parts[i].what, waits ? "waits" : "stays",
                           cmd_text(part, "message"));
    }
}

int cmd_remove_at(struct cmd_context *ctx, const char *word, const char *path,
                  const struct cmd_job_options *job, struct err *err)
{
    cleanup_json json_t *result = NULL;
    struct client_request request = {.method = "DELETE", .path = path};
    int rc = cmd_submit(ctx, request, job, &result, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (ctx->json)
        return output_json(stdout, result, err);
    warn_of_rest(result);
    return cmd_print(err, "removed %s", word);
}

int cmd_remove(struct cmd_context *ctx, const char *prefix, bool slashes, int argc,
               const char *const *argv, struct err *err)
{
    cleanup_cmd_job struct cmd_job job = {0};
    int rc = cmd_parse_job(ctx, NULL, 0, 1, argc, argv, &job, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_free char *path = NULL;
    rc = client_path(prefix, job.words.items[0], "", slashes, &path, err);
    return rc < 0 ? rc : cmd_remove_at(ctx, job.words.items[0], path, &job.options, err);
}

int cmd_list(struct cmd_context *ctx, const struct cmd_list *list, int argc,
             const char *const *argv, struct err *err)
{
    struct cmd_syntax syntax = {.words_min = list->suffix != NULL,
                                .words_max = list->suffix != NULL};
    cleanup_opts_words struct opts_words words = {0};
    cleanup_free char *path = NULL;
    int rc = cmd_parse(ctx, &syntax, argc, argv, &words, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (list->suffix)
        rc = client_path(list->path, words.words.items[0], list->suffix, false, &path, err);
    if (rc < 0)
        return rc;
    cleanup_json json_t *document = NULL;
    struct client_request request = {.method = "GET", .path = path ? path : list->path};
    rc = client_call(&ctx->client, &request, &document, err);
    if (rc < 0)
        return rc;
    if (ctx->json)
        return output_json(stdout, document, err);
    json_t *rows;
    rc = json_doc_get_array(document, list->key, "the answer of varved", &rows, err);
    return rc < 0 ? rc
                  : output_table(stdout, rows, list->columns, list->column_count, wall_ns(), err);
}

int cmd_add_token(json_t *body, const char *text, struct err *err)
{
    char *end;
    if (!text)
        return 0;
    errno = 0;
    long long token = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || token < 0 || text[0] < '0' || text[0] > '9') {
        int rc = err_fail(err, ERR_INVALID, "'%.80s' is no value for --token", text);
        err_hint(err, "a token is a whole number from 0 on");
        return rc;
    }
    return json_object_set_new(body, "token", json_integer(token)) < 0
               ? err_fail(err, ERR_INTERNAL, "no memory for a request")
               : 0;
}

const char *cmd_text(const json_t *result, const char *key)
{
    const char *text = json_string_value(json_object_get(result, key));
    return text ? text : "-";
}

int cmd_print(struct err *err, const char *fmt, ...)
{
    cleanup_free char *text = NULL;
    cleanup_buf struct buf line = BUF_INIT(1 << 20);
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0) {
        text = NULL;
        return err_fail(err, ERR_INTERNAL, "no memory for the output");
    }
    int rc = text_escape(text, &line, err);
    if (rc == 0)
        printf("%s\n", buf_str(&line));
    return rc;
}

int cmd_add_size(json_t *body, const char *text, struct err *err)
{
    uint64_t size = 0;
    int rc = text ? units_parse_size(text, &size, err) : 0;
    if (rc == 0 && size > INT64_MAX)
        rc = err_fail(err, ERR_INVALID, "no volume can have a size of '%.64s'", text);
    if (rc == 0 && text && json_object_set_new(body, "size", json_integer((json_int_t)size)) < 0)
        rc = err_fail(err, ERR_INTERNAL, "no memory for a request");
    return rc;
}
