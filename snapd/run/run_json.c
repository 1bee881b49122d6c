#include "run.h"

#include "overlay.h"
#include "run_internal.h"
#include "run_user.h"
#include "run_volume.h"

#include <string.h>

/* What `run exec` needs from the image's config. */
static int add_config(struct node *node, const struct catalog_run *run, json_t *json,
                      struct err *err)
{
    cleanup_oci_config struct oci_config config = {0};
    int rc = run_config_read(node, run->image, &config, err);
    if (rc < 0)
        return rc;
    json_t *env = json_array();
    for (size_t i = 0; i < config.env_count; i++)
        (void)json_array_append_new(env, json_string(config.env[i]));
    const char *cwd = config.working_dir && config.working_dir[0] ? config.working_dir : "/";
    json_t *user = config.user ? json_string(config.user) : json_null();
    bool whole = json_array_size(env) == config.env_count;
    if (json_object_set_new(json, "env", env) < 0 || !whole ||
        json_object_set_new(json, "cwd", json_string(cwd)) < 0 ||
        json_object_set_new(json, "user", user) < 0)
        return err_errno(err, ENOMEM, "cannot describe the environment");
    return 0;
}

/* "dead" or "fenced" when nothing that is written now would be kept; else what the row says. */
static const char *state_name(const struct catalog_run *run, const json_t *volume)
{
    static const char *const bad[] = {"dead", "fenced"};
    const char *state = json_string_value(json_object_get(volume, "state"));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (run->state == CATALOG_RUN_READY && state && strcmp(state, bad[i]) == 0)
            return bad[i];
    return catalog_run_state_name(run->state);
}

static int describe(struct node *node, const struct catalog_run *run, json_t *volume, json_t **ret,
                    struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    int rc = run_paths_make(node, run->id, &paths, err);
    int mounted = rc < 0 ? rc : overlay_is_mounted(paths.rootfs, err);
    if (mounted < 0)
        return mounted;
    struct clock_text created = clock_format(run->created_ns);
    cleanup_json json_t *json = json_pack(
        "{s:s, s:s, s:s, s:s?, s:s, s:s, s:s, s:O?, s:b, s:o, s:s}", "id", run->id, "state",
        state_name(run, volume), "image", run->image, "image_name", run->image_name, "rootfs",
        paths.rootfs, "lock", paths.lock, "upper", run->upper, "volume", volume, "mounted", mounted,
        "token", run->token ? json_integer(run->token) : json_null(), "created", created.s);
    if (!json)
        return err_errno(err, ENOMEM, "cannot describe it");
    rc = add_config(node, run, json, err);
    if (rc < 0)
        return rc;
    *ret = steal_ptr(json);
    return 0;
}

static json_t *with_volume(struct node *node, const struct catalog_run *run, json_t *volume,
                           struct err *err)
{
    json_t *json = NULL;
    int rc = describe(node, run, volume, &json, err);
    if (rc < 0)
        (void)err_wrap(err, rc, "run %s", run->id);
    return json;
}

json_t *run_json(struct node *node, const struct catalog_run *run, struct err *err)
{
    cleanup_json json_t *volume = NULL;
    struct err failure = ERR_INIT;
    int rc = run->volume ? run_volume_json_each(node, run, 1, &volume, &failure, err) : 0;
    if (rc == 0 && failure.code != ERR_NONE)
        rc = err_pass(err, failure.num ? -failure.num : -ENOENT, &failure);
    if (rc < 0) {
        (void)err_wrap(err, rc, "run %s", run->id);
        return NULL;
    }
    return with_volume(node, run, volume, err);
}

/* With what is known of its volume, or why that is not known. */
static json_t *describe_one(struct node *node, const struct catalog_run *run, json_t *volume,
                            struct err *ret_err)
{
    struct catalog_run now = {0};
    json_t *json = ret_err->code == ERR_NONE ? with_volume(node, run, volume, ret_err) : NULL;
    if (!json && ret_err->code == ERR_NOT_FOUND && run_find(node, run->id, &now, NULL) == 0)
        err_clear(ret_err);
    catalog_run_free(&now);
    return json;
}

int run_json_each(struct node *node, const struct catalog_run *runs, size_t count, json_t **ret,
                  struct err *ret_errs, struct err *err)
{
    cleanup_free json_t **volumes = calloc(count + 1, sizeof *volumes);
    if (!volumes)
        return err_errno(err, ENOMEM, "cannot look at the runs");
    int rc = run_volume_json_each(node, runs, count, volumes, ret_errs, err);
    for (size_t i = 0; i < count; i++) {
        if (rc == 0)
            ret[i] = describe_one(node, &runs[i], volumes[i], &ret_errs[i]);
        json_decref(volumes[i]);
    }
    return rc;
}

static int resolve(struct node *node, const struct catalog_run *run, const char *word,
                   struct run_user *ret, struct err *err)
{
    cleanup_oci_config struct oci_config config = {0};
    int rc = word ? 0 : run_config_read(node, run->image, &config, err);
    if (rc < 0)
        return rc;
    cleanup_fd int root = run_rootfs_open(node, run, err);
    return root < 0 ? root : run_user_resolve(root, word ? word : config.user, ret, err);
}

json_t *run_user_json(struct node *node, const struct catalog_run *run, const char *word,
                      struct err *err)
{
    cleanup_run_user struct run_user user = {0};
    int rc = resolve(node, run, word, &user, err);
    if (rc < 0) {
        (void)err_wrap(err, rc, "run %s", run->id);
        return NULL;
    }
    json_t *groups = json_array();
    for (size_t i = 0; i < user.group_count; i++)
        (void)json_array_append_new(groups, json_integer(user.groups[i]));
    json_t *home = json_string(user.home);
    json_t *json = json_pack("{s:I, s:I, s:o, s:o}", "uid", (json_int_t)user.uid, "gid",
                             (json_int_t)user.gid, "groups", groups, "home",
                             home ? home : json_string("/")); /* JSON holds UTF-8 alone */
    if (!json)
        (void)err_errno(err, ENOMEM, "cannot describe a user");
    return json;
}
