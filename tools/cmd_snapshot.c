/* varve snapshot: create, ls, inspect, push, rm. */
#include "cmd.h"

#include "buf.h"
#include "output.h"

#include <string.h>

enum {
    SKIPPED_SHOWN = 20, /* entries that a snapshot lacks, for people; --json lists all */
};

static int add_labels(json_t *body, const struct opts_list *labels, struct err *err)
{
    if (labels->count == 0)
        return 0;
    json_t *object = json_object();
    if (!object || json_object_set_new(body, "labels", object) < 0)
        return err_fail(err, ERR_INTERNAL, "no memory for a request");
    for (size_t i = 0; i < labels->count; i++) {
        const char *text = labels->items[i];
        size_t key_len;
        int rc = opts_pair("--label", text, &key_len, err);
        if (rc < 0)
            return rc;
        cleanup_free char *key = strndup(text, key_len);
        if (!key)
            return err_fail(err, ERR_INTERNAL, "no memory for a request");
        if (json_object_get(object, key))
            return err_fail(err, ERR_INVALID, "label '%.80s' is given twice", key);
        if (json_object_set_new(object, key, json_string(text + key_len + 1)) < 0)
            return err_fail(err, ERR_INVALID, "label '%.80s' is not UTF-8", key);
    }
    return 0;
}

static void warn_of_skipped(const json_t *snapshot)
{
    const json_t *skipped = json_object_get(snapshot, "skipped");
    size_t i;
    json_t *entry;
    json_array_foreach (skipped, i, entry) {
        if (i == SKIPPED_SHOWN) {
            output_warning(stderr, "%zu more were left out; --json lists them",
                           json_array_size(skipped) - i);
            return;
        }
        output_warning(stderr, "left out %s: %s", cmd_text(entry, "path"),
                       cmd_text(entry, "reason"));
    }
}

static int64_t number(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static int print_snapshot(struct cmd_context *ctx, const json_t *snapshot, struct err *err)
{
    if (ctx->json)
        return output_json(stdout, snapshot, err);
    warn_of_skipped(snapshot);
    return cmd_print(err, "%s  %s  %lld %s, %s new of %s  %s", cmd_text(snapshot, "id"),
                     cmd_text(snapshot, "name"), (long long)number(snapshot, "entries"),
                     number(snapshot, "entries") == 1 ? "entry" : "entries",
                     text_size(number(snapshot, "bytes_new")).s,
                     text_size(number(snapshot, "bytes_total")).s,
                     cmd_text(snapshot, "durability"));
}

static int create_body(const char *run, const char *name, const char *comment,
                       const char *durability, const struct opts_list *labels, json_t **ret,
                       struct err *err)
{
    cleanup_json json_t *body = json_pack("{s:s, s:s*, s:s*, s:s*}", "run", run, "name", name,
                                          "comment", comment, "durability", durability);
    if (!body)
        return err_fail(err, ERR_INVALID,
                        "the run, the name, the comment or the durability is not UTF-8");
    int rc = add_labels(body, labels, err);
    if (rc == 0)
        *ret = steal_ptr(body);
    return rc;
}

int cmd_snapshot_create(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    const char *run = NULL;
    const char *name = NULL;
    const char *comment = NULL;
    const char *durability = NULL;
    cleanup_opts_list struct opts_list labels = {0};
    const struct opts_option options[] = {
        {"--run", OPTS_VALUE, &run, "ID", "the run whose changes are committed"},
        {"--name", OPTS_VALUE, &name, "REPO[:TAG]", "name of the image"},
        {"--comment", OPTS_VALUE, &comment, "TEXT", "a note for people"},
        {"--label", OPTS_MANY, &labels, "KEY=VALUE", "a label, as often as wanted"},
        {"--durability", OPTS_VALUE, &durability, "LEVEL",
         "local (default), pushed, or verified: read back from the remote"},
    };
    cleanup_cmd_job struct cmd_job job = {0};
    int rc = cmd_parse_job(ctx, options, ARRAY_SIZE(options), 0, argc, argv, &job, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (!run) {
        rc = err_fail(err, ERR_INVALID, "varve snapshot create needs --run ID");
        err_hint(err, "see varve snapshot create --help");
        return rc;
    }
    cleanup_json json_t *body = NULL;
    rc = create_body(run, name, comment, durability, &labels, &body, err);
    if (rc < 0)
        return rc;
    cleanup_json json_t *snapshot = NULL;
    struct client_request request = {.method = "POST", .path = "/v1/snapshots", .body = body};
    rc = cmd_submit(ctx, request, &job.options, &snapshot, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    return print_snapshot(ctx, snapshot, err);
}

int cmd_snapshot_ls(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    static const struct output_column columns[] = {
        {"ID", "id", OUTPUT_TEXT},
        {"NAME", "name", OUTPUT_TEXT},
        {"RUN", "run", OUTPUT_TEXT},
        {"NEW", "bytes_new", OUTPUT_SIZE},
        {"TOTAL", "bytes_total", OUTPUT_SIZE},
        {"DURABILITY", "durability", OUTPUT_TEXT},
        {"AGE", "created", OUTPUT_AGE},
        {"COMMENT", "comment", OUTPUT_TEXT},
    };
    static const struct cmd_list list = {"/v1/snapshots", "snapshots", columns,
                                         ARRAY_SIZE(columns)};
    return cmd_list(ctx, &list, argc, argv, err);
}

int cmd_snapshot_inspect(struct cmd_context *ctx, int argc, const char *const *argv,
                         struct err *err)
{
    return cmd_show(ctx, "/v1/snapshots/", true, argc, argv, err);
}

/* Only the ID is a path of its own for what makes a job: a name has slashes and a colon, and is
 * looked up first. */
int cmd_snapshot_path(struct cmd_context *ctx, const char *word, const char *suffix, char **ret,
                      struct err *err)
{
    cleanup_json json_t *snapshot = NULL;
    const char *id = word;
    int rc = 0;
    if (strpbrk(word, ":/")) {
        rc = client_get(&ctx->client, "/v1/snapshots/", word, true, &snapshot, err);
        if (rc == 0)
            rc = json_doc_get_str(snapshot, "id", "the answer of varved", &id, err);
    }
    return rc < 0 ? rc : client_path("/v1/snapshots/", id, suffix, false, ret, err);
}

/* ", 2 mounted", where there are any. */
static int add_count(struct buf *text, const json_t *result, const char *key, struct err *err)
{
    uint64_t count = number(result, key);
    return count > 0 ? buf_addf(text, err, ", %llu %s", (unsigned long long)count, key) : 0;
}

static int print_push(const json_t *result, struct err *err)
{
    static const char *const counts[] = {"mounted", "resumed", "restarted"};
    cleanup_buf struct buf text = BUF_INIT(1024);
    const char *left = json_string_value(json_object_get(result, "left_in"));
    int rc = 0;
    for (size_t i = 0; i < ARRAY_SIZE(counts) && rc == 0; i++)
        rc = add_count(&text, result, counts[i], err);
    if (rc < 0)
        return rc;
    return cmd_print(err, "%s  %s  %s  %s sent, %s were there%s%s%s", cmd_text(result, "id"),
                     cmd_text(result, "image"), cmd_text(result, "durability"),
                     text_size(number(result, "bytes_sent")).s,
                     text_size(number(result, "bytes_skipped")).s, buf_str(&text),
                     left ? "; what an earlier push left stays in " : "", left ? left : "");
}

int cmd_snapshot_push(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    const char *durability = NULL;
    const struct opts_option options[] = {
        {"--durability", OPTS_VALUE, &durability, "LEVEL",
         "pushed (default), or verified: read back from the remote"},
    };
    cleanup_cmd_job struct cmd_job job = {0};
    int rc = cmd_parse_job(ctx, options, ARRAY_SIZE(options), 1, argc, argv, &job, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_free char *path = NULL;
    rc = cmd_snapshot_path(ctx, job.words.items[0], "/push", &path, err);
    if (rc < 0)
        return rc;
    cleanup_json json_t *body = json_pack("{s:s*}", "durability", durability);
    if (!body)
        return err_fail(err, ERR_INVALID, "the durability is not UTF-8");
    cleanup_json json_t *result = NULL;
    struct client_request request = {.method = "POST", .path = path, .body = body};
    rc = cmd_submit(ctx, request, &job.options, &result, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    return ctx->json ? output_json(stdout, result, err) : print_push(result, err);
}

int cmd_snapshot_rm(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    cleanup_cmd_job struct cmd_job job = {0};
    int rc = cmd_parse_job(ctx, NULL, 0, 1, argc, argv, &job, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    const char *word = job.words.items[0];
    cleanup_free char *path = NULL;
    rc = cmd_snapshot_path(ctx, word, "", &path, err);
    return rc < 0 ? rc : cmd_remove_at(ctx, word, path, &job.options, err);
}
