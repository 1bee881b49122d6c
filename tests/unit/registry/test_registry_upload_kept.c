#include "fake_fixture.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* What a registry had accepted before it refused is not sent again. */

enum {
    CHUNK = FAKE_FIXTURE_CHUNK,
    LARGE = FAKE_FIXTURE_LARGE,
};

static const char *large;

static int setup(void **state)
{
    large = fake_fixture_large();
    return large ? fake_fixture_setup(state) : -1;
}

/* A push that is refused at one kind of request, and the next one, of a client that knows nothing.
 * What it sent again. */
static uint64_t refuse_and_push(struct fake_fixture *fixture, const char *rule, uint64_t kept)
{
    fake_fixture_renew(fixture);
    fake_fixture_config(fixture, rule);
    struct err err = fake_fixture_refused(fixture, large, LARGE);
    if (kept == 0 && fixture->session.location)
        fail_msg("%s: a session is recorded", rule);
    if (kept > 0 && (!fixture->session.location || fixture->session.offset != kept))
        fail_msg("%s: %s, and not %lu bytes are recorded", rule, err.text, (unsigned long)kept);
    if (fake_fixture_count(fixture, "DELETE") != (kept == 0))
        fail_msg("%s: %zu sessions were given up", rule, fake_fixture_count(fixture, "DELETE"));
    fake_fixture_renew(fixture);
    fake_fixture_config(fixture, "{}");
    struct remote_upload upload = fake_fixture_pushed(fixture, rule, "a/n", large, LARGE);
    assert_int_equal(upload.restarts, 0);
    assert_int_equal(upload.resumed_at, kept);
    assert_int_equal(fake_registry_forget(fixture->fake, "blobs", NULL), 0);
    return upload.sent;
}

static const long statuses[] = {402, 403, 418, 421, 423, 425, 451, 507, 508, 511, 520, 522, 524};

static void refused_chunks(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        char rule[128];
        snprintf(rule, sizeof rule,
                 "{'rules':[{'method':'PATCH','nth':2,'times':99,'status':%ld}]}", statuses[i]);
        assert_int_equal(refuse_and_push(*state, rule, CHUNK), LARGE - CHUNK);
    }
    static const char web_page[] = "{'rules':[{'method':'PATCH','nth':2,'status':200,'body':'log "
                                   "in','headers':{'Content-Type':'text/html'}}]}";
    assert_int_equal(refuse_and_push(*state, web_page, CHUNK), LARGE - CHUNK);
}

static void refused_ends(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        char rule[128];
        snprintf(rule, sizeof rule, "{'rules':[{'method':'PUT','times':99,'nth':1,'status':%ld}]}",
                 statuses[i]);
        assert_int_equal(refuse_and_push(*state, rule, LARGE), 0);
    }
}

/* A limit that is raised, as the message asks for. */
static void bodies_that_were_too_large(void **state)
{
    struct fake_fixture *fixture = *state;
    fake_fixture_config(fixture, "{'rules':[{'method':'PATCH','nth':2,'times':99,'status':413}]}");
    (void)fake_fixture_refused(fixture, large, LARGE);
    assert_int_equal(fixture->session.offset, CHUNK);
    fake_fixture_config(fixture, "{}");
    struct remote_upload upload = fake_fixture_pushed(fixture, "raised", "a/n", large, LARGE);
    assert_int_equal(upload.sent, LARGE - CHUNK);
}

/* What was refused was done all the same. */
static void ends_that_were_none(void **state)
{
    struct fake_fixture *fixture = *state;
    for (size_t i = 0; i < ARRAY_SIZE(statuses) * 2; i++) {
        size_t len = i % 2 ? LARGE : 1000;
        char rule[128];
        snprintf(rule, sizeof rule, "{'rules':[{'method':'PUT','nth':1,'work':true,'status':%ld}]}",
                 statuses[i / 2]);
        fake_fixture_renew(fixture);
        fake_fixture_config(fixture, rule);
        struct remote_upload upload = fake_fixture_pushed(fixture, rule, "a/n", large, len);
        assert_int_equal(upload.sent, len);
        assert_int_equal(fake_fixture_count(fixture, "DELETE"), 0);
        assert_int_equal(fake_registry_forget(fixture->fake, "blobs", NULL), 0);
    }
}

/* Bytes that are not the blob's are worth nothing. */
static void other_bytes(void **state)
{
    static const char *const codes[] = {"DIGEST_INVALID", "SIZE_INVALID"};
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        char rule[160];
        snprintf(rule, sizeof rule,
                 "{'rules':[{'method':'PUT','nth':1,'times':9,'status':400,'body':"
                 "{'errors':[{'code':'%s'}]}}]}",
                 codes[i]);
        struct fake_fixture *fixture = *state;
        fake_fixture_config(fixture, rule);
        (void)fake_fixture_refused(fixture, large, LARGE);
        assert_null(fixture->session.location);
    }
}

/* The registry refuses everything for a while, also to say how far an upload is. */
static void refused_questions(void **state)
{
    struct fake_fixture *fixture = *state;
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        char rule[128];
        snprintf(rule, sizeof rule, "{'rules':[{'method':'PATCH','nth':2,'status':403}]}");
        fake_fixture_config(fixture, rule);
        (void)fake_fixture_refused(fixture, large, LARGE);
        snprintf(rule, sizeof rule, "{'rules':[{'path':'*/uploads/*','status':%ld}]}", statuses[i]);
        assert_int_equal(fixture->session.offset, CHUNK);
        fake_fixture_config(fixture, rule);
        (void)fake_fixture_refused(fixture, large, LARGE);
        if (!fixture->session.location)
            fail_msg("%s: the upload is forgotten", rule);
        fake_fixture_config(fixture, "{}");
        struct remote_upload upload = fake_fixture_pushed(fixture, rule, "a/n", large, LARGE);
        assert_int_equal(upload.sent, LARGE - CHUNK);
        assert_int_equal(fake_registry_forget(fixture->fake, "blobs", NULL), 0);
    }
}

/* It tells nothing of an upload, and opens others. */
static void a_registry_that_tells_no_offset(void **state)
{
    struct fake_fixture *fixture = *state;
    fake_fixture_config(fixture, "{'rules':[{'method':'PATCH','nth':2,'read':1000,'end':'reset'},"
                                 "{'method':'GET','path':'*/uploads/*','status':403}]}");
    struct remote_upload upload = fake_fixture_pushed(fixture, "403", "a/n", large, LARGE);
    assert_int_equal(upload.restarts, 1);
    assert_in_range(upload.sent, LARGE + CHUNK, LARGE + 2 * CHUNK);
}

#define test(name) cmocka_unit_test_setup_teardown(name, setup, fake_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(refused_chunks),
        test(refused_ends),
        test(bodies_that_were_too_large),
        test(ends_that_were_none),
        test(other_bytes),
        test(refused_questions),
        test(a_registry_that_tells_no_offset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
