/* Many snapshots of one repository that are removed one by one. */
#include "snapshot_remote.h"

#include "catalog_leftover.h"
#include "cleanup.h"
#include "commit_fixture.h"
#include "fake_registry.h"
#include "push_fixture.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

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

/* Begins to remove it; the job's ID, which the caller frees. */
static char *begin_one(struct site *site, int number)
{
    char sid[16];
    char *id = NULL;
    struct err err = ERR_INIT;
    snprintf(sid, sizeof sid, "s%d", number);
    cleanup_json json_t *params = json_pack("{s:s}", "snapshot", sid);
    const struct job_request request = {.kind = "snapshot.rm", .params = params};
    if (engine_submit(site->world->engine, &request, &id, &err) < 0)
        fail_msg("%s", err.text);
    return id;
}

static enum catalog_job_state end_of(struct site *site, const char *id)
{
    struct catalog_job row = {0};
    assert_int_equal(engine_wait(site->world->engine, id, JOB_FIXTURE_WAIT_S, NULL), 1);
    assert_int_equal(catalog_job_get(site->world->node->catalog, id, &row, NULL), 0);
    enum catalog_job_state state = row.state;
    catalog_job_free(&row);
    return state;
}

static void await_request(struct site *site, const char *method, const char *path)
{
    while (fake_registry_count(site->fake, method, path) == 0)
        (void)usleep(1000);
}

/* The record says `pushed`, or that it is lost; -1: it is gone. */
static int is_lost(struct site *site, int number)
{
    char id[16];
    struct catalog_snapshot row = {0};
    snprintf(id, sizeof id, "s%d", number);
    if (catalog_snapshot_get(site->world->node->catalog, id, &row, NULL) < 0)
        return -1;
    assert_int_equal(row.durability, CATALOG_PUSHED);
    int lost = row.lost_ns > 0;
    catalog_snapshot_free(&row);
    return lost;
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

/* Whoever asks for the end while nothing was taken gets it, and the snapshot is what it was. */
static void test_cancelled_while_it_looks(void **state)
{
    struct site site;
    begin(&site, state, "{'settings':{'check_manifests':false}}");
    struct digest digest = snapshot(&site, 0);
    (void)put(&site, 100);
    assert_int_equal(fake_registry_config(site.fake,
                                          "{'rules':[{'method':'HEAD','path':'*/manifests/v100',"
                                          "'send_head':0,'end':'stall'}]}",
                                          NULL),
                     0);
    fake_registry_reset(site.fake);
    cleanup_free char *id = begin_one(&site, 0);
    await_request(&site, "HEAD", "*/manifests/v100");
    assert_true(engine_cancel(site.world->engine, id, 0, NULL) >= 0);
    assert_int_equal(end_of(&site, id), CATALOG_JOB_CANCELLED);
    assert_int_equal(is_lost(&site, 0), 0);
    assert_int_equal(fake_registry_config(site.fake, "{}", NULL), 0);
    assert_true(has_tag(&site, 0));
    assert_true(has(&site, digest_format(&digest).s));
    end(&site);
}

/* Its image is in the remote alone: once that was asked to take something, the job goes on. */
static void test_not_cancelled_once_something_may_be_gone(void **state)
{
    static const char *const configs[] = {
        "{'settings':{'check_manifests':false},'rules':[{'method':'DELETE','work':true,"
        "'delay_ms':500}]}",
        /* The tag alone. */
        "{'settings':{'check_manifests':false},'rules':[{'method':'DELETE','path':"
        "'*/manifests/v0','work':true,'delay_ms':500}]}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
        struct site site;
        struct err err = ERR_INIT;
        begin(&site, state, configs[i]);
        (void)snapshot(&site, 0);
        for (int k = 100; i == 1 && k < 130; k++)
            (void)put(&site, k);
        cleanup_free char *id = begin_one(&site, 0);
        await_request(&site, "DELETE", "*");
        assert_int_equal(is_lost(&site, 0), 1);
        assert_true(engine_cancel(site.world->engine, id, 0, &err) < 0);
        assert_int_equal(err.code, ERR_CONFLICT);
        assert_int_equal(end_of(&site, id), CATALOG_JOB_DONE);
        assert_int_equal(is_lost(&site, 0), -1);
        assert_false(has_tag(&site, 0));
        end(&site);
    }
}

/* What may be gone is not said to be there, whatever comes in between; it can be removed still. */
static void test_failed_once_something_may_be_gone(void **state)
{
    struct site site;
    begin(&site, state, "{'settings':{'check_manifests':false}}");
    static const char *const faults[] = {"snapshot.remote-settled=eio",
                                         "snapshot.remote-removed=eio"};
    for (int i = 0; i < (int)ARRAY_SIZE(faults); i++) {
        char id[16];
        (void)snapshot(&site, i);
        snprintf(id, sizeof id, "s%d", i);
        commit_faulted(site.world, "snapshot.rm", json_pack("{s:s}", "snapshot", id), faults[i]);
        assert_int_equal(is_lost(&site, i), 1);
        assert_int_equal(has_tag(&site, i), i == 0);
        assert_string_equal(remove_one(&site, i), i == 0 ? "removed" : "absent");
        assert_int_equal(is_lost(&site, i), -1);
    }
    (void)snapshot(&site, 9);
    commit_faulted(site.world, "snapshot.rm", json_pack("{s:s}", "snapshot", "s9"),
                   "snapshot.remote-settled=kill");
    job_fixture_settle(site.world->node);
    assert_int_equal(is_lost(&site, 9), -1);
    assert_false(has_tag(&site, 9));
    end(&site);
}

/* One that has waited for an hour, and so many other tags that nobody looks without such a one. */
static struct digest begin_late(struct site *site)
{
    struct digest digest = snapshot(site, 0);
    for (int i = 100; i < 160; i++)
        (void)put(site, i);
    assert_string_equal(remove_one(site, 0), "waits");
    site->world->node->clock.offset_ns += (SNAPSHOT_REMOTE_WAIT_S + 1) * CLOCK_NS_PER_S;
    return digest;
}

/* A tag that leads to nonsense, or that the registry cannot serve: the removal that has reason to
 * look goes on without, what waits stays, and the next one has no reason. */
static void test_a_look_that_fails(void **state)
{
    static const char *const rules[] = {
        "{'method':['GET','HEAD'],'path':'*/manifests/v110','status':400}",
        "{'method':'HEAD','path':'*/manifests/v110','headers':{'Content-Type':"
        "'application/vnd.oci.image.index.v1+json','Docker-Content-Digest':'sha256:"
        "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'}},"
        "{'method':'GET','path':'*/manifests/sha256:44136f*','status':200,'headers':"
        "{'Content-Type':'application/vnd.oci.image.index.v1+json'},'body':'junk'}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
        struct site site;
        char config[800];
        begin(&site, state, "{'settings':{'check_manifests':false}}");
        struct digest digest = begin_late(&site);
        (void)snapshot(&site, 1);
        (void)snapshot(&site, 2);
        snprintf(config, sizeof config, "{'settings':{'check_manifests':false},'rules':[%s]}",
                 rules[i]);
        assert_int_equal(fake_registry_config(site.fake, config, NULL), 0);
        const char *what = remove_one(&site, 1);
        if (strcmp(what, "waits") != 0 && strcmp(what, "kept") != 0)
            fail_msg("%s: %s", rules[i], what);
        assert_false(has_tag(&site, 1));
        assert_true(has(&site, digest_format(&digest).s));
        assert_true(count_waiting(&site) > 0);
        fake_registry_reset(site.fake);
        assert_string_equal(remove_one(&site, 2), "waits");
        assert_int_equal(fake_registry_count(site.fake, "HEAD", "*/manifests/v1??"), 0);
        site.world->node->clock.offset_ns = 0;
        end(&site);
    }
}

/* The log of the process while it is asked for. */
static int begin_log(struct site *site)
{
    int old = dup(STDERR_FILENO);
    int fd = open(scratch_path(site->world->scratch, "log"), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC,
                  0600);
    assert_true(old >= 0 && fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    (void)close(fd);
    return old;
}

static bool end_log(struct site *site, int old, const char *event, const char *word)
{
    assert_true(dup2(old, STDERR_FILENO) >= 0);
    (void)close(old);
    cleanup_free char *lines = commit_output(site->world, "cat log");
    const char *line = strstr(lines, event);
    return line && strstr(line, word);
}

/* What waited and cannot be deleted after all is not forgotten without a word. */
static void test_what_is_refused_later_is_told(void **state)
{
    struct site site;
    char config[300];
    begin(&site, state, "{'settings':{'check_manifests':false}}");
    struct digest digest = begin_late(&site);
    (void)snapshot(&site, 1);
    snprintf(config, sizeof config,
             "{'settings':{'check_manifests':false},'rules':[{'method':'DELETE','path':'*/%s',"
             "'status':403}]}",
             digest_format(&digest).s);
    assert_int_equal(fake_registry_config(site.fake, config, NULL), 0);
    int old = begin_log(&site);
    const char *what = remove_one(&site, 1);
    assert_true(end_log(&site, old, "remote-manifest-refused", digest_format(&digest).s));
    assert_string_equal(what, "removed");
    assert_int_equal(count_waiting(&site), 0);
    site.world->node->clock.offset_ns = 0;
    end(&site);
}

/* Several at once that all have reason to look at all tags: one does. */
static void test_one_look_for_several_at_once(void **state)
{
    enum {
        AT_ONCE = 4
    };
    struct site site;
    char *ids[AT_ONCE];
    begin(&site, state, "{'settings':{'check_manifests':false}}");
    (void)begin_late(&site);
    for (int i = 0; i < AT_ONCE; i++)
        (void)snapshot(&site, 1 + i);
    assert_int_equal(
        fake_registry_config(site.fake,
                             "{'settings':{'check_manifests':false},'rules':[{'method':"
                             "'GET','path':'*/tags/list*','delay_ms':300,'work':true}]}",
                             NULL),
        0);
    fake_registry_reset(site.fake);
    for (int i = 0; i < AT_ONCE; i++)
        ids[i] = begin_one(&site, 1 + i);
    for (int i = 0; i < AT_ONCE; i++) {
        assert_int_equal(end_of(&site, ids[i]), CATALOG_JOB_DONE);
        free(ids[i]);
    }
    assert_int_equal(fake_registry_count(site.fake, "HEAD", "*/manifests/v1??"), 60);
    site.world->node->clock.offset_ns = 0;
    end(&site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_commit_world(test_cancelled_while_it_looks),
        with_commit_world(test_not_cancelled_once_something_may_be_gone),
        with_commit_world(test_failed_once_something_may_be_gone),
        with_commit_world(test_a_look_that_fails),
        with_commit_world(test_what_is_refused_later_is_told),
        with_commit_world(test_one_look_for_several_at_once),
        with_commit_world(test_one_by_one),
        with_commit_world(test_one_by_one_where_no_tag_can_be_deleted),
        with_commit_world(test_what_waits_may_be_needed_again),
        with_commit_world(test_a_registry_that_deletes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
