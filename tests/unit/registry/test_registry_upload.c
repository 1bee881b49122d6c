#include "registry_upload.h"

#include "fake_fixture.h"
#include "registry_fixture.h"
#include "registry_sender.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    MIB = 1 << 20,
    CHUNK = FAKE_FIXTURE_CHUNK,
    LARGE = FAKE_FIXTURE_LARGE,
};

static const char *large; /* LARGE bytes */

static void small_blobs_take_two_requests(void **state)
{
    struct fake_fixture *fixture = *state;
    static const size_t sizes[] = {0, 1, 1000, CHUNK};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        fake_fixture_config(fixture, "{}");
        struct remote_upload upload = fake_fixture_pushed(fixture, "small", "a/n", large, sizes[i]);
        assert_int_equal(upload.sent, sizes[i]);
        assert_int_equal(upload.outcome, REMOTE_BLOB_SENT);
        assert_int_equal(fake_fixture_count(fixture, "POST"), 1);
        assert_int_equal(fake_fixture_count(fixture, "PUT"), 1);
        assert_int_equal(fake_fixture_count(fixture, "PATCH"), 0);
    }
    assert_int_equal(fixture->saves, 0);
}

/* How large a body is by itself. */
static void the_size_of_a_chunk(void **state)
{
    struct fake_fixture *fixture = *state;
    cleanup_free char *bytes = registry_fixture_noise(REGISTRY_CHUNK_BYTES + 1, 3);
    assert_non_null(bytes);
    fake_fixture_chunk(fixture, 0);
    (void)fake_fixture_pushed(fixture, "one", "a/n", bytes, REGISTRY_CHUNK_BYTES);
    assert_int_equal(fake_fixture_count(fixture, "PATCH"), 0);
    (void)fake_fixture_pushed(fixture, "two", "b/n", bytes, REGISTRY_CHUNK_BYTES + 1);
    assert_int_equal(fake_fixture_count(fixture, "PATCH"), 2);
    /* As many halves as it takes, in one session. */
    fake_fixture_config(fixture, "{'settings':{'body_max':1048576}}");
    struct remote_upload upload =
        fake_fixture_pushed(fixture, "halves", "c/n", bytes, REGISTRY_CHUNK_BYTES + 1);
    assert_int_equal(upload.restarts, 0);
}

static const char *header_of(const json_t *record, const char *name)
{
    const char *value =
        json_string_value(json_object_get(json_object_get(record, "headers"), name));
    return value ? value : "";
}

static void large_blobs_go_in_chunks(void **state)
{
    struct fake_fixture *fixture = *state;
    struct remote_upload upload = fake_fixture_pushed(fixture, "large", "a/n", large, LARGE);
    assert_int_equal(upload.sent, LARGE);
    assert_int_equal(upload.restarts, 0);
    assert_int_equal(upload.resumed_at, 0);
    assert_int_equal(fake_fixture_count(fixture, "PATCH"), 3);
    assert_int_equal(fixture->saves, 4); /* opened, and after each chunk */
    json_t *log = fake_registry_log(fixture->fake, 1);
    size_t i;
    json_t *record;
    uint64_t offset = 0;
    json_array_foreach (log, i, record) {
        const char *method = json_string_value(json_object_get(record, "method"));
        if (strcmp(method, "PUT") == 0)
            assert_string_equal(header_of(record, "content-length"), "0");
        if (strcmp(method, "PATCH") != 0)
            continue;
        uint64_t size = (uint64_t)json_integer_value(json_object_get(record, "bytes"));
        char range[64];
        snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)offset,
                 (unsigned long long)(offset + size - 1));
        assert_string_equal(header_of(record, "content-range"), range);
        assert_string_equal(header_of(record, "content-type"), "application/octet-stream");
        assert_true(size <= CHUNK);
        offset += size;
    }
    json_decref(log);
    assert_int_equal(offset, LARGE);
}

/* A body that breaks off anywhere: what the registry kept is not sent again. */
static void chunks_that_break_off(void **state)
{
    struct fake_fixture *fixture = *state;
    static const int reads[] = {0, 1, 65536, CHUNK - 1};
    static const char *const ends[] = {"close", "reset"};
    static const struct {
        const char *habit;
        int restarts;
        uint64_t again_max; /* bytes */
    } habits[] = {{"keep", 0, CHUNK}, {"drop", 0, CHUNK}, {"forget", 1, 2 * CHUNK}};
    for (size_t i = 0; i < ARRAY_SIZE(reads) * ARRAY_SIZE(ends) * ARRAY_SIZE(habits); i++) {
        size_t habit = i % ARRAY_SIZE(habits);
        const char *end = ends[i / ARRAY_SIZE(habits) % ARRAY_SIZE(ends)];
        int read = reads[i / ARRAY_SIZE(habits) / ARRAY_SIZE(ends)];
        char config[256];
        snprintf(config, sizeof config,
                 "{'settings':{'interrupted':'%s'},'rules':[{'method':'PATCH','nth':2,'read':%d,"
                 "'end':'%s'}]}",
                 habits[habit].habit, read, end);
        fake_fixture_config(fixture, config);
        struct remote_upload upload = fake_fixture_pushed(fixture, config, "a/n", large, LARGE);
        assert_int_equal(upload.restarts, habits[habit].restarts);
        assert_in_range(fake_fixture_bytes(fixture), LARGE, LARGE + habits[habit].again_max);
        assert_true(upload.sent >= LARGE);
    }
}

static void failures_after_the_body(void **state)
{
    struct fake_fixture *fixture = *state;
    static const int statuses[] = {408, 429, 500, 502, 503, 504};
    for (size_t i = 0; i < ARRAY_SIZE(statuses) * 2; i++) {
        bool done = i % 2;
        char config[256];
        snprintf(config, sizeof config,
                 "{'rules':[{'method':'PATCH','nth':2,'work':%s,'status':%d}]}",
                 done ? "true" : "false", statuses[i / 2]);
        fake_fixture_config(fixture, config);
        struct remote_upload upload = fake_fixture_pushed(fixture, config, "a/n", large, LARGE);
        assert_int_equal(upload.restarts, 0);
        assert_in_range(upload.sent, LARGE, LARGE + CHUNK);
        if (done && statuses[i / 2] != 429)
            assert_int_equal(upload.sent, LARGE);
    }
}

/* The answer to the closing PUT is lost, or is a failure, and the work was done. */
static void closing_answers_that_are_lost(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char *const rules[] = {
        "{'rules':[{'method':'PUT','nth':1,'send_head':0}]}",
        "{'rules':[{'method':'PUT','nth':1,'send_head':20,'end':'reset'}]}",
        "{'rules':[{'method':'PUT','nth':1,'work':true,'status':500}]}",
        "{'rules':[{'method':'PUT','nth':1,'work':true,'status':504}]}",
        "{'rules':[{'method':'PUT','nth':1,'work':true,'status':404}]}",
        "{'rules':[{'method':'PUT','nth':1,'work':true,'status':416}]}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(rules) * 2; i++) {
        size_t len = i % 2 ? LARGE : 1000;
        fake_fixture_config(fixture, rules[i / 2]);
        struct remote_upload upload = fake_fixture_pushed(fixture, rules[i / 2], "a/n", large, len);
        assert_int_equal(upload.sent, len);
        assert_int_equal(upload.restarts, 0);
        /* curl sends again what a kept connection swallowed. */
        assert_in_range(fake_fixture_count(fixture, "PUT"), 1, 2);
    }
}

/* The closing PUT fails and nothing was done. */
static void closing_requests_that_fail(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char *const rules[] = {
        "{'rules':[{'method':'PUT','nth':1,'status':500}]}",
        "{'rules':[{'method':'PUT','nth':1,'status':416}]}",
        "{'rules':[{'method':'PUT','nth':1,'times':2,'read':0,'end':'reset'}]}",
        "{'rules':[{'method':'PUT','nth':1,'status':404,'body':{'errors':[{'code':"
        "'BLOB_UPLOAD_UNKNOWN'}]}}]}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(rules) * 2; i++) {
        size_t len = i % 2 ? LARGE : 1000;
        fake_fixture_config(fixture, rules[i / 2]);
        struct remote_upload upload = fake_fixture_pushed(fixture, rules[i / 2], "a/n", large, len);
        assert_int_equal(upload.restarts, 0);
        if (len == LARGE)
            assert_int_equal(upload.sent, LARGE);
    }
}

/* Offsets that a registry tells in its own way, after a 416 that is not true. */
static void offsets_are_asked_for(void **state)
{
    struct fake_fixture *fixture = *state;
    static const struct {
        const char *settings;
        int restarts;
    } cases[] = {
        {"", 0},
        {"'range':'bytes=0-{last}'", 0},
        {"'range':null", 0}, /* what it took was counted */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char config[256];
        snprintf(config, sizeof config,
                 "{'settings':{%s},'rules':[{'method':'PATCH','nth':2,'status':416}]}",
                 cases[i].settings);
        fake_fixture_config(fixture, config);
        struct remote_upload upload = fake_fixture_pushed(fixture, config, "a/n", large, LARGE);
        assert_int_equal(upload.restarts, cases[i].restarts);
    }
    /* Nobody can tell how far it is. */
    static const char unknown[] = "{'settings':{'range':null},'rules':[{'method':'PATCH','nth':2,"
                                  "'read':1000,'end':'close'}]}";
    fake_fixture_config(fixture, unknown);
    assert_int_equal(fake_fixture_pushed(fixture, unknown, "a/n", large, LARGE).restarts, 1);
    /* More than was sent is nobody's upload. */
    static const char lies[] =
        "{'rules':[{'method':'PATCH','nth':2,'status':500},"
        "{'method':'GET','path':'*/uploads/*','nth':1,'headers':{'Range':'0-9999999999'}}]}";
    fake_fixture_config(fixture, lies);
    assert_int_equal(fake_fixture_pushed(fixture, lies, "a/n", large, LARGE).restarts, 1);
    /* Less than was confirmed is believed. */
    static const char less[] = "{'settings':{'strict_state':false},'rules':[{'method':'PATCH',"
                               "'nth':2,'times':1,'headers':{'Range':'0-0'}}]}";
    fake_fixture_config(fixture, less);
    (void)fake_fixture_pushed(fixture, less, "a/n", large, LARGE);
}

/* How many bodies a limit refuses, and the size that it takes then. */
static size_t refusals_of(size_t limit, size_t *ret_chunk)
{
    size_t refusals = 0;
    size_t chunk = CHUNK;
    for (; chunk > limit; refusals++)
        chunk = chunk / 2 > MIB ? chunk / 2 : MIB;
    *ret_chunk = chunk;
    return refusals;
}

static size_t chunks_of(size_t size, size_t chunk)
{
    return (size + chunk - 1) / chunk;
}

/* A limit on bodies is found out once. */
static void bodies_that_are_too_large(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char limited[] = "{'settings':{'body_max':3000000}}";
    size_t chunk;
    size_t refusals = refusals_of(3000000, &chunk);
    fake_fixture_config(fixture, limited);
    struct remote_upload upload = fake_fixture_pushed(fixture, "413", "a/n", large, LARGE);
    assert_int_equal(upload.restarts, 0);
    assert_int_equal(fake_fixture_count(fixture, "PATCH"), refusals + chunks_of(LARGE, chunk));
    fake_fixture_config(fixture, limited);
    (void)fake_fixture_pushed(fixture, "413", "b/n", large, 5 * MIB);
    assert_int_equal(fake_fixture_count(fixture, "PATCH"), chunks_of(5 * MIB, chunk));
    fake_fixture_renew(fixture);
    fake_fixture_config(fixture, limited);
    (void)fake_fixture_pushed(fixture, "413", "c/n", large, 5 * MIB); /* that was to go whole */
    fake_fixture_renew(fixture);
    fake_fixture_config(fixture, "{'settings':{'body_max':1048575}}");
    struct err err = fake_fixture_refused(fixture, large, LARGE);
    assert_int_equal(err.code, ERR_REFUSED);
    assert_non_null(strstr(err.text, "1048576 bytes"));
    assert_non_null(strstr(err.text, "413"));
    assert_null(fixture->session.location);
    fake_fixture_config(fixture, "{'settings':{'body_max':1048576}}");
    (void)fake_fixture_pushed(fixture, "413", "d/n", large, 3 * MIB);
}

static void chunks_have_a_least_size(void **state)
{
    struct fake_fixture *fixture = *state;
    enum {
        MIN = CHUNK + CHUNK / 8,
    };
    char config[128];
    snprintf(config, sizeof config, "{'settings':{'min_chunk':%d}}", MIN);
    fake_fixture_config(fixture, config);
    (void)fake_fixture_pushed(fixture, "min", "a/n", large, LARGE);
    json_t *log = fake_registry_log(fixture->fake, 1);
    size_t i;
    json_t *record;
    size_t patches = 0;
    json_array_foreach (log, i, record) {
        if (strcmp(json_string_value(json_object_get(record, "method")), "PATCH") != 0)
            continue;
        uint64_t size = (uint64_t)json_integer_value(json_object_get(record, "bytes"));
        if (++patches < 3)
            assert_int_equal(size, MIN);
    }
    json_decref(log);
    assert_int_equal(patches, 3);
    snprintf(config, sizeof config, "{'settings':{'min_chunk':%d,'body_max':%d}}", MIN, CHUNK);
    fake_fixture_config(fixture, config);
    struct err err = fake_fixture_refused(fixture, large, LARGE);
    snprintf(config, sizeof config, "wants chunks of at least %d", MIN);
    assert_non_null(strstr(err.text, config));
}

static void registries_without_patch(void **state)
{
    struct fake_fixture *fixture = *state;
    static const int statuses[] = {404, 405, 411, 501};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        char config[128];
        snprintf(config, sizeof config, "{'rules':[{'method':'PATCH','status':%d}]}", statuses[i]);
        fake_fixture_renew(fixture);
        fake_fixture_config(fixture, config);
        struct remote_upload upload = fake_fixture_pushed(fixture, config, "a/n", large, LARGE);
        assert_int_equal(upload.restarts, 0);
        assert_int_equal(fake_fixture_count(fixture, "PATCH"), 1);
        assert_int_equal(fake_fixture_count(fixture, "DELETE"), 1); /* not under two sessions */
        fake_fixture_config(fixture, config);
        (void)fake_fixture_pushed(fixture, config, "b/n", large, LARGE);
        assert_int_equal(fake_fixture_count(fixture, "PATCH"), 0);
        assert_int_equal(fake_fixture_count(fixture, "PUT"), 1);
    }
    /* Such a PUT that breaks off can only begin anew. */
    fake_fixture_config(fixture, "{'rules':[{'method':'PATCH','status':405},"
                                 "{'method':'PUT','nth':1,'read':1000000,'end':'close'}]}");
    assert_int_equal(fake_fixture_pushed(fixture, "whole", "c/n", large, LARGE).restarts, 1);
    /* And its limit is final. */
    fake_fixture_config(fixture, "{'settings':{'body_max':10000000},'rules':[{'method':'PATCH',"
                                 "'status':405}]}");
    struct err err = fake_fixture_refused(fixture, large, LARGE);
    assert_non_null(strstr(err.text, "takes no chunks"));
}

static void registries_without_a_put_of_all(void **state)
{
    struct fake_fixture *fixture = *state;
    static const int statuses[] = {400, 405, 411, 501};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        char config[128];
        snprintf(config, sizeof config, "{'rules':[{'method':'PUT','nth':1,'status':%d}]}",
                 statuses[i]);
        fake_fixture_renew(fixture);
        fake_fixture_config(fixture, config);
        (void)fake_fixture_pushed(fixture, config, "a/n", large, 1000);
        assert_int_equal(fake_fixture_count(fixture, "PATCH"), 1);
        fake_fixture_config(fixture, "{}");
        (void)fake_fixture_pushed(fixture, config, "b/n", large, 1000);
        assert_int_equal(fake_fixture_count(fixture, "PATCH"), 1);
    }
}

/* Whatever an address looks like, the newest one is used. */
static void addresses_of_uploads(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char *const locations[] = {
        "{path}?_state={state}", "{path}?x=a%2Bb%3D&_state={state}",
        "{main}{path}?_state={state}#frag", "{other}{path}?_state={state}"};
    for (size_t i = 0; i < ARRAY_SIZE(locations); i++) {
        char config[256];
        snprintf(config, sizeof config, "{'settings':{'upload_location':'%s'}}", locations[i]);
        fake_fixture_config(fixture, config);
        (void)fake_fixture_pushed(fixture, config, "a/n", large, LARGE);
        (void)fake_fixture_pushed(fixture, config, "b/n", large, 1000);
        assert_int_equal(fake_registry_count(fixture->fake, "PUT", "*digest=sha256*"), 2);
    }
}

/* An attempt that is stopped within the blob, and the next one, of a client that knows nothing. */
static void the_next_attempt_goes_on(void **state)
{
    struct fake_fixture *fixture = *state;
    static const struct {
        const char *forget;   /* what becomes of the session in between */
        const char *location; /* what becomes of its record */
        bool resumed;
        int restarts;
    } cases[] = {
        {NULL, NULL, true, 0},
        {"uploads", NULL, false, 1},
        {NULL, "ftp://127.0.0.1/x", false, 0},
        {NULL, "http://elsewhere.example/x", false, 0},
        {NULL, "", false, 0},
        {NULL, "/v2/a/n/blobs/uploads/unknown", false, 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        fake_fixture_config(fixture, "{}");
        fixture->stop_at = CHUNK + CHUNK / 2;
        assert_int_equal(fake_fixture_refused(fixture, large, LARGE).code, ERR_CANCELLED);
        fixture->stop_at = 0;
        assert_non_null(fixture->session.location);
        assert_int_equal(fixture->session.offset, CHUNK);
        assert_int_equal(fake_fixture_count(fixture, "DELETE"), 0);
        if (cases[i].forget)
            assert_int_equal(fake_registry_forget(fixture->fake, cases[i].forget, NULL), 0);
        if (cases[i].location) {
            free(fixture->session.location);
            fixture->session.location = strdup(cases[i].location);
        }
        fake_fixture_renew(fixture);
        fake_registry_reset(fixture->fake);
        char repository[32];
        snprintf(repository, sizeof repository, "a/n");
        struct remote_upload upload =
            fake_fixture_pushed(fixture, "again", repository, large, LARGE);
        assert_int_equal(upload.restarts, cases[i].restarts);
        if (cases[i].resumed) {
            assert_in_range(upload.resumed_at, CHUNK, 2 * CHUNK);
            assert_int_equal(upload.sent, LARGE - upload.resumed_at);
        } else {
            assert_int_equal(upload.resumed_at, 0);
            assert_int_equal(upload.sent, LARGE);
        }
        assert_int_equal(fake_registry_forget(fixture->fake, "blobs", NULL), 0);
    }
}

/* As if another attempt had got so far. */
static void record_at(struct fake_fixture *fixture, const char *location)
{
    remote_session_free(&fixture->session);
    fixture->session.location = strdup(location);
    fixture->session.offset = CHUNK;
    assert_non_null(fixture->session.location);
}

/* Its host is gone, or the registry cannot tell anything of that upload: others it takes. */
static void what_was_recorded_does_not_answer(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char *const locations[] = {"http://127.0.0.1:1/v2/a/n/blobs/uploads/gone",
                                            "/v2/a/n/blobs/uploads/broken"};
    for (size_t i = 0; i < ARRAY_SIZE(locations); i++) {
        fake_fixture_config(fixture,
                            "{'rules':[{'method':'GET','path':'*/uploads/broken','status':500}]}");
        record_at(fixture, locations[i]);
        struct remote_upload upload =
            fake_fixture_pushed(fixture, locations[i], "a/n", large, LARGE);
        assert_int_equal(upload.restarts, 1);
        assert_int_equal(upload.resumed_at, 0);
        assert_int_equal(upload.sent, LARGE);
        assert_int_equal(fake_registry_forget(fixture->fake, "blobs", NULL), 0);
    }
    /* While the registry opens no other one, it stays recorded; so it does when nobody may ask. */
    static const char *const rules[] = {
        "{'rules':[{'method':['GET','POST'],'path':'*/uploads/*','status':500}]}",
        "{'rules':[{'method':'GET','path':'*/uploads/*','status':500},"
        "{'method':'POST','path':'*/uploads/*','status':403}]}"};
    for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
        fake_fixture_config(fixture, rules[i]);
        record_at(fixture, locations[1]);
        (void)fake_fixture_refused(fixture, large, LARGE);
        assert_string_equal(fixture->session.location, locations[1]);
        assert_int_equal(fixture->session.offset, CHUNK);
    }
}

/* Bodies of which next to nothing is kept are not sent for ever; a part that is worth it counts. */
static void a_few_bytes_are_no_progress(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char *const rules[] = {"'read':1,'end':'reset'", "'read':1000,'end':'close'",
                                        "'read':1,'status':500", "'read':1,'status':404"};
    enum {
        MOST = 2 * (REGISTRY_UPLOAD_RESTARTS_MAX + 1) * (REGISTRY_UPLOAD_ASKS_MAX + 1),
        PARTS = 20,
    };
    for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
        char config[128];
        snprintf(config, sizeof config, "{'rules':[{'method':['PATCH','PUT'],%s}]}", rules[i]);
        fake_fixture_config(fixture, config);
        (void)fake_fixture_refused(fixture, large, LARGE);
        assert_in_range(fake_fixture_count(fixture, "PATCH") + fake_fixture_count(fixture, "PUT"),
                        1, MOST);
        fake_fixture_renew(fixture);
    }
    fake_fixture_config(fixture, "{'rules':[{'method':'PATCH','read':65536,'end':'close'}]}");
    struct remote_upload upload =
        fake_fixture_pushed(fixture, "parts", "a/n", large, CHUNK + PARTS);
    assert_int_equal(upload.restarts, 0);
}

static void silence_ends_when_asked(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char *const configs[] = {
        "{'rules':[{'method':'PATCH','nth':2,'end':'stall','send_head':0}]}",
        "{'rules':[{'method':'PATCH','nth':2,'delay_read_ms':600000}]}",
        "{'rules':[{'method':'PUT','nth':1,'end':'stall','send_head':0,'work':false}]}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
        fake_fixture_config(fixture, configs[i]);
        fixture->stop_at = i < 2 ? CHUNK + 1 : LARGE;
        assert_int_equal(fake_fixture_refused(fixture, large, LARGE).code, ERR_CANCELLED);
        assert_non_null(fixture->session.location);
        fixture->stop_at = 0;
        fake_fixture_config(fixture, "{}");
        (void)fake_fixture_pushed(fixture, configs[i], "a/n", large, LARGE);
        assert_int_equal(fake_registry_forget(fixture->fake, "blobs", NULL), 0);
    }
}

/* One call in six fails, in any way. */
static void a_shaky_registry(void **state)
{
    struct fake_fixture *fixture = *state;
    for (int seed = 1; seed <= 12; seed++) {
        char config[256];
        snprintf(config, sizeof config,
                 "{'settings':{'body_max':1048576,'fail':{'percent':16,'seed':%d,'statuses':"
                 "[500,502,503,504,0],'after':50}}}",
                 seed);
        fake_fixture_config(fixture, config);
        struct remote_upload upload = {.sessions = &fixture->sessions};
        struct err err = ERR_INIT;
        char repository[16];
        snprintf(repository, sizeof repository, "s/n%d", seed);
        if (fake_fixture_push(fixture, repository, large, LARGE, &upload, &err) < 0)
            fail_msg("seed %d: %s", seed, err.text);
        assert_int_equal(upload.restarts, 0);
        fake_fixture_config(fixture, "{}");
        fake_fixture_has_blob(fixture, repository, large, LARGE);
    }
}

#define test(name) cmocka_unit_test_setup_teardown(name, fake_fixture_setup, fake_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(the_size_of_a_chunk),
        test(small_blobs_take_two_requests),
        test(large_blobs_go_in_chunks),
        test(chunks_that_break_off),
        test(failures_after_the_body),
        test(closing_answers_that_are_lost),
        test(closing_requests_that_fail),
        test(offsets_are_asked_for),
        test(bodies_that_are_too_large),
        test(chunks_have_a_least_size),
        test(registries_without_patch),
        test(registries_without_a_put_of_all),
        test(addresses_of_uploads),
        test(the_next_attempt_goes_on),
        test(what_was_recorded_does_not_answer),
        test(a_few_bytes_are_no_progress),
        test(silence_ends_when_asked),
        test(a_shaky_registry),
    };
    large = fake_fixture_large();
    return large ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
