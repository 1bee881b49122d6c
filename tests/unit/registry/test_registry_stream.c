#include "fake_fixture.h"
#include "registry_habits.h"
#include "registry_sender.h"
#include "remote_stream.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Blobs whose digest is known at their end only. */

enum {
    CHUNK = FAKE_FIXTURE_CHUNK,
    LARGE = FAKE_FIXTURE_LARGE,
    PIECE = 100001, /* bytes that are given at once */
};

static const char *large; /* LARGE bytes */

/* Streams bytes in pieces; 0 with *ret_size, or the failure. */
static int stream(struct fake_fixture *fixture, size_t len, uint64_t *ret_size, struct err *err)
{
    cleanup_remote_stream struct remote_stream *at = NULL;
    struct digest digest;
    struct digest wanted;
    int rc = remote_stream_begin(fixture->remote, "a/n", fake_fixture_progress, fixture, &at, err);
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

static void assert_streams(struct fake_fixture *fixture, const char *config, size_t len)
{
    struct err err = ERR_INIT;
    uint64_t size = 0;
    fake_fixture_config(fixture, config);
    if (stream(fixture, len, &size, &err) < 0)
        fail_msg("%s: %s; %s", config, err.text, err.hint);
    assert_int_equal(size, len);
    fake_fixture_has_blob(fixture, "a/n", large, len);
}

/* What ends within a chunk is sent when it has ended, at once. */
static void sizes_of_all_kinds(void **state)
{
    struct fake_fixture *fixture = *state;
    static const struct {
        size_t size;
        size_t patches;
    } cases[] = {{0, 0},     {1, 0},         {PIECE, 0}, {CHUNK - 1, 0},
                 {CHUNK, 0}, {CHUNK + 1, 2}, {LARGE, 3}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_streams(fixture, "{}", cases[i].size);
        assert_int_equal(fake_fixture_count(fixture, "PATCH"), cases[i].patches);
        assert_int_equal(fake_fixture_count(fixture, "PUT"), 1);
        assert_int_equal(fake_fixture_bytes(fixture), cases[i].size);
    }
}

/* What was not confirmed is kept here, so it is sent again, and nothing else is. */
static void chunks_that_break_off(void **state)
{
    struct fake_fixture *fixture = *state;
    char min_chunk[64];
    snprintf(min_chunk, sizeof min_chunk, "{'settings':{'min_chunk':%d}}", CHUNK + CHUNK / 8);
    const struct {
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
        {min_chunk, 0},
        /* Everything is kept until the first chunk was taken, so the session may be lost. */
        {"{'settings':{'interrupted':'forget'},'rules':[{'method':'PATCH','nth':1,'read':65536,"
         "'end':'close'}]}",
         65536},
        {"{'rules':[{'method':'PATCH','nth':1,'forget':'uploads','status':404,'body':{'errors':"
         "[{'code':'BLOB_UPLOAD_UNKNOWN'}]}}]}",
         CHUNK},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_streams(fixture, cases[i].config, LARGE);
        if (fake_fixture_bytes(fixture) > LARGE + cases[i].again)
            fail_msg("%s: %llu bytes were sent", cases[i].config,
                     (unsigned long long)fake_fixture_bytes(fixture));
        /* The registry has it now; another one has not. */
        assert_int_equal(fake_registry_forget(fixture->fake, "blobs", NULL), 0);
    }
}

static void bodies_that_are_too_large(void **state)
{
    struct fake_fixture *fixture = *state;
    assert_streams(fixture, "{'settings':{'body_max':3000000}}", LARGE);
    struct err err = ERR_INIT;
    uint64_t size;
    fake_fixture_renew(fixture);
    fake_fixture_config(fixture, "{'settings':{'body_max':1048575}}");
    assert_true(stream(fixture, LARGE, &size, &err) < 0);
    assert_int_equal(err.code, ERR_REFUSED);
    assert_non_null(strstr(err.text, "1048576 bytes"));
}

/* Until a chunk has got to its end everything is kept here, so the session may be lost with each.
 */
static void bodies_that_never_get_to_their_end(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char *const habits[] = {"drop", "forget"};
    for (size_t i = 0; i < ARRAY_SIZE(habits); i++) {
        char config[128];
        snprintf(config, sizeof config, "{'settings':{'interrupted':'%s','body_break':%d}}",
                 habits[i], CHUNK / 2);
        fake_fixture_renew(fixture);
        assert_streams(fixture, config, LARGE);
        assert_in_range(fake_fixture_bytes(fixture), LARGE,
                        LARGE + REGISTRY_UPLOAD_BREAKS * (CHUNK / 2));
        assert_int_equal(fake_registry_forget(fixture->fake, "blobs", NULL), 0);
    }
}

/* Registries that are not as specified are streamed to if they take parts, without bytes that are
 * sent twice once they are known; of the others it is told that the finished blob can be pushed,
 * and is known after that. */
static void habits_of_registries(void **state)
{
    struct fake_fixture *fixture = *state;
    struct registry_habit habits[REGISTRY_HABITS_MAX];
    size_t count = registry_habits_list(habits);
    for (size_t i = 0; i < count; i++) {
        const struct registry_habit *habit = &habits[i];
        fake_fixture_renew(fixture);
        for (int known = 0; known < 2 && habit->takes_parts; known++) {
            assert_streams(fixture, habit->config, LARGE);
            registry_habits_check(fixture, habit, known);
            assert_int_equal(fake_fixture_count(fixture, "POST"), 1);
            assert_int_equal(fake_registry_forget(fixture->fake, "blobs", NULL), 0);
        }
        for (int known = 0; known < 2 && !habit->takes_parts; known++) {
            struct err err = ERR_INIT;
            uint64_t size;
            fake_fixture_config(fixture, habit->config);
            assert_true(stream(fixture, LARGE, &size, &err) < 0);
            assert_int_equal(err.code, ERR_UNSUPPORTED);
            assert_non_null(strstr(err.text, "takes no blobs in chunks"));
            assert_non_null(strstr(err.hint, "push the blob when it is finished"));
            assert_int_equal(fake_fixture_count(fixture, "POST"), !known);
            assert_int_equal(fake_fixture_count(fixture, "DELETE"), !known);
            fake_fixture_config(fixture, habit->config);
            (void)fake_fixture_pushed(fixture, habit->name, "b/n", large, LARGE);
        }
    }
}

/* What is all kept goes in any way that the registry takes. */
static void small_ones_have_all_ways(void **state)
{
    struct fake_fixture *fixture = *state;
    static const struct {
        const char *config;
        size_t patches;
        size_t puts;
        size_t posts;
    } cases[] = {
        {"{'rules':[{'method':'PATCH','status':405}]}", 0, 1, 1},
        {"{'rules':[{'method':'PUT','nth':1,'status':411}]}", 1, 2, 2},
        {"{'settings':{'interrupted':'forget'},'rules':[{'method':'PUT','nth':1,'read':100,"
         "'end':'close'}]}",
         0, 2, 2},
        {"{'settings':{'body_max':1048576}}", 2, 2, 1},
        {"{'settings':{'body_max':1048576,'body_max_status':416}}", 2, 2, 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        fake_fixture_renew(fixture);
        assert_streams(fixture, cases[i].config, 2 << 20);
        assert_int_equal(fake_fixture_count(fixture, "PATCH"), cases[i].patches);
        assert_int_equal(fake_fixture_count(fixture, "PUT"), cases[i].puts);
        assert_int_equal(fake_fixture_count(fixture, "POST"), cases[i].posts);
        assert_int_equal(fake_registry_forget(fixture->fake, "blobs", NULL), 0);
    }
}

/* The bytes are gone, so whoever has them must begin anew. */
static void what_cannot_go_on_says_so(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char invalid[] = "{'rules':[{'method':'PUT','status':400,'body':{'errors':"
                                  "[{'code':'DIGEST_INVALID'}]}}]}";
    char lost[64];
    snprintf(lost, sizeof lost, "lost the upload after %d bytes", CHUNK);
    const struct {
        const char *config;
        size_t size;
        enum err_code code;
        const char *words;
    } cases[] = {
        {"{'settings':{'interrupted':'forget'},'rules':[{'method':'PATCH','nth':2,'read':65536,"
         "'end':'close'}]}",
         LARGE, ERR_INTERRUPTED, lost},
        {"{'rules':[{'method':'PATCH','nth':2,'forget':'uploads','status':404,'body':{'errors':"
         "[{'code':'BLOB_UPLOAD_UNKNOWN'}]}}]}",
         LARGE, ERR_INTERRUPTED, lost},
        {"{'settings':{'range':null},'rules':[{'method':'PATCH','nth':2,'read':65536,'end':"
         "'close'}]}",
         LARGE, ERR_INTERRUPTED, lost},
        {"{'settings':{'interrupted':'drop'},'rules':[{'method':'PATCH','nth':2,'read':65536,"
         "'end':'close'},{'method':'GET','path':'*/uploads/*','headers':{'Range':'0-0'}}]}",
         LARGE, ERR_INTERRUPTED, lost},
        /* Of several bodies it is not believed that the bytes were wrong. */
        {invalid, LARGE, ERR_INTERRUPTED, "DIGEST_INVALID"},
        {invalid, 1000, ERR_DIGEST, "DIGEST_INVALID"},
        {"{'rules':[{'method':'PATCH','nth':2,'times':1000,'status':403}]}", LARGE, ERR_DENIED,
         "403"},
        {"{'rules':[{'method':'PATCH','nth':2,'times':1000,'status':503}]}", LARGE, ERR_REFUSED,
         "503"},
        {"{'rules':[{'method':'POST','status':500}]}", LARGE, ERR_REFUSED, "500"},
        {"{'settings':{'min_chunk':99999999}}", LARGE, ERR_UNSUPPORTED, "less than 99999999"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        uint64_t size;
        fake_fixture_renew(fixture);
        fake_fixture_config(fixture, cases[i].config);
        assert_true(stream(fixture, cases[i].size, &size, &err) < 0);
        if (err.code != cases[i].code || !strstr(err.text, cases[i].words))
            fail_msg("%s: %d %s", cases[i].config, (int)err.code, err.text);
        assert_true(fake_fixture_count(fixture, "PATCH") < 10);
    }
}

/* Nobody keeps bytes for a stream that has ended, and a stop ends it. */
static void ends_before_the_end(void **state)
{
    struct fake_fixture *fixture = *state;
    struct err err = ERR_INIT;
    uint64_t size;
    fake_fixture_config(fixture, "{}");
    struct remote_stream *at = NULL;
    assert_int_equal(remote_stream_begin(fixture->remote, "a/n", NULL, NULL, &at, &err), 0);
    assert_int_equal(remote_stream_append(at, large, CHUNK + 5, &err), 0);
    remote_stream_free(at);
    assert_int_equal(fake_fixture_count(fixture, "DELETE"), 1);
    fake_fixture_config(fixture, "{'rules':[{'method':'PATCH','read':1000,'end':'stall'}]}");
    fixture->stop_at = 1;
    assert_int_equal(stream(fixture, LARGE, &size, &err), -ECANCELED);
    assert_int_equal(err.code, ERR_CANCELLED);
    err_clear(&err);
    assert_int_equal(remote_stream_begin(fixture->remote, "A/n", NULL, NULL, &at, &err), -EINVAL);
}

#define test(name) cmocka_unit_test_setup_teardown(name, fake_fixture_setup, fake_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(sizes_of_all_kinds),        test(chunks_that_break_off),
        test(habits_of_registries),      test(small_ones_have_all_ways),
        test(bodies_that_are_too_large), test(bodies_that_never_get_to_their_end),
        test(what_cannot_go_on_says_so), test(ends_before_the_end),
    };
    large = fake_fixture_large();
    return large ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
