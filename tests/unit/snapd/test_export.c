#include "export.h"

#include "catalog_job.h"
#include "cleanup.h"
#include "commit_fixture.h"
#include "json_doc.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* A world with the image "base:1" of the small tree; *ret_digest is the caller's. */
static struct commit_world *with_base(void **state, char **ret_digest)
{
    struct commit_world *world = *state;
    commit_make_tree(world);
    *ret_digest = commit_import(world, "tree.tar", "base:1");
    return world;
}

static json_t *export_params(const struct commit_world *world, const char *reference,
                             const char *file)
{
    return json_pack("{s:s, s:s}", "reference", reference, "path",
                     scratch_path(world->scratch, file));
}

/* The job must fail and leave the directory "out" as it was. */
static void export_fails(struct commit_world *world, json_t *params, const char *code,
                         const char *words)
{
    cleanup_free char *before = commit_output(world, "mkdir -p out; ls -lA out");
    commit_fails(world, "image.export", params, code, words);
    cleanup_free char *after = commit_output(world, "ls -lA out; ls -A data/tmp data/exports");
    cleanup_free char *expected = NULL;
    assert_true(asprintf(&expected, "%s\ndata/exports:\n\ndata/tmp:", before) > 0);
    assert_string_equal(after, expected);
}

static void test_an_oci_archive(void **state)
{
    cleanup_free char *digest = NULL;
    struct commit_world *world = with_base(state, &digest);
    json_t *result = commit_done(world, "image.export", export_params(world, "base:1", "one.tar"));
    assert_string_equal(layer_str(result, "digest"), digest);
    assert_string_equal(layer_str(result, "format"), "oci-archive");
    assert_string_equal(layer_str(result, "name"), "base:1");
    assert_string_equal(layer_str(result, "path"), scratch_path(world->scratch, "one.tar"));
    assert_null(json_object_get(result, "export"));
    cleanup_free char *size = commit_output(world, "stat -c %s one.tar");
    assert_int_equal(layer_int(result, "size"), atoll(size));
    json_decref(result);
    cleanup_free char *seen = commit_output(
        world,
        "stat -c %a one.tar; mkdir x; tar -C x -xf one.tar --warning=all 2>&1;"
        "diff -r x/blobs data/layout/blobs; cat x/oci-layout; echo;"
        "tar -tf one.tar | LC_ALL=C sort -c && echo sorted;"
        "tar --numeric-owner -tvf one.tar | awk '{print $2, $4}' | sort -u; cat x/index.json");
    cleanup_free char *expected = NULL;
    assert_true(asprintf(&expected,
                         "600\n{\"imageLayoutVersion\":\"1.0.0\"}\nsorted\n0/0 1970-01-01\n"
                         "{\"manifests\":[{\"annotations\":{\"org.opencontainers.image.ref.name\":"
                         "\"base:1\"},\"digest\":\"%s\",\"mediaType\":"
                         "\"application/vnd.oci.image.manifest.v1+json\",\"size\":%s}],"
                         "\"mediaType\":\"application/vnd.oci.image.index.v1+json\","
                         "\"schemaVersion\":2}",
                         digest, "403") > 0);
    assert_string_equal(seen, expected);
    commit_check_agreement(world);
}

static void test_the_bytes_are_always_the_same(void **state)
{
    cleanup_free char *digest = NULL;
    struct commit_world *world = with_base(state, &digest);
    json_decref(commit_done(world, "image.export", export_params(world, "base:1", "one.tar")));
    commit_script(world, "sleep 1.1; touch tree/bin");
    json_decref(commit_done(world, "image.export", export_params(world, "base:1", "two.tar")));
    commit_script(world, "cmp one.tar two.tar");
    /* On another node, from the archive. */
    cleanup_free char *again = commit_import(world, "one.tar", "other:1");
    assert_string_equal(again, digest);
    json_decref(commit_done(world, "image.export", export_params(world, digest, "three.tar")));
    json_decref(commit_done(world, "image.export", export_params(world, "other:1", "four.tar")));
    cleanup_free char *names = commit_output(
        world, "for f in three four; do tar -xOf $f.tar index.json | grep -o 'ref.name\":\"[^\"]*' "
               "|| echo none; done");
    assert_string_equal(names, "none\nref.name\":\"other:1");
}

static void test_a_snapshot(void **state)
{
    cleanup_free char *digest = NULL;
    struct commit_world *world = with_base(state, &digest);
    commit_make_run(world, "r1", digest, "echo new >m/new");
    json_t *made = commit_done(
        world, "snapshot.create",
        json_pack("{s:s, s:s, s:s}", "run", "r1", "id", "s-1", "name", "team/agent:v1"));
    json_t *params =
        json_pack("{s:s, s:s}", "snapshot", "s-1", "path", scratch_path(world->scratch, "s.tar"));
    json_t *result = commit_done(world, "image.export", params);
    assert_string_equal(layer_str(result, "digest"), layer_str(made, "digest"));
    assert_string_equal(layer_str(result, "name"), "team/agent:v1");
    json_decref(result);
    json_decref(made);
    cleanup_free char *blobs = commit_output(world, "tar -tf s.tar | grep -c sha256/.");
    assert_string_equal(blobs, "4"); /* manifest, config, two layers */
    commit_check_agreement(world);
}

/* Without a path it waits for a client. */
static void test_for_a_client(void **state)
{
    cleanup_free char *digest = NULL;
    struct commit_world *world = with_base(state, &digest);
    json_t *result = commit_done(world, "image.export", json_pack("{s:s}", "reference", "base:1"));
    json_decref(commit_done(world, "image.export", export_params(world, "base:1", "one.tar")));
    assert_null(json_object_get(result, "path"));
    layer_shell("cd '%s'; cmp one.tar data/exports/%s; test $(stat -c %%a data/exports/*) = 600",
                world->scratch->path, layer_str(result, "export"));
    json_decref(result);
}

static void test_what_is_there_is_not_replaced(void **state)
{
    cleanup_free char *digest = NULL;
    struct commit_world *world = with_base(state, &digest);
    commit_script(world, "mkdir -p out/dir; echo old >out/old; mkfifo out/fifo;"
                         "ln -s /etc/passwd out/link; ln -s nowhere out/dangling");
    static const struct {
        const char *file, *words;
    } cases[] = {{"out/old", "exists already"},
                 {"out/dir", "is a directory"},
                 {"out/fifo", "no regular file"},
                 {"out/link", "no regular file"},
                 {"out/dangling", "no regular file"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        for (int force = 0; force < 2; force++) {
            json_t *params = export_params(world, "base:1", cases[i].file);
            if (force && strcmp(cases[i].file, "out/old") == 0) {
                json_decref(params);
                continue;
            }
            if (force)
                (void)json_object_set_new(params, "force", json_true());
            export_fails(world, params, "exists", cases[i].words);
        }
    json_t *params = export_params(world, "base:1", "out/old");
    (void)json_object_set_new(params, "force", json_true());
    json_decref(commit_done(world, "image.export", params));
    commit_script(world, "tar -tf out/old >/dev/null; test $(stat -c %a out/old) = 600");
}

/* A slip must not put an archive in place of the catalog. */
static void test_not_into_the_nodes_own_directories(void **state)
{
    cleanup_free char *digest = NULL;
    struct commit_world *world = with_base(state, &digest);
    const struct node *node = world->node;
    static const char *const names[] = {"catalog.db", "layout/index.json", "runs/x",
                                        "layout/blobs/sha256/x"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        cleanup_free char *path = NULL;
        assert_true(asprintf(&path, "%s/%s", node->data_dir, names[i]) > 0);
        json_t *params =
            json_pack("{s:s, s:s, s:b}", "reference", "base:1", "path", path, "force", 1);
        export_fails(world, params, "conflict", "lies in a directory of varved itself");
    }
    cleanup_free char *path = NULL;
    assert_true(asprintf(&path, "%s/x", node->run_dir) > 0);
    assert_int_equal(export_check_path(node, path, false, NULL), -EBUSY);
    assert_int_equal(export_check_path(node, "/tmp/x-that-is-not-there", false, NULL), 0);
}

static void test_requests_that_cannot_be_met(void **state)
{
    cleanup_free char *digest = NULL;
    struct commit_world *world = with_base(state, &digest);
    export_fails(world, export_params(world, "none:1", "out/x"), "not_found", "none:1");
    export_fails(world, export_params(world, "base:1", "no/such/x"), "not_found", "no directory");
    export_fails(world, export_params(world, "base:1", "tree.tar/x"), "io", "tree.tar");
    export_fails(world, export_params(world, "base:1", "out/"), "invalid",
                 "not the name of a file");
    export_fails(world, export_params(world, "base:1", "out/.."), "invalid", "not the name");
    export_fails(world, export_params(world, "Base 1", "out/x"), "invalid", "Base 1");
    export_fails(world, json_pack("{s:s, s:s}", "reference", "base:1", "path", "x.tar"), "invalid",
                 "absolute");
    export_fails(world, json_pack("{s:s}", "path", "/tmp/x"), "invalid", "reference or a snapshot");
    export_fails(world, json_pack("{s:s, s:s}", "reference", "a", "snapshot", "b"), "invalid",
                 "reference or a snapshot");
    export_fails(world, json_pack("{s:s, s:s}", "reference", "base:1", "format", "zip"), "invalid",
                 "oci-archive and docker-archive");
    export_fails(world, json_pack("{s:s, s:i}", "reference", "base:1", "path", 7), "damaged",
                 "'path'");
}

/* Each way in which a blob of the store can be broken; nothing half is ever published. */
static void test_damaged_blobs(void **state)
{
    cleanup_free char *digest = NULL;
    struct commit_world *world = with_base(state, &digest);
    commit_script(world, "cp -a data/layout/blobs good; grep -L schemaVersion good/sha256/* | "
                         "xargs grep -L rootfs | xargs -n1 basename >layer;"
                         "grep -l schemaVersion good/sha256/* | xargs -n1 basename >manifest");
    static const struct {
        const char *script, *code, *words;
    } cases[] = {
        {"python3 -c \"f=open('data/layout/blobs/sha256/$(cat layer)','r+b');f.seek(50);"
         "f.write(b'XXXX')\"",
         "digest_mismatch", "is damaged"},
        {"truncate -s -1 data/layout/blobs/sha256/$(cat layer)", "digest_mismatch", "bytes"},
        {"truncate -s +1 data/layout/blobs/sha256/$(cat layer)", "digest_mismatch", "bytes"},
        {"rm data/layout/blobs/sha256/$(cat layer)", "not_found", "sha256"},
        {"sed -i s/schema/Schema/ data/layout/blobs/sha256/$(cat manifest)", "digest_mismatch",
         "sha256"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        layer_shell("cd '%s'; %s", world->scratch->path, cases[i].script);
        export_fails(world, export_params(world, "base:1", "out/x"), cases[i].code, cases[i].words);
        commit_script(world, "cp -af good/. data/layout/blobs/");
    }
    json_decref(commit_done(world, "image.export", export_params(world, "base:1", "out/x")));
}

static void test_a_full_disk(void **state)
{
    struct commit_world *world = *state;
    commit_script(world, "mkdir t; head -c 3000000 /dev/urandom >t/f; tar -C t -cf t.tar .");
    free(commit_import(world, "t.tar", "t:1"));
    scratch_tmpfs(world->scratch, "out", 2 << 20);
    export_fails(world, export_params(world, "t:1", "out/x"), "no_space", "cannot write");
}

/* A removal that comes while an archive is written takes nothing from under it. */
static void test_removal_meanwhile(void **state)
{
    struct commit_world *world = *state;
    commit_script(world, "mkdir t; head -c 80000000 /dev/urandom >t/f; tar -C t -cf t.tar .");
    free(commit_import(world, "t.tar", "t:1"));
    json_t *params = export_params(world, "t:1", "x.tar");
    const struct job_request request = {.kind = "image.export", .params = params};
    cleanup_free char *id = NULL;
    assert_int_equal(engine_submit(world->engine, &request, &id, NULL), 0);
    json_decref(params);
    for (bool writing = false; !writing;) {
        struct catalog_job job = {0};
        assert_int_equal(catalog_job_get(world->node->catalog, id, &job, NULL), 0);
        writing = job.step && strcmp(job.step, "open") != 0;
        assert_true(!catalog_job_state_is_final(job.state));
        catalog_job_free(&job);
        (void)usleep(500);
    }
    json_decref(commit_done(world, "image.rm", json_pack("{s:s}", "reference", "t:1")));
    assert_int_equal(engine_wait(world->engine, id, 60, NULL), 1);
    struct catalog_job job = {0};
    assert_int_equal(catalog_job_get(world->node->catalog, id, &job, NULL), 0);
    assert_int_equal(job.state, CATALOG_JOB_DONE);
    catalog_job_free(&job);
    cleanup_free char *left = commit_blobs_on_disk(world);
    assert_string_equal(left, "");
    commit_check_agreement(world);
    free(commit_import(world, "x.tar", "back:1"));
}

static void test_kill_at_each_step(void **state)
{
    cleanup_free char *digest = NULL;
    struct commit_world *world = with_base(state, &digest);
    static const char *const points[] = {"export.written", "export.published",
                                         "publish.before-sync", "publish.before-rename",
                                         "publish.before-dir-sync"};
    json_decref(commit_done(world, "image.export", export_params(world, "base:1", "good.tar")));
    commit_script(world, "mkdir out");
    for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
        char fault[64];
        snprintf(fault, sizeof fault, "%s=eio", points[i]);
        commit_faulted(world, "image.export", export_params(world, "base:1", "out/x.tar"), fault);
        cleanup_free char *nothing = commit_output(world, "ls -A out data/tmp data/exports");
        assert_string_equal(nothing, "data/exports:\n\ndata/tmp:\n\nout:");
    }
    for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
        char fault[64];
        snprintf(fault, sizeof fault, "%s=kill", points[i]);
        commit_faulted(world, "image.export", export_params(world, "base:1", "out/x.tar"), fault);
        job_fixture_settle(world->node);
        cleanup_free char *seen = commit_output(
            world, "cmp good.tar out/x.tar; ls -A out; rm out/x.tar; python3 -c \"import sqlite3;"
                   "print(sqlite3.connect('file:data/catalog.db?mode=ro',uri=True).execute("
                   "'SELECT state FROM jobs ORDER BY seq DESC LIMIT 1').fetchone()[0])\"");
        assert_string_equal(seen, "x.tar\ndone");
        /* And for a client. */
        commit_faulted(world, "image.export", json_pack("{s:s}", "reference", "base:1"), fault);
        job_fixture_settle(world->node);
        commit_script(world, "cmp good.tar data/exports/j-*; rm data/exports/j-*");
        commit_check_agreement(world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_commit_world(test_an_oci_archive),
        with_commit_world(test_the_bytes_are_always_the_same),
        with_commit_world(test_a_snapshot),
        with_commit_world(test_for_a_client),
        with_commit_world(test_what_is_there_is_not_replaced),
        with_commit_world(test_requests_that_cannot_be_met),
        with_commit_world(test_not_into_the_nodes_own_directories),
        with_commit_world(test_damaged_blobs),
        with_commit_world(test_a_full_disk),
        with_commit_world(test_removal_meanwhile),
        with_commit_world(test_kill_at_each_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
