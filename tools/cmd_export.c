/* varve image export, varve snapshot export: one archive that other tools read. */
#include "cmd.h"
#include "output.h"

#include "clock.h"

#include <string.h>

struct export_options {
    const char *format; /* NULL: the daemon's default */
    bool force;
    struct cmd_job_options job;
};

struct export_words {
    const char *source; /* what is exported; borrowed */
    const char *target; /* PATH or "-"; borrowed */
};

static bool is_stream(const struct export_words *words)
{
    return strcmp(words->target, "-") == 0;
}

/* The daemon has another working directory: it gets an absolute path. Only the directory has to be
 * there. */
static int absolute_path(const char *path, char **ret, struct err *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (*name == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        int rc = err_fail(err, ERR_INVALID, "'%.1000s' is not the name of a file", path);
        err_hint(err, "give the path of the file that is to be made, or - for standard output");
        return rc;
    }
    cleanup_free char *prefix = strndup(path, slash ? (size_t)(slash - path) + 1 : 0);
    cleanup_free char *directory = prefix ? realpath(*prefix ? prefix : ".", NULL) : NULL;
    if (!directory && (errno == ENOENT || errno == ENOTDIR))
        return err_fail(err, ERR_NOT_FOUND, "cannot export to %.1000s: there is no such directory",
                        path);
    if (!directory)
        return err_errno(err, errno, "cannot export to %.1000s", path);
    const char *between = strcmp(directory, "/") == 0 ? "" : "/";
    if (asprintf(ret, "%s%s%s", directory, between, name) >= 0)
        return 0;
    *ret = NULL;
    return err_fail(err, ERR_INTERNAL, "no memory for a request");
}

/* An archive on standard output leaves no room there for anything else. */
static int check_stream(const struct cmd_context *ctx, const struct export_options *options,
                        struct err *err)
{
    int rc = 0;
    if (isatty(STDOUT_FILENO)) {
        rc = err_fail(err, ERR_INVALID, "standard output is a terminal, not a file for an archive");
        err_hint(err, "send it somewhere, or name a path");
    } else if (ctx->json || options->job.detach) {
        rc = err_fail(err, ERR_INVALID, "%s and an archive on standard output exclude each other",
                      ctx->json ? "--json" : "--detach");
        err_hint(err, "name a path");
    } else if (options->force) {
        rc = err_fail(err, ERR_INVALID, "--force is for a file, not for standard output");
    }
    return rc;
}

static int make_body(const struct export_words *words, const struct export_options *options,
                     bool snapshot, json_t **ret, struct err *err)
{
    cleanup_free char *path = NULL;
    int rc = is_stream(words) ? 0 : absolute_path(words->target, &path, err);
    if (rc < 0)
        return rc;
    json_t *body = json_pack("{s:s*, s:s*, s:s*}", "path", path, "format", options->format,
                             "reference", snapshot ? NULL : words->source);
    if (!body)
        return err_fail(err, ERR_INVALID, "the path, the format or the name is not UTF-8");
    if (options->force && json_object_set_new(body, "force", json_true()) < 0) {
        json_decref(body);
        return err_fail(err, ERR_INTERNAL, "no memory for a request");
    }
    *ret = body;
    return 0;
}

struct download {
    struct progress progress;
    int64_t total;
    struct clock clock;
};

static void on_moved(void *arg, int64_t bytes)
{
    struct download *download = arg;
    struct progress_state state = {
        .step = "download", .done = bytes, .total = download->total, .bytes = true};
    progress_update(&download->progress, &state, clock_mono_ns(&download->clock));
}

/* The archive is ready and waits at the daemon. */
static int fetch(struct cmd_context *ctx, const json_t *result, struct err *err)
{
    struct download download = {.clock = clock_system()};
    const char *id;
    cleanup_free char *path = NULL;
    int rc = json_doc_get_str(result, "export", "the answer of varved", &id, err);
    if (rc == 0)
        rc = json_doc_get_int(result, "size", "the answer of varved", &download.total, err);
    if (rc == 0)
        rc = client_path("/v1/exports/", id, "", false, &path, err);
    if (rc < 0)
        return rc;
    progress_init(&download.progress, STDERR_FILENO, false);
    struct client_request request = {.method = "GET",
                                     .path = path,
                                     .timeout_s = -1,
                                     .download = true,
                                     .download_fd = STDOUT_FILENO,
                                     .moved = on_moved,
                                     .arg = &download};
    json_t *none = NULL;
    rc = client_call(&ctx->client, &request, &none, err);
    progress_end(&download.progress);
    return rc;
}

static int export_to(struct cmd_context *ctx, const char *path, const struct export_words *words,
                     const struct export_options *options, bool snapshot, struct err *err)
{
    cleanup_json json_t *body = NULL;
    cleanup_json json_t *result = NULL;
    int rc = is_stream(words) ? check_stream(ctx, options, err) : 0;
    if (rc == 0)
        rc = make_body(words, options, snapshot, &body, err);
    if (rc < 0)
        return rc;
    struct client_request request = {.method = "POST", .path = path, .body = body};
    rc = cmd_submit(ctx, request, &options->job, &result, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (is_stream(words))
        return fetch(ctx, result, err);
    if (ctx->json)
        return output_json(stdout, result, err);
    int64_t size = json_integer_value(json_object_get(result, "size"));
    return cmd_print(err, "exported %s  %s  %s", words->source, cmd_text(result, "path"),
                     text_size(size).s);
}

static int run(struct cmd_context *ctx, bool snapshot, int argc, const char *const *argv,
               struct err *err)
{
    struct export_options options = {0};
    const struct opts_option table[] = {
        {"--format", OPTS_VALUE, &options.format, "FORMAT",
         "oci-archive (default) or docker-archive"},
        {"--force", OPTS_FLAG, &options.force, NULL, "replace a file that is there"},
    };
    cleanup_cmd_job struct cmd_job job = {0};
    int rc = cmd_parse_job(ctx, table, ARRAY_SIZE(table), 2, argc, argv, &job, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    const struct export_words export = {job.words.items[0], job.words.items[1]};
    options.job = job.options;
    cleanup_free char *path = NULL;
    if (snapshot)
        rc = cmd_snapshot_path(ctx, export.source, "/export", &path, err);
    return rc < 0 ? rc
                  : export_to(ctx, path ? path : "/v1/images/export", &export, &options, snapshot,
                              err);
}

int cmd_image_export(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    return run(ctx, false, argc, argv, err);
}

int cmd_snapshot_export(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    return run(ctx, true, argc, argv, err);
}
