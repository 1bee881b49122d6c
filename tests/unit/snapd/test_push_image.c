/* Pushes to a registry that is slow, loses things, or has other writers. */
#include "push_image.h"

#include "catalog_job.h"
#include "cleanup.h"
#include "fake_registry.h"
#include "push_fixture.h"

#include <string.h>

/* What comes back with other bytes, or not at all although it is there by its HEAD, is sent once
 * more and proved again; once. */
static void test_a_proof_that_fails_is_mended(void **state)
{
    struct commit_world *world = *state;
    static const struct {
        const char *rules;
        bool mends;
        size_t again; /* blobs that are sent again */
    } cases[] = {
        {"{'rules':[{'method':'GET','path':'*/blobs/sha256:*','nth':1,'flip':50}]}", true, 1},
        /* Not visible yet, which is looked at again; and not for longer than that. */
        {"{'rules':[{'method':'GET','path':'*/blobs/sha256:*','nth':2,'status':404}]}", true, 0},
        {"{'rules':[{'method':'GET','path':'*/blobs/sha256:*','nth':1,'times':4,'status':404}]}",
         true, 0},
        {"{'rules':[{'method':'HEAD','path':'*/blobs/*','nth':4,'times':4,'status':404}]}", true,
         0},
        {"{'rules':[{'method':'GET','path':'*/manifests/"
         "sha256:*','nth':1,'times':4,'status':404}]}",
         true, 0},
        {"{'rules':[{'method':['HEAD','GET'],'path':'*/manifests/v1','nth':5,'times':8,"
         "'status':404}]}",
         true, 0},
        {"{'rules':[{'method':'GET','path':'*/blobs/sha256:*','flip':50}]}", false, 0},
    };
    json_t *snapshot = push_fixture_snapshot(world);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fake_registry *fake;
        char url[64];
        assert_int_equal(fake_registry_start(NULL, cases[i].rules, &fake, NULL), 0);
        snprintf(url, sizeof url, "http://%s/varve", fake_registry_main(fake));
        push_fixture_use_remote(world, url);
        json_t *params = push_fixture_of(snapshot);
        json_object_set_new(params, "durability", json_string("verified"));
        struct catalog_job job = commit_job(world, "snapshot.push", params);
        if ((job.state == CATALOG_JOB_DONE) != cases[i].mends)
            fail_msg("%s: %s", cases[i].rules, job.error_message ? job.error_message : "done");
        if (cases[i].mends)
            assert_int_equal(fake_registry_count(fake, "PUT", "*/blobs/*"), 3 + cases[i].again);
        else
            assert_string_equal(job.error_code, "digest_mismatch");
        catalog_job_free(&job);
        json_decref(params);
        push_fixture_use_remote(world, NULL);
        fake_registry_stop(fake);
    }
    json_decref(snapshot);
}

/* A remote that loses what it had: the snapshot is no longer said to be there, and the image that
 * is here is kept. What is left in the remote goes with the snapshot. */
static void test_a_loss_is_recorded(void **state)
{
    struct commit_world *world = *state;
    struct fake_registry *fake;
    char url[64];
    assert_int_equal(fake_registry_start(NULL, NULL, &fake, NULL), 0);
    snprintf(url, sizeof url, "http://%s/varve", fake_registry_main(fake));
    push_fixture_use_remote(world, url);
    json_t *snapshot = push_fixture_snapshot(world);
    const char *digest = layer_str(snapshot, "digest");
    json_decref(commit_done(world, "snapshot.push", push_fixture_of(snapshot)));
    push_fixture_durability_is(world, snapshot, CATALOG_PUSHED);
    static const char *const rules[] = {
        /* Nobody knows whether it is there. */
        "{'rules':[{'method':'HEAD','path':'*/blobs/*','status':403}]}",
        "{'rules':[{'method':'GET','path':'*/blobs/*','status':404}]}"};
    for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
        assert_int_equal(fake_registry_config(fake, rules[i], NULL), 0);
        commit_fails(world, "snapshot.push", push_fixture_of(snapshot), i ? "refused" : "denied",
                     "blob");
        push_fixture_durability_is(world, snapshot, i ? CATALOG_LOCAL : CATALOG_PUSHED);
    }
    struct err err = ERR_INIT;
    assert_true(catalog_image_remove(world->node->catalog, digest, &err) < 0);
    assert_non_null(strstr(err.text, "the only copy"));
    assert_int_equal(fake_registry_config(fake, "{}", NULL), 0);
    json_t *removed = commit_done(world, "snapshot.rm", push_fixture_of(snapshot));
    assert_string_equal(push_fixture_state_of(removed, "remote"), "removed");
    json_decref(removed);
    json_decref(snapshot);
    push_fixture_use_remote(world, NULL);
    fake_registry_stop(fake);
}

/* Submits as the API does. Caller frees the ID. */
static char *submit_create(struct commit_world *world, const char *name, const char *durability)
{
    json_t *params =
        json_pack("{s:s, s:s, s:s}", "run", "r1", "name", name, "durability", durability);
    const struct job_request request = {
        .kind = "snapshot.create", .object = "run:r1", .params = params};
    char *id = NULL;
    struct err err = ERR_INIT;
    if (engine_submit(world->engine, &request, &id, &err) < 0)
        fail_msg("%s", err.text);
    json_decref(params);
    return id;
}

/* While a snapshot is on its way to a slow registry, the run can be used: a second one is made. A
 * restart in between goes on with the push, and touches the run no more. */
static void test_a_push_leaves_the_run_alone(void **state)
{
    struct commit_world *world = *state;
    struct fake_registry *fake;
    char url[64];
    assert_int_equal(fake_registry_start(NULL,
                                         "{'rules':[{'method':'PUT','path':'*/blobs/*',"
                                         "'delay_read_ms':600000}]}",
                                         &fake, NULL),
                     0);
    snprintf(url, sizeof url, "http://%s/varve", fake_registry_main(fake));
    push_fixture_use_remote(world, url);
    json_decref(push_fixture_snapshot(world));
    cleanup_free char *slow = submit_create(world, "agent:v2", "pushed");
    while (fake_registry_count(fake, "PUT", "*") == 0)
        assert_int_equal(engine_wait(world->engine, slow, 0, NULL), 0);
    cleanup_free char *second = submit_create(world, "agent:v3", "local");
    assert_int_equal(engine_wait(world->engine, second, 60, NULL), 1);
    struct catalog_job row = {0};
    assert_int_equal(catalog_job_get(world->node->catalog, second, &row, NULL), 0);
    assert_int_equal(row.state, CATALOG_JOB_DONE);
    catalog_job_free(&row);
    assert_int_equal(engine_wait(world->engine, slow, 0, NULL), 0);
    assert_int_equal(catalog_job_get(world->node->catalog, slow, &row, NULL), 0);
    char object[64];
    snprintf(object, sizeof object, "snapshot:s%s", strchr(slow, '-'));
    assert_string_equal(row.object, object);
    catalog_job_free(&row);
    commit_world_stop(world);
    assert_int_equal(fake_registry_config(fake, "{}", NULL), 0);
    commit_world_start(world);
    assert_int_equal(engine_wait(world->engine, slow, 60, NULL), 1);
    assert_int_equal(catalog_job_get(world->node->catalog, slow, &row, NULL), 0);
    assert_int_equal(row.state, CATALOG_JOB_DONE);
    assert_non_null(strstr(row.result, "\"pushed\""));
    catalog_job_free(&row);
    struct catalog_snapshot *rows = NULL;
    size_t count = 0;
    assert_int_equal(catalog_snapshot_list(world->node->catalog, &rows, &count, NULL), 0);
    assert_int_equal(count, 3);
    for (size_t i = 0; i < count; i++)
        catalog_snapshot_free(&rows[i]);
    free(rows);
    commit_check_agreement(world);
    push_fixture_use_remote(world, NULL);
    fake_registry_stop(fake);
}

/* A kill before the run is given back, and one after it: the snapshot is made once, and pushed. */
static void test_kills_between_snapshot_and_push(void **state)
{
    struct commit_world *world = *state;
    static const char *const faults[] = {"snapshot.recorded=kill", "snapshot.run-released=kill",
                                         "snapshot.blobs-sent=kill"};
    json_decref(push_fixture_snapshot(world));
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        char name[32];
        snprintf(name, sizeof name, "agent:k%zu", i);
        commit_faulted(
            world, "snapshot.create",
            json_pack("{s:s, s:s, s:s}", "run", "r1", "name", name, "durability", "pushed"),
            faults[i]);
        commit_check_agreement(world);
        struct catalog_snapshot *rows = NULL;
        size_t count = 0;
        assert_int_equal(catalog_snapshot_list(world->node->catalog, &rows, &count, NULL), 0);
        assert_int_equal(count, i + 2);
        assert_string_equal(rows[0].tag, name + strlen("agent:"));
        assert_int_equal(rows[0].durability, CATALOG_PUSHED);
        for (size_t j = 0; j < count; j++)
            catalog_snapshot_free(&rows[j]);
        free(rows);
    }
}

#define OTHER_HEAD                                                                                 \
    "{'rules':[{'method':'HEAD','path':'*/manifests/v1','headers':{'Docker-Content-Digest':"       \
    "'sha256:0000000000000000000000000000000000000000000000000000000000000000'}}"

/* Two nodes write one tag at the same time, and the other one comes last: this snapshot is not
 * pushed, and the job says what the remote has. A HEAD that is only late is no loss. */
static void test_a_tag_that_another_writer_takes(void **state)
{
    static const char *const rules[] = {
        OTHER_HEAD
        ",{'method':'GET','path':'*/manifests/v1','nth':3,'status':200,'headers':{'Content-Type':"
        "'application/vnd.oci.image.manifest.v1+json'},'body':{'schemaVersion':2,'config':"
        "{'mediaType':'application/vnd.oci.image.config.v1+json','size':2,'digest':'sha256:"
        "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'},'layers':[]}}]}",
        OTHER_HEAD "]}"};
    struct commit_world *world = *state;
    struct fake_registry *fake;
    char url[64];
    assert_int_equal(fake_registry_start(NULL, NULL, &fake, NULL), 0);
    snprintf(url, sizeof url, "http://%s/varve", fake_registry_main(fake));
    push_fixture_use_remote(world, url);
    json_t *snapshot = push_fixture_snapshot(world);
    for (size_t late = 0; late < 2; late++) {
        assert_int_equal(fake_registry_config(fake, rules[late], NULL), 0);
        json_t *params = push_fixture_of(snapshot);
        struct catalog_job job = commit_job(world, "snapshot.push", params);
        if (late) {
            assert_int_equal(job.state, CATALOG_JOB_DONE);
        } else {
            assert_string_equal(job.error_code, "exists");
            assert_non_null(strstr(job.error_message, "another writer has given the tag 'v1'"));
            assert_non_null(strstr(job.error_hint, layer_str(snapshot, "digest")));
        }
        push_fixture_durability_is(world, snapshot, late ? CATALOG_PUSHED : CATALOG_LOCAL);
        catalog_job_free(&job);
        json_decref(params);
    }
    json_decref(snapshot);
    push_fixture_use_remote(world, NULL);
    fake_registry_stop(fake);
}

int main(void)
{
    (void)setenv("VARVE_REGISTRY_LAG_MS", "1", 1);
    const struct CMUnitTest tests[] = {
        with_commit_world(test_a_proof_that_fails_is_mended),
        with_commit_world(test_a_loss_is_recorded),
        with_commit_world(test_a_push_leaves_the_run_alone),
        with_commit_world(test_kills_between_snapshot_and_push),
        with_commit_world(test_a_tag_that_another_writer_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
