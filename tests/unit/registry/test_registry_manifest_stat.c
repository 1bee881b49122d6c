#include "fake_fixture.h"
#include "oci_image.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define OTHER "sha256:0000000000000000000000000000000000000000000000000000000000000000"

/* Whatever a HEAD says or does not say, the digest is the right one. */
static void test_any_head_will_do(void **state)
{
    struct fake_fixture *fixture = *state;
    struct digest digest = fake_fixture_image(fixture, "a/n", "t", "one");
    cleanup_free char *name = strdup(digest_format(&digest).s);
    static const struct {
        const char *config;
        size_t gets;        /* with a tag */
        size_t gets_digest; /* with a digest */
    } cases[] = {
        {"{}", 0, 0},
        {"{'settings':{'digest_header':false}}", 1, 1},
        {"{'rules':[{'method':'HEAD','status':405}]}", 1, 1},
        {"{'rules':[{'method':'HEAD','status':404}]}", 1, 1},
        {"{'rules':[{'method':'HEAD','status':403}]}", 1, 1},
        {"{'rules':[{'method':'HEAD','headers':{'Docker-Content-Digest':'md5:1'}}]}", 1, 1},
        {"{'rules':[{'method':'HEAD','headers':{'Content-Type':'text/html',"
         "'Docker-Content-Digest':null}}]}",
         1, 1},
        {"{'rules':[{'method':'HEAD','headers':{'Content-Length':'1'}}]}", 0, 0},
        {"{'rules':[{'method':'HEAD','headers':{'Content-Type':'application/json'}}]}", 0, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        for (int by_digest = 0; by_digest < 2; by_digest++) {
            struct remote_manifest_stat stat;
            struct err err = ERR_INIT;
            fake_fixture_config(fixture, cases[i].config);
            if (remote_manifest_stat(fixture->remote, "a/n", by_digest ? name : "t", NULL, NULL,
                                     &stat, &err) < 0)
                fail_msg("%s: %s", cases[i].config, err.text);
            assert_true(digest_equal(&stat.digest, &digest));
            assert_true(!stat.media_type || strcmp(stat.media_type, OCI_MEDIA_MANIFEST) == 0);
            assert_int_equal(fake_registry_count(fixture->fake, "GET", "*"),
                             by_digest ? cases[i].gets_digest : cases[i].gets);
        }
}

static void test_a_head_that_lies(void **state)
{
    struct fake_fixture *fixture = *state;
    struct digest digest = fake_fixture_image(fixture, "a/n", "t", "one");
    struct remote_manifest_stat stat;
    struct err err = ERR_INIT;
    fake_fixture_config(
        fixture, "{'rules':[{'method':'HEAD','headers':{'Docker-Content-Digest':'" OTHER "'}}]}");
    assert_int_equal(remote_manifest_stat(fixture->remote, "a/n", digest_format(&digest).s, NULL,
                                          NULL, &stat, &err),
                     0);
    assert_true(digest_equal(&stat.digest, &digest));
}

static void test_what_is_not_there(void **state)
{
    struct fake_fixture *fixture = *state;
    struct remote_manifest_stat stat;
    struct err err = ERR_INIT;
    assert_int_equal(remote_manifest_stat(fixture->remote, "a/n", "t", NULL, NULL, &stat, &err),
                     -ENOENT);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "a/n"));
    err_clear(&err);
    assert_int_equal(remote_manifest_stat(fixture->remote, "a/n", OTHER, NULL, NULL, &stat, &err),
                     -ENOENT);
    err_clear(&err);
    assert_int_equal(remote_manifest_stat(fixture->remote, "A", "t", NULL, NULL, &stat, &err),
                     -EINVAL);
    err_clear(&err);
    assert_int_equal(remote_manifest_stat(fixture->remote, "a", "t/u", NULL, NULL, &stat, &err),
                     -EINVAL);
}

static int take_nothing(void *arg, const void *bytes, size_t len, struct err *err)
{
    (void)arg, (void)bytes, (void)len, (void)err;
    return 0;
}

/* A document that comes a byte at a time, which is no standing still. */
static void test_a_document_that_takes_for_ever(void **state)
{
    struct fake_fixture *fixture = *state;
    struct registry *registry = registry_of(fixture->remote);
    struct err err = ERR_INIT;
    cleanup_free char *url = NULL;
    fake_fixture_config(fixture, "{'rules':[{'status':200,'body':'x','repeat':100000,"
                                 "'send_rate':50}]}");
    registry_http_set_timeouts(registry->http, 5, 5, 1);
    assert_int_equal(registry_make_url(registry, "a", "manifests", "t", &url, &err), 0);
    const struct registry_http_request request = {.method = REGISTRY_HTTP_GET,
                                                  .url = url,
                                                  .sink = take_nothing,
                                                  .sink_max = REMOTE_MANIFEST_MAX};
    cleanup_http_response struct registry_http_response response = {0};
    assert_true(registry_http_perform(registry->http, &request, &response, &err) < 0);
    assert_int_equal(err.code, ERR_UNREACHABLE);
}

#define with_fake(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, fake_fixture_setup, fake_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fake(test_any_head_will_do),
        with_fake(test_a_head_that_lies),
        with_fake(test_what_is_not_there),
        with_fake(test_a_document_that_takes_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
