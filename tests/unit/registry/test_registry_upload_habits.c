#include "fake_fixture.h"
#include "registry_habits.h"
#include "registry_sender.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Uploads to registries that lose everything, are not as specified, or say that bytes are wrong. */

enum {
    CHUNK = FAKE_FIXTURE_CHUNK,
    LARGE = FAKE_FIXTURE_LARGE,
    BREAKS_TO_FLOOR =
        REGISTRY_UPLOAD_BREAKS + 1, /* until chunks are a quarter: as small as may be */
};
_Static_assert(CHUNK == 4 * REGISTRY_CHUNK_MIN, "two halves");

static const char *large; /* LARGE bytes */

static void losses_have_an_end(void **state)
{
    struct fake_fixture *fixture = *state;
    fake_fixture_config(fixture,
                        "{'settings':{'interrupted':'forget'},'rules':[{'method':['PATCH','PUT'],"
                        "'read':1000,'end':'close'}]}");
    struct err err = fake_fixture_refused(fixture, large, LARGE);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    /* The last one with all bytes at once. */
    assert_int_equal(fake_fixture_count(fixture, "POST"),
                     2 + BREAKS_TO_FLOOR - 1 + REGISTRY_UPLOAD_RESTARTS_MAX);
    assert_int_equal(fake_fixture_count(fixture, "PUT"), 1);
    assert_null(fixture->session.location);
    /* Connections say nothing of what the registry can do. */
    fake_fixture_config(fixture, "{}");
    (void)fake_fixture_pushed(fixture, "chunks", "b/n", large, LARGE);
    assert_int_equal(fake_fixture_count(fixture, "PATCH"), 3);
    /* One that takes every chunk and has nothing. */
    fake_fixture_config(fixture, "{'settings':{'strict_state':false},'rules':[{'method':'PATCH',"
                                 "'work':false,'status':202,'headers':{'Range':'0-0'}},"
                                 "{'method':'PUT','status':400}]}");
    err = fake_fixture_refused(fixture, large, LARGE);
    assert_null(fixture->session.location);
    assert_in_range(fake_fixture_count(fixture, "PATCH"), 5, 30);
    /* A registry that fails for good keeps what it has: another attempt goes on. */
    fake_fixture_config(fixture, "{'rules':[{'method':'PATCH','nth':2,'times':1000,"
                                 "'status':503}]}");
    err = fake_fixture_refused(fixture, large, LARGE);
    assert_non_null(strstr(err.text, "503"));
    assert_int_equal(fixture->session.offset, CHUNK);
    fake_fixture_config(fixture, "{}");
    assert_int_equal(fake_fixture_pushed(fixture, "again", "a/n", large, LARGE).resumed_at, CHUNK);
}

/* What is odd about a registry is found out with the first blob, and known for the next. */
static void registries_that_are_not_as_specified(void **state)
{
    struct fake_fixture *fixture = *state;
    struct registry_habit habits[REGISTRY_HABITS_MAX];
    size_t count = registry_habits_list(habits);
    for (size_t i = 0; i < count; i++) {
        const struct registry_habit *habit = &habits[i];
        fake_fixture_renew(fixture);
        for (int known = 0; known < 2; known++) {
            fake_fixture_config(fixture, habit->config);
            struct remote_upload upload =
                fake_fixture_pushed(fixture, habit->name, known ? "b/n" : "a/n", large, LARGE);
            assert_int_equal(upload.restarts, 0);
            registry_habits_check(fixture, habit, known);
            assert_int_equal(fake_registry_forget(fixture->fake, "blobs", NULL), 0);
        }
        assert_true((fake_fixture_count(fixture, "PATCH") > 0) == habit->takes_parts);
    }
}

/* What was to go in one body goes in chunks. */
static void a_whole_that_is_too_large(void **state)
{
    struct fake_fixture *fixture = *state;
    static const int statuses[] = {413, 416};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        char config[128];
        snprintf(config, sizeof config, "{'settings':{'body_max':%d,'body_max_status':%d}}",
                 CHUNK / 2, statuses[i]);
        fake_fixture_renew(fixture);
        fake_fixture_config(fixture, config);
        assert_int_equal(fake_fixture_pushed(fixture, config, "a/n", large, CHUNK).restarts, 0);
        assert_int_equal(fake_fixture_count(fixture, "PATCH"), 2);
        assert_int_equal(fake_fixture_count(fixture, "POST"), 1);
        assert_int_equal(fake_registry_forget(fixture->fake, "blobs", NULL), 0);
    }
}

/* Another attempt, of a client that knows nothing, with one that counts one byte too many. */
static void a_session_with_one_byte_too_many(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char config[] = "{'settings':{'range_of_get':'0-{size}'}}";
    fake_fixture_config(fixture, config);
    fixture->stop_at = CHUNK + CHUNK / 2;
    assert_int_equal(fake_fixture_refused(fixture, large, LARGE).code, ERR_CANCELLED);
    fixture->stop_at = 0;
    assert_int_equal(fixture->session.offset, CHUNK);
    fake_fixture_renew(fixture);
    struct remote_upload upload = fake_fixture_pushed(fixture, config, "a/n", large, LARGE);
    assert_int_equal(upload.restarts, 0);
    assert_in_range(upload.resumed_at, CHUNK, 2 * CHUNK + 1);
}

/* An address that is recorded though chunks are known to be no way. */
static void a_session_that_is_of_no_use(void **state)
{
    struct fake_fixture *fixture = *state;
    fake_fixture_config(fixture, "{}");
    fixture->stop_at = CHUNK + CHUNK / 2;
    assert_int_equal(fake_fixture_refused(fixture, large, LARGE).code, ERR_CANCELLED);
    fixture->stop_at = 0;
    struct remote_upload other = {.sent = 0};
    static const char no_patch[] = "{'rules':[{'method':'PATCH','status':405}]}";
    fake_fixture_config(fixture, no_patch);
    assert_int_equal(fake_fixture_push(fixture, "b/n", large, LARGE, &other, NULL), 0);
    assert_non_null(fixture->session.location);
    fake_fixture_config(fixture, no_patch);
    struct remote_upload upload = fake_fixture_pushed(fixture, no_patch, "a/n", large, LARGE);
    assert_int_equal(upload.resumed_at, 0);
    assert_int_equal(fake_fixture_count(fixture, "PATCH"), 0);
    assert_int_equal(fake_fixture_count(fixture, "DELETE"), 1);
}

/* Other bytes than the digest says: that is believed when one request brought them, or the second
 * time; a registry may have mixed up several, or had one of them twice. */
static void wrong_digests(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char invalid[] = "'status':400,'body':{'errors':[{'code':'DIGEST_INVALID'}]}";
    char config[512];
    snprintf(config, sizeof config, "{'rules':[{'method':'PUT',%s}]}", invalid);
    fake_fixture_config(fixture, config);
    assert_int_equal(fake_fixture_refused(fixture, large, 1000).code, ERR_DIGEST);
    assert_int_equal(fake_fixture_count(fixture, "POST"), 1);
    fake_fixture_config(fixture, config);
    assert_int_equal(fake_fixture_refused(fixture, large, LARGE).code, ERR_DIGEST);
    assert_int_equal(fake_fixture_count(fixture, "POST"), 2);
    assert_null(fixture->session.location);
    snprintf(config, sizeof config,
             "{'rules':[{'method':'PATCH','nth':2,'read':1000,'end':'close'},"
             "{'method':'PUT','nth':1,%s}]}",
             invalid);
    fake_fixture_config(fixture, config);
    assert_int_equal(fake_fixture_pushed(fixture, config, "b/n", large, LARGE).restarts, 1);
}

/* Something in front of a registry that keeps whole chunks, or forgets the session at each break,
 * lets no large body get to its end: chunks become smaller until they do, which is known for the
 * next blob. */
static void bodies_that_never_get_to_their_end(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char *const habits[] = {"drop", "forget"};
    static const int statuses[] = {0, 408, 502, 504};
    static const size_t limits[] = {CHUNK / 2 + 1, CHUNK / 4};
    for (size_t i = 0; i < ARRAY_SIZE(habits) * ARRAY_SIZE(statuses) * ARRAY_SIZE(limits); i++) {
        bool forgets = i % 2;
        int status = statuses[i / 2 % ARRAY_SIZE(statuses)];
        size_t limit = limits[i / 2 / ARRAY_SIZE(statuses)];
        size_t breaks = limit == CHUNK / 4 ? BREAKS_TO_FLOOR : REGISTRY_UPLOAD_BREAKS;
        char config[256];
        snprintf(config, sizeof config,
                 "{'settings':{'interrupted':'%s','body_break':%zu,'body_break_status':%d}}",
                 habits[i % 2], limit, status);
        fake_fixture_renew(fixture);
        for (size_t known = 0; known < 2; known++) {
            fake_fixture_config(fixture, config);
            /* The first one by itself in one body. */
            struct remote_upload upload =
                fake_fixture_pushed(fixture, config, "a/n", large, known ? LARGE : CHUNK);
            size_t expected = known ? 0 : breaks;
            assert_int_equal(upload.restarts, forgets ? expected : 0);
            assert_int_equal(fake_fixture_count(fixture, "POST"), 1 + (forgets ? expected : 0));
            assert_in_range(fake_fixture_bytes(fixture), known ? LARGE : CHUNK,
                            (known ? LARGE : CHUNK) + expected * limit);
        }
        assert_int_equal(fake_registry_forget(fixture->fake, "blobs", NULL), 0);
    }
}

/* Bodies that break off once in a while, or further on each time, make no chunk smaller; those that
 * do so at the same place do, also where another chunk was taken before it. */
static void breaks_at_several_places(void **state)
{
    struct fake_fixture *fixture = *state;
    static const struct {
        const char *interrupted;
        int breaks[3]; /* which PATCH */
        int restarts;
        size_t later; /* PATCHes of the next blob */
    } cases[] = {
        {"drop", {1, 3, 5}, 0, 3},   {"keep", {1, 2, 3}, 0, 3},   {"forget", {1, 3, 6}, 3, 3},
        {"forget", {2, 4, 0}, 2, 6}, {"forget", {2, 3, 0}, 2, 6},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char rules[384] = "";
        char config[512];
        for (size_t k = 0; k < ARRAY_SIZE(cases[i].breaks); k++)
            snprintf(rules + strlen(rules), sizeof rules - strlen(rules),
                     "%s{'method':'PATCH','nth':%d,'read':200000,'end':'close'}", k ? "," : "",
                     cases[i].breaks[k] ? cases[i].breaks[k] : 1000);
        snprintf(config, sizeof config, "{'settings':{'interrupted':'%s'},'rules':[%s]}",
                 cases[i].interrupted, rules);
        fake_fixture_renew(fixture);
        fake_fixture_config(fixture, config);
        struct remote_upload upload = fake_fixture_pushed(fixture, config, "a/n", large, LARGE);
        assert_int_equal(upload.restarts, cases[i].restarts);
        fake_fixture_config(fixture, "{}");
        (void)fake_fixture_pushed(fixture, config, "b/n", large, LARGE);
        if (fake_fixture_count(fixture, "PATCH") != cases[i].later)
            fail_msg("%s: %zu chunks", config, fake_fixture_count(fixture, "PATCH"));
        assert_int_equal(fake_registry_forget(fixture->fake, "blobs", NULL), 0);
    }
}

#define test(name) cmocka_unit_test_setup_teardown(name, fake_fixture_setup, fake_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(bodies_that_never_get_to_their_end),
        test(breaks_at_several_places),
        test(losses_have_an_end),
        test(registries_that_are_not_as_specified),
        test(a_whole_that_is_too_large),
        test(a_session_with_one_byte_too_many),
        test(a_session_that_is_of_no_use),
        test(wrong_digests),
    };
    large = fake_fixture_large();
    return large ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
