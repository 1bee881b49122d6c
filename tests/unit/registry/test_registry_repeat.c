#include "registry_repeat.h"

#include "auth_fixture.h"
#include "fdio.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* Performs a request to /v2/; the status or a failure. */
static int perform(struct auth_fixture *fixture, struct registry_http_request *request,
                   enum registry_repeat repeat, struct err *err)
{
    char url[128];
    snprintf(url, sizeof url, "%s/v2/", fixture->base);
    struct registry_repeat_means means = {.http = fixture->registry->http,
                                          .time = &fixture->quick.time};
    cleanup_http_response struct registry_http_response response = {0};
    request->url = url;
    int rc = registry_repeat_perform(&means, request, repeat, NULL, &response, err);
    return rc < 0 ? rc : (int)response.status;
}

static int get(struct auth_fixture *fixture, enum registry_repeat repeat, struct err *err)
{
    struct registry_http_request request = {.method = REGISTRY_HTTP_GET};
    return perform(fixture, &request, repeat, err);
}

static void failures_that_pass_are_asked_again(void **state)
{
    struct auth_fixture *fixture = *state;
    static const int statuses[] = {408, 429, 500, 502, 503, 504};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        char rules[100];
        snprintf(rules, sizeof rules, "{'rules':[{'status':%d,'times':2}]}", statuses[i]);
        auth_fixture_config(fixture, rules);
        fixture->quick.sleeps = 0;
        assert_int_equal(get(fixture, REGISTRY_REPEAT_SAFE, NULL), 200);
        assert_int_equal(auth_fixture_count(fixture, NULL, "*", 0), 3);
        assert_int_equal(fixture->quick.sleeps, 2);
    }
}

static void other_refusals_are_final(void **state)
{
    struct auth_fixture *fixture = *state;
    static const int statuses[] = {400, 401, 403, 404, 405, 409, 410, 413, 416, 501, 505};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        char rules[100];
        snprintf(rules, sizeof rules, "{'rules':[{'status':%d,'times':1}]}", statuses[i]);
        auth_fixture_config(fixture, rules);
        assert_int_equal(get(fixture, REGISTRY_REPEAT_SAFE, NULL), statuses[i]);
        assert_int_equal(auth_fixture_count(fixture, NULL, "*", 0), 1);
    }
}

static void attempts_are_bounded(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_config(fixture, "{'rules':[{'status':503}]}");
    assert_int_equal(get(fixture, REGISTRY_REPEAT_SAFE, NULL), 503);
    assert_int_equal(auth_fixture_count(fixture, NULL, "*", 0), REGISTRY_RETRY_MAX);
    auth_fixture_config(fixture, "{'rules':[{'raw':'HTTP/1.1 200 OK\\r\\n'}]}");
    struct err err = ERR_INIT;
    assert_true(get(fixture, REGISTRY_REPEAT_SAFE, &err) < 0);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    assert_non_null(strstr(err.text, "6 attempts failed"));
    assert_int_equal(auth_fixture_count(fixture, NULL, "*", 0), REGISTRY_RETRY_MAX);
}

/* What may have been done is not done again, unless the registry says that it was not. */
static void what_is_not_safe_is_not_repeated(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_config(fixture, "{'rules':[{'status':503,'times':1}]}");
    assert_int_equal(get(fixture, REGISTRY_REPEAT_NEVER, NULL), 503);
    auth_fixture_config(fixture, "{'rules':[{'raw':'HTTP/1.1 200 OK\\r\\n','nth':1}]}");
    struct err err = ERR_INIT;
    assert_true(get(fixture, REGISTRY_REPEAT_NEVER, &err) < 0);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    assert_int_equal(auth_fixture_count(fixture, NULL, "*", 0), 1);
    auth_fixture_config(fixture, "{'rules':[{'status':429,'nth':1},{'status':503,'nth':2,"
                                 "'headers':{'Retry-After':'1'}}]}");
    assert_int_equal(get(fixture, REGISTRY_REPEAT_NEVER, NULL), 200);
    assert_int_equal(auth_fixture_count(fixture, NULL, "*", 0), 3);
}

static void what_the_registry_asks_for_holds_for_all(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_config(fixture, "{'rules':[{'status':429,'nth':1,'headers':{'Retry-After':'3'}}"
                                 ",{'status':429,'nth':2,'headers':{'Retry-After':"
                                 "'{date+30}'}}]}");
    assert_int_equal(get(fixture, REGISTRY_REPEAT_SAFE, NULL), 200);
    assert_int_equal(fixture->quick.pauses, 2);
    /* The second is a date by the registry's clock, of which the first wait has taken its part. */
    assert_in_range(fixture->quick.pause_ms, 24000, 34000);
    assert_in_range(fixture->quick.last_ms, 24000, 34000);
    auth_fixture_config(fixture, "{'rules':[{'status':503,'times':1}]}");
    assert_int_equal(get(fixture, REGISTRY_REPEAT_SAFE, NULL), 200);
    assert_int_equal(fixture->quick.pauses, 2);
}

/* The answer itself says how long (registry_error.h). */
static void one_that_is_too_long_is_the_answer(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_config(fixture, "{'rules':[{'status':429,'headers':{'Retry-After':'86400'}}]}");
    assert_int_equal(get(fixture, REGISTRY_REPEAT_SAFE, NULL), 429);
    assert_int_equal(auth_fixture_count(fixture, NULL, "*", 0), 1);
    assert_int_equal(fixture->quick.sleeps, 0);
}

static void bodies_are_sent_again_from_their_beginning(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_config(fixture, "{'rules':[{'method':'PUT','raw':'HTTP/1.1 200 OK\\r\\n','nth':1},"
                                 "{'method':'PUT','status':500,'nth':2},"
                                 "{'method':'PUT','status':201}]}");
    struct registry_http_request request = {
        .method = REGISTRY_HTTP_PUT, .body = "0123456789", .body_fd = -1, .body_size = 10};
    assert_int_equal(perform(fixture, &request, REGISTRY_REPEAT_SAFE, NULL), 201);
    assert_string_equal(auth_fixture_record(fixture, "PUT", "*", 1, "body"), "0123456789");
    assert_string_equal(auth_fixture_record(fixture, "PUT", "*", 2, "body"), "0123456789");
    auth_fixture_config(fixture, "{'rules':[{'method':'PUT','status':500,'nth':1},"
                                 "{'method':'PUT','status':201}]}");
    cleanup_fd int fd = memfd_create("body", MFD_CLOEXEC);
    assert_int_equal(fdio_write_full(fd, "0123456789", 10), 0);
    request = (struct registry_http_request){
        .method = REGISTRY_HTTP_PUT, .body_fd = fd, .body_offset = 4, .body_size = 5};
    assert_int_equal(perform(fixture, &request, REGISTRY_REPEAT_SAFE, NULL), 201);
    assert_string_equal(auth_fixture_record(fixture, "PUT", "*", 0, "body"), "45678");
    assert_string_equal(auth_fixture_record(fixture, "PUT", "*", 1, "body"), "45678");
}

/* A body that was on its way for a while and broke off: the way is no time without progress. The
 * time after it is. */
static void time_on_the_way_does_not_count(void **state)
{
    struct auth_fixture *fixture = *state;
    static const size_t size = 32 << 20;
    auth_fixture_config(fixture, "{'rules':[{'method':'PATCH','read':16777216,'read_rate':"
                                 "33554432}]}");
    cleanup_fd int fd = memfd_create("body", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    char url[128];
    snprintf(url, sizeof url, "%s/v2/a/blobs/uploads/", fixture->base);
    struct registry_repeat_means means = {.http = fixture->registry->http,
                                          .time = &fixture->quick.time};
    struct registry_http_request request = {.method = REGISTRY_HTTP_POST, .url = url};
    cleanup_http_response struct registry_http_response opened = {0};
    assert_int_equal(
        registry_repeat_perform(&means, &request, REGISTRY_REPEAT_NEVER, NULL, &opened, NULL), 0);
    request = (struct registry_http_request){
        .method = REGISTRY_HTTP_PATCH, .url = opened.location, .body_fd = fd, .body_size = size};
    struct registry_retry retry = {.attempts = 1, .since_ms = 1000};
    cleanup_http_response struct registry_http_response response = {0};
    struct err err = ERR_INIT;
    int64_t from = clock_now_ms();
    assert_true(registry_repeat_perform(&means, &request, REGISTRY_REPEAT_NEVER, &retry, &response,
                                        &err) < 0);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    assert_in_range(retry.since_ms - 1000, 100, clock_now_ms() - from);
    /* What is between may say so. */
    auth_fixture_config(fixture, "{'rules':[{'method':'PATCH','read':16777216,'read_rate':"
                                 "33554432,'status':504}]}");
    retry = (struct registry_retry){.attempts = 1, .since_ms = 1000};
    from = clock_now_ms();
    registry_http_response_free(&response);
    assert_int_equal(
        registry_repeat_perform(&means, &request, REGISTRY_REPEAT_NEVER, &retry, &response, &err),
        0);
    assert_int_equal(response.status, 504);
    assert_in_range(retry.since_ms - 1000, 100, clock_now_ms() - from);
}

static int add(void *arg, const void *bytes, size_t len, struct err *err)
{
    return buf_add(arg, bytes, len, "body", err);
}

static void a_sink_that_has_bytes_ends_it(void **state)
{
    struct auth_fixture *fixture = *state;
    cleanup_buf struct buf body = BUF_INIT(1000);
    struct registry_http_request request = {
        .method = REGISTRY_HTTP_GET, .sink = add, .sink_arg = &body, .sink_max = 1000};
    auth_fixture_config(fixture, "{'rules':[{'status':200,'body':'0123456789','send':4}]}");
    struct err err = ERR_INIT;
    assert_true(perform(fixture, &request, REGISTRY_REPEAT_SAFE, &err) < 0);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    assert_int_equal(body.len, 4);
    assert_int_equal(auth_fixture_count(fixture, NULL, "*", 0), 1);
    /* Before the first byte there is nothing to take back. */
    buf_free(&body);
    auth_fixture_config(fixture, "{'rules':[{'status':200,'body':'0123456789','send':0,'times':1},"
                                 "{'status':200,'body':'0123456789'}]}");
    assert_int_equal(perform(fixture, &request, REGISTRY_REPEAT_SAFE, NULL), 200);
    assert_string_equal(buf_str(&body), "0123456789");
}

static int refuse_bytes(void *arg, const void *bytes, size_t len, struct err *err)
{
    (void)arg, (void)bytes, (void)len;
    return err_fail(err, ERR_NO_SPACE, "full");
}

static void the_callers_own_failures_are_final(void **state)
{
    struct auth_fixture *fixture = *state;
    struct registry_http_request request = {
        .method = REGISTRY_HTTP_GET, .sink = refuse_bytes, .sink_max = 1000};
    auth_fixture_config(fixture, "{'rules':[{'status':200,'body':'0123456789'}]}");
    struct err err = ERR_INIT;
    assert_true(perform(fixture, &request, REGISTRY_REPEAT_SAFE, &err) < 0);
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_int_equal(auth_fixture_count(fixture, NULL, "*", 0), 1);
}

static int stop(void *arg, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return ((struct auth_fixture *)arg)->quick.sleeps > 0;
}

static void a_wait_can_be_cancelled(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_config(fixture, "{'rules':[{'status':503}]}");
    struct registry_http_request request = {
        .method = REGISTRY_HTTP_GET, .progress = stop, .progress_arg = fixture};
    struct err err = ERR_INIT;
    assert_true(perform(fixture, &request, REGISTRY_REPEAT_SAFE, &err) < 0);
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_int_equal(auth_fixture_count(fixture, NULL, "*", 0), 1);
}

/* The system's own time: one short pause is really taken. */
static void real_pauses_last(void **state)
{
    struct auth_fixture *fixture = *state;
    auth_fixture_config(fixture, "{'rules':[{'status':500,'times':1}]}");
    struct registry_repeat_time time = registry_repeat_system_time();
    struct registry_repeat_means means = {.http = fixture->registry->http, .time = &time};
    char url[128];
    snprintf(url, sizeof url, "%s/v2/", fixture->base);
    struct registry_http_request request = {.method = REGISTRY_HTTP_GET, .url = url};
    cleanup_http_response struct registry_http_response response = {0};
    int64_t start = clock_now_ms();
    assert_int_equal(
        registry_repeat_perform(&means, &request, REGISTRY_REPEAT_SAFE, NULL, &response, NULL), 0);
    assert_int_equal(response.status, 200);
    assert_true(clock_now_ms() - start >= REGISTRY_RETRY_FIRST_MS / 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, auth_fixture_setup, auth_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(failures_that_pass_are_asked_again),
        TEST(other_refusals_are_final),
        TEST(attempts_are_bounded),
        TEST(what_is_not_safe_is_not_repeated),
        TEST(what_the_registry_asks_for_holds_for_all),
        TEST(one_that_is_too_long_is_the_answer),
        TEST(bodies_are_sent_again_from_their_beginning),
        TEST(time_on_the_way_does_not_count),
        TEST(a_sink_that_has_bytes_ends_it),
        TEST(the_callers_own_failures_are_final),
        TEST(a_wait_can_be_cancelled),
        TEST(real_pauses_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
