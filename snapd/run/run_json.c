#include "run.h"

#include "blobs.h"
#include "catalog_image.h"
#include "oci_image.h"
#include "overlay.h"
#include "run_internal.h"

/* Environment and working directory for `run exec`, from the image's config. */
static int add_config(struct node *node, const struct catalog_run *run, json_t *json,
                      struct err *err)
{
    cleanup_run_image struct catalog_image image = {0};
    cleanup_oci_config struct oci_config config = {0};
    cleanup_buf struct buf text = BUF_INIT(JSON_DOC_BYTES_MAX);
    struct digest digest;
    int rc = catalog_image_get(node->catalog, run->image, &image, err);
    if (rc == 0)
        rc = digest_parse(image.config_digest, &digest, err);
    if (rc == 0)
        rc = blobs_read(node->blobs, &digest, &text, err);
    if (rc == 0)
        rc = oci_config_parse(buf_str(&text), text.len, image.layer_count, &config, err);
    if (rc < 0)
        return rc;
    json_t *env = json_array();
    for (size_t i = 0; i < config.env_count; i++)
        (void)json_array_append_new(env, json_string(config.env[i]));
    const char *cwd = config.working_dir && config.working_dir[0] ? config.working_dir : "/";
    bool whole = json_array_size(env) == config.env_count;
    if (json_object_set_new(json, "env", env) < 0 || !whole ||
        json_object_set_new(json, "cwd", json_string(cwd)) < 0)
        return err_errno(err, ENOMEM, "cannot describe the environment");
    return 0;
}

static int describe(struct node *node, const struct catalog_run *run, json_t **ret, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    int rc = run_paths_make(node, run->id, &paths, err);
    int mounted = rc < 0 ? rc : overlay_is_mounted(paths.rootfs, err);
    if (mounted < 0)
        return mounted;
    struct clock_text created = clock_format(run->created_ns);
    cleanup_json json_t *json = json_pack(
        "{s:s, s:s, s:s, s:s?, s:s, s:s, s:s, s:b, s:o, s:s}", "id", run->id, "state",
        catalog_run_state_name(run->state), "image", run->image, "image_name", run->image_name,
        "rootfs", paths.rootfs, "lock", paths.lock, "upper", run->upper, "mounted", mounted,
        "token", run->token ? json_integer(run->token) : json_null(), "created", created.s);
    if (!json)
        return err_errno(err, ENOMEM, "cannot describe it");
    rc = add_config(node, run, json, err);
    if (rc < 0)
        return rc;
    *ret = steal_ptr(json);
    return 0;
}

json_t *run_json(struct node *node, const struct catalog_run *run, struct err *err)
{
    json_t *json = NULL;
    int rc = describe(node, run, &json, err);
    if (rc < 0)
        (void)err_wrap(err, rc, "run %s", run->id);
    return json;
}
