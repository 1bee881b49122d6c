#include "fake_fixture.h"
#include "json_doc.h"
#include "oci_image.h"
#include "registry_fixture.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Stores a manifest that refers to `subject`. */
static struct digest refer(struct fake_fixture *fixture, const char *tag, const char *text,
                           const char *type, const struct digest *subject)
{
    cleanup_json json_t *document = fake_fixture_document(fixture, "a/n", text);
    json_object_set_new(document, "artifactType", json_string(type));
    json_object_set_new(document, "annotations", json_pack("{s:s}", "says", text));
    json_object_set_new(document, "subject",
                        json_pack("{s:s, s:s, s:i}", "mediaType", OCI_MEDIA_MANIFEST, "digest",
                                  digest_format(subject).s, "size", 1));
    return fake_fixture_put(fixture, "a/n", tag, document);
}

static bool lists(const struct remote_referrers *referrers, const struct digest *digest,
                  const char *type)
{
    for (size_t i = 0; i < referrers->count; i++)
        if (digest_equal(&referrers->list[i].descriptor.digest, digest) &&
            strcmp(referrers->list[i].artifact_type, type) == 0)
            return true;
    return false;
}

static void has_both(struct fake_fixture *fixture, const struct digest *subject,
                     const struct digest *one, const struct digest *two)
{
    struct remote_referrers referrers;
    struct err err = ERR_INIT;
    if (remote_referrers_list(fixture->remote, "a/n", subject, NULL, NULL, NULL, &referrers, &err) <
        0)
        fail_msg("%s", err.text);
    assert_int_equal(referrers.count, 2);
    assert_true(lists(&referrers, one, "application/x.one"));
    assert_true(lists(&referrers, two, "application/x.two"));
    remote_referrers_free(&referrers);
    assert_int_equal(remote_referrers_list(fixture->remote, "a/n", subject, "application/x.two",
                                           NULL, NULL, &referrers, NULL),
                     0);
    assert_int_equal(referrers.count, 1);
    assert_true(lists(&referrers, two, "application/x.two"));
    remote_referrers_free(&referrers);
}

/* With the API and without: the same list. */
static void test_both_ways(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char *const configs[] = {"{}", "{'settings':{'referrers':false}}"};
    for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
        struct digest subject = fake_fixture_image(fixture, "a/n", "s", i ? "without" : "with");
        struct remote_referrers none;
        fake_fixture_config(fixture, configs[i]);
        assert_int_equal(
            remote_referrers_list(fixture->remote, "a/n", &subject, NULL, NULL, NULL, &none, NULL),
            0);
        assert_int_equal(none.count, 0);
        remote_referrers_free(&none);
        struct digest one = refer(fixture, "one", "1", "application/x.one", &subject);
        struct digest two = refer(fixture, NULL, "2", "application/x.two", &subject);
        has_both(fixture, &subject, &one, &two);
        /* Once more changes nothing. */
        (void)refer(fixture, "one", "1", "application/x.one", &subject);
        has_both(fixture, &subject, &one, &two);
        char tag[80];
        snprintf(tag, sizeof tag, "sha256-%s", digest_hex(&subject).s);
        assert_int_equal(fake_fixture_has(fixture, "a/n", tag), i == 1);
    }
}

/* What others wrote into the list stays as it is. */
static void test_entries_of_others_are_kept(void **state)
{
    struct fake_fixture *fixture = *state;
    struct digest subject = fake_fixture_image(fixture, "a/n", "s", "it");
    struct digest other = fake_fixture_image(fixture, "a/n", "o", "other");
    struct remote_manifest_stat stat;
    assert_int_equal(remote_manifest_stat(fixture->remote, "a/n", "o", NULL, NULL, &stat, NULL), 0);
    char tag[80];
    snprintf(tag, sizeof tag, "sha256-%s", digest_hex(&subject).s);
    cleanup_json json_t *index =
        json_pack("{s:i, s:s, s:[{s:s, s:s, s:I, s:s, s:{s:s}}], s:{s:s}}", "schemaVersion", 2,
                  "mediaType", OCI_MEDIA_INDEX, "manifests", "mediaType", OCI_MEDIA_MANIFEST,
                  "digest", digest_format(&other).s, "size", (json_int_t)stat.size, "artifactType",
                  "application/x.o", "annotations", "k", "v", "annotations", "whole", "kept");
    fake_fixture_config(fixture, "{'settings':{'referrers':false}}");
    (void)fake_fixture_put(fixture, "a/n", tag, index);
    struct digest one = refer(fixture, NULL, "1", "application/x.one", &subject);
    struct remote_manifest there;
    assert_int_equal(remote_manifest_get(fixture->remote, "a/n", tag, &there, NULL), 0);
    cleanup_json json_t *now = json_loadb(there.bytes, there.len, 0, NULL);
    remote_manifest_free(&there);
    assert_true(
        json_equal(json_object_get(now, "annotations"), json_object_get(index, "annotations")));
    const json_t *manifests = json_object_get(now, "manifests");
    assert_int_equal(json_array_size(manifests), 2);
    assert_true(json_equal(json_array_get(manifests, 0),
                           json_array_get(json_object_get(index, "manifests"), 0)));
    const json_t *added = json_array_get(manifests, 1);
    assert_string_equal(json_string_value(json_object_get(added, "digest")), digest_format(&one).s);
    assert_string_equal(json_string_value(json_object_get(added, "artifactType")),
                        "application/x.one");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(added, "annotations"), "says")), "1");
}

/* Another tool has an image under the tag of the list: that is an error, and it stays. */
static void test_no_index_under_the_tag(void **state)
{
    struct fake_fixture *fixture = *state;
    struct digest subject = fake_fixture_image(fixture, "a/n", "s", "it");
    char tag[80];
    snprintf(tag, sizeof tag, "sha256-%s", digest_hex(&subject).s);
    struct digest image = fake_fixture_image(fixture, "a/n", tag, "an image");
    fake_fixture_config(fixture, "{'settings':{'referrers':false}}");
    struct remote_referrers referrers;
    struct err err = ERR_INIT;
    assert_true(remote_referrers_list(fixture->remote, "a/n", &subject, NULL, NULL, NULL,
                                      &referrers, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    err_clear(&err);
    cleanup_json json_t *document = fake_fixture_document(fixture, "a/n", "1");
    json_object_set_new(document, "subject",
                        json_pack("{s:s, s:s, s:i}", "mediaType", OCI_MEDIA_MANIFEST, "digest",
                                  digest_format(&subject).s, "size", 1));
    cleanup_free char *bytes = json_doc_dump(document);
    assert_true(remote_manifest_put(fixture->remote, "a/n", "r", NULL, bytes, strlen(bytes), &err) <
                0);
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_non_null(strstr(err.text, tag));
    struct remote_manifest_stat stat;
    assert_int_equal(remote_manifest_stat(fixture->remote, "a/n", tag, NULL, NULL, &stat, NULL), 0);
    assert_true(digest_equal(&stat.digest, &image));
}

static void test_odd_answers(void **state)
{
    struct fake_fixture *fixture = *state;
    struct digest subject = fake_fixture_image(fixture, "a/n", "s", "it");
    static const struct {
        const char *config;
        enum err_code code;
    } cases[] = {
        {"{'rules':[{'path':'*/referrers/*','status':200,'body':'junk'}]}", ERR_DAMAGED},
        {"{'rules':[{'path':'*/referrers/*','status':200,'body':{'schemaVersion':2,"
         "'manifests':[1]}}]}",
         ERR_DAMAGED},
        {"{'rules':[{'path':'*/referrers/*','status':403}]}", ERR_DENIED},
        {"{'rules':[{'path':'*/referrers/*','status':200,'body':{'schemaVersion':2,"
         "'manifests':[]},'headers':{'Link':'<?x=1>; rel=next'}}]}",
         ERR_DAMAGED},
        {"{'rules':[{'path':'*/referrers/*','status':404}]}", ERR_NONE},
        {"{'rules':[{'path':'*/referrers/*','status':405}]}", ERR_NONE},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct remote_referrers referrers;
        struct err err = ERR_INIT;
        fake_fixture_config(fixture, cases[i].config);
        if (remote_referrers_list(fixture->remote, "a/n", &subject, NULL, NULL, NULL, &referrers,
                                  &err) == 0)
            remote_referrers_free(&referrers);
        if (err.code != cases[i].code)
            fail_msg("%s: %s %s", cases[i].config, err_code_name(err.code), err.text);
    }
}

/* How many are listed, under these rules. */
static size_t count_listed(struct fake_fixture *fixture, const char *config, const char *repository,
                           const struct digest *subject)
{
    struct remote_referrers found;
    struct err err = ERR_INIT;
    fake_fixture_config(fixture, config);
    if (remote_referrers_list(fixture->remote, repository, subject, NULL, NULL, NULL, &found,
                              &err) < 0)
        fail_msg("%s: %s", config, err.text);
    size_t count = found.count;
    remote_referrers_free(&found);
    return count;
}

/* A 404, of a repository that is not there or of something in between, and what is answered
 * elsewhere do not hide the referrers of others; that the registry has no such API is remembered.
 */
static void test_what_is_learned(void **state)
{
    struct fake_fixture *fixture = *state;
    struct digest subject = fake_fixture_image(fixture, "a/n", "s", "it");
    (void)refer(fixture, NULL, "1", "application/x.one", &subject);
    static const struct {
        const char *config;
        bool learned;
    } cases[] = {
        {"{'rules':[{'path':'*/referrers/*','status':404,'body':{'errors':[{'code':"
         "'NAME_UNKNOWN','message':'no such repository'}]}}]}",
         false},
        {"{'rules':[{'path':'*/referrers/*','status':404}]}", false},
        {"{'rules':[{'host':'main','path':'*/referrers/*','status':307,'headers':{'Location':"
         "'{other}/elsewhere'}},{'host':'other','status':405}]}",
         false},
        {"{'rules':[{'path':'*/referrers/*','status':501}]}", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(count_listed(fixture, cases[i].config, "b/missing", &subject), 0);
        size_t count = count_listed(fixture, "{}", "a/n", &subject);
        if (count != (cases[i].learned ? 0 : 1))
            fail_msg("%s: %zu", cases[i].config, count);
    }
}

/* Nobody who gives no subject has one sent. */
static void test_no_subject_is_made_up(void **state)
{
    struct fake_fixture *fixture = *state;
    fake_fixture_config(fixture, "{'settings':{'referrers':false}}");
    (void)fake_fixture_image(fixture, "a/n", "s", "it");
    assert_int_equal(fake_registry_count(fixture->fake, "PUT", "*/manifests/*"), 1);
    cleanup_json json_t *log = fake_registry_log(fixture->fake, 1);
    for (size_t i = 0; i < json_array_size(log); i++) {
        const char *body = json_string_value(json_object_get(json_array_get(log, i), "body"));
        assert_true(!body || !strstr(body, "subject"));
    }
}

static int stop_at_put(void *arg, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return fake_registry_count(arg, "PUT", "*/manifests/sha256-*") > 0;
}

/* The list that a client keeps for a registry without the API is written on behalf of who pushes,
 * who may be told to stop meanwhile. */
static void test_the_list_holds_nobody_up(void **state)
{
    struct fake_fixture *fixture = *state;
    struct digest subject = fake_fixture_image(fixture, "a/n", "s", "it");
    cleanup_json json_t *document = fake_fixture_document(fixture, "a/n", "1");
    json_object_set_new(document, "subject",
                        json_pack("{s:s, s:s, s:i}", "mediaType", OCI_MEDIA_MANIFEST, "digest",
                                  digest_format(&subject).s, "size", 1));
    cleanup_free char *bytes = json_doc_dump(document);
    fake_fixture_config(fixture,
                        "{'settings':{'referrers':false},'rules':[{'method':'PUT','path':"
                        "'*/manifests/sha256-*','work':false,'send_head':0,'end':'stall'}]}");
    struct err err = ERR_INIT;
    assert_true(remote_manifest_put_or_stop(fixture->remote, "a/n", "r", NULL, bytes, strlen(bytes),
                                            stop_at_put, fixture->fake, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_CANCELLED);
}

/* docker-registry has no such API. */
static void test_docker_registry(void **state)
{
    (void)state;
    void *real_state = NULL;
    assert_int_equal(registry_real_setup(&real_state), 0);
    struct registry_real *real = real_state;
    struct fake_fixture fixture = {.remote = real->remote};
    struct digest subject = fake_fixture_image(&fixture, "a/n", "s", "it");
    struct digest one = refer(&fixture, "one", "1", "application/x.one", &subject);
    struct digest two = refer(&fixture, NULL, "2", "application/x.two", &subject);
    has_both(&fixture, &subject, &one, &two);
    char tag[80];
    snprintf(tag, sizeof tag, "sha256-%s", digest_hex(&subject).s);
    assert_true(fake_fixture_has(&fixture, "a/n", tag));
    assert_int_equal(registry_real_teardown(&real_state), 0);
}

#define with_fake(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, fake_fixture_setup, fake_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fake(test_both_ways),
        with_fake(test_entries_of_others_are_kept),
        with_fake(test_no_index_under_the_tag),
        with_fake(test_odd_answers),
        with_fake(test_what_is_learned),
        with_fake(test_no_subject_is_made_up),
        with_fake(test_the_list_holds_nobody_up),
        cmocka_unit_test(test_docker_registry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
