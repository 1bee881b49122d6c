#include "snapshot.h"

#include "catalog_run.h"
#include "cleanup.h"
#include "commit_fixture.h"
#include "json_doc.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* A world with the image "base:1" of the small tree; *ret_digest is the caller's. */
static struct commit_world *with_base(void **state, char **ret_digest)
{
    struct commit_world *world = *state;
    commit_make_tree(world);
    *ret_digest = commit_import(world, "tree.tar", "base:1");
    return world;
}

static json_t *create_params(const char *run, const char *name)
{
    json_t *params = json_pack("{s:s}", "run", run);
    if (name)
        assert_int_equal(json_object_set_new(params, "name", json_string(name)), 0);
    return params;
}

static size_t count_snapshots(struct commit_world *world)
{
    struct catalog_snapshot *rows = NULL;
    size_t count = 0;
    assert_int_equal(catalog_snapshot_list(world->node->catalog, &rows, &count, NULL), 0);
    for (size_t i = 0; i < count; i++)
        catalog_snapshot_free(&rows[i]);
    free(rows);
    return count;
}

static void create_fails(struct commit_world *world, const char *run, const char *name,
                         const char *code, const char *words)
{
    cleanup_free char *before = commit_blobs_on_disk(world);
    size_t snapshots = count_snapshots(world);
    commit_fails(world, "snapshot.create", create_params(run, name), code, words);
    commit_check_agreement(world);
    cleanup_free char *after = commit_blobs_on_disk(world);
    assert_string_equal(before, after);
    assert_int_equal(count_snapshots(world), snapshots);
}

/* A JSON blob of the store. */
static json_t *read_document(struct commit_world *world, const char *digest)
{
    struct digest parsed;
    cleanup_buf struct buf text = BUF_INIT(1 << 20);
    assert_int_equal(digest_parse(digest, &parsed, NULL), 0);
    assert_int_equal(blobs_read(world->node->blobs, &parsed, &text, NULL), 0);
    json_t *json = json_loadb(buf_str(&text), text.len, 0, NULL);
    assert_non_null(json);
    return json;
}

static const char *text_at(const json_t *json, const char *first, const char *second)
{
    return json_string_value(json_object_get(json_object_get(json, first), second));
}

static void test_result_and_record(void **state)
{
    cleanup_free char *base = NULL;
    struct commit_world *world = with_base(state, &base);
    commit_make_run(world, "session", base,
                    "echo new >m/new; mkdir m/d; python3 -c \"import socket;"
                    "s=socket.socket(socket.AF_UNIX);s.bind('m/d/s')\"");
    json_t *params = json_pack("{s:s, s:s, s:s, s:{s:s}}", "run", "session", "name", "agent:v1",
                               "comment", "after \xc3\xa9", "labels", "team", "a");
    json_t *result = commit_done(world, "snapshot.create", params);
    const char *digest = layer_str(result, "digest");
    char image[128];
    snprintf(image, sizeof image, "images/agent@%s", digest);
    assert_string_equal(layer_str(result, "image"), image);
    assert_memory_equal(layer_str(result, "id"), "s-", 2);
    assert_string_equal(layer_str(result, "run"), "session");
    assert_string_equal(layer_str(result, "name"), "agent:v1");
    assert_string_equal(layer_str(result, "base"), base);
    assert_string_equal(layer_str(result, "comment"), "after \xc3\xa9");
    assert_string_equal(layer_str(result, "durability"), "local");
    assert_string_equal(text_at(result, "labels", "team"), "a");
    assert_true(json_is_null(json_object_get(result, "remote")));
    assert_true(json_is_null(json_object_get(result, "expires")));
    assert_int_equal(strlen(layer_str(result, "created")), strlen("2026-11-29T16:38:56Z"));
    assert_int_equal(layer_int(result, "entries"), 3);
    assert_int_equal(layer_int(result, "freeze_ms"), 0);
    cleanup_free char *skipped = json_doc_dump(json_object_get(result, "skipped"));
    assert_string_equal(skipped, "[{\"path\":\"d/s\",\"reason\":\"socket\"}]");

    struct catalog_image row = {0};
    assert_int_equal(catalog_image_get(world->node->catalog, digest, &row, NULL), 0);
    assert_string_equal(row.origin, "snapshot");
    assert_string_equal(row.names[0], "agent:v1");
    assert_int_equal(row.layer_count, 2);
    assert_string_equal(json_string_value(json_array_get(json_object_get(result, "layers"), 1)),
                        row.layers[1].digest);
    assert_int_equal(layer_int(result, "bytes_new"), row.layers[1].size);
    assert_int_equal(layer_int(result, "bytes_total"), row.layers[0].size + row.layers[1].size);
    catalog_image_free(&row);
    json_decref(result);
    commit_check_agreement(world);
}

static void test_documents(void **state)
{
    cleanup_free char *base = NULL;
    struct commit_world *world = with_base(state, &base);
    commit_make_run(world, "r1", base, "echo new >m/new");
    json_t *result = commit_done(world, "snapshot.create", create_params("r1", NULL));
    const char *id = layer_str(result, "id");
    json_t *manifest = read_document(world, layer_str(result, "digest"));
    json_t *of_base = read_document(world, base);
    assert_string_equal(text_at(manifest, "annotations", "org.opencontainers.image.base.digest"),
                        base);
    assert_string_equal(text_at(manifest, "annotations", "io.varve.snapshot"), id);
    assert_string_equal(text_at(manifest, "annotations", "io.varve.run"), "r1");
    assert_int_equal(json_object_size(json_object_get(manifest, "annotations")), 3);
    assert_true(json_equal(json_array_get(json_object_get(manifest, "layers"), 0),
                           json_array_get(json_object_get(of_base, "layers"), 0)));
    json_t *config = read_document(world, text_at(manifest, "config", "digest"));
    const json_t *diffs = json_object_get(json_object_get(config, "rootfs"), "diff_ids");
    assert_int_equal(json_array_size(diffs), 2);
    assert_int_equal(json_array_size(json_object_get(config, "history")), 2);
    assert_string_equal(layer_str(config, "architecture"), "amd64");
    char name[64];
    snprintf(name, sizeof name, "run-r1:%s", id);
    assert_string_equal(layer_str(result, "name"), name);
    cleanup_free char *seen = layer_shell_output(
        "skopeo inspect 'oci:%s/data/layout:%s' | grep -c sha256:", world->scratch->path, name);
    assert_int_equal(strtol(seen, NULL, 10) >= 3, 1);
    json_decref(config);
    json_decref(of_base);
    json_decref(manifest);
    json_decref(result);
}

static void test_layer_of_an_overlay(void **state)
{
    cleanup_free char *base = NULL;
    struct commit_world *world = with_base(state, &base);
    commit_script(world, "mkdir lower; cp -a tree/. lower");
    commit_make_run(world, "r1", base,
                    "rm m/etc/sym; rm -r m/etc/d; mkdir m/etc/d; echo x >>m/etc/"
                    "conf; touch m/etc/d/in");
    json_t *result = commit_done(world, "snapshot.create", create_params("r1", "a"));
    struct digest digest;
    const json_t *layer = json_array_get(json_object_get(result, "layers"), 1);
    assert_int_equal(digest_parse(json_string_value(layer), &digest, NULL), 0);
    json_t *list = layer_list(world->node->blobs, &digest);
    cleanup_free char *names = layer_names(list);
    assert_string_equal(names, "./\netc/\netc/.wh.sym\netc/conf\netc/d/\netc/d/.wh..wh..opq\n"
                               "etc/d/in\n");
    json_decref(list);
    json_decref(result);
}

static void test_nothing_changed(void **state)
{
    cleanup_free char *base = NULL;
    struct commit_world *world = with_base(state, &base);
    commit_make_run(world, "r1", base, "true");
    json_t *first = commit_done(world, "snapshot.create", create_params("r1", "a:1"));
    json_t *second = commit_done(world, "snapshot.create", create_params("r1", "a:2"));
    assert_int_equal(layer_int(first, "entries"), 1);
    assert_true(json_equal(json_object_get(first, "layers"), json_object_get(second, "layers")));
    assert_string_not_equal(layer_str(first, "digest"), layer_str(second, "digest"));
    assert_int_equal(count_snapshots(world), 2);
    json_decref(first);
    json_decref(second);
    commit_check_agreement(world);
}

static void test_names(void **state)
{
    cleanup_free char *base = NULL;
    struct commit_world *world = with_base(state, &base);
    commit_make_run(world, "a_.-", base, "true");
    json_t *result = commit_done(world, "snapshot.create", create_params("a_.-", NULL));
    assert_memory_equal(layer_str(result, "name"), "run-a:s-", 8);
    json_decref(result);
    result = commit_done(world, "snapshot.create", create_params("a_.-", "deep/er/name:T_1.x"));
    assert_string_equal(layer_str(result, "name"), "deep/er/name:T_1.x");
    json_decref(result);
    create_fails(world, "a_.-", "base:1", "exists", "base:1 stands for another image");
    create_fails(world, "a_.-", "deep/er/name:T_1.x", "exists", "stands for another image");
    create_fails(world, "a_.-", "Bad", "invalid", "");
    create_fails(world, "a_.-", "host.example/n", "invalid", "no host");
    create_fails(world, "a_.-",
                 "n@sha256:0000000000000000000000000000000000000000000000000000000000000000",
                 "invalid", "no digest");
}

static void test_runs_that_cannot_be_captured(void **state)
{
    cleanup_free char *base = NULL;
    struct commit_world *world = with_base(state, &base);
    create_fails(world, "none", NULL, "not_found", "none");
    create_fails(world, "../x", NULL, "invalid", "run ID");
    commit_make_run(world, "busy", base, "touch m/f");
    commit_script(world, "mkdir -p run/runs/busy");
    cleanup_fd int lock = open(scratch_path(world->scratch, "run/runs/busy/lock"),
                               O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(flock(lock, LOCK_SH), 0);
    create_fails(world, "busy", NULL, "conflict", "busy");
    assert_int_equal(flock(lock, LOCK_UN), 0);
    json_decref(commit_done(world, "snapshot.create", create_params("busy", NULL)));
    const struct catalog_run making = {.id = (char *)"making",
                                       .image = base,
                                       .image_name = (char *)"base:1",
                                       .upper = (char *)"plain",
                                       .job_id = (char *)"j-0123456789ab"};
    assert_int_equal(catalog_run_add(world->node->catalog, &making, NULL), 0);
    create_fails(world, "making", NULL, "conflict", "creating");
}

#ifdef VARVE_FAULT_POINTS
/* Without the lock, and after the first look: a process that came while the layer was written. */
static void test_a_process_that_comes_late(void **state)
{
    cleanup_free char *base = NULL;
    struct commit_world *world = with_base(state, &base);
    commit_make_run(world, "r1", base, "touch m/f");
    commit_script(world,
                  "mkdir -p run/runs/r1/rootfs; mount -t overlay overlay -o lowerdir=lower,"
                  "upperdir=data/runs/r1/upper,workdir=data/runs/r1/work run/runs/r1/rootfs");
    commit_world_stop(world);
    pid_t daemon = fork();
    if (daemon == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)setenv("VARVE_FAULT", "snapshot.captured=stop", 1);
        commit_world_start(world);
        commit_fails(world, "snapshot.create", create_params("r1", NULL), "conflict", "in use");
        commit_world_stop(world);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(daemon, &status, WUNTRACED), daemon);
    assert_true(WIFSTOPPED(status));
    cleanup_fd int user = open(scratch_path(world->scratch, "run/runs/r1/rootfs/f"), O_RDONLY);
    assert_true(user >= 0);
    assert_int_equal(kill(daemon, SIGCONT), 0);
    assert_int_equal(waitpid(daemon, &status, 0), daemon);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cleanup_fdp(&user);
    user = -1;
    commit_script(world, "umount run/runs/r1/rootfs");
    commit_world_start(world);
    assert_int_equal(count_snapshots(world), 0);
    commit_check_agreement(world);
}
#endif

static void test_what_cannot_be_stored(void **state)
{
    cleanup_free char *base = NULL;
    struct commit_world *world = with_base(state, &base);
    commit_make_run(world, "r1", base, "mkdir m/d; touch m/d/.wh.x");
    create_fails(world, "r1", NULL, "unsupported", "d/.wh.x");
    commit_script(world, "rm -r data/runs/r1/upper/d; truncate -s 1T data/runs/r1/upper/big");
    create_fails(world, "r1", NULL, "too_large", "big");
    commit_script(world, "rm data/runs/r1/upper/big");
    json_decref(commit_done(world, "snapshot.create", create_params("r1", NULL)));
    commit_check_agreement(world);
}

static void test_an_image_that_is_full(void **state)
{
    struct commit_world *world = *state;
    free(commit_make_layout(world, "lay",
                            "finish([image('v1', ['layer %d' % n for n in range(127)])])"));
    cleanup_free char *full = commit_import(world, "lay", "full:1");
    commit_make_run(world, "r1", full, "true");
    create_fails(world, "r1", NULL, "too_large", "127 layers");
}

static void test_a_failure_leaves_nothing(void **state)
{
    cleanup_free char *base = NULL;
    struct commit_world *world = with_base(state, &base);
    static const char *const faults[] = {"snapshot.captured=eio", "snapshot.image-stored=enospc",
                                         "snapshot.recorded=eio"};
    commit_make_run(world, "r1", base, "touch m/f");
    cleanup_free char *before = commit_blobs_on_disk(world);
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        commit_faulted(world, "snapshot.create", create_params("r1", "a:1"), faults[i]);
        commit_check_agreement(world);
        cleanup_free char *after = commit_blobs_on_disk(world);
        assert_string_equal(before, after);
        assert_int_equal(count_snapshots(world), 0);
        assert_int_equal(commit_count_images(world), 1);
    }
    json_decref(commit_done(world, "snapshot.create", create_params("r1", "a:1")));
}

/* A killed job makes the one snapshot that it would have made. */
static void test_kill_at_each_step(void **state)
{
    cleanup_free char *base = NULL;
    struct commit_world *world = with_base(state, &base);
    static const char *const faults[] = {
        "snapshot.captured=kill",         "snapshot.image-stored=kill",
        "snapshot.recorded=kill",         "publish.before-dir-sync=kill",
        "publish.before-dir-sync=kill:2", "publish.before-dir-sync=kill:3",
        "catalog.after-commit=kill:9"};
    commit_make_run(world, "r1", base, "touch m/f");
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        char id[32];
        char name[32];
        snprintf(id, sizeof id, "s-%012zu", i);
        snprintf(name, sizeof name, "a:%zu", i);
        layer_shell("echo %zu >'%s/data/runs/r1/upper/f'", i, world->scratch->path);
        json_t *params = create_params("r1", name);
        assert_int_equal(json_object_set_new(params, "id", json_string(id)), 0);
        commit_faulted(world, "snapshot.create", params, faults[i]);
        commit_check_agreement(world);
        assert_int_equal(count_snapshots(world), i + 1);
        struct catalog_snapshot row = {0};
        assert_int_equal(catalog_snapshot_get(world->node->catalog, id, &row, NULL), 0);
        assert_string_equal(row.tag, name + 2);
        catalog_snapshot_free(&row);
    }
}

/* The ID of another run's snapshot is not taken over. */
static void test_an_id_that_is_taken(void **state)
{
    cleanup_free char *base = NULL;
    struct commit_world *world = with_base(state, &base);
    commit_make_run(world, "r1", base, "touch m/f");
    commit_make_run(world, "r2", base, "touch m/g");
    json_t *params = json_pack("{s:s, s:s}", "run", "r1", "id", "s-mine");
    json_decref(commit_done(world, "snapshot.create", params));
    params = json_pack("{s:s, s:s}", "run", "r2", "id", "s-mine");
    commit_fails(world, "snapshot.create", params, "exists", "another run, r1");
    commit_check_agreement(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_commit_world(test_result_and_record),
        with_commit_world(test_documents),
        with_commit_world(test_layer_of_an_overlay),
        with_commit_world(test_nothing_changed),
        with_commit_world(test_names),
        with_commit_world(test_runs_that_cannot_be_captured),
#ifdef VARVE_FAULT_POINTS
        with_commit_world(test_a_process_that_comes_late),
#endif
        with_commit_world(test_what_cannot_be_stored),
        with_commit_world(test_an_image_that_is_full),
        with_commit_world(test_a_failure_leaves_nothing),
        with_commit_world(test_kill_at_each_step),
        with_commit_world(test_an_id_that_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
