#include "run_fixture.h"

#include "catalog_image.h"
#include "catalog_run.h"
#include "cleanup.h"
#include "fdio.h"
#include "oci_image.h"
#include "overlay.h"
#include "recover.h"
#include "run.h"
#include "run_internal.h"
#include "run_rollback.h"
#include "tar_builder.h"
#include "tree.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static const struct job_kind *const kinds[] = {&run_create_job, &run_rm_job,       &run_reset_job,
                                               &run_mount_job,  &run_rollback_job, &recover_job};

const struct scratch *run_world_scratch(const struct run_world *world)
{
    return world->scratch;
}

void run_world_open(struct run_world *world)
{
    const struct scratch *scratch = world->scratch;
    cleanup_free char *data = strdup(scratch_path(scratch, "data"));
    cleanup_free char *run = strdup(scratch_path(scratch, "run"));
    struct node_options options = {
        .data_dir = data, .run_dir = run, .id = "node-1", .allow_other_mount_namespace = true};
    struct err err = ERR_INIT;
    int rc = node_open(&options, &world->node, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
}

void run_world_start(struct run_world *world)
{
    struct err err = ERR_INIT;
    if (!world->node)
        run_world_open(world);
    int rc = engine_start(world->node, kinds, ARRAY_SIZE(kinds), &world->engine, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
}

void run_world_stop(struct run_world *world)
{
    engine_stop(world->engine);
    node_close(world->node);
    world->engine = NULL;
    world->node = NULL;
}

int run_world_setup(void **state)
{
    struct run_world *world = calloc(1, sizeof *world);
    if (!world || scratch_setup(&world->scratch) != 0)
        return -1;
    *state = world;
    run_world_start(world);
    return 0;
}

int run_world_setup_run(void **state)
{
    if (run_world_setup(state) != 0)
        return -1;
    free(run_world_image(*state, "base:latest", "a", 2));
    run_world_create(*state, "r1");
    run_world_write(*state, "run/runs/r1/rootfs/work", "done");
    return 0;
}

int run_world_teardown(void **state)
{
    struct run_world *world = *state;
    run_world_stop(world);
    int rc = scratch_teardown(&world->scratch);
    free(world);
    return rc;
}

void run_world_reboot(struct run_world *world)
{
    const struct scratch *scratch = world->scratch;
    assert_null(world->node);
    const char *run = scratch_path(scratch, "run");
    while (umount2(run, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
        ;
    assert_int_equal(tree_remove(scratch->fd, "run", NULL), 0);
}

bool run_world_exists(const struct run_world *world, const char *name)
{
    const struct scratch *scratch = world->scratch;
    return faccessat(scratch->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void run_world_assert_file(const struct run_world *world, const char *name, const char *expected)
{
    const struct scratch *scratch = world->scratch;
    cleanup_buf struct buf text = BUF_INIT(65536);
    struct err err = ERR_INIT;
    (void)fdio_read_file(scratch->fd, name, &text, &err);
    assert_string_equal(err.text, "");
    assert_string_equal(buf_str(&text), expected);
}

void run_world_write(const struct run_world *world, const char *name, const char *text)
{
    scratch_write(world->scratch, name, text, (long)strlen(text));
}

bool run_world_is_mounted(const struct run_world *world, const char *id)
{
    char name[128];
    snprintf(name, sizeof name, "run/runs/%s/rootfs", id);
    int rc = overlay_is_mounted(scratch_path(world->scratch, name), NULL);
    assert_true(rc >= 0);
    return rc == 1;
}

const char *run_world_state(const struct run_world *world, const char *id)
{
    struct catalog_run run = {0};
    struct err err = ERR_INIT;
    if (catalog_run_get(world->node->catalog, id, &run, &err) < 0) {
        assert_int_equal(err.code, ERR_NOT_FOUND);
        return "none";
    }
    const char *state = catalog_run_state_name(run.state);
    catalog_run_free(&run);
    return state;
}

void run_world_delete_layers(const struct run_world *world)
{
    const struct scratch *scratch = run_world_scratch(world);
    cleanup_dir DIR *dir = opendir(scratch_path(scratch, "data/layers"));
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            assert_int_equal(unlinkat(dirfd(dir), entry->d_name, 0), 0);
}

int run_world_count(const struct run_world *world, const char *name)
{
    const struct scratch *scratch = world->scratch;
    int count = 0;
    int fd = openat(scratch->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_dir DIR *dir = fdopendir(fd);
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    return count - 2;
}

void run_world_assert_gone(const struct run_world *world, const char *id)
{
    char name[128];
    assert_string_equal(run_world_state(world, id), "none");
    assert_false(run_world_is_mounted(world, id));
    snprintf(name, sizeof name, "run/runs/%s", id);
    assert_false(run_world_exists(world, name));
    snprintf(name, sizeof name, "data/runs/%s", id);
    assert_false(run_world_exists(world, name));
    assert_int_equal(run_world_count(world, "data/tmp"), 0);
}

void run_world_assert_ready(const struct run_world *world, const char *id)
{
    char name[128];
    assert_string_equal(run_world_state(world, id), "ready");
    assert_true(run_world_is_mounted(world, id));
    snprintf(name, sizeof name, "data/runs/%s/work", id);
    assert_true(run_world_exists(world, name));
    snprintf(name, sizeof name, "run/runs/%s/rootfs/which", id);
    run_world_assert_file(world, name, "0");
    snprintf(name, sizeof name, "run/runs/%s/rootfs/probe", id);
    run_world_write(world, name, "x");
    snprintf(name, sizeof name, "data/runs/%s/upper/probe", id);
    run_world_assert_file(world, name, "x");
}

/* Images. */

/* The root directory of the topmost layer; the others do not list theirs. */
static void add_root(struct tar_builder *tar)
{
    tar_text(tar, "mtime", "1000000000.123456789");
    tar_text(tar, "SCHILY.xattr.user.note", "kept");
    tar_add(tar,
            &(struct tar_member){.name = "./", .type = '5', .mode = 02751, .uid = 7, .gid = 8});
}

/* The layer with this number from the top. */
static void make_layer(struct tar_builder *tar, const char *salt, size_t number)
{
    char text[32];
    char only[48];
    snprintf(text, sizeof text, "%zu", number);
    snprintf(only, sizeof only, "only-%zu", number);
    if (number == 0)
        add_root(tar);
    tar_file(tar, only, text);
    tar_file(tar, "salt", salt);
    tar_file(tar, "which", text);
    tar_end(tar);
}

/* Every second layer is the same empty one, and none lists its root. */
static void make_odd_layer(struct tar_builder *tar, const char *salt, size_t number)
{
    char only[48];
    snprintf(only, sizeof only, "only-%zu", number);
    if (number % 2 == 1)
        tar_file(tar, only, salt);
    tar_end(tar);
}

typedef void make_layer_fn(struct tar_builder *tar, const char *salt, size_t number);

struct image {
    struct catalog_image row;
    struct catalog_layer layers[OCI_LAYERS_MAX];
    struct digest_text texts[2 * OCI_LAYERS_MAX];
    struct digest_text chains[OCI_LAYERS_MAX];
    struct digest diff_ids[OCI_LAYERS_MAX];
    struct digest_text config;
    struct digest_text manifest;
};

static void put_blob(const struct run_world *world, const char *bytes, size_t len,
                     struct digest_text *ret)
{
    struct digest digest;
    assert_int_equal(blobs_put(world->node->blobs, bytes, len, &digest, NULL), 0);
    *ret = digest_format(&digest);
}

static void put_layers(const struct run_world *world, make_layer_fn *make, const char *salt,
                       size_t count, struct image *ret)
{
    struct digest chains[OCI_LAYERS_MAX];
    for (size_t i = 0; i < count; i++) {
        struct tar_builder tar = {0};
        make(&tar, salt, count - 1 - i);
        put_blob(world, tar.bytes, tar.len, &ret->texts[i]);
        assert_int_equal(digest_parse(ret->texts[i].s, &ret->diff_ids[i], NULL), 0);
        ret->layers[i] = (struct catalog_layer){.digest = ret->texts[i].s,
                                                .media_type = (char *)OCI_MEDIA_LAYER,
                                                .size = (int64_t)tar.len,
                                                .diff_id = ret->texts[i].s};
        tar_free(&tar);
    }
    assert_int_equal(oci_chain_ids(ret->diff_ids, count, chains, NULL), 0);
    for (size_t i = 0; i < count; i++) {
        ret->chains[i] = digest_format(&chains[i]);
        ret->layers[i].chain_id = ret->chains[i].s;
    }
}

/* Config and manifest as text, and their blobs. Returns the manifest's text. */
static char *put_documents(const struct run_world *world, size_t count, struct image *ret)
{
    cleanup_json json_t *diff_ids = json_array();
    cleanup_json json_t *layers = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(diff_ids, json_string(ret->layers[i].diff_id));
        json_array_append_new(layers, json_pack("{s:s,s:s,s:I}", "mediaType", OCI_MEDIA_LAYER,
                                                "digest", ret->layers[i].digest, "size",
                                                (json_int_t)ret->layers[i].size));
    }
    cleanup_json json_t *config =
        json_pack("{s:s,s:s,s:{s:[s,s],s:s},s:{s:s,s:O}}", "architecture", oci_host_architecture(),
                  "os", "linux", "config", "Env", "PATH=/bin", "LANG=C", "WorkingDir", "/srv/app",
                  "rootfs", "type", "layers", "diff_ids", diff_ids);
    cleanup_free char *config_text = json_doc_dump(config);
    put_blob(world, config_text, strlen(config_text), &ret->config);
    cleanup_json json_t *manifest =
        json_pack("{s:i,s:s,s:{s:s,s:s,s:i},s:O}", "schemaVersion", 2, "mediaType",
                  OCI_MEDIA_MANIFEST, "config", "mediaType", OCI_MEDIA_CONFIG, "digest",
                  ret->config.s, "size", (int)strlen(config_text), "layers", layers);
    char *text = json_doc_dump(manifest);
    assert_non_null(text);
    put_blob(world, text, strlen(text), &ret->manifest);
    ret->row = (struct catalog_image){.digest = ret->manifest.s,
                                      .media_type = (char *)OCI_MEDIA_MANIFEST,
                                      .size = (int64_t)strlen(text),
                                      .config_digest = ret->config.s,
                                      .config_size = (int64_t)strlen(config_text),
                                      .origin = (char *)"import",
                                      .layers = ret->layers,
                                      .layer_count = count};
    return text;
}

static char *put_image(struct run_world *world, make_layer_fn *make, const char *name,
                       const char *salt, size_t layer_count)
{
    struct image image = {.row = {.digest = NULL}};
    struct err err = ERR_INIT;
    put_layers(world, make, salt, layer_count, &image);
    free(put_documents(world, layer_count, &image));
    int rc = catalog_image_put(world->node->catalog, &image.row, &err);
    if (rc == 0 && name)
        rc = catalog_image_name_set(world->node->catalog, name, image.manifest.s, true, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    return strdup(image.manifest.s);
}

char *run_world_image(struct run_world *world, const char *name, const char *salt,
                      size_t layer_count)
{
    return put_image(world, make_layer, name, salt, layer_count);
}

char *run_world_odd_image(struct run_world *world, const char *name, size_t layer_count)
{
    return put_image(world, make_odd_layer, name, "odd", layer_count);
}

void run_world_remote_image(struct run_world *world, const char *repository, const char *tag,
                            const char *salt, size_t layer_count)
{
    struct node *node = world->node;
    struct image image = {.row = {.digest = NULL}};
    put_layers(world, make_layer, salt, layer_count, &image);
    cleanup_free char *manifest = put_documents(world, layer_count, &image);
    for (size_t i = 0; i <= layer_count; i++) {
        struct digest digest;
        const char *text = i < layer_count ? image.texts[i].s : image.config.s;
        assert_int_equal(digest_parse(text, &digest, NULL), 0);
        assert_int_equal(remote_push_blob(node->remote, repository, node->blobs, &digest, NULL,
                                          NULL, NULL, NULL),
                         0);
        assert_int_equal(blobs_remove(node->blobs, &digest, NULL), 0);
    }
    assert_int_equal(remote_manifest_put(node->remote, repository, tag, OCI_MEDIA_MANIFEST,
                                         manifest, strlen(manifest), NULL),
                     0);
    struct digest digest;
    assert_int_equal(digest_parse(image.manifest.s, &digest, NULL), 0);
    assert_int_equal(blobs_remove(node->blobs, &digest, NULL), 0);
}

/* Jobs. */

struct catalog_job run_world_job(struct run_world *world, const char *kind, const char *id,
                                 const char *params)
{
    char object[128];
    cleanup_json json_t *json = job_fixture_json(params);
    snprintf(object, sizeof object, "run:%s", id ? id : "");
    return job_fixture_run(
        world->node,
        &(struct job_request){.kind = kind, .object = id ? object : NULL, .params = json});
}

json_t *run_world_job_ok(struct run_world *world, const char *kind, const char *id,
                         const char *params)
{
    return job_fixture_done(run_world_job(world, kind, id, params));
}

void run_world_job_fails(struct run_world *world, const char *kind, const char *id,
                         const char *params, enum err_code code, const char *words)
{
    job_fixture_failed(run_world_job(world, kind, id, params), err_code_name(code), words);
}

void run_world_create(struct run_world *world, const char *id)
{
    char params[256];
    snprintf(params, sizeof params, "{'id':'%s','image':'base','plain_upper':true}", id);
    json_decref(run_world_job_ok(world, "run.create", id, params));
}

void run_world_unmount(struct run_world *world, const char *id)
{
    cleanup_catalog_run struct catalog_run run = {0};
    assert_int_equal(catalog_run_get(world->node->catalog, id, &run, NULL), 0);
    assert_int_equal(run_dirs_unmount(world->node, &run, false, NULL), 0);
}

void run_world_remove(struct run_world *world, const char *id)
{
    char params[256];
    snprintf(params, sizeof params, "{'id':'%s'}", id);
    json_decref(run_world_job_ok(world, "run.rm", id, params));
}

void run_world_killed_job(struct run_world *world, const char *kind, const char *id,
                          const char *params, const char *point, bool reboot)
{
    char fault[64];
    snprintf(fault, sizeof fault, "%s=kill", point);
    run_world_stop(world);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("VARVE_FAULT", fault, 1);
        run_world_start(world);
        struct catalog_job row = run_world_job(world, kind, id, params);
        fprintf(stderr, "%s ended as %s: %s\n", kind, catalog_job_state_name(row.state),
                row.error_message ? row.error_message : "");
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    if (reboot)
        run_world_reboot(world);
    run_world_open(world);
}

pid_t run_world_process(const struct run_world *world, const char *id, bool lock)
{
    const struct scratch *scratch = world->scratch;
    int ready[2];
    char name[128];
    char byte = 1;
    snprintf(name, sizeof name, "run/runs/%s/%s", id, lock ? "lock" : "rootfs");
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)signal(SIGTERM, SIG_IGN);
        int fd = openat(scratch->fd, name, O_RDONLY | O_CLOEXEC);
        byte = lock ? flock(fd, LOCK_SH) != 0 : fchdir(fd) != 0 || close(fd) != 0;
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 0);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

void run_world_end(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}
