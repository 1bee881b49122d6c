/* What a remote loses, keeps from others, or only says that it has: no snapshot claims more than
 * can be read there, and none forgets what it left there. */
#include "push_image.h"

#include "catalog_event.h"
#include "catalog_job.h"
#include "cleanup.h"
#include "fake_registry.h"
#include "push_fixture.h"
#include "registry_server.h"
#include "snapshot.h"

#include <string.h>

/* A document that names nothing of ours. */
#define STRANGER                                                                                   \
    "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\","           \
    "\"config\":{\"mediaType\":\"application/vnd.oci.image.config.v1+json\",\"size\":2,"           \
    "\"digest\":\"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\"},"     \
    "\"layers\":[]}"

struct site {
    struct commit_world *world;
    struct fake_registry *fake;
    char url[64];
    json_t *snapshot;
};

/* The world on a fake registry, with a snapshot. */
static void begin(struct site *site, void **state)
{
    site->world = *state;
    assert_int_equal(fake_registry_start(NULL, "{}", &site->fake, NULL), 0);
    snprintf(site->url, sizeof site->url, "http://%s/varve", fake_registry_main(site->fake));
    push_fixture_use_remote(site->world, site->url);
    site->snapshot = push_fixture_snapshot(site->world);
}

static void end(struct site *site)
{
    push_fixture_use_remote(site->world, NULL);
    fake_registry_stop(site->fake);
    json_decref(site->snapshot);
}

static void rules(struct site *site, const char *config)
{
    struct err err = ERR_INIT;
    if (fake_registry_config(site->fake, config, &err) < 0)
        fail_msg("%s", err.text);
}

static json_t *push(struct site *site)
{
    return commit_done(site->world, "snapshot.push", push_fixture_of(site->snapshot));
}

static void push_fails(struct site *site, const char *code, const char *text)
{
    commit_fails(site->world, "snapshot.push", push_fixture_of(site->snapshot), code, text);
}

static void durability_is(struct site *site, enum catalog_durability expected)
{
    push_fixture_durability_is(site->world, site->snapshot, expected);
}

static int64_t events_of(struct site *site)
{
    char object[64];
    int64_t count = 0;
    snprintf(object, sizeof object, "snapshot:%s", layer_str(site->snapshot, "id"));
    assert_int_equal(catalog_event_count(site->world->node->catalog, object, &count, NULL), 0);
    return count;
}

/* Another node gives the tag away after this one has looked: it stays as it is. */
static void test_a_tag_that_is_taken_meanwhile(void **state)
{
    struct site site;
    begin(&site, state);
    struct remote *remote = site.world->node->remote;
    rules(&site, "{'settings':{'check_manifests':false}}");
    assert_int_equal(remote_manifest_put(remote, "varve/images/agent", "v1", NULL, STRANGER,
                                         strlen(STRANGER), NULL),
                     0);
    struct digest stranger;
    assert_int_equal(digest_bytes(STRANGER, strlen(STRANGER), &stranger, NULL), 0);
    /* One look is a HEAD and a GET when nothing is there. */
    rules(&site, "{'rules':[{'method':['HEAD','GET'],'path':'*/manifests/v1','nth':1,'times':2,"
                 "'status':404}]}");
    fake_registry_reset(site.fake);
    push_fails(&site, "exists", "stands for another image");
    assert_int_equal(fake_registry_count(site.fake, "PUT", "*/manifests/*"), 0);
    push_fixture_remote_has(site.world, digest_format(&stranger).s);
    durability_is(&site, CATALOG_LOCAL);
    commit_check_agreement(site.world);
    end(&site);
}

/* A push sees that something is gone, and cannot bring it back. */
static void test_what_is_seen_to_be_lost(void **state)
{
    static const struct {
        const char *rules;
        const char *code;
    } cases[] = {
        {"{'rules':[{'method':'HEAD','path':'*/blobs/*','status':404},"
         "{'method':'POST','status':403}]}",
         "denied"},
        {"{'rules':[{'method':['HEAD','GET'],'path':'*/manifests/v1','status':404},"
         "{'method':'PUT','path':'*/manifests/*','status':507}]}",
         "refused"},
        /* It says that it has what it does not give. */
        {"{'rules':[{'method':'GET','path':'*/blobs/*','send':0,'end':'close'},"
         "{'method':'POST','status':403}]}",
         "denied"},
    };
    struct site site;
    begin(&site, state);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        rules(&site, "{}");
        json_decref(push(&site));
        durability_is(&site, CATALOG_PUSHED);
        rules(&site, cases[i].rules);
        int64_t before = events_of(&site);
        push_fails(&site, cases[i].code, "cannot push snapshot");
        durability_is(&site, CATALOG_LOCAL);
        assert_int_equal(events_of(&site), before + 1);
    }
    commit_check_agreement(site.world);
    end(&site);
}

static void document_says(struct site *site, const char *durability)
{
    struct catalog_snapshot row = {0};
    assert_int_equal(catalog_snapshot_get(site->world->node->catalog,
                                          layer_str(site->snapshot, "id"), &row, NULL),
                     0);
    json_t *document = snapshot_json(site->world->node, &row);
    assert_string_equal(layer_str(document, "durability"), durability);
    json_decref(document);
    catalog_snapshot_free(&row);
}

/* The image is not here any more: nothing can be sent, but what was seen is recorded, once, and
 * taken back when all of it is there again. */
static void test_losses_without_the_local_image(void **state)
{
    static const char *const losses[] = {
        "{'rules':[{'method':'GET','path':'*/blobs/*','status':404}]}",
        "{'rules':[{'method':'GET','path':'*/manifests/sha256:*','status':404}]}",
    };
    struct site site;
    begin(&site, state);
    json_decref(push(&site));
    const char *digest = layer_str(site.snapshot, "digest");
    assert_int_equal(catalog_image_remove(site.world->node->catalog, digest, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(losses); i++) {
        int64_t before = events_of(&site);
        rules(&site, losses[i]);
        for (int again = 0; again < 2; again++) {
            push_fails(&site, "not_found", "cannot push snapshot");
            document_says(&site, "lost");
            assert_int_equal(events_of(&site), before + 1);
        }
        rules(&site, "{}");
        json_decref(push(&site));
        document_says(&site, "pushed");
    }
    /* Only the tag is gone: the manifest gets it again. */
    struct remote *remote = site.world->node->remote;
    rules(&site, "{'rules':[{'method':['HEAD','GET'],'path':'*/manifests/v1','nth':1,'times':4,"
                 "'status':404}]}");
    fake_registry_reset(site.fake);
    json_decref(push(&site));
    assert_int_equal(fake_registry_count(site.fake, "PUT", "*/manifests/v1"), 1);
    document_says(&site, "pushed");
    /* The tag is another's. */
    rules(&site, "{'settings':{'check_manifests':false}}");
    assert_int_equal(remote_manifest_put(remote, "varve/images/agent", "v1", NULL, STRANGER,
                                         strlen(STRANGER), NULL),
                     0);
    push_fails(&site, "exists", "stands for another image");
    document_says(&site, "lost");
    end(&site);
}

/* The manifest is up, and the proof fails: the snapshot is local, and its removal takes along what
 * is there. */
static void test_a_tag_that_was_left_behind(void **state)
{
    struct site site;
    begin(&site, state);
    rules(&site, "{'rules':[{'method':'GET','path':'*/blobs/*','status':403}]}");
    push_fails(&site, "denied", "cannot push snapshot");
    durability_is(&site, CATALOG_LOCAL);
    push_fixture_remote_has(site.world, layer_str(site.snapshot, "digest"));
    rules(&site, "{}");
    json_t *removed = commit_done(site.world, "snapshot.rm", push_fixture_of(site.snapshot));
    assert_string_equal(push_fixture_state_of(removed, "remote"), "removed");
    json_decref(removed);
    push_fixture_remote_has(site.world, "");
    commit_check_agreement(site.world);
    end(&site);
}

/* A registry that is down, or a login that is over, is no outcome of a removal: the record stays.
 */
static void test_removals_that_must_fail(void **state)
{
    static const struct {
        const char *rules;
        const char *code; /* NULL: it is an outcome */
    } cases[] = {
        {"{'rules':[{'path':'*/tags/list*','status':503,'headers':{'Retry-After':'86400'}}]}",
         "refused"},
        {"{'rules':[{'status':429,'headers':{'Retry-After':'86400'}}]}", "refused"},
        {"{'rules':[{'status':401}]}", "denied"},
        {"{'rules':[{'method':'DELETE','status':503,'headers':{'Retry-After':'86400'}}]}",
         "refused"},
        {"{'rules':[{'method':'DELETE','status':403}]}", NULL},
    };
    struct site site;
    begin(&site, state);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        rules(&site, "{}");
        json_decref(push(&site));
        rules(&site, cases[i].rules);
        if (cases[i].code) {
            commit_fails(site.world, "snapshot.rm", push_fixture_of(site.snapshot), cases[i].code,
                         "cannot remove snapshot");
            durability_is(&site, CATALOG_LOCAL); /* nobody knows */
            rules(&site, "{}");
            push_fixture_remote_has(site.world, layer_str(site.snapshot, "digest"));
        }
    }
    json_t *removed = commit_done(site.world, "snapshot.rm", push_fixture_of(site.snapshot));
    assert_string_equal(push_fixture_state_of(removed, "remote"), "refused");
    json_decref(removed);
    push_fixture_is_gone(site.world, site.snapshot);
    commit_check_agreement(site.world);
    end(&site);
}

/* The node changes its remote: the row tells of the new one, the result of what the old one keeps.
 */
static void test_another_remote(void **state)
{
    struct site site;
    begin(&site, state);
    json_t *params = push_fixture_of(site.snapshot);
    json_object_set_new(params, "durability", json_string("verified"));
    json_t *first = commit_done(site.world, "snapshot.push", params);
    assert_string_equal(layer_str(first, "durability"), "verified");
    assert_true(json_is_null(json_object_get(first, "left_in")));
    json_decref(first);
    push_fixture_use_remote(site.world, NULL);
    json_t *second = push(&site);
    assert_string_equal(layer_str(second, "durability"), "pushed");
    assert_string_equal(layer_str(second, "remote"), site.world->node->remote->url);
    assert_string_equal(layer_str(second, "left_in"), site.url);
    json_decref(second);
    durability_is(&site, CATALOG_PUSHED);
    json_t *again = push(&site);
    assert_true(json_is_null(json_object_get(again, "left_in")));
    json_decref(again);
    json_t *removed = commit_done(site.world, "snapshot.rm", push_fixture_of(site.snapshot));
    assert_string_equal(push_fixture_state_of(removed, "remote"), "removed");
    json_decref(removed);
    push_fixture_remote_has(site.world, "");
    commit_check_agreement(site.world);
    end(&site);
}

/* docker-registry keeps saying that it has what its collection has removed. */
static void test_a_real_registry_that_lost_files(void **state)
{
    struct commit_world *world = *state;
    struct registry_server server;
    char url[64];
    commit_script(world, "mkdir registry");
    const struct registry_server_options options = {.delete_enabled = true};
    assert_int_equal(
        registry_server_start(scratch_path(world->scratch, "registry"), &options, &server, NULL),
        0);
    snprintf(url, sizeof url, "http://%s/varve", server.host);
    push_fixture_use_remote(world, url);
    json_t *snapshot = push_fixture_snapshot(world);
    json_decref(commit_done(world, "snapshot.push", push_fixture_of(snapshot)));
    const char *layer =
        json_string_value(json_array_get(json_object_get(snapshot, "layers"), 1)) + 7;
    cleanup_free char *remove = NULL;
    assert_true(asprintf(&remove, "rm $(find registry -path '*/%s/data')", layer) > 0);
    commit_script(world, remove);
    json_t *again = commit_done(world, "snapshot.push", push_fixture_of(snapshot));
    assert_true(json_integer_value(json_object_get(again, "bytes_sent")) > 3000000);
    json_decref(again);
    push_fixture_durability_is(world, snapshot, CATALOG_PUSHED);
    cleanup_free char *check = NULL;
    assert_true(asprintf(&check,
                         "test $(sha256sum <$(find registry -path '*/%s/data') | cut -c1-64)"
                         " = %s",
                         layer, layer) > 0);
    commit_script(world, check);
    registry_server_stop(&server);
    json_decref(snapshot);
    push_fixture_use_remote(world, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_commit_world(test_a_tag_that_is_taken_meanwhile),
        with_commit_world(test_what_is_seen_to_be_lost),
        with_commit_world(test_losses_without_the_local_image),
        with_commit_world(test_a_tag_that_was_left_behind),
        with_commit_world(test_removals_that_must_fail),
        with_commit_world(test_another_remote),
        with_commit_world(test_a_real_registry_that_lost_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
