/* Many snapshots of one repository that are removed one by one. */
#include "snapshot_remote.h"

#include "catalog_leftover.h"
#include "cleanup.h"
#include "commit_fixture.h"
#include "fake_registry.h"
#include "push_fixture.h"

#include <string.h>

enum {
    MANY = 120,
    REPOSITORY_REQUESTS = 12, /* for one removal besides looks at other tags, at most */
};

struct site {
    struct commit_world *world;
    struct fake_registry *fake;
    char url[64];
};

static void begin(struct site *site, void **state, const char *config)
{
    site->world = *state;
    assert_int_equal(fake_registry_start(NULL, config, &site->fake, NULL), 0);
    snprintf(site->url, sizeof site->url, "http://%s/varve", fake_registry_main(site->fake));
    push_fixture_use_remote(site->world, site->url);
}

static void end(struct site *site)
{
    push_fixture_use_remote(site->world, NULL);
    fake_registry_stop(site->fake);
}

/* Stores a manifest of its own under the tag "vN". */
static struct digest put(struct site *site, int number)
{
    char text[400];
    char tag[16];
    struct digest digest;
    struct err err = ERR_INIT;
    snprintf(tag, sizeof tag, "v%d", number);
    snprintf(text, sizeof text,
             "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\","
             "\"config\":{\"mediaType\":\"application/vnd.oci.image.config.v1+json\",\"size\":2,"
             "\"digest\":\"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
             "\"},\"layers\":[],\"annotations\":{\"n\":\"%d\"}}",
             number);
    if (remote_manifest_put(site->world->node->remote, "varve/images/many", tag, NULL, text,
                            strlen(text), &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(digest_bytes(text, strlen(text), &digest, NULL), 0);
    return digest;
}

/* The same as a snapshot that was pushed; its image is not here any more. */
static struct digest snapshot(struct site *site, int number)
{
    char id[16];
    char tag[16];
    struct digest digest = put(site, number);
    struct digest_text image = digest_format(&digest);
    snprintf(id, sizeof id, "s%d", number);
    snprintf(tag, sizeof tag, "v%d", number);
    struct catalog_snapshot row = {.id = id,
                                   .run_id = (char *)"r1",
                                   .image = image.s,
                                   .repository = (char *)"varve/images/many",
                                   .tag = tag,
                                   .durability = CATALOG_PUSHED,
                                   .remote = site->url};
    assert_int_equal(catalog_snapshot_add(site->world->node->catalog, &row, NULL), 0);
    return digest;
}

/* Removes it; what became of it in the remote. */
static const char *remove_one(struct site *site, int number)
{
    static char state[16];
    char id[16];
    snprintf(id, sizeof id, "s%d", number);
    json_t *result = commit_done(site->world, "snapshot.rm", json_pack("{s:s}", "snapshot", id));
    snprintf(state, sizeof state, "%s", push_fixture_state_of(result, "remote"));
    json_decref(result);
    return state;
}

static bool has(struct site *site, const char *reference)
{
    struct remote_manifest_stat stat;
    return remote_manifest_stat(site->world->node->remote, "varve/images/many", reference, NULL,
                                NULL, &stat, NULL) == 0;
}

static bool has_tag(struct site *site, int number)
{
    char tag[16];
    snprintf(tag, sizeof tag, "v%d", number);
    return has(site, tag);
}

static size_t count_waiting(struct site *site)
{
    struct catalog_leftover *list = NULL;
    size_t count = 0;
    assert_int_equal(catalog_leftover_list(site->world->node->catalog, site->url,
                                           "varve/images/many", 100000, &list, &count, NULL),
                     0);
    catalog_leftover_free_list(list, count);
    return count;
}

/* So many requests for each, however many others there are, and at the end nothing is left. */
static void removed_one_by_one(void **state, const char *config)
{
    struct site site;
    struct digest digests[MANY];
    begin(&site, state, config);
    for (int i = 0; i < MANY; i++)
        digests[i] = snapshot(&site, i);
    fake_registry_reset(site.fake);
    size_t waited = 0;
    for (int i = 0; i < MANY; i++) {
        const char *what = remove_one(&site, i);
        bool waits = strcmp(what, "waits") == 0;
        if (!waits && strcmp(what, "removed") != 0)
            fail_msg("%d: %s", i, what);
        waited += waits;
    }
    size_t requests = fake_registry_count(site.fake, NULL, "*");
    if (requests > (size_t)MANY * (SNAPSHOT_REMOTE_LOOKS + REPOSITORY_REQUESTS))
        fail_msg("%zu requests for %d removals", requests, MANY);
    assert_in_range(waited, 1, MANY - 1);
    assert_int_equal(count_waiting(&site), 0);
    for (int i = 0; i < MANY; i++) {
        assert_false(has_tag(&site, i));
        assert_false(has(&site, digest_format(&digests[i]).s));
    }
    end(&site);
}

static void test_one_by_one(void **state)
{
    removed_one_by_one(state, "{'settings':{'check_manifests':false}}");
}

static void test_one_by_one_where_no_tag_can_be_deleted(void **state)
{
    removed_one_by_one(state, "{'settings':{'check_manifests':false,'delete_tags':false}}");
}

/* What waits is looked for again: a tag that another node gave to it meanwhile, by which it is
 * needed, is seen when it is due, and one that waited for long is due. */
static void test_what_waits_may_be_needed_again(void **state)
{
    struct site site;
    struct digest digests[3];
    begin(&site, state, "{'settings':{'check_manifests':false}}");
    for (int i = 0; i < 3; i++)
        digests[i] = snapshot(&site, i);
    for (int i = 100; i < 160; i++)
        (void)put(&site, i);
    fake_registry_reset(site.fake);
    assert_string_equal(remove_one(&site, 0), "waits");
    assert_string_equal(remove_one(&site, 1), "waits");
    assert_int_equal(fake_registry_count(site.fake, "HEAD", "*/manifests/v1??"), 0);
    assert_int_equal(count_waiting(&site), 2);
    assert_false(has_tag(&site, 0));
    assert_true(has(&site, digest_format(&digests[0]).s));
    /* As `skopeo copy` does: the manifest gets a name that another one had. */
    struct remote_manifest manifest;
    struct remote *remote = site.world->node->remote;
    assert_int_equal(remote_manifest_get(remote, "varve/images/many", digest_format(&digests[0]).s,
                                         &manifest, NULL),
                     0);
    assert_int_equal(remote_manifest_put(remote, "varve/images/many", "v110", NULL, manifest.bytes,
                                         manifest.len, NULL),
                     0);
    remote_manifest_free(&manifest);
    site.world->node->clock.offset_ns += (SNAPSHOT_REMOTE_WAIT_S + 1) * CLOCK_NS_PER_S;
    assert_string_equal(remove_one(&site, 2), "removed");
    site.world->node->clock.offset_ns = 0;
    assert_int_equal(count_waiting(&site), 0);
    assert_true(has(&site, digest_format(&digests[0]).s));
    assert_true(has_tag(&site, 110));
    assert_false(has(&site, digest_format(&digests[1]).s));
    assert_false(has(&site, digest_format(&digests[2]).s));
    end(&site);
}

/* Where nothing can be deleted nobody waits, and nothing is asked for in vain. */
static void test_a_registry_that_deletes_nothing(void **state)
{
    struct site site;
    begin(&site, state, "{'settings':{'check_manifests':false,'delete':false}}");
    (void)snapshot(&site, 0);
    for (int i = 100; i < 130; i++)
        (void)put(&site, i);
    assert_string_equal(remove_one(&site, 0), "refused");
    assert_int_equal(count_waiting(&site), 0);
    assert_true(has_tag(&site, 0));
    end(&site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_commit_world(test_one_by_one),
        with_commit_world(test_one_by_one_where_no_tag_can_be_deleted),
        with_commit_world(test_what_waits_may_be_needed_again),
        with_commit_world(test_a_registry_that_deletes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
