/* Deleting what others still name, on registries that delete all, some or nothing. */
#include "clock.h"
#include "fake_fixture.h"
#include "registry_fixture.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct remote_deletion delete (struct remote *remote, const struct digest *digest,
                                      const char *tag)
{
    struct remote_deletion result;
    struct err err = ERR_INIT;
    if (remote_delete(remote, "a/n", digest, tag, NULL, NULL, &result, &err) < 0)
        fail_msg("%s", err.text);
    return result;
}

static void test_alone(void **state)
{
    struct fake_fixture *fixture = *state;
    struct digest digest = fake_fixture_image(fixture, "a/n", "s1", "one");
    (void)fake_fixture_image(fixture, "a/n", "other", "two");
    struct remote_deletion result = delete (fixture->remote, &digest, "s1");
    assert_int_equal(result.state, REMOTE_DELETED);
    assert_true(result.untagged);
    assert_false(fake_fixture_has(fixture, "a/n", "s1"));
    assert_false(fake_fixture_has(fixture, "a/n", digest_format(&digest).s));
    assert_true(fake_fixture_has(fixture, "a/n", "other"));
    result = delete (fixture->remote, &digest, "s1");
    assert_int_equal(result.state, REMOTE_ABSENT);
    assert_true(result.untagged);
}

/* Two names of one manifest: taking one away leaves the other, wherever tags can be deleted and
 * wherever they cannot. The last one takes the manifest along. */
static void test_two_tags(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char *const configs[] = {
        "{}",
        "{'settings':{'delete_tags':false}}",
        "{'settings':{'tags_page':1}}",
        /* The placeholder goes, and the answer is lost. */
        "{'settings':{'delete_tags':false},'rules':[{'method':'DELETE','path':"
        "'*/manifests/sha256:*','nth':1,'work':true,'send_head':0}]}",
        "{'rules':[{'method':'DELETE','path':'*/manifests/s1','status':405}]}",
        "{'rules':[{'method':'DELETE','path':'*/manifests/s1','status':404}]}",
        "{'rules':[{'method':'DELETE','path':'*/manifests/s1','status':400,'body':"
        "{'errors':[{'code':'UNSUPPORTED'}]}}]}",
        "{'settings':{'digest_header':false}}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
        struct digest digest = fake_fixture_image(fixture, "a/n", "s1", "one");
        (void)fake_fixture_image(fixture, "a/n", "s2", "one");
        fake_fixture_config(fixture, configs[i]);
        struct remote_deletion result = delete (fixture->remote, &digest, "s1");
        if (result.state != REMOTE_KEPT || !result.untagged)
            fail_msg("%s: %d %s", configs[i], (int)result.state, result.message);
        assert_non_null(strstr(result.message, "tag s2"));
        assert_false(fake_fixture_has(fixture, "a/n", "s1"));
        assert_true(fake_fixture_has(fixture, "a/n", "s2"));
        struct remote_tags tags;
        assert_int_equal(remote_tags_list(fixture->remote, "a/n", NULL, NULL, &tags, NULL), 0);
        assert_int_equal(tags.count, 1);
        remote_tags_free(&tags);
        result = delete (fixture->remote, &digest, "s2");
        assert_int_equal(result.state, REMOTE_DELETED);
        assert_false(fake_fixture_has(fixture, "a/n", digest_format(&digest).s));
    }
}

/* What an index names stays, also through another index. */
static void test_index(void **state)
{
    struct fake_fixture *fixture = *state;
    struct digest digest = fake_fixture_image(fixture, "a/n", "s1", "one");
    struct digest inner = fake_fixture_index(fixture, "a/n", NULL, &digest);
    (void)fake_fixture_index(fixture, "a/n", "multi", &inner);
    struct remote_deletion result = delete (fixture->remote, &digest, "s1");
    assert_int_equal(result.state, REMOTE_KEPT);
    assert_true(result.untagged);
    assert_non_null(strstr(result.message, "index multi"));
    assert_true(fake_fixture_has(fixture, "a/n", digest_format(&digest).s));
    struct digest outer;
    struct remote_manifest_stat stat;
    assert_int_equal(remote_manifest_stat(fixture->remote, "a/n", "multi", NULL, NULL, &stat, NULL),
                     0);
    outer = stat.digest;
    assert_int_equal(delete (fixture->remote, &outer, "multi").state, REMOTE_DELETED);
    assert_int_equal(delete (fixture->remote, &digest, NULL).state, REMOTE_DELETED);
}

/* A registry that deletes nothing is asked once, and nothing in it changes. */
static void test_a_registry_that_deletes_nothing(void **state)
{
    struct fake_fixture *fixture = *state;
    struct digest digest = fake_fixture_image(fixture, "a/n", "s1", "one");
    fake_fixture_config(fixture, "{'settings':{'delete':false}}");
    struct remote_deletion result = delete (fixture->remote, &digest, "s1");
    assert_int_equal(result.state, REMOTE_UNDELETED);
    assert_false(result.untagged);
    assert_non_null(strstr(result.message, "405"));
    assert_int_equal(fake_registry_count(fixture->fake, "DELETE", "*"), 1);
    result = delete (fixture->remote, &digest, "s1");
    assert_int_equal(result.state, REMOTE_UNDELETED);
    assert_non_null(strstr(result.message, "does not delete"));
    assert_int_equal(fake_registry_count(fixture->fake, "DELETE", "*"), 1);
    assert_true(fake_fixture_has(fixture, "a/n", "s1"));
    /* With a second tag neither tag changes what it names. */
    (void)fake_fixture_image(fixture, "a/n", "s2", "one");
    result = delete (fixture->remote, &digest, "s1");
    assert_int_equal(result.state, REMOTE_KEPT);
    assert_false(result.untagged);
    struct remote_manifest_stat stat;
    assert_int_equal(remote_manifest_stat(fixture->remote, "a/n", "s1", NULL, NULL, &stat, NULL),
                     0);
    assert_true(digest_equal(&stat.digest, &digest));
}

/* Only the attempt shows that nothing is deleted: the tag gets back what it had. */
static void test_a_tag_is_given_back(void **state)
{
    struct fake_fixture *fixture = *state;
    struct digest digest = fake_fixture_image(fixture, "a/n", "s1", "one");
    (void)fake_fixture_image(fixture, "a/n", "s2", "one");
    fake_fixture_config(fixture, "{'settings':{'delete_tags':false},'rules':[{'method':'DELETE',"
                                 "'path':'*/manifests/sha256:*','status':405}]}");
    struct remote_deletion result = delete (fixture->remote, &digest, "s1");
    assert_int_equal(result.state, REMOTE_KEPT);
    assert_false(result.untagged);
    struct remote_manifest_stat stat;
    assert_int_equal(remote_manifest_stat(fixture->remote, "a/n", "s1", NULL, NULL, &stat, NULL),
                     0);
    assert_true(digest_equal(&stat.digest, &digest));
}

/* A crash after the tag was given to its placeholder: the next attempt ends it. */
static void test_goes_on_after_a_crash(void **state)
{
    struct fake_fixture *fixture = *state;
    struct digest digest = fake_fixture_image(fixture, "a/n", "s1", "one");
    (void)fake_fixture_image(fixture, "a/n", "s2", "one");
    fake_fixture_config(fixture,
                        "{'settings':{'delete_tags':false},'rules':[{'method':'DELETE',"
                        "'path':'*/manifests/sha256:*','status':403},{'method':'PUT','nth':2,"
                        "'times':9,'status':403}]}");
    struct remote_deletion result = delete (fixture->remote, &digest, "s1");
    assert_false(result.untagged);
    assert_non_null(strstr(result.message, "lost"));
    struct remote_manifest_stat stat;
    assert_int_equal(remote_manifest_stat(fixture->remote, "a/n", "s1", NULL, NULL, &stat, NULL),
                     0);
    assert_false(digest_equal(&stat.digest, &digest));
    fake_fixture_config(fixture, "{'settings':{'delete_tags':false}}");
    result = delete (fixture->remote, &digest, "s1");
    assert_int_equal(result.state, REMOTE_KEPT);
    assert_true(result.untagged);
    assert_false(fake_fixture_has(fixture, "a/n", "s1"));
    assert_true(fake_fixture_has(fixture, "a/n", "s2"));
}

/* The tag was moved by somebody else: it is theirs now. */
static void test_a_tag_that_has_moved_on(void **state)
{
    struct fake_fixture *fixture = *state;
    struct digest digest = fake_fixture_image(fixture, "a/n", "s1", "one");
    (void)fake_fixture_image(fixture, "a/n", "s1", "two");
    assert_int_equal(delete (fixture->remote, &digest, "s1").state, REMOTE_DELETED);
    assert_true(fake_fixture_has(fixture, "a/n", "s1"));
    digest = fake_fixture_image(fixture, "a/n", "s2", "three");
    struct remote_deletion result = delete (fixture->remote, &digest, "s1");
    assert_int_equal(result.state, REMOTE_KEPT);
    assert_true(result.untagged);
    assert_true(fake_fixture_has(fixture, "a/n", "s1"));
    assert_true(fake_fixture_has(fixture, "a/n", "s2"));
}

/* It is moved between the first look and the placeholder's turn: no PUT takes it from its new
 * owner. The same when the placeholder cannot be deleted and would give the tag back. */
static void test_a_tag_that_moves_meanwhile(void **state)
{
    struct fake_fixture *fixture = *state;
    struct digest digest = fake_fixture_image(fixture, "a/n", "s1", "one");
    (void)fake_fixture_image(fixture, "a/n", "s2", "one");
    struct digest other = fake_fixture_image(fixture, "a/n", "other", "two");
    for (int look = 2; look <= 3; look++) {
        char rules[600];
        snprintf(rules, sizeof rules,
                 "{'settings':{'delete_tags':false},'rules':[{'method':'HEAD','path':"
                 "'*/manifests/s1','nth':%d,'times':9,'headers':{'Docker-Content-Digest':'%s'}},"
                 "{'method':'DELETE','path':'*/manifests/sha256:*','status':403}]}",
                 look, digest_format(&other).s);
        fake_fixture_config(fixture, rules);
        struct remote_deletion result = delete (fixture->remote, &digest, "s1");
        assert_int_equal(result.state, REMOTE_KEPT);
        assert_int_equal(result.untagged, look == 2);
        assert_null(strstr(result.message, "lost"));
        assert_int_equal(fake_registry_count(fixture->fake, "PUT", "*"), look - 2);
    }
}

/* Asks for the end once the registry has been sent such a request. */
struct stop_at {
    struct fake_registry *fake;
    const char *method;
    const char *path;
};

static int stop_at(void *arg, uint64_t done, uint64_t total)
{
    const struct stop_at *at = arg;
    (void)done, (void)total;
    return fake_registry_count(at->fake, at->method, at->path) > 0;
}

/* Neither silence nor a pause holds up whoever is told to stop; what is left in between is ended by
 * the next attempt. */
static void test_every_wait_can_be_ended(void **state)
{
    struct fake_fixture *fixture = *state;
    static const struct {
        const char *method;
        const char *path;
        const char *config;
    } cases[] = {
        {"DELETE", "*/manifests/s1", "{'rules':[{'method':'DELETE','send_head':0,'end':'stall'}]}"},
        {"DELETE", "*/manifests/s1", "{'rules':[{'method':'DELETE','status':503}]}"},
        {"PUT", "*/manifests/s1",
         "{'settings':{'delete_tags':false},'rules':[{'method':'PUT','send_head':0,'work':false,"
         "'end':'stall'}]}"},
        {"DELETE", "*/manifests/sha256:*",
         "{'settings':{'delete_tags':false},'rules':[{'method':'DELETE','path':"
         "'*/manifests/sha256:*','work':false,'send_head':0,'end':'stall'}]}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct digest digest = fake_fixture_image(fixture, "a/n", "s1", "one");
        (void)fake_fixture_image(fixture, "a/n", "s2", "one");
        fake_fixture_config(fixture, cases[i].config);
        struct stop_at at = {fixture->fake, cases[i].method, cases[i].path};
        struct remote_deletion result;
        struct err err = ERR_INIT;
        int64_t from = clock_now_ms();
        assert_true(
            remote_delete(fixture->remote, "a/n", &digest, "s1", stop_at, &at, &result, &err) < 0);
        if (err.code != ERR_CANCELLED)
            fail_msg("%s: %s", cases[i].config, err.text);
        assert_in_range(clock_now_ms() - from, 0, 10000);
        fake_fixture_config(fixture, "{'settings':{'delete_tags':false}}");
        assert_true(delete (fixture->remote, &digest, "s1").untagged);
        assert_false(fake_fixture_has(fixture, "a/n", "s1"));
        assert_true(fake_fixture_has(fixture, "a/n", "s2"));
    }
}

/* The last name goes with its manifest, and that can be ended, too. */
static void test_a_deletion_by_digest_can_be_ended(void **state)
{
    struct fake_fixture *fixture = *state;
    struct digest digest = fake_fixture_image(fixture, "a/n", "s1", "one");
    fake_fixture_config(fixture, "{'rules':[{'method':'DELETE','send_head':0,'end':'stall'}]}");
    struct stop_at at = {fixture->fake, "DELETE", "*"};
    struct err err = ERR_INIT;
    assert_true(remote_manifest_delete(fixture->remote, "a/n", &digest, stop_at, &at, &err) < 0);
    assert_int_equal(err.code, ERR_CANCELLED);
}

static void test_refusals(void **state)
{
    struct fake_fixture *fixture = *state;
    struct digest digest = fake_fixture_image(fixture, "a/n", "s1", "one");
    fake_fixture_config(fixture, "{'rules':[{'method':'DELETE','status':403}]}");
    assert_int_equal(delete (fixture->remote, &digest, "s1").state, REMOTE_UNDELETED);
    fake_fixture_config(fixture, "{'rules':[{'method':'DELETE','status':404}]}");
    assert_int_equal(delete (fixture->remote, &digest, "s1").state, REMOTE_ABSENT);
    fake_fixture_config(fixture, "{'rules':[{'method':'DELETE','status':400,'body':"
                                 "{'errors':[{'code':'UNSUPPORTED'}]}}]}");
    assert_int_equal(delete (fixture->remote, &digest, "s1").state, REMOTE_UNDELETED);
    const struct registry *registry = registry_of(fixture->remote);
    assert_true(registry_pool_traits(registry->pool, registry->base).no_delete);
}

/* --- several at once --- */

enum {
    OTHERS = 20, /* tags of other images */
};

static struct digest put_others(struct fake_fixture *fixture)
{
    struct digest digest;
    for (int i = 0; i < OTHERS; i++) {
        char tag[16];
        char text[16];
        snprintf(tag, sizeof tag, "o%02d", i);
        snprintf(text, sizeof text, "other %d", i);
        digest = fake_fixture_image(fixture, "a/n", tag, text);
    }
    return digest;
}

static void delete_some(struct fake_fixture *fixture, struct remote_unneeded *list, size_t count,
                        size_t looks_max)
{
    struct err err = ERR_INIT;
    const struct remote_deleting how = {.looks_max = looks_max};
    if (remote_delete_some(fixture->remote, "a/n", list, count, &how, &err) < 0)
        fail_msg("%s", err.text);
}

/* The list of tags is not fetched anew for each few of many deletions. */
static void test_many_deletions_fetch_few_lists(void **state)
{
    enum {
        TAGS = 1100,
        COUNT = 31
    };
    struct fake_fixture *fixture = *state;
    struct remote_unneeded list[COUNT];
    cleanup_json json_t *document = fake_fixture_document(fixture, "a/n", "other");
    for (int i = 0; i < TAGS; i++) {
        char tag[16];
        snprintf(tag, sizeof tag, "o%04d", i);
        (void)fake_fixture_put(fixture, "a/n", tag, document);
    }
    for (int i = 0; i < COUNT; i++) {
        char text[16];
        snprintf(text, sizeof text, "one %d", i);
        list[i] =
            (struct remote_unneeded){.digest = fake_fixture_image(fixture, "a/n", NULL, text)};
    }
    fake_fixture_config(fixture, "{}");
    delete_some(fixture, list, COUNT, SIZE_MAX);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(list[i].result.state, REMOTE_DELETED);
    /* The first one, and one each 16 deletions as it has two pages. */
    assert_int_equal(fake_registry_count(fixture->fake, "GET", "*/tags/list*"), 3 * 2);
}

static int refuse_to_begin(void *arg, struct err *err)
{
    ++*(int *)arg;
    return err_fail(err, ERR_CANCELLED, "not now");
}

/* Whoever has to be asked before is asked when the others are gone, and nothing of the first one
 * goes when that fails. */
static void test_asked_before_the_first_one_goes(void **state)
{
    struct fake_fixture *fixture = *state;
    (void)put_others(fixture);
    for (size_t looks_max = 1; looks_max <= 100; looks_max += 99) {
        int asked = 0;
        struct err err = ERR_INIT;
        struct remote_unneeded list[] = {
            {.digest = fake_fixture_image(fixture, "a/n", "s1", "one"), .tag = "s1"},
            {.digest = fake_fixture_image(fixture, "a/n", NULL, "goes")},
        };
        const struct remote_deleting how = {
            .looks_max = looks_max, .before = refuse_to_begin, .before_arg = &asked};
        assert_true(remote_delete_some(fixture->remote, "a/n", list, 2, &how, &err) < 0);
        assert_int_equal(err.code, ERR_CANCELLED);
        assert_int_equal(asked, 1);
        assert_true(fake_fixture_has(fixture, "a/n", "s1"));
        assert_int_equal(fake_fixture_has(fixture, "a/n", digest_format(&list[1].digest).s),
                         looks_max == 1);
    }
}

/* Too many tags: the own one goes, nobody is asked what the others name, and nothing else happens
 * to what waits. */
static void test_too_many_tags_to_look_at(void **state)
{
    struct fake_fixture *fixture = *state;
    (void)put_others(fixture);
    static const char *const configs[] = {"{}", "{'settings':{'delete_tags':false}}"};
    for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
        struct remote_unneeded list[2] = {
            {.digest = fake_fixture_image(fixture, "a/n", "s1", "one"), .tag = "s1"},
            {.digest = fake_fixture_image(fixture, "a/n", NULL, "two")},
        };
        fake_fixture_config(fixture, configs[i]);
        delete_some(fixture, list, 2, OTHERS - 1);
        assert_int_equal(list[0].result.state, REMOTE_WAITS);
        assert_true(list[0].result.untagged);
        assert_non_null(strstr(list[0].result.message, "20 tags"));
        assert_int_equal(list[1].result.state, REMOTE_WAITS);
        assert_int_equal(fake_registry_count(fixture->fake, NULL, "*/manifests/o*"), 0);
        assert_false(fake_fixture_has(fixture, "a/n", "s1"));
        for (int k = 0; k < 2; k++)
            assert_true(fake_fixture_has(fixture, "a/n", digest_format(&list[k].digest).s));
        list[0].tag = NULL;
        delete_some(fixture, list, 2, OTHERS);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(list[k].result.state, REMOTE_DELETED);
            assert_false(fake_fixture_has(fixture, "a/n", digest_format(&list[k].digest).s));
        }
    }
    struct remote_unneeded kept = {.digest = fake_fixture_image(fixture, "a/n", "s1", "one"),
                                   .tag = "s1"};
    fake_fixture_renew(fixture);
    fake_fixture_config(fixture, "{'settings':{'delete':false}}");
    delete_some(fixture, &kept, 1, 1);
    assert_int_equal(kept.result.state, REMOTE_UNDELETED);
    assert_true(fake_fixture_has(fixture, "a/n", "s1"));
}

/* One look decides for all: what a tag names, or an index, stays; one that cannot be removed now
 * stops no other. */
static void test_one_look_for_all(void **state)
{
    struct fake_fixture *fixture = *state;
    struct digest named = put_others(fixture);
    struct digest inner = fake_fixture_image(fixture, "a/n", "p1", "in an index");
    (void)fake_fixture_index(fixture, "a/n", "multi", &inner);
    struct remote_unneeded list[] = {
        {.digest = fake_fixture_image(fixture, "a/n", "s1", "one"), .tag = "s1"},
        {.digest = named},
        {.digest = fake_fixture_image(fixture, "a/n", NULL, "fails")},
        {.digest = inner, .tag = "p1", .keeps_tag = true},
        {.digest = fake_fixture_image(fixture, "a/n", "p2", "goes"),
         .tag = "p2",
         .keeps_tag = true},
        {.digest = fake_fixture_image(fixture, "a/n", NULL, "gone")},
    };
    static const enum remote_deleted states[] = {REMOTE_DELETED, REMOTE_KEPT,    REMOTE_WAITS,
                                                 REMOTE_KEPT,    REMOTE_DELETED, REMOTE_ABSENT};
    char config[400];
    snprintf(config, sizeof config,
             "{'rules':[{'method':'DELETE','path':'*/%s','status':500},{'method':'DELETE','path':"
             "'*/%s','status':404}]}",
             digest_format(&list[2].digest).s, digest_format(&list[5].digest).s);
    fake_fixture_config(fixture, config);
    delete_some(fixture, list, ARRAY_SIZE(list), SIZE_MAX);
    for (size_t i = 0; i < ARRAY_SIZE(list); i++)
        if (list[i].result.state != states[i])
            fail_msg("%zu: %d %s", i, (int)list[i].result.state, list[i].result.message);
    assert_non_null(strstr(list[2].result.message, "500"));
    assert_int_equal(fake_registry_count(fixture->fake, "HEAD", "*/manifests/o*"), OTHERS);
    assert_true(fake_fixture_has(fixture, "a/n", digest_format(&named).s));
    assert_true(fake_fixture_has(fixture, "a/n", "p1"));
    assert_false(fake_fixture_has(fixture, "a/n", "p2"));
}

/* Gives a manifest a new tag while others are being looked at. */
static void *name_it(void *arg)
{
    struct fake_fixture *fixture = arg;
    while (fake_registry_count(fixture->fake, "HEAD", "*/manifests/o10") == 0)
        (void)usleep(1000);
    (void)fake_fixture_image(fixture, "a/n", "new", "one");
    return NULL;
}

/* Another node pushes the same image under a name of its own while this one looks at all tags. */
static void test_a_tag_that_is_new_since_the_look(void **state)
{
    struct fake_fixture *fixture = *state;
    (void)put_others(fixture);
    struct digest digest = fake_fixture_image(fixture, "a/n", "s1", "one");
    pthread_t thread;
    fake_fixture_config(fixture, "{'rules':[{'method':'HEAD','path':'*/manifests/o10',"
                                 "'delay_ms':500}]}");
    assert_int_equal(pthread_create(&thread, NULL, name_it, fixture), 0);
    struct remote_deletion result = delete (fixture->remote, &digest, "s1");
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(result.state, REMOTE_KEPT);
    assert_true(result.untagged);
    assert_non_null(strstr(result.message, "tag new"));
    assert_true(fake_fixture_has(fixture, "a/n", "new"));
    assert_false(fake_fixture_has(fixture, "a/n", "s1"));
}

/* The real registry. */
static void test_docker_registry(void **state)
{
    (void)state;
    void *real_state = NULL;
    assert_int_equal(registry_real_setup(&real_state), 0);
    struct registry_real *real = real_state;
    struct fake_fixture fixture = {.remote = real->remote};
    struct digest digest = fake_fixture_image(&fixture, "a/n", "s1", "one");
    (void)fake_fixture_image(&fixture, "a/n", "s2", "one");
    (void)fake_fixture_index(&fixture, "a/n", "multi", &digest);
    struct remote_deletion result = delete (real->remote, &digest, "s1");
    assert_int_equal(result.state, REMOTE_KEPT);
    assert_true(result.untagged);
    assert_false(fake_fixture_has(&fixture, "a/n", "s1"));
    result = delete (real->remote, &digest, "s2");
    assert_int_equal(result.state, REMOTE_KEPT);
    assert_non_null(strstr(result.message, "index multi"));
    assert_true(result.untagged);
    assert_true(fake_fixture_has(&fixture, "a/n", digest_format(&digest).s));
    struct remote_manifest_stat stat;
    assert_int_equal(remote_manifest_stat(real->remote, "a/n", "multi", NULL, NULL, &stat, NULL),
                     0);
    assert_int_equal(delete (real->remote, &stat.digest, "multi").state, REMOTE_DELETED);
    assert_int_equal(delete (real->remote, &digest, NULL).state, REMOTE_DELETED);
    assert_int_equal(registry_real_teardown(&real_state), 0);
}

#define with_fake(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, fake_fixture_setup, fake_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fake(test_alone),
        with_fake(test_two_tags),
        with_fake(test_index),
        with_fake(test_a_registry_that_deletes_nothing),
        with_fake(test_a_tag_is_given_back),
        with_fake(test_goes_on_after_a_crash),
        with_fake(test_a_tag_that_has_moved_on),
        with_fake(test_a_tag_that_moves_meanwhile),
        with_fake(test_every_wait_can_be_ended),
        with_fake(test_a_deletion_by_digest_can_be_ended),
        with_fake(test_many_deletions_fetch_few_lists),
        with_fake(test_asked_before_the_first_one_goes),
        with_fake(test_refusals),
        with_fake(test_too_many_tags_to_look_at),
        with_fake(test_one_look_for_all),
        with_fake(test_a_tag_that_is_new_since_the_look),
        cmocka_unit_test(test_docker_registry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
