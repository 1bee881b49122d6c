/* varve image: pull, import, ls, inspect, rm. */
#include "cmd.h"
#include "output.h"

#include "clock.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

/* The one of an image's names that was asked for, with or without its tag; else the first. */
static const char *name_of(const json_t *image, const char *asked)
{
    const json_t *names = json_object_get(image, "names");
    size_t len = asked ? strlen(asked) : 0;
    size_t i;
    json_t *item;
    json_array_foreach (names, i, item) {
        const char *name = json_string_value(item);
        if (name && len > 0 && strncmp(name, asked, len) == 0 &&
            (name[len] == '\0' || strcmp(name + len, ":latest") == 0))
            return name;
    }
    return json_string_value(json_array_get(names, 0));
}

static int print_image(struct cmd_context *ctx, const char *verb, const char *asked,
                       const json_t *image, struct err *err)
{
    if (ctx->json)
        return output_json(stdout, image, err);
    const json_t *size = json_object_get(image, "size");
    const char *name = name_of(image, asked);
    return cmd_print(err, "%s %s%s%s  %s", verb, name ? name : "", name ? "  " : "",
                     cmd_text(image, "digest"), text_size(json_integer_value(size)).s);
}

int cmd_image_pull(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    cleanup_cmd_job struct cmd_job job = {0};
    int rc = cmd_parse_job(ctx, NULL, 0, 1, argc, argv, &job, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_json json_t *body = json_pack("{s:s}", "reference", job.words.items[0]);
    if (!body)
        return err_fail(err, ERR_INVALID, "the reference is not UTF-8");
    cleanup_json json_t *image = NULL;
    struct client_request request = {.method = "POST", .path = "/v1/images/pull", .body = body};
    rc = cmd_submit(ctx, request, &job.options, &image, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    return print_image(ctx, "pulled", job.words.items[0], image, err);
}

struct upload_progress {
    struct progress progress;
    int64_t total; /* 0: not known */
    struct clock clock;
};

static void on_moved(void *arg, int64_t bytes)
{
    struct upload_progress *upload = arg;
    struct progress_state state = {
        .step = "upload", .done = bytes, .total = upload->total, .bytes = true};
    progress_update(&upload->progress, &state, clock_mono_ns(&upload->clock));
}

/* Streams standard input to the daemon. *ret_id (caller frees) is the upload's ID. */
static int upload_stdin(struct cmd_context *ctx, char **ret_id, struct err *err)
{
    if (isatty(STDIN_FILENO)) {
        int rc = err_fail(err, ERR_INVALID, "standard input is a terminal, not an archive");
        err_hint(err, "pipe the archive in, or name its path");
        return rc;
    }
    struct upload_progress upload = {.clock = clock_system()};
    struct stat st;
    if (fstat(STDIN_FILENO, &st) == 0 && S_ISREG(st.st_mode))
        upload.total = st.st_size;
    progress_init(&upload.progress, STDERR_FILENO, false);
    struct client_request request = {.method = "POST",
                                     .path = "/v1/uploads",
                                     .timeout_s = -1,
                                     .upload = true,
                                     .upload_fd = STDIN_FILENO,
                                     .moved = on_moved,
                                     .arg = &upload};
    cleanup_json json_t *reply = NULL;
    int rc = client_call(&ctx->client, &request, &reply, err);
    progress_end(&upload.progress);
    const char *id;
    if (rc == 0)
        rc = json_doc_get_str(reply, "upload", "the answer of varved", &id, err);
    if (rc < 0)
        return rc;
    char *copy = strdup(id);
    if (!copy)
        return err_fail(err, ERR_INTERNAL, "no memory for a request");
    *ret_id = copy;
    return 0;
}

/* "PATH:NAME" names an image in an archive: the shortest PATH that exists, made absolute, and the
 * rest as it is. NULL with errno when there is none. */
static char *absolute_with_name(const char *text)
{
    for (const char *colon = strchr(text, ':'); colon; colon = strchr(colon + 1, ':')) {
        cleanup_free char *path = strndup(text, (size_t)(colon - text));
        cleanup_free char *absolute = path && *path ? realpath(path, NULL) : NULL;
        char *whole;
        if (absolute)
            return asprintf(&whole, "%s%s", absolute, colon) < 0 ? NULL : whole;
    }
    errno = ENOENT;
    return NULL;
}

/* The daemon has another working directory: it gets the absolute path. */
static int absolute_path(const char *path, char **ret, struct err *err)
{
    char *absolute = realpath(path, NULL);
    if (!absolute && (errno == ENOENT || errno == ENOTDIR))
        absolute = absolute_with_name(path);
    if (absolute) {
        *ret = absolute;
        return 0;
    }
    int num = errno;
    if (num == ENOENT || num == ENOTDIR)
        return err_fail(err, ERR_NOT_FOUND, "cannot import %.1000s: no such file", path);
    return err_errno(err, num, "cannot import %.1000s", path);
}

static int import_body(struct cmd_context *ctx, const char *source, const char *name, json_t **ret,
                       struct err *err)
{
    cleanup_free char *value = NULL;
    bool stream = strcmp(source, "-") == 0;
    if (stream && !name) { /* before the bytes go */
        int rc = err_fail(err, ERR_INVALID, "what comes from standard input has no name");
        err_hint(err, "give one with --name NAME[:TAG]");
        return rc;
    }
    int rc = stream ? upload_stdin(ctx, &value, err) : absolute_path(source, &value, err);
    if (rc < 0)
        return rc;
    json_t *body = json_pack("{s:s, s:s*}", stream ? "upload" : "path", value, "name", name);
    if (!body)
        return err_fail(err, ERR_INVALID, "the path or the name is not UTF-8");
    *ret = body;
    return 0;
}

int cmd_image_import(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    const char *name = NULL;
    const struct opts_option options[] = {
        {"--name", OPTS_VALUE, &name, "NAME[:TAG]",
         "local name of the image (from PATH without it)"},
    };
    cleanup_cmd_job struct cmd_job job = {0};
    int rc = cmd_parse_job(ctx, options, ARRAY_SIZE(options), 1, argc, argv, &job, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_json json_t *body = NULL;
    rc = import_body(ctx, job.words.items[0], name, &body, err);
    if (rc < 0)
        return rc;
    cleanup_json json_t *image = NULL;
    struct client_request request = {.method = "POST", .path = "/v1/images/import", .body = body};
    rc = cmd_submit(ctx, request, &job.options, &image, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    return print_image(ctx, "imported", name, image, err);
}

int cmd_image_ls(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    static const struct output_column columns[] = {
        {"NAME", "names", OUTPUT_TEXT},    {"DIGEST", "digest", OUTPUT_DIGEST},
        {"SIZE", "size", OUTPUT_SIZE},     {"PLATFORM", "platform", OUTPUT_TEXT},
        {"ORIGIN", "origin", OUTPUT_TEXT}, {"AGE", "created", OUTPUT_AGE},
    };
    static const struct cmd_list list = {"/v1/images", "images", columns, ARRAY_SIZE(columns)};
    return cmd_list(ctx, &list, argc, argv, err);
}

int cmd_image_inspect(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    return cmd_show(ctx, "/v1/images/", true, argc, argv, err);
}

int cmd_image_rm(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    return cmd_remove(ctx, "/v1/images/", true, argc, argv, err);
}
