/* varve run bundle: an OCI runtime bundle on a run's root filesystem. */
#include "cmd.h"
#include "cmd_run.h"
#include "fdio.h"
#include "output.h"
#include "publish.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define CONFIG "config.json"

struct bundle_options {
    const char *user;
    const char *cwd;
    struct opts_list env;
    bool terminal;
};

static int list_json(const struct opts_list *list, json_t **ret, struct err *err)
{
    cleanup_json json_t *array = json_array();
    for (size_t i = 0; i < list->count; i++)
        if (json_array_append_new(array, json_string(list->items[i])) < 0)
            return err_fail(err, ERR_INVALID, "'%.80s' is not UTF-8", list->items[i]);
    *ret = steal_ptr(array);
    return 0;
}

static int make_body(const struct bundle_options *options, const struct opts_list *args,
                     json_t **ret, struct err *err)
{
    cleanup_json json_t *env = NULL;
    cleanup_json json_t *words = NULL;
    size_t key_len;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < options->env.count; i++)
        rc = opts_pair("--env", options->env.items[i], &key_len, err);
    if (rc == 0 && options->env.count > 0)
        rc = list_json(&options->env, &env, err);
    if (rc == 0 && args->count > 0)
        rc = list_json(args, &words, err);
    if (rc < 0)
        return rc;
    *ret = json_pack("{s:O*, s:O*, s:s*, s:s*, s:b}", "args", words, "env", env, "user",
                     options->user, "cwd", options->cwd, "terminal", options->terminal);
    return *ret ? 0 : err_fail(err, ERR_INVALID, "the user or the directory is not UTF-8");
}

/* What a killed call left under a temporary name does not count (publish.h). */
static bool is_ours(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, CONFIG) == 0 ||
           strncmp(name, ".tmp-", 5) == 0;
}

/* Opens the bundle's directory, which holds nothing but an older config.json; makes it if it is
 * missing. Returns a descriptor. */
static int open_dir(const char *path, struct err *err)
{
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot make the directory %s", path);
    cleanup_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_dir DIR *dir = fd < 0 ? NULL : fdio_list(fd, ".");
    if (!dir)
        return err_errno(err, errno, "cannot open the directory %s", path);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (is_ours(entry->d_name))
            continue;
        int rc = err_fail(err, ERR_EXISTS, "%s holds '%s' and is no bundle of a run", path,
                          entry->d_name);
        err_hint(err, "name a directory that is empty or does not exist");
        return rc;
    }
    return steal_fd(&fd);
}

static int write_config(int dir_fd, const char *path, const json_t *config, struct err *err)
{
    cleanup_free char *text = json_dumps(config, JSON_INDENT(2) | JSON_SORT_KEYS);
    cleanup_buf struct buf whole = BUF_INIT(JSON_DOC_BYTES_MAX + 1);
    if (!text)
        return err_fail(err, ERR_INTERNAL, "no memory for " CONFIG);
    int rc = buf_addf(&whole, err, "%s\n", text);
    if (rc == 0)
        rc = publish_bytes(dir_fd, CONFIG, whole.data, whole.len, 0600, PUBLISH_REPLACE, err);
    return rc < 0 ? err_wrap(err, rc, "cannot write %s/" CONFIG, path) : 0;
}

static int report(const struct cmd_context *ctx, const char *id, const char *path,
                  const json_t *config, struct err *err)
{
    static const char note[] = "with runsc add --overlay2=none: its own overlay would keep every "
                               "change from the run";
    if (!ctx->json) {
        fprintf(stderr, "varve: note: %s\n", note);
        return cmd_print(err, "%s", path);
    }
    cleanup_json json_t *result =
        json_pack("{s:s, s:s, s:s, s:O*}", "id", id, "bundle", path, "note", note, "rootfs",
                  json_object_get(json_object_get(config, "root"), "path"));
    return result ? output_json(stdout, result, err)
                  : err_fail(err, ERR_INVALID, "the path is not UTF-8");
}

static int make_bundle(struct cmd_context *ctx, const char *id, const char *path,
                       const json_t *body, struct err *err)
{
    cleanup_free char *route = NULL;
    cleanup_json json_t *config = NULL;
    cleanup_fd int dir = open_dir(path, err);
    if (dir < 0)
        return dir;
    int rc = cmd_run_need_mount(ctx, id, err);
    if (rc == 0)
        rc = client_path("/v1/runs/", id, "/bundle", false, &route, err);
    struct client_request request = {.method = "POST", .path = route, .body = body};
    if (rc == 0)
        rc = client_call(&ctx->client, &request, &config, err);
    if (rc == 0)
        rc = write_config(dir, path, config, err);
    return rc == 0 ? report(ctx, id, path, config, err) : rc;
}

int cmd_run_bundle(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    struct bundle_options bundle = {.user = NULL};
    const struct opts_option options[] = {
        {"--env", OPTS_MANY, &bundle.env, "KEY=VALUE", "a variable, as often as wanted"},
        {"--user", OPTS_VALUE, &bundle.user, "USER[:GROUP]", "instead of the image's"},
        {"--workdir", OPTS_VALUE, &bundle.cwd, "DIR", "instead of the image's"},
        {"--tty", OPTS_FLAG, &bundle.terminal, NULL, "the process gets a terminal"},
    };
    struct cmd_syntax syntax = {{options, ARRAY_SIZE(options), NULL}, 2, 2, true};
    cleanup_opts_words struct opts_words words = {0};
    cleanup_json json_t *body = NULL;
    int rc = cmd_parse(ctx, &syntax, argc, argv, &words, err);
    if (rc == 0)
        rc = make_body(&bundle, &words.rest, &body, err);
    if (rc == 0)
        rc = make_bundle(ctx, words.words.items[0], words.words.items[1], body, err);
    opts_list_free(&bundle.env);
    return rc < 0 ? rc : 0;
}
