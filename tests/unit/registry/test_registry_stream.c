#include "registry_fixture.h"
#include "registry_session.h"
#include "remote_stream.h"
#include "upload_fixture.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Blobs whose digest is known at their end only. */

enum {
    CHUNK = REGISTRY_CHUNK_BYTES,
    LARGE = 2 * CHUNK + CHUNK / 2 + 3,
    PIECE = 100001, /* bytes that are given at once */
};

static char *large; /* LARGE bytes */

/* Streams bytes in pieces; 0 with *ret_size, or the failure. */
static int stream(struct upload_fixture *fixture, size_t len, uint64_t *ret_size, struct err *err)
{
    cleanup_remote_stream struct remote_stream *at = NULL;
    struct digest digest;
    struct digest wanted;
    int rc =
        remote_stream_begin(fixture->remote, "a/n", upload_fixture_progress, fixture, &at, err);
    for (size_t done = 0; rc == 0 && done < len; done += PIECE)
        rc = remote_stream_append(at, large + done, len - done < PIECE ? len - done : PIECE, err);
    if (rc == 0)
        rc = remote_stream_finish(at, &digest, ret_size, err);
    if (rc < 0)
        return rc;
    assert_int_equal(digest_bytes(large, len, &wanted, NULL), 0);
    assert_true(digest_equal(&digest, &wanted));
    assert_true(remote_stream_append(at, "x", 1, NULL) < 0); /* it has ended */
    return 0;
}

static void assert_streams(struct upload_fixture *fixture, const char *config, size_t len)
{
    struct err err = ERR_INIT;
    uint64_t size = 0;
    upload_fixture_config(fixture, config);
    if (stream(fixture, len, &size, &err) < 0)
        fail_msg("%s: %s; %s", config, err.text, err.hint);
    assert_int_equal(size, len);
    upload_fixture_has(fixture, "a/n", large, len);
}

static void sizes_of_all_kinds(void **state)
{
    static const size_t sizes[] = {0, 1, PIECE, CHUNK - 1, CHUNK, CHUNK + 1, LARGE};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        assert_streams(*state, "{}", sizes[i]);
    struct upload_fixture *fixture = *state;
    assert_int_equal(upload_fixture_count(fixture, "PATCH"), 3);
    assert_int_equal(upload_fixture_bytes(fixture), LARGE);
}

/* What was not confirmed is kept here, so it is sent again, and nothing else is. */
static void chunks_that_break_off(void **state)
{
    struct upload_fixture *fixture = *state;
    static const struct {
        const char *config;
        uint64_t again; /* bytes, at most */
    } cases[] = {
        {"{'rules':[{'method':'PATCH','nth':2,'read':65536,'end':'close'}]}", 0},
        {"{'rules':[{'method':'PATCH','nth':2,'read':0,'end':'reset'}]}", 0},
        {"{'settings':{'interrupted':'drop'},'rules':[{'method':'PATCH','nth':2,'read':65536,"
         "'end':'close'}]}",
         65536},
        {"{'rules':[{'method':'PATCH','nth':2,'work':true,'send_head':0}]}", 0},
        {"{'rules':[{'method':'PATCH','nth':2,'status':503}]}", CHUNK},
        {"{'rules':[{'method':'PUT','nth':1,'work':true,'send_head':0}]}", 0},
        {"{'rules':[{'method':'PUT','nth':1,'status':500}]}", 0},
        {"{'settings':{'range':'bytes=0-{last}'}}", 0},
        {"{'settings':{'min_chunk':10485760}}", 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_streams(fixture, cases[i].config, LARGE);
        if (upload_fixture_bytes(fixture) > LARGE + cases[i].again)
            fail_msg("%s: %llu bytes were sent", cases[i].config,
                     (unsigned long long)upload_fixture_bytes(fixture));
        /* The registry has it now; another one has not. */
        assert_int_equal(fake_registry_forget(fixture->fake, "blobs", NULL), 0);
    }
}

static void bodies_that_are_too_large(void **state)
{
    struct upload_fixture *fixture = *state;
    assert_streams(fixture, "{'settings':{'body_max':3000000}}", LARGE);
    struct err err = ERR_INIT;
    uint64_t size;
    upload_fixture_renew(fixture);
    upload_fixture_config(fixture, "{'settings':{'body_max':1048575}}");
    assert_true(stream(fixture, LARGE, &size, &err) < 0);
    assert_int_equal(err.code, ERR_REFUSED);
    assert_non_null(strstr(err.text, "1048576 bytes"));
}

/* The bytes are gone, so whoever has them must begin anew. */
static void what_cannot_go_on_says_so(void **state)
{
    struct upload_fixture *fixture = *state;
    static const struct {
        const char *config;
        enum err_code code;
        const char *words;
    } cases[] = {
        {"{'settings':{'interrupted':'forget'},'rules':[{'method':'PATCH','nth':2,'read':65536,"
         "'end':'close'}]}",
         ERR_REFUSED, "lost the upload after 8388608 bytes"},
        {"{'rules':[{'method':'PATCH','nth':2,'forget':'uploads','status':404,'body':{'errors':"
         "[{'code':'BLOB_UPLOAD_UNKNOWN'}]}}]}",
         ERR_REFUSED, "lost the upload after 8388608 bytes"},
        {"{'rules':[{'method':'PATCH','status':405}]}", ERR_UNSUPPORTED, "no blobs in chunks"},
        {"{'rules':[{'method':'PATCH','nth':2,'times':1000,'status':403}]}", ERR_DENIED, "403"},
        {"{'rules':[{'method':'POST','status':500}]}", ERR_REFUSED, "500"},
        {"{'settings':{'min_chunk':99999999}}", ERR_UNSUPPORTED, "less than 99999999"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        uint64_t size;
        upload_fixture_renew(fixture);
        upload_fixture_config(fixture, cases[i].config);
        assert_true(stream(fixture, LARGE, &size, &err) < 0);
        if (err.code != cases[i].code || !strstr(err.text, cases[i].words))
            fail_msg("%s: %d %s", cases[i].config, (int)err.code, err.text);
        assert_true(upload_fixture_count(fixture, "PATCH") < 10);
    }
}

/* Nobody keeps bytes for a stream that has ended, and a stop ends it. */
static void ends_before_the_end(void **state)
{
    struct upload_fixture *fixture = *state;
    struct err err = ERR_INIT;
    uint64_t size;
    upload_fixture_config(fixture, "{}");
    struct remote_stream *at = NULL;
    assert_int_equal(remote_stream_begin(fixture->remote, "a/n", NULL, NULL, &at, &err), 0);
    assert_int_equal(remote_stream_append(at, large, CHUNK + 5, &err), 0);
    remote_stream_free(at);
    assert_int_equal(upload_fixture_count(fixture, "DELETE"), 1);
    upload_fixture_config(fixture, "{'rules':[{'method':'PATCH','read':1000,'end':'stall'}]}");
    fixture->stop_at = 1;
    assert_int_equal(stream(fixture, LARGE, &size, &err), -ECANCELED);
    assert_int_equal(err.code, ERR_CANCELLED);
    err_clear(&err);
    assert_int_equal(remote_stream_begin(fixture->remote, "A/n", NULL, NULL, &at, &err), -EINVAL);
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
        test(sizes_of_all_kinds),        test(chunks_that_break_off),
        test(bodies_that_are_too_large), test(what_cannot_go_on_says_so),
        test(ends_before_the_end),
    };
    return cmocka_run_group_tests(tests, make_bytes, free_bytes);
}
