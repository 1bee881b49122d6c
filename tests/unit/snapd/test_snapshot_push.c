#include "snapshot.h"

#include "catalog_job.h"
#include "catalog_run.h"
#include "cleanup.h"
#include "commit_fixture.h"
#include "json_doc.h"
#include "push_fixture.h"
#include "registry_server.h"

#include <string.h>

static void test_push_to_the_embedded_remote(void **state)
{
    struct commit_world *world = *state;
    json_t *snapshot = push_fixture_snapshot(world);
    json_t *pushed = commit_done(world, "snapshot.push", push_fixture_of(snapshot));
    assert_string_equal(layer_str(pushed, "durability"), "pushed");
    assert_string_equal(layer_str(pushed, "image"), layer_str(snapshot, "image"));
    assert_string_equal(layer_str(pushed, "remote"), world->node->remote->url);
    json_decref(pushed);
    push_fixture_remote_has(world, layer_str(snapshot, "digest"));
    push_fixture_durability_is(world, snapshot, CATALOG_PUSHED);
    cleanup_free char *seen = commit_output(
        world,
        "skopeo inspect oci:data/remote:images/agent:v1 | grep '\"Digest\"' | cut -d'\"' -f4;"
        "cd data/remote/blobs/sha256; for d in *; do test $(sha256sum <$d | cut -c1-64) = $d "
        "|| echo bad; done");
    assert_string_equal(seen, layer_str(snapshot, "digest"));
    /* Again: nothing to do. */
    json_decref(commit_done(world, "snapshot.push", push_fixture_of(snapshot)));
    commit_check_agreement(world);
    json_decref(snapshot);
}

static int64_t count_of(const json_t *result, const char *key)
{
    return json_integer_value(json_object_get(result, key));
}

/* Read back; a second push sends nothing. */
static void test_verified_pushes(void **state)
{
    struct commit_world *world = *state;
    json_t *snapshot = push_fixture_snapshot(world);
    const char *id = layer_str(snapshot, "id");
    json_t *pushed = commit_done(world, "snapshot.push",
                                 json_pack("{s:s, s:s}", "snapshot", id, "durability", "verified"));
    assert_string_equal(layer_str(pushed, "durability"), "verified");
    assert_true(count_of(pushed, "bytes_sent") > 3000000);
    assert_int_equal(count_of(pushed, "bytes_skipped"), 0);
    json_t *again = commit_done(world, "snapshot.push", push_fixture_of(snapshot));
    assert_string_equal(layer_str(again, "durability"), "verified");
    assert_int_equal(count_of(again, "bytes_sent"), 0);
    assert_int_equal(count_of(again, "bytes_skipped"), count_of(pushed, "bytes_sent"));
    json_decref(again);
    json_decref(pushed);
    /* What the remote has is not what was sent. */
    commit_script(world, "cd data/remote/blobs/sha256; f=$(ls -S | head -1); chmod +w $f;"
                         "printf X | dd of=$f bs=1 seek=1000 conv=notrunc status=none");
    json_t *mended = commit_done(world, "snapshot.push",
                                 json_pack("{s:s, s:s}", "snapshot", id, "durability", "verified"));
    assert_string_equal(layer_str(mended, "durability"), "verified");
    json_decref(mended);
    commit_script(world, "cd data/remote/blobs/sha256; f=$(ls -S | head -1);"
                         "test $(sha256sum <$f | cut -c1-64) = $f");
    commit_fails(world, "snapshot.push",
                 json_pack("{s:s, s:s}", "snapshot", id, "durability", "eternal"), "invalid",
                 "no durability");
    json_decref(snapshot);
}

static void test_create_and_push(void **state)
{
    struct commit_world *world = *state;
    json_decref(push_fixture_snapshot(world));
    json_t *snapshot = commit_done(
        world, "snapshot.create",
        json_pack("{s:s, s:s, s:s}", "run", "r1", "name", "agent:v2", "durability", "pushed"));
    assert_string_equal(layer_str(snapshot, "durability"), "pushed");
    assert_true(count_of(snapshot, "bytes_sent") > 3000000);
    push_fixture_durability_is(world, snapshot, CATALOG_PUSHED);
    json_decref(snapshot);
    /* A snapshot that cannot be pushed stays. */
    push_fixture_use_remote(world, "http://127.0.0.1:1/varve");
    commit_fails(
        world, "snapshot.create",
        json_pack("{s:s, s:s, s:s}", "run", "r1", "name", "agent:v3", "durability", "pushed"),
        "unreachable", "127.0.0.1:1");
    struct catalog_snapshot *rows = NULL;
    size_t count = 0;
    assert_int_equal(catalog_snapshot_list(world->node->catalog, &rows, &count, NULL), 0);
    assert_int_equal(count, 3);
    assert_string_equal(rows[0].tag, "v3");
    assert_int_equal(rows[0].durability, CATALOG_LOCAL);
    for (size_t i = 0; i < count; i++)
        catalog_snapshot_free(&rows[i]);
    free(rows);
    commit_check_agreement(world);
}

static void test_push_without_the_local_image(void **state)
{
    struct commit_world *world = *state;
    json_t *snapshot = push_fixture_snapshot(world);
    json_decref(commit_done(world, "snapshot.push", push_fixture_of(snapshot)));
    assert_int_equal(
        catalog_image_remove(world->node->catalog, layer_str(snapshot, "digest"), NULL), 0);
    json_t *again = commit_done(world, "snapshot.push", push_fixture_of(snapshot));
    assert_true(json_is_null(json_object_get(again, "layers")));
    json_decref(again);
    commit_script(world, "cd data/remote/blobs/sha256; rm -f $(ls -S | head -1)");
    commit_fails(world, "snapshot.push", push_fixture_of(snapshot), "not_found",
                 "cannot push snapshot");
    commit_script(world, "rm -f data/remote/blobs/sha256/*");
    commit_fails(world, "snapshot.push", push_fixture_of(snapshot), "not_found",
                 "cannot push snapshot");
    json_decref(snapshot);
}

static void test_a_local_blob_is_missing_or_damaged(void **state)
{
    struct commit_world *world = *state;
    json_t *snapshot = push_fixture_snapshot(world);
    const char *layer =
        json_string_value(json_array_get(json_object_get(snapshot, "layers"), 1)) + 7;
    layer_shell("cd '%s/data/layout/blobs/sha256'; cp %s ../saved; chmod +w %s;"
                "printf X | dd of=%s bs=1 seek=1000 conv=notrunc status=none",
                world->scratch->path, layer, layer, layer);
    commit_fails(world, "snapshot.push", push_fixture_of(snapshot), "digest_mismatch", layer);
    push_fixture_durability_is(world, snapshot, CATALOG_LOCAL);
    layer_shell("rm '%s/data/layout/blobs/sha256/%s'", world->scratch->path, layer);
    commit_fails(world, "snapshot.push", push_fixture_of(snapshot), "not_found", layer);
    push_fixture_durability_is(world, snapshot, CATALOG_LOCAL);
    push_fixture_remote_has(world, "");
    layer_shell("cd '%s/data/layout/blobs'; mv saved sha256/%s", world->scratch->path, layer);
    json_decref(commit_done(world, "snapshot.push", push_fixture_of(snapshot)));
    commit_check_agreement(world);
    json_decref(snapshot);
}

static void test_remote_does_not_answer(void **state)
{
    struct commit_world *world = *state;
    push_fixture_use_remote(world, "http://127.0.0.1:1/varve");
    json_t *snapshot = push_fixture_snapshot(world);
    commit_fails(world, "snapshot.push", push_fixture_of(snapshot), "unreachable", "127.0.0.1:1");
    push_fixture_durability_is(world, snapshot, CATALOG_LOCAL);
    commit_check_agreement(world);
    /* A snapshot that was never pushed goes without the remote. */
    json_t *removed = commit_done(world, "snapshot.rm", push_fixture_of(snapshot));
    assert_string_equal(push_fixture_state_of(removed, "remote"), "not_pushed");
    json_decref(removed);
    json_decref(snapshot);
}

static void test_a_tag_that_is_taken(void **state)
{
    struct commit_world *world = *state;
    json_t *snapshot = push_fixture_snapshot(world);
    struct remote *remote = world->node->remote;
    cleanup_free char *base = NULL;
    struct digest digest;
    struct catalog_image image = {0};
    cleanup_buf struct buf text = BUF_INIT(1 << 20);
    assert_int_equal(catalog_image_name_get(world->node->catalog, "base:1", &base, NULL), 0);
    assert_int_equal(catalog_image_get(world->node->catalog, base, &image, NULL), 0);
    const char *blobs[] = {image.config_digest, image.layers[0].digest};
    for (size_t i = 0; i < ARRAY_SIZE(blobs); i++) {
        assert_int_equal(digest_parse(blobs[i], &digest, NULL), 0);
        assert_int_equal(remote_push_blob(remote, "images/agent", world->node->blobs, &digest, NULL,
                                          NULL, NULL, NULL),
                         0);
    }
    assert_int_equal(digest_parse(base, &digest, NULL), 0);
    assert_int_equal(blobs_read(world->node->blobs, &digest, &text, NULL), 0);
    assert_int_equal(
        remote_manifest_put(remote, "images/agent", "v1", NULL, buf_str(&text), text.len, NULL), 0);
    commit_fails(world, "snapshot.push", push_fixture_of(snapshot), "exists",
                 "stands for another image");
    push_fixture_durability_is(world, snapshot, CATALOG_LOCAL);
    push_fixture_remote_has(world, base);
    catalog_image_free(&image);
    json_decref(snapshot);
}

static void test_kill_at_each_step_of_a_push(void **state)
{
    struct commit_world *world = *state;
    static const char *const faults[] = {"snapshot.blobs-sent=kill", "snapshot.manifest-sent=kill",
                                         "snapshot.push-recorded=kill",
                                         "publish.before-rename=kill:2"};
    json_t *snapshot = push_fixture_snapshot(world);
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        commit_script(world, "rm -rf data/remote");
        commit_faulted(world, "snapshot.push", push_fixture_of(snapshot), faults[i]);
        commit_check_agreement(world);
        push_fixture_durability_is(world, snapshot, CATALOG_PUSHED);
        push_fixture_remote_has(world, layer_str(snapshot, "digest"));
    }
    json_decref(snapshot);
}

static void test_unknown_snapshot(void **state)
{
    struct commit_world *world = *state;
    static const char *const kinds[] = {"snapshot.push", "snapshot.rm"};
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        commit_fails(world, kinds[i], json_pack("{s:s}", "snapshot", "s-none"), "not_found",
                     "s-none");
        commit_fails(world, kinds[i], json_pack("{}"), "damaged", "snapshot");
    }
}

static void test_remove(void **state)
{
    struct commit_world *world = *state;
    cleanup_free char *before = NULL;
    json_t *snapshot = push_fixture_snapshot(world);
    json_decref(commit_done(world, "snapshot.push", push_fixture_of(snapshot)));
    json_t *removed = commit_done(world, "snapshot.rm", push_fixture_of(snapshot));
    assert_string_equal(push_fixture_state_of(removed, "remote"), "removed");
    assert_string_equal(push_fixture_state_of(removed, "image"), "removed");
    json_decref(removed);
    push_fixture_is_gone(world, snapshot);
    push_fixture_remote_has(world, "");
    assert_int_equal(commit_count_images(world), 1);
    commit_check_agreement(world);
    before = commit_output(world, "ls data/layout/blobs/sha256 | wc -l");
    assert_string_equal(before, "3");
    commit_fails(world, "snapshot.rm", push_fixture_of(snapshot), "not_found",
                 layer_str(snapshot, "id"));
    json_decref(snapshot);
}

/* The same image has a second tag in the remote: removing one leaves the other. */
static void test_remove_leaves_another_tag(void **state)
{
    struct commit_world *world = *state;
    json_t *snapshot = push_fixture_snapshot(world);
    json_decref(commit_done(world, "snapshot.push", push_fixture_of(snapshot)));
    struct remote *remote = world->node->remote;
    struct remote_manifest there;
    cleanup_free char *repository = remote_repository(remote, "images/agent");
    assert_int_equal(remote_manifest_get(remote, repository, "v1", &there, NULL), 0);
    assert_int_equal(
        remote_manifest_put(remote, repository, "v2", NULL, there.bytes, there.len, NULL), 0);
    json_t *removed = commit_done(world, "snapshot.rm", push_fixture_of(snapshot));
    assert_string_equal(push_fixture_state_of(removed, "remote"), "kept");
    assert_non_null(strstr(layer_str(json_object_get(removed, "remote"), "message"), "tag v2"));
    json_decref(removed);
    push_fixture_is_gone(world, snapshot);
    push_fixture_remote_has(world, "");
    struct remote_manifest_stat stat;
    assert_int_equal(remote_manifest_stat(remote, repository, "v2", NULL, NULL, &stat, NULL), 0);
    assert_true(digest_equal(&stat.digest, &there.digest));
    remote_manifest_free(&there);
    commit_check_agreement(world);
    json_decref(snapshot);
}

static void test_remove_what_is_in_use(void **state)
{
    struct commit_world *world = *state;
    json_t *snapshot = push_fixture_snapshot(world);
    json_decref(commit_done(world, "snapshot.push", push_fixture_of(snapshot)));
    commit_make_run(world, "r2", layer_str(snapshot, "digest"), "true");
    commit_fails(world, "snapshot.rm", push_fixture_of(snapshot), "conflict", "r2");
    push_fixture_remote_has(world, layer_str(snapshot, "digest"));
    push_fixture_durability_is(world, snapshot, CATALOG_PUSHED);
    commit_check_agreement(world);
    json_decref(snapshot);
}

static void test_remove_keeps_an_image_with_another_name(void **state)
{
    struct commit_world *world = *state;
    json_t *snapshot = push_fixture_snapshot(world);
    assert_int_equal(catalog_image_name_set(world->node->catalog, "other:1",
                                            layer_str(snapshot, "digest"), false, NULL),
                     0);
    json_t *removed = commit_done(world, "snapshot.rm", push_fixture_of(snapshot));
    assert_string_equal(push_fixture_state_of(removed, "image"), "kept");
    assert_non_null(layer_str(json_object_get(removed, "image"), "message"));
    json_decref(removed);
    push_fixture_is_gone(world, snapshot);
    struct catalog_image image = {0};
    assert_int_equal(
        catalog_image_get(world->node->catalog, layer_str(snapshot, "digest"), &image, NULL), 0);
    assert_int_equal(image.name_count, 1);
    assert_string_equal(image.names[0], "other:1");
    catalog_image_free(&image);
    commit_check_agreement(world);
    json_decref(snapshot);
}

static void test_remove_without_the_local_image(void **state)
{
    struct commit_world *world = *state;
    json_t *snapshot = push_fixture_snapshot(world);
    json_decref(commit_done(world, "snapshot.push", push_fixture_of(snapshot)));
    assert_int_equal(
        catalog_image_remove(world->node->catalog, layer_str(snapshot, "digest"), NULL), 0);
    json_t *removed = commit_done(world, "snapshot.rm", push_fixture_of(snapshot));
    assert_string_equal(push_fixture_state_of(removed, "image"), "absent");
    assert_string_equal(push_fixture_state_of(removed, "remote"), "removed");
    json_decref(removed);
    commit_check_agreement(world);
    json_decref(snapshot);
}

static void test_remove_with_another_remote(void **state)
{
    struct commit_world *world = *state;
    json_t *snapshot = push_fixture_snapshot(world);
    json_decref(commit_done(world, "snapshot.push", push_fixture_of(snapshot)));
    push_fixture_use_remote(world, "http://127.0.0.1:1/varve");
    json_t *removed = commit_done(world, "snapshot.rm", push_fixture_of(snapshot));
    assert_string_equal(push_fixture_state_of(removed, "remote"), "kept");
    json_decref(removed);
    push_fixture_use_remote(world, NULL);
    push_fixture_remote_has(world, layer_str(snapshot, "digest"));
    json_decref(snapshot);
}

static void test_kill_at_each_step_of_a_removal(void **state)
{
    struct commit_world *world = *state;
    static const char *const faults[] = {"snapshot.remote-removed=kill", "snapshot.removed=kill",
                                         "catalog.after-commit=kill:4"};
    json_t *snapshot = push_fixture_snapshot(world);
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        json_decref(commit_done(world, "snapshot.push", push_fixture_of(snapshot)));
        commit_faulted(world, "snapshot.rm", push_fixture_of(snapshot), faults[i]);
        commit_check_agreement(world);
        push_fixture_is_gone(world, snapshot);
        push_fixture_remote_has(world, "");
        struct catalog_job *jobs = NULL;
        size_t count = 0;
        assert_int_equal(catalog_job_list(world->node->catalog, false, &jobs, &count, NULL), 0);
        assert_int_equal(jobs[0].state, CATALOG_JOB_DONE);
        for (size_t j = 0; j < count; j++)
            catalog_job_free(&jobs[j]);
        free(jobs);
        json_decref(snapshot);
        snapshot = commit_done(world, "snapshot.create",
                               json_pack("{s:s, s:s}", "run", "r1", "name", "agent:v1"));
    }
    json_decref(snapshot);
}

/* The real registry: skopeo finds the image; a registry that refuses deletes is part of the
 * result. */
static void with_registry(struct commit_world *world, bool delete_enabled, const char *outcome)
{
    struct registry_server server;
    struct err err = ERR_INIT;
    commit_script(world, "mkdir registry");
    const struct registry_server_options options = {.delete_enabled = delete_enabled};
    int rc =
        registry_server_start(scratch_path(world->scratch, "registry"), &options, &server, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    char url[64];
    snprintf(url, sizeof url, "http://%s/varve", server.host);
    push_fixture_use_remote(world, url);
    json_t *snapshot = push_fixture_snapshot(world);
    assert_memory_equal(layer_str(snapshot, "image"), server.host, strlen(server.host));
    json_decref(commit_done(world, "snapshot.push", push_fixture_of(snapshot)));
    push_fixture_remote_has(world, layer_str(snapshot, "digest"));
    cleanup_free char *seen = layer_shell_output(
        "skopeo inspect --tls-verify=false docker://%s/varve/images/agent:v1 | grep '\"Digest\"' | "
        "cut -d'\"' -f4",
        server.host);
    assert_string_equal(seen, layer_str(snapshot, "digest"));
    json_decref(commit_done(world, "snapshot.push", push_fixture_of(snapshot)));
    json_t *removed = commit_done(world, "snapshot.rm", push_fixture_of(snapshot));
    assert_string_equal(push_fixture_state_of(removed, "remote"), outcome);
    assert_string_equal(push_fixture_state_of(removed, "image"), "removed");
    json_decref(removed);
    push_fixture_remote_has(world, delete_enabled ? "" : layer_str(snapshot, "digest"));
    push_fixture_is_gone(world, snapshot);
    commit_check_agreement(world);
    registry_server_stop(&server);
    json_decref(snapshot);
    push_fixture_use_remote(world, NULL);
}

static void test_registry_with_deletes(void **state)
{
    with_registry(*state, true, "removed");
}

static void test_registry_that_refuses_deletes(void **state)
{
    with_registry(*state, false, "refused");
}

/* A remote that is gone: the snapshot stays, so that the removal can be asked for again. */
static void test_remove_while_the_remote_is_gone(void **state)
{
    struct commit_world *world = *state;
    struct registry_server server;
    commit_script(world, "mkdir registry");
    const struct registry_server_options options = {.delete_enabled = true};
    assert_int_equal(
        registry_server_start(scratch_path(world->scratch, "registry"), &options, &server, NULL),
        0);
    char url[64];
    snprintf(url, sizeof url, "http://%s/varve", server.host);
    push_fixture_use_remote(world, url);
    json_t *snapshot = push_fixture_snapshot(world);
    json_decref(commit_done(world, "snapshot.push", push_fixture_of(snapshot)));
    registry_server_stop(&server);
    commit_fails(world, "snapshot.rm", push_fixture_of(snapshot), "unreachable", server.host);
    /* Nobody knows what it came to, so the image here is kept. */
    push_fixture_durability_is(world, snapshot, CATALOG_LOCAL);
    assert_int_equal(commit_count_images(world), 2);
    commit_check_agreement(world);
    json_decref(snapshot);
    push_fixture_use_remote(world, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_commit_world(test_push_to_the_embedded_remote),
        with_commit_world(test_verified_pushes),
        with_commit_world(test_create_and_push),
        with_commit_world(test_push_without_the_local_image),
        with_commit_world(test_a_local_blob_is_missing_or_damaged),
        with_commit_world(test_remote_does_not_answer),
        with_commit_world(test_a_tag_that_is_taken),
        with_commit_world(test_kill_at_each_step_of_a_push),
        with_commit_world(test_unknown_snapshot),
        with_commit_world(test_remove),
        with_commit_world(test_remove_leaves_another_tag),
        with_commit_world(test_remove_what_is_in_use),
        with_commit_world(test_remove_keeps_an_image_with_another_name),
        with_commit_world(test_remove_without_the_local_image),
        with_commit_world(test_remove_with_another_remote),
        with_commit_world(test_kill_at_each_step_of_a_removal),
        with_commit_world(test_registry_with_deletes),
        with_commit_world(test_registry_that_refuses_deletes),
        with_commit_world(test_remove_while_the_remote_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
