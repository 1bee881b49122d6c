/* Downloads that break off, and registries that do what they like with ranges. */
#include "registry_range.h"

#include "clock.h"
#include "fake_fixture.h"
#include "registry_fixture.h"
#include "registry_pieces.h"
#include "registry_retry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    SMALL = 1000000,
    LARGE = REGISTRY_PIECES_MIN + REGISTRY_PIECES_BYTES / 2 + 1,
};

/* What a download gave. */
struct taken {
    struct buf bytes;
    int work_us; /* that the sink takes for each call of the first piece */
    int fail_at; /* the sink fails when it has had so many bytes; 0: never */
    int calls;   /* of progress */
    int stop_at; /* progress asks for the end at this call; 0: never */
};
#define TAKEN                                                                                      \
    {                                                                                              \
        .bytes = BUF_INIT(LARGE + 1)                                                               \
    }

static int take(void *arg, const void *bytes, size_t len, struct err *err)
{
    struct taken *taken = arg;
    if (taken->bytes.len < REGISTRY_PIECES_BYTES && taken->work_us)
        (void)usleep((useconds_t)taken->work_us);
    if (taken->fail_at && taken->bytes.len + len >= (size_t)taken->fail_at)
        return err_fail(err, ERR_NO_SPACE, "the disk is full");
    return buf_add(&taken->bytes, bytes, len, "the blob", err);
}

static int on_progress(void *arg, uint64_t done, uint64_t total)
{
    struct taken *taken = arg;
    (void)done, (void)total;
    return ++taken->calls == taken->stop_at;
}

static int get(struct fake_fixture *fixture, const struct digest *digest, uint64_t size,
               struct taken *taken, struct err *err)
{
    buf_free(&taken->bytes);
    taken->bytes = (struct buf)BUF_INIT(LARGE + 1);
    return fixture->remote->ops->blob_get(fixture->remote, "a", digest, size, take, taken,
                                          on_progress, taken, err);
}

/* The bytes come whole under these rules, with the size known and without; the number of GETs. */
static size_t comes_whole(struct fake_fixture *fixture, const char *config, const char *bytes,
                          size_t len, bool know_size)
{
    struct digest digest = fake_fixture_blob(fixture, "a", bytes, len);
    struct err err = ERR_INIT;
    struct taken taken = TAKEN;
    fake_fixture_config(fixture, config);
    if (get(fixture, &digest, know_size ? len : UINT64_MAX, &taken, &err) < 0)
        fail_msg("%s: %s", config, err.text);
    assert_int_equal(taken.bytes.len, len);
    assert_memory_equal(buf_str(&taken.bytes), bytes, len);
    buf_free(&taken.bytes);
    return fake_registry_count(fixture->fake, "GET", "*");
}

static void test_goes_on_where_it_broke_off(void **state)
{
    struct fake_fixture *fixture = *state;
    cleanup_free char *bytes = registry_fixture_noise(SMALL, 1);
    static const struct {
        const char *config;
        size_t requests;
    } cases[] = {
        {"{}", 1},
        {"{'rules':[{'method':'GET','nth':1,'send':400000}]}", 2},
        {"{'rules':[{'method':'GET','nth':1,'send':400000,'end':'reset'}]}", 2},
        {"{'rules':[{'method':'GET','times':5,'send':150000}]}", 6},
        {"{'rules':[{'method':'GET','nth':1,'send':999999}]}", 2},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(comes_whole(fixture, cases[i].config, bytes, SMALL, true),
                         cases[i].requests);
        assert_int_equal(comes_whole(fixture, cases[i].config, bytes, SMALL, false),
                         cases[i].requests);
    }
    /* The second request asked for what was missing, not for all. */
    (void)comes_whole(fixture, cases[1].config, bytes, SMALL, true);
    cleanup_json json_t *log = fake_registry_log(fixture->fake, 1);
    const json_t *headers = json_object_get(json_array_get(log, 1), "headers");
    assert_string_equal(json_string_value(json_object_get(headers, "range")),
                        "bytes=400000-999999");
}

/* Range is ignored: the whole body comes, and none of it is handed on twice. */
static void test_ranges_that_are_ignored(void **state)
{
    struct fake_fixture *fixture = *state;
    cleanup_free char *bytes = registry_fixture_noise(SMALL, 2);
    assert_int_equal(
        comes_whole(fixture,
                    "{'settings':{'ranges':false},'rules':[{'method':'GET','nth':1,'send':400000},"
                    "{'method':'GET','nth':2,'send':700000}]}",
                    bytes, SMALL, true),
        3);
    /* It is known of this blob then: nobody asks for a range of it any more. */
    cleanup_json json_t *log = fake_registry_log(fixture->fake, 1);
    for (size_t i = 0; i < 3; i++) {
        const json_t *headers = json_object_get(json_array_get(log, i), "headers");
        assert_int_equal(json_object_get(headers, "range") != NULL, i == 1);
    }
}

/* Whoever gives one blob whole, the registry or a cache or object store behind a redirect, may have
 * ranges of the next one: it comes in pieces. */
static void test_one_blob_says_nothing_of_others(void **state)
{
    struct fake_fixture *fixture = *state;
    cleanup_free char *small = registry_fixture_noise(SMALL, 15);
    cleanup_free char *large = registry_fixture_noise(LARGE, 16);
    static const char *const configs[] = {
        "{'settings':{'ranges':false},'rules':[{'method':'GET','nth':1,'send':400000}]}",
        "{'settings':{'ranges':false,'redirect_blobs':307},'rules':[{'method':'GET',"
        "'host':'other','nth':1,'send':400000}]}"};
    const size_t pieces = (LARGE + REGISTRY_PIECES_BYTES - 1) / REGISTRY_PIECES_BYTES;
    for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
        fake_fixture_renew(fixture);
        assert_int_equal(comes_whole(fixture, configs[i], small, SMALL, true), 2 + i);
        assert_int_equal(comes_whole(fixture, "{'rules':[{'method':'GET','nth':1,'delay_ms':200}]}",
                                     large, LARGE, true),
                         pieces);
    }
}

/* 416 where bytes are missing: the whole body is asked for. */
static void test_a_range_that_is_refused(void **state)
{
    struct fake_fixture *fixture = *state;
    cleanup_free char *bytes = registry_fixture_noise(SMALL, 3);
    assert_int_equal(comes_whole(fixture,
                                 "{'rules':[{'method':'GET','nth':1,'send':400000},{'method':'GET',"
                                 "'header':'range','status':416}]}",
                                 bytes, SMALL, true),
                     3);
}

/* All bytes had come when the connection broke: 416 is the end then. */
static void test_the_end_is_no_failure(void **state)
{
    struct fake_fixture *fixture = *state;
    cleanup_free char *bytes = registry_fixture_noise(SMALL, 4);
    assert_int_equal(comes_whole(fixture,
                                 "{'rules':[{'method':'GET','nth':1,'headers':{'Content-Length':"
                                 "'1000001'},'end':'close'},{'method':'GET','header':'range',"
                                 "'status':416,'headers':{'Content-Range':'bytes */1000000'}}]}",
                                 bytes, SMALL, false),
                     2);
}

static void fails(struct fake_fixture *fixture, const char *config, const struct digest *digest,
                  uint64_t size, enum err_code code, size_t requests_max)
{
    struct err err = ERR_INIT;
    struct taken taken = TAKEN;
    fake_fixture_config(fixture, config);
    int rc = get(fixture, digest, size, &taken, &err);
    if (rc == 0 || err.code != code)
        fail_msg("%s: %s %s", config, err_code_name(err.code), err.text);
    size_t requests = fake_registry_count(fixture->fake, "GET", "*");
    if (requests > requests_max)
        fail_msg("%s: %zu requests", config, requests);
    buf_free(&taken.bytes);
}

static void test_what_cannot_be_mended(void **state)
{
    struct fake_fixture *fixture = *state;
    cleanup_free char *bytes = registry_fixture_noise(SMALL, 5);
    struct digest digest = fake_fixture_blob(fixture, "a", bytes, SMALL);
    struct digest other = digest;
    other.bytes[0] ^= 1;
    fails(fixture, "{}", &other, SMALL, ERR_NOT_FOUND, 1);
    fails(fixture, "{}", &digest, SMALL - 1, ERR_DIGEST, 1);
    fails(fixture, "{}", &digest, SMALL + 1, ERR_DIGEST, 1);
    /* Another total in the middle, and another place than was asked for. */
    fails(fixture,
          "{'rules':[{'method':'GET','nth':1,'send':400000},{'method':'GET','header':'range',"
          "'headers':{'Content-Range':'bytes 400000-999999/1000001'}}]}",
          &digest, SMALL, ERR_DIGEST, 2);
    fails(fixture,
          "{'rules':[{'method':'GET','nth':1,'send':400000},{'method':'GET','header':'range',"
          "'headers':{'Content-Range':'bytes 400001-999999/1000000'}}]}",
          &digest, SMALL, ERR_DAMAGED, 2);
    /* A server that gives a little and breaks off, for ever. */
    fails(fixture, "{'rules':[{'method':'GET','send':100}]}", &digest, SMALL, ERR_UNREACHABLE,
          1 + 2 * REGISTRY_RETRY_MAX);
}

static void test_the_sink_and_whoever_waits_are_heard(void **state)
{
    struct fake_fixture *fixture = *state;
    cleanup_free char *bytes = registry_fixture_noise(LARGE, 6);
    struct digest digest = fake_fixture_blob(fixture, "a", bytes, LARGE);
    const uint64_t sizes[] = {LARGE, UINT64_MAX};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct err err = ERR_INIT;
        struct taken taken = TAKEN;
        taken.fail_at = REGISTRY_PIECES_BYTES + 1;
        fake_fixture_config(fixture, "{}");
        assert_int_equal(get(fixture, &digest, sizes[i], &taken, &err), -ENOSPC);
        assert_int_equal(err.code, ERR_NO_SPACE);
        err_clear(&err);
        taken.fail_at = 0;
        taken.stop_at = 3;
        taken.calls = 0;
        fake_fixture_config(fixture, "{'rules':[{'method':'GET','send_rate':1000000}]}");
        assert_true(get(fixture, &digest, sizes[i], &taken, &err) < 0);
        assert_int_equal(err.code, ERR_CANCELLED);
        buf_free(&taken.bytes);
    }
}

static void test_pieces_in_order(void **state)
{
    struct fake_fixture *fixture = *state;
    cleanup_free char *bytes = registry_fixture_noise(LARGE, 7);
    const size_t pieces = (LARGE + REGISTRY_PIECES_BYTES - 1) / REGISTRY_PIECES_BYTES;
    assert_int_equal(comes_whole(fixture, "{'rules':[{'method':'GET','nth':1,'delay_ms':200}]}",
                                 bytes, LARGE, true),
                     pieces);
    /* Some pieces are late, and some break off, in whatever order they come. */
    assert_int_equal(comes_whole(fixture,
                                 "{'rules':[{'method':'GET','nth':2,'delay_ms':300},"
                                 "{'method':'GET','nth':3,'send':300000},"
                                 "{'method':'GET','nth':4,'send':70000,'end':'reset'},"
                                 "{'method':'GET','nth':1,'delay_ms':200,'send':3000000}]}",
                                 bytes, LARGE, true),
                     pieces + 3);
    assert_int_equal(comes_whole(fixture, "{}", bytes, LARGE, false), 1);
    /* Several at a time, and never more than the caller's and the threads'. */
    (void)comes_whole(fixture, "{'rules':[{'method':'GET','delay_ms':200}]}", bytes, LARGE, true);
    cleanup_json json_t *log = fake_registry_log(fixture->fake, 1);
    json_int_t most = 0;
    for (size_t i = 0; i < json_array_size(log); i++) {
        json_int_t now = json_integer_value(json_object_get(json_array_get(log, i), "inflight"));
        most = now > most ? now : most;
    }
    assert_in_range(most, 2, REGISTRY_PIECES_AHEAD + 1);
}

/* Where the sink is what takes the time, the rest comes in one request. */
static void test_a_slow_sink_needs_one_connection(void **state)
{
    struct fake_fixture *fixture = *state;
    cleanup_free char *bytes = registry_fixture_noise(LARGE, 13);
    struct digest digest = fake_fixture_blob(fixture, "a", bytes, LARGE);
    struct err err = ERR_INIT;
    struct taken taken = TAKEN;
    taken.work_us = 40000;
    fake_fixture_config(fixture, "{}");
    if (get(fixture, &digest, LARGE, &taken, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(taken.bytes.len, LARGE);
    assert_memory_equal(buf_str(&taken.bytes), bytes, LARGE);
    buf_free(&taken.bytes);
    assert_int_equal(fake_registry_count(fixture->fake, "GET", "*"), 2);
}

static void test_a_large_blob_without_ranges(void **state)
{
    struct fake_fixture *fixture = *state;
    cleanup_free char *bytes = registry_fixture_noise(LARGE, 8);
    assert_int_equal(comes_whole(fixture, "{'settings':{'ranges':false}}", bytes, LARGE, true), 1);
}

/* A piece that fails for good ends the download. */
static void test_a_piece_that_is_missing(void **state)
{
    struct fake_fixture *fixture = *state;
    cleanup_free char *bytes = registry_fixture_noise(LARGE, 9);
    struct digest digest = fake_fixture_blob(fixture, "a", bytes, LARGE);
    fails(fixture,
          "{'rules':[{'method':'GET','nth':1,'delay_ms':200},{'method':'GET','nth':3,'times':100,"
          "'status':403,'body':"
          "{'errors':[{'code':'DENIED','message':'not you'}]}}]}",
          &digest, LARGE, ERR_DENIED, 100);
}

/* The object store's address serves all pieces; when its time is over the registry is asked again.
 */
static void test_redirects_are_remembered(void **state)
{
    struct fake_fixture *fixture = *state;
    cleanup_free char *bytes = registry_fixture_noise(LARGE, 10);
    const size_t pieces = (LARGE + REGISTRY_PIECES_BYTES - 1) / REGISTRY_PIECES_BYTES;
    (void)comes_whole(fixture,
                      "{'settings':{'redirect_blobs':307},'rules':[{'method':'GET','nth':1,"
                      "'delay_ms':200}]}",
                      bytes, LARGE, true);
    cleanup_json json_t *log = fake_registry_log(fixture->fake, 1);
    size_t at_registry = 0;
    for (size_t i = 0; i < json_array_size(log); i++)
        at_registry +=
            strcmp(json_string_value(json_object_get(json_array_get(log, i), "host")), "main") == 0;
    assert_int_equal(at_registry, 1);
    assert_int_equal(json_array_size(log), pieces + 1);
    (void)comes_whole(
        fixture,
        "{'settings':{'redirect_blobs':307},'rules':[{'method':'GET','nth':1,'delay_ms':200},"
        "{'method':'GET','host':'other','nth':2,'status':403}]}",
        bytes, LARGE, true);
}

static int read_part(struct fake_fixture *fixture, const struct digest *digest, uint64_t offset,
                     char *into, size_t len, struct err *err)
{
    return remote_blob_read(fixture->remote, "a", digest, offset, into, len, NULL, NULL, err);
}

static void test_parts(void **state)
{
    struct fake_fixture *fixture = *state;
    cleanup_free char *bytes = registry_fixture_noise(SMALL, 11);
    struct digest digest = fake_fixture_blob(fixture, "a", bytes, SMALL);
    static const struct {
        uint64_t offset;
        size_t len;
    } parts[] = {{0, 1}, {0, SMALL}, {500000, 4096}, {SMALL - 1, 1}, {7, 0}};
    static const char *const configs[] = {"{}", "{'rules':[{'method':'GET','nth':1,'send':100}]}",
                                          "{'settings':{'redirect_blobs':302}}",
                                          "{'settings':{'ranges':false}}"};
    cleanup_free char *into = malloc(SMALL);
    for (size_t i = 0; i < ARRAY_SIZE(configs); i++)
        for (size_t j = 0; j < ARRAY_SIZE(parts); j++) {
            struct err err = ERR_INIT;
            fake_fixture_config(fixture, configs[i]);
            if (read_part(fixture, &digest, parts[j].offset, into, parts[j].len, &err) < 0)
                fail_msg("%s %zu: %s", configs[i], j, err.text);
            assert_memory_equal(into, bytes + parts[j].offset, parts[j].len);
        }
}

static void test_parts_behind_the_end(void **state)
{
    struct fake_fixture *fixture = *state;
    struct digest digest = fake_fixture_blob(fixture, "a", "hello", 5);
    static const struct {
        uint64_t offset;
        size_t len;
    } parts[] = {{0, 6}, {5, 1}, {1000, 10}};
    static const char *const configs[] = {"{}", "{'settings':{'ranges':false}}"};
    char into[16];
    for (size_t i = 0; i < ARRAY_SIZE(configs); i++)
        for (size_t j = 0; j < ARRAY_SIZE(parts); j++) {
            struct err err = ERR_INIT;
            fake_fixture_config(fixture, configs[i]);
            assert_true(read_part(fixture, &digest, parts[j].offset, into, parts[j].len, &err) < 0);
            if (err.code != ERR_DIGEST)
                fail_msg("%s %zu: %s %s", configs[i], j, err_code_name(err.code), err.text);
        }
    struct err err = ERR_INIT;
    assert_int_equal(read_part(fixture, &digest, 0, into, REMOTE_READ_MAX + 1, &err), -EINVAL);
}

/* Rules for `answers` answers of `each` bytes, one behind the other, from `from` on; then what the
 * blob has. */
static void in_small_parts(struct fake_fixture *fixture, const char *first, uint64_t from,
                           size_t each, int answers)
{
    cleanup_buf struct buf config = BUF_INIT(1 << 20);
    buf_addf(&config, NULL, "{'rules':[%s", first);
    for (int i = 0; i < answers; i++, from += each)
        buf_addf(&config, NULL,
                 "%s{'method':'GET','header':'range','nth':%d,'status':206,'body':'x','repeat':%zu,"
                 "'headers':{'Content-Range':'bytes %llu-%llu/%d'}}",
                 i > 0 || *first ? "," : "", i + 1, each, (unsigned long long)from,
                 (unsigned long long)(from + each - 1), SMALL);
    buf_addf(&config, NULL, "]}");
    fake_fixture_config(fixture, buf_str(&config));
}

/* A server that gives a byte for each request is given up, wherever it begins with that; one that
 * gives as much as counts is not, nor is the last part of a blob too small. */
static void test_bytes_one_by_one(void **state)
{
    struct fake_fixture *fixture = *state;
    cleanup_free char *bytes = registry_fixture_noise(SMALL, 14);
    struct digest digest = fake_fixture_blob(fixture, "a", bytes, SMALL);
    cleanup_free char *into = malloc(SMALL);
    const size_t most = REGISTRY_RETRY_MAX + 1;
    for (size_t each = 1; each < REGISTRY_RANGE_PROGRESS; each += REGISTRY_RANGE_PROGRESS - 2) {
        struct err err = ERR_INIT;
        in_small_parts(fixture, "", 1000, each, 14);
        assert_true(read_part(fixture, &digest, 1000, into, SMALL - 1000, &err) < 0);
        assert_int_equal(err.code, ERR_DAMAGED);
        assert_non_null(strstr(err.text, "one by one"));
        assert_int_equal(fake_registry_count(fixture->fake, "GET", "*"), most);
    }
    struct err err = ERR_INIT;
    struct taken taken = TAKEN;
    in_small_parts(fixture, "{'method':'GET','nth':1,'send':70000}", 70000, 1, 14);
    assert_true(get(fixture, &digest, SMALL, &taken, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_int_equal(fake_registry_count(fixture->fake, "GET", "*"), 1 + most);
    buf_free(&taken.bytes);
    err_clear(&err);
    in_small_parts(fixture, "", 0, REGISTRY_RANGE_PROGRESS, SMALL / REGISTRY_RANGE_PROGRESS);
    if (read_part(fixture, &digest, 0, into, SMALL, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(fake_registry_count(fixture->fake, "GET", "*"),
                     SMALL / REGISTRY_RANGE_PROGRESS + 1);
    size_t rest = SMALL % REGISTRY_RANGE_PROGRESS;
    assert_memory_equal(into + SMALL - rest, bytes + SMALL - rest, rest);
}

/* What is read back is compared. */
static void test_verification(void **state)
{
    struct fake_fixture *fixture = *state;
    cleanup_free char *bytes = registry_fixture_noise(SMALL, 12);
    struct digest digest = fake_fixture_blob(fixture, "a", bytes, SMALL);
    static const struct {
        const char *config;
        uint64_t size;
        enum err_code code;
    } cases[] = {
        {"{}", SMALL, ERR_NONE},
        {"{}", SMALL - 1, ERR_DIGEST},
        {"{}", SMALL + 1, ERR_DIGEST},
        {"{'rules':[{'method':'GET','flip':77}]}", SMALL, ERR_DIGEST},
        {"{'rules':[{'method':'GET','cut':1}]}", SMALL, ERR_DIGEST},
        {"{'rules':[{'method':'GET','no_length':true,'cut':1}]}", SMALL, ERR_DIGEST},
        {"{'rules':[{'method':'GET','status':404}]}", SMALL, ERR_NOT_FOUND},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        fake_fixture_config(fixture, cases[i].config);
        (void)remote_verify_blob(fixture->remote, "a", &digest, cases[i].size, NULL, NULL, &err);
        if (err.code != cases[i].code)
            fail_msg("%s: %s %s", cases[i].config, err_code_name(err.code), err.text);
    }
}

/* A download that never ends, until it is told to. */
struct bulk {
    struct fake_fixture *fixture;
    const struct digest *digest;
    atomic_bool *stop;
    pthread_t thread;
    enum err_code code;
};

static int stop_bulk(void *arg, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return atomic_load(((const struct bulk *)arg)->stop);
}

static int drop(void *arg, const void *bytes, size_t len, struct err *err)
{
    (void)arg, (void)bytes, (void)len, (void)err;
    return 0;
}

static void *run_bulk(void *arg)
{
    struct bulk *bulk = arg;
    struct remote *remote = bulk->fixture->remote;
    struct err err = ERR_INIT;
    (void)remote->ops->blob_get(remote, "a", bulk->digest, SMALL, drop, NULL, stop_bulk, bulk,
                                &err);
    bulk->code = err.code;
    return NULL;
}

/* More downloads than there are connections stand still; what is small is answered all the same,
 * as are questions. */
static void test_small_reads_do_not_wait_for_bulk_transfers(void **state)
{
    struct fake_fixture *fixture = *state;
    cleanup_free char *bytes = registry_fixture_noise(SMALL, 9);
    struct digest large = fake_fixture_blob(fixture, "a", bytes, SMALL);
    struct digest other = fake_fixture_blob(fixture, "a", bytes, SMALL / 2);
    char config[300];
    snprintf(config, sizeof config,
             "{'rules':[{'method':'GET','path':'*/%s','send':1000,'end':'stall'}]}",
             digest_format(&large).s);
    fake_fixture_config(fixture, config);
    struct bulk bulk[REGISTRY_POOL_CONNECTIONS + 2];
    atomic_bool stop = false;
    for (size_t i = 0; i < ARRAY_SIZE(bulk); i++) {
        bulk[i] = (struct bulk){.fixture = fixture, .digest = &large, .stop = &stop};
        assert_int_equal(pthread_create(&bulk[i].thread, NULL, run_bulk, &bulk[i]), 0);
    }
    const size_t share = REGISTRY_POOL_CONNECTIONS - REGISTRY_POOL_CONNECTIONS / 4;
    while (fake_registry_count(fixture->fake, "GET", "*") < share)
        assert_int_equal(registry_pool_sleep(5, NULL, NULL), 0);
    struct remote *remote = fixture->remote;
    int64_t from = clock_now_ms();
    for (int i = 0; i < 20; i++) {
        char part[1000];
        uint64_t size = 0;
        struct err err = ERR_INIT;
        if (remote_blob_read(remote, "a", &other, 7, part, sizeof part, NULL, NULL, &err) < 0)
            fail_msg("%s", err.text);
        assert_memory_equal(part, bytes + 7, sizeof part);
        assert_int_equal(remote->ops->blob_stat(remote, "a", &other, NULL, NULL, &size, NULL), 1);
    }
    assert_in_range(clock_now_ms() - from, 0, 10000);
    assert_int_equal(fake_registry_count(fixture->fake, "GET", "*"), share + 20);
    atomic_store(&stop, true);
    for (size_t i = 0; i < ARRAY_SIZE(bulk); i++) {
        pthread_join(bulk[i].thread, NULL);
        assert_int_equal(bulk[i].code, ERR_CANCELLED);
    }
}

#define with_fake(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, fake_fixture_setup, fake_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fake(test_goes_on_where_it_broke_off),
        with_fake(test_ranges_that_are_ignored),
        with_fake(test_one_blob_says_nothing_of_others),
        with_fake(test_a_range_that_is_refused),
        with_fake(test_the_end_is_no_failure),
        with_fake(test_what_cannot_be_mended),
        with_fake(test_the_sink_and_whoever_waits_are_heard),
        with_fake(test_pieces_in_order),
        with_fake(test_a_slow_sink_needs_one_connection),
        with_fake(test_a_large_blob_without_ranges),
        with_fake(test_a_piece_that_is_missing),
        with_fake(test_redirects_are_remembered),
        with_fake(test_parts),
        with_fake(test_parts_behind_the_end),
        with_fake(test_bytes_one_by_one),
        with_fake(test_verification),
        with_fake(test_small_reads_do_not_wait_for_bulk_transfers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
