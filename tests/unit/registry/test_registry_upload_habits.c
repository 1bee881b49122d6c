#include "registry_fixture.h"
#include "registry_session.h"
#include "registry_upload.h"
#include "upload_fixture.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Uploads to registries that lose everything, are not as specified, or say that bytes are wrong. */

enum {
    CHUNK = REGISTRY_CHUNK_BYTES,
    LARGE = 2 * CHUNK + CHUNK / 2 + 3, /* three chunks */
};

static char *large; /* LARGE bytes */

static void losses_have_an_end(void **state)
{
    struct upload_fixture *fixture = *state;
    upload_fixture_config(fixture,
                          "{'settings':{'interrupted':'forget'},'rules':[{'method':['PATCH','PUT'],"
                          "'read':1000,'end':'close'}]}");
    struct err err = upload_fixture_refused(fixture, large, LARGE);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    /* The last one with all bytes at once. */
    assert_int_equal(upload_fixture_count(fixture, "POST"), 2 + REGISTRY_UPLOAD_RESTARTS_MAX);
    assert_int_equal(upload_fixture_count(fixture, "PUT"), 1);
    assert_null(fixture->session.location);
    /* Connections say nothing of what the registry can do. */
    upload_fixture_config(fixture, "{}");
    (void)upload_fixture_pushed(fixture, "chunks", "b/n", large, LARGE);
    assert_int_equal(upload_fixture_count(fixture, "PATCH"), 3);
    /* One that takes every chunk and has nothing. */
    upload_fixture_config(fixture, "{'settings':{'strict_state':false},'rules':[{'method':'PATCH',"
                                   "'work':false,'status':202,'headers':{'Range':'0-0'}},"
                                   "{'method':'PUT','status':400}]}");
    err = upload_fixture_refused(fixture, large, LARGE);
    assert_null(fixture->session.location);
    assert_in_range(upload_fixture_count(fixture, "PATCH"), 5, 30);
    /* A registry that fails for good keeps what it has: another attempt goes on. */
    upload_fixture_config(fixture, "{'rules':[{'method':'PATCH','nth':2,'times':1000,"
                                   "'status':503}]}");
    err = upload_fixture_refused(fixture, large, LARGE);
    assert_non_null(strstr(err.text, "503"));
    assert_int_equal(fixture->session.offset, CHUNK);
    upload_fixture_config(fixture, "{}");
    assert_int_equal(upload_fixture_pushed(fixture, "again", "a/n", large, LARGE).resumed_at,
                     CHUNK);
}

/* Habits of registries that are in use. */
static void registries_that_are_not_as_specified(void **state)
{
    struct upload_fixture *fixture = *state;
    static const struct {
        const char *config;
        size_t patches; /* of the first blob; 0: any number */
        int restarts;
        bool whole_later; /* it was learned that chunks do not suit it */
    } cases[] = {
        /* GHCR says by 416 that there are too many bytes. */
        {"{'rules':[{'method':'PATCH','nth':1,'status':416}]}", 1 + 6, 0, false},
        /* zot gave the range of the chunk, not that of all. */
        {"{'settings':{'body_max':1048576},'rules':[{'method':'PATCH','work':true,"
         "'headers':{'Range':'0-1048575'}}]}",
         0, 0, false},
        /* ECR gives that of the first chunk for ever. */
        {"{'rules':[{'method':['PATCH','GET'],'path':'*/uploads/*','work':true,"
         "'headers':{'Range':'0-8388607'}}]}",
         0, REGISTRY_UPLOAD_RESTARTS_MAX, true},
        /* Artifact Registry takes one chunk and no second. */
        {"{'rules':[{'method':'PATCH','nth':2,'times':1000,'status':405}]}", 2, 0, true},
        {"{'rules':[{'method':'PATCH','nth':2,'times':1000,'status':400}]}", 2, 0, true},
        /* Quay counts to behind the last byte. */
        {"{'settings':{'range':'0-{size}'}}", 3, 0, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        upload_fixture_renew(fixture);
        upload_fixture_config(fixture, cases[i].config);
        struct remote_upload upload =
            upload_fixture_pushed(fixture, cases[i].config, "a/n", large, LARGE);
        if (cases[i].patches > 0)
            assert_int_equal(upload_fixture_count(fixture, "PATCH"), cases[i].patches);
        assert_int_equal(upload.restarts, cases[i].restarts);
        upload_fixture_config(fixture, "{}");
        (void)upload_fixture_pushed(fixture, cases[i].config, "b/n", large, LARGE);
        assert_true((upload_fixture_count(fixture, "PATCH") == 0) == cases[i].whole_later);
    }
}

/* Other bytes than the digest says: that is believed when one request brought them, or the second
 * time; a registry may have mixed up several, or had one of them twice. */
static void wrong_digests(void **state)
{
    struct upload_fixture *fixture = *state;
    static const char invalid[] = "'status':400,'body':{'errors':[{'code':'DIGEST_INVALID'}]}";
    char config[512];
    snprintf(config, sizeof config, "{'rules':[{'method':'PUT',%s}]}", invalid);
    upload_fixture_config(fixture, config);
    assert_int_equal(upload_fixture_refused(fixture, large, 1000).code, ERR_DIGEST);
    assert_int_equal(upload_fixture_count(fixture, "POST"), 1);
    upload_fixture_config(fixture, config);
    assert_int_equal(upload_fixture_refused(fixture, large, LARGE).code, ERR_DIGEST);
    assert_int_equal(upload_fixture_count(fixture, "POST"), 2);
    assert_null(fixture->session.location);
    snprintf(config, sizeof config,
             "{'rules':[{'method':'PATCH','nth':2,'read':1000,'end':'close'},"
             "{'method':'PUT','nth':1,%s}]}",
             invalid);
    upload_fixture_config(fixture, config);
    assert_int_equal(upload_fixture_pushed(fixture, config, "b/n", large, LARGE).restarts, 1);
}

static int make_bytes(void **state)
{
    (void)state;
    large = registry_fixture_noise(LARGE, 7);
    return large ? 0 : -1;
}

static int free_bytes(void **state)
{
    (void)state;
    free(large);
    return 0;
}

#define test(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, upload_fixture_setup, upload_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(losses_have_an_end),
        test(registries_that_are_not_as_specified),
        test(wrong_digests),
    };
    return cmocka_run_group_tests(tests, make_bytes, free_bytes);
}
