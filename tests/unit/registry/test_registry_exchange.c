#include "registry_exchange.h"

#include "http_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static void short_bodies_are_failures(void **state)
{
    struct http_fixture *fixture = *state;
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1",
        "HTTP/1.1 2",
        "H",
    };
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        http_fixture_answer(fixture,
                            (struct fake_http_rule){.response = answers[i], .end = FAKE_CLOSE});
        cleanup_buf struct buf body = BUF_INIT(1 << 20);
        struct err err = ERR_INIT;
        int rc = http_fixture_get(fixture, &body, &err);
        if (rc >= 0)
            fail_msg("answer %zu was taken: %d", i, rc);
        assert_in_set(err.code, ((const LargestIntegralType[]){ERR_UNREACHABLE, ERR_DAMAGED}), 2);
        assert_true(err.text[0] != '\0');
    }
}

/* What comes after the stated length is no part of the body and of no other answer. */
static void long_bodies_are_cut(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(fixture,
                        (struct fake_http_rule){
                            .response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 "
                                        "404 Not Found\r\nContent-Length: 0\r\n\r\n"});
    for (int i = 0; i < 3; i++) {
        cleanup_buf struct buf body = BUF_INIT(1 << 20);
        assert_int_equal(http_fixture_get(fixture, &body, NULL), 200);
        assert_string_equal(buf_str(&body), "hello");
    }
}

static void lost_connections_are_unreachable(void **state)
{
    struct http_fixture *fixture = *state;
    static const struct fake_http_rule rules[] = {
        {.response = "", .end = FAKE_CLOSE},
        {.response = "", .end = FAKE_RESET},
        {.response = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", .end = FAKE_CLOSE},
        {.response = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello", .end = FAKE_RESET},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
        http_fixture_answer(fixture, rules[i]);
        cleanup_buf struct buf body = BUF_INIT(1 << 20);
        struct err err = ERR_INIT;
        assert_int_equal(http_fixture_get(fixture, &body, &err), -EHOSTUNREACH);
        assert_int_equal(err.code, ERR_UNREACHABLE);
        assert_non_null(strstr(err.text, fixture->base + strlen("http://")));
        assert_true(err.hint[0] != '\0');
    }
}

static void nobody_listens(void **state)
{
    struct http_fixture *fixture = *state;
    fake_http_stop(fixture->fake);
    fixture->fake = NULL;
    cleanup_buf struct buf body = BUF_INIT(16);
    struct err err = ERR_INIT;
    assert_int_equal(http_fixture_get(fixture, &body, &err), -EHOSTUNREACH);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    assert_non_null(strstr(err.text, "does not answer"));
    assert_non_null(strstr(err.text, "refused"));
    assert_non_null(strstr(err.hint, "port"));
}

static void names_that_do_not_exist(void **state)
{
    struct http_fixture *fixture = *state;
    struct registry_http_request request = {.method = REGISTRY_HTTP_GET,
                                            .url = "http://registry.invalid/"};
    cleanup_http_response struct registry_http_response response = {0};
    struct err err = ERR_INIT;
    assert_int_equal(registry_http_perform(fixture->http, &request, &response, &err),
                     -EHOSTUNREACH);
    assert_non_null(strstr(err.text, "registry.invalid"));
}

static void other_protocols_are_damaged_answers(void **state)
{
    struct http_fixture *fixture = *state;
    static const char *const answers[] = {"SSH-2.0-OpenSSH_9.2\r\n", "220 smtp ready\r\n",
                                          "\x15\x03\x01\x00\x02\x02\x16", "HTTP/1.1 abc\r\n\r\n",
                                          "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        http_fixture_answer(fixture,
                            (struct fake_http_rule){.response = answers[i], .end = FAKE_CLOSE});
        cleanup_buf struct buf body = BUF_INIT(1 << 20);
        struct err err = ERR_INIT;
        int rc = http_fixture_get(fixture, &body, &err);
        if (rc >= 0)
            fail_msg("answer %zu was taken: %d", i, rc);
        assert_int_equal(err.code, ERR_DAMAGED);
        assert_int_equal(body.len, 0);
    }
}

static void absurd_lengths_are_no_lengths(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(fixture,
                        (struct fake_http_rule){.response = "HTTP/1.1 200 OK\r\nContent-Length: "
                                                            "99999999999999999999999\r\n\r\n",
                                                .end = FAKE_CLOSE});
    struct registry_http_request request = {.method = REGISTRY_HTTP_HEAD, .url = fixture->base};
    cleanup_http_response struct registry_http_response response = {0};
    assert_int_equal(registry_http_perform(fixture->http, &request, &response, NULL), 0);
    assert_true(response.length == UINT64_MAX);
}

static void headers_are_bounded(void **state)
{
    struct http_fixture *fixture = *state;
    static char head[512 * 1024];
    static const struct {
        const char *name;
        size_t len; /* of each value */
        size_t lines;
    } cases[] = {
        {"Location", REGISTRY_HTTP_LOCATION_MAX, 1},
        {"Content-Range", REGISTRY_HTTP_VALUE_MAX, 1},
        {"X-Huge", 200 * 1024, 1}, /* curl's own limit of a line */
        {"X-Many", 1000, 300},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        size_t len = (size_t)snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\n");
        for (size_t line = 0; line < cases[i].lines; line++) {
            len += (size_t)snprintf(head + len, sizeof head - len, "%s: ", cases[i].name);
            memset(head + len, 'y', cases[i].len);
            len += cases[i].len;
            len += (size_t)snprintf(head + len, sizeof head - len, "\r\n");
        }
        snprintf(head + len, sizeof head - len, "Content-Length: 0\r\n\r\n");
        http_fixture_answer(fixture, (struct fake_http_rule){.response = head, .end = FAKE_CLOSE});
        cleanup_buf struct buf body = BUF_INIT(16);
        struct err err = ERR_INIT;
        int rc = http_fixture_get(fixture, &body, &err);
        if (rc >= 0)
            fail_msg("%s was taken", cases[i].name);
        assert_int_equal(err.code, ERR_TOO_LARGE);
    }
}

static void status_lines_are_bounded(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(fixture, (struct fake_http_rule){.response = "HTTP/1.1 200 ",
                                                         .repeat = 300 * 1024,
                                                         .end = FAKE_CLOSE});
    cleanup_buf struct buf body = BUF_INIT(16);
    struct err err = ERR_INIT;
    assert_true(http_fixture_get(fixture, &body, &err) < 0);
    assert_int_equal(err.code, ERR_TOO_LARGE);
}

static void interim_answers_are_forgotten(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(fixture, (struct fake_http_rule){
                                     .response = "HTTP/1.1 103 Early Hints\r\nLocation: /early\r\n"
                                                 "Content-Type: a/b\r\n\r\n"
                                                 "HTTP/1.1 202 Accepted\r\n"
                                                 "Content-Length: 0\r\n\r\n"});
    struct registry_http_request request = {.method = REGISTRY_HTTP_POST, .url = fixture->base};
    cleanup_http_response struct registry_http_response response = {0};
    assert_int_equal(registry_http_perform(fixture->http, &request, &response, NULL), 0);
    assert_int_equal(response.status, 202);
    assert_null(response.location);
    assert_null(response.content_type);
}

static void longest_location_is_kept(void **state)
{
    struct http_fixture *fixture = *state;
    static char head[REGISTRY_HTTP_LOCATION_MAX + 100];
    size_t len = (size_t)snprintf(head, sizeof head, "HTTP/1.1 201 Created\r\nLocation: /");
    memset(head + len, 'y', REGISTRY_HTTP_LOCATION_MAX - 2);
    len += REGISTRY_HTTP_LOCATION_MAX - 2;
    snprintf(head + len, sizeof head - len, "\r\nContent-Length: 0\r\n\r\n");
    http_fixture_answer(fixture, (struct fake_http_rule){.response = head});
    struct registry_http_request request = {.method = REGISTRY_HTTP_POST, .url = fixture->base};
    cleanup_http_response struct registry_http_response response = {0};
    assert_int_equal(registry_http_perform(fixture->http, &request, &response, NULL), 0);
    assert_int_equal(strlen(response.location), REGISTRY_HTTP_LOCATION_MAX - 1);
}

static void headers_with_control_characters_are_refused(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(
        fixture, (struct fake_http_rule){.response = "HTTP/1.1 200 OK\r\nLocation: a\x1b[31m\r\n"
                                                     "Content-Length: 0\r\n\r\n"});
    cleanup_buf struct buf body = BUF_INIT(16);
    struct err err = ERR_INIT;
    assert_true(http_fixture_get(fixture, &body, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_non_null(strstr(err.text, "Location"));
}

static void endless_interim_answers_end(void **state)
{
    struct http_fixture *fixture = *state;
    static char answers[512 * 1024];
    size_t len = 0;
    while (len + 64 < sizeof answers)
        len += (size_t)snprintf(answers + len, sizeof answers - len,
                                "HTTP/1.1 103 Early Hints\r\n\r\n");
    http_fixture_answer(fixture, (struct fake_http_rule){.response = answers, .end = FAKE_CLOSE});
    cleanup_buf struct buf body = BUF_INIT(16);
    struct err err = ERR_INIT;
    assert_int_equal(http_fixture_get(fixture, &body, &err), -EFBIG);
    assert_int_equal(err.code, ERR_TOO_LARGE);
}

static void sinks_are_bounded(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(
        fixture,
        (struct fake_http_rule){.response = "HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n",
                                .repeat = 1048577});
    cleanup_buf struct buf body = BUF_INIT(4 << 20);
    struct err err = ERR_INIT;
    assert_int_equal(http_fixture_get(fixture, &body, &err), -EFBIG); /* its limit is 1 MiB */
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_true(body.len <= 1 << 20);
    http_fixture_answer(
        fixture,
        (struct fake_http_rule){.response = "HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n",
                                .repeat = 1048576});
    buf_free(&body);
    assert_int_equal(http_fixture_get(fixture, &body, NULL), 200);
    assert_int_equal(body.len, 1 << 20);
}

static void refusals_are_bounded(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(fixture,
                        (struct fake_http_rule){
                            .response = "HTTP/1.1 500 Oops\r\nContent-Length: 100000000\r\n\r\n",
                            .repeat = 10 << 20});
    char url[128];
    snprintf(url, sizeof url, "%s/x", fixture->base);
    cleanup_buf struct buf body = BUF_INIT(16);
    struct registry_http_request request = {
        .method = REGISTRY_HTTP_GET, .url = url, .sink = http_fixture_add, .sink_arg = &body};
    cleanup_http_response struct registry_http_response response = {0};
    assert_int_equal(registry_http_perform(fixture->http, &request, &response, NULL), 0);
    assert_int_equal(response.status, 500);
    assert_int_equal(response.refusal.len, REGISTRY_HTTP_REFUSAL_MAX);
    assert_int_equal(body.len, 0);
}

static int failing_sink(void *arg, const void *bytes, size_t len, struct err *err)
{
    (void)bytes, (void)len;
    ++*(int *)arg;
    return err_fail(err, ERR_NO_SPACE, "the sink is full");
}

static void failure_of_the_sink_is_the_result(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(
        fixture,
        (struct fake_http_rule){.response = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
                                .repeat = 1000000});
    int calls = 0;
    char url[128];
    snprintf(url, sizeof url, "%s/x", fixture->base);
    struct registry_http_request request = {.method = REGISTRY_HTTP_GET,
                                            .url = url,
                                            .sink = failing_sink,
                                            .sink_arg = &calls,
                                            .sink_max = UINT64_MAX};
    cleanup_http_response struct registry_http_response response = {0};
    struct err err = ERR_INIT;
    assert_int_equal(registry_http_perform(fixture->http, &request, &response, &err), -ENOSPC);
    assert_string_equal(err.text, "the sink is full");
    assert_int_equal(calls, 1);
}

/* Time that the sink takes is not the peer's, and its bytes are not lost meanwhile. */
static int slow_sink(void *arg, const void *bytes, size_t len, struct err *err)
{
    (void)bytes, (void)err;
    uint64_t *got = arg;
    if (*got == 0)
        assert_int_equal(registry_pool_sleep(2500, NULL, NULL), 0);
    *got += len;
    return 0;
}

static void slow_sinks_are_waited_for(void **state)
{
    struct http_fixture *fixture = *state;
    registry_http_set_timeouts(fixture->http, 5, 1, 1);
    http_fixture_answer(
        fixture,
        (struct fake_http_rule){.response = "HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n",
                                .repeat = 20000000});
    uint64_t got = 0;
    struct registry_http_request request = {.method = REGISTRY_HTTP_GET,
                                            .url = fixture->base,
                                            .sink = slow_sink,
                                            .sink_arg = &got,
                                            .sink_max = UINT64_MAX};
    cleanup_http_response struct registry_http_response response = {0};
    struct err err = ERR_INIT;
    if (registry_http_perform(fixture->http, &request, &response, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(got, 20000000);
}

static void files_that_are_too_short_fail(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(fixture, (struct fake_http_rule){.response = HTTP_FIXTURE_OK});
    struct err err = ERR_INIT;
    assert_true(http_fixture_put_file(fixture, 1000, 2000, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_non_null(strstr(err.text, "1000 of 2000"));
}

static void unreadable_files_fail(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(fixture, (struct fake_http_rule){.response = HTTP_FIXTURE_OK});
    struct registry_http_request request = {
        .method = REGISTRY_HTTP_PUT, .url = fixture->base, .body_fd = -1, .body_size = 5};
    cleanup_http_response struct registry_http_response response = {0};
    struct err err = ERR_INIT;
    assert_int_equal(registry_http_perform(fixture->http, &request, &response, &err), -EBADF);
    assert_int_equal(err.code, ERR_IO);
}

static void uploads_can_be_cancelled(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(fixture, (struct fake_http_rule){.response = HTTP_FIXTURE_OK});
    struct http_fixture_progress progress = {.cancel_at = 1 << 20};
    struct err err = ERR_INIT;
    assert_int_equal(http_fixture_put_file(fixture, 64 << 20, 64 << 20, &progress, &err),
                     -ECANCELED);
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_true(progress.last < 64 << 20);
}

static int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Also while the registry says nothing. */
static void silent_uploads_can_be_cancelled(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(fixture, (struct fake_http_rule){.response = "", .end = FAKE_STALL});
    struct http_fixture_progress progress = {.cancel_at = 100};
    int64_t start = now_ms();
    assert_int_equal(http_fixture_put_file(fixture, 100, 100, &progress, NULL), -ECANCELED);
    assert_true(now_ms() - start < 10000);
}

static void early_refusals_of_uploads_are_told(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(fixture, (struct fake_http_rule){
                                     .response = "HTTP/1.1 413 Too Large\r\nConnection: close\r\n"
                                                 "Content-Length: 3\r\n\r\nbig",
                                     .skip_body = true,
                                     .end = FAKE_CLOSE});
    struct err err = ERR_INIT;
    assert_int_equal(http_fixture_put_file(fixture, 64 << 20, 64 << 20, NULL, &err), 413);
}

static void silence_before_the_answer_ends(void **state)
{
    struct http_fixture *fixture = *state;
    registry_http_set_timeouts(fixture->http, 5, 1, 1);
    http_fixture_answer(fixture, (struct fake_http_rule){.response = "", .end = FAKE_STALL});
    cleanup_buf struct buf body = BUF_INIT(16);
    struct err err = ERR_INIT;
    int64_t start = now_ms();
    assert_int_equal(http_fixture_get(fixture, &body, &err), -EHOSTUNREACH);
    assert_in_range(now_ms() - start, 900, 20000);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    assert_non_null(strstr(err.text, "in time"));
}

static void silence_within_the_answer_ends(void **state)
{
    struct http_fixture *fixture = *state;
    registry_http_set_timeouts(fixture->http, 5, 1, 1);
    http_fixture_answer(
        fixture,
        (struct fake_http_rule){.response = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello",
                                .end = FAKE_STALL});
    cleanup_buf struct buf body = BUF_INIT(1 << 20);
    struct err err = ERR_INIT;
    assert_int_equal(http_fixture_get(fixture, &body, &err), -EHOSTUNREACH);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    assert_int_equal(body.len, 5);
}

static void uploads_that_nobody_reads_end(void **state)
{
    struct http_fixture *fixture = *state;
    registry_http_set_timeouts(fixture->http, 5, 1, 60);
    http_fixture_answer(
        fixture, (struct fake_http_rule){.response = "", .skip_body = true, .end = FAKE_STALL});
    struct err err = ERR_INIT;
    assert_int_equal(http_fixture_put_file(fixture, 256 << 20, 256 << 20, NULL, &err),
                     -EHOSTUNREACH);
    assert_int_equal(err.code, ERR_UNREACHABLE);
}

/* Storing takes longer than standing still may, but not for ever. (curl takes the speed over five
 * seconds, so that it sees a standstill later than asked for.) */
static void storing_an_upload_may_take_longer(void **state)
{
    struct http_fixture *fixture = *state;
    registry_http_set_timeouts(fixture->http, 5, 1, 30);
    http_fixture_answer(fixture,
                        (struct fake_http_rule){.response = HTTP_FIXTURE_OK, .delay_ms = 9000});
    struct err err = ERR_INIT;
    assert_int_equal(http_fixture_put_file(fixture, 3 << 20, 3 << 20, NULL, &err), 200);
    assert_int_equal(http_fixture_put(fixture, "", 0, &err), 200);
    registry_http_set_timeouts(fixture->http, 5, 1, 2);
    http_fixture_answer(fixture, (struct fake_http_rule){.response = "", .end = FAKE_STALL});
    assert_int_equal(http_fixture_put(fixture, "hello", 5, &err), -EHOSTUNREACH);
}

#define FIVE_LINES  "A: 1\r\nA: 2\r\nA: 3\r\nA: 4\r\nA: 5\r\n"
#define MANY_LINES  FIVE_LINES FIVE_LINES FIVE_LINES FIVE_LINES FIVE_LINES FIVE_LINES FIVE_LINES
#define TWENTY      "01234567890123456789"
#define MANY_DIGITS TWENTY TWENTY TWENTY TWENTY TWENTY TWENTY TWENTY TWENTY TWENTY TWENTY

/* An answer that comes byte by byte does not stand still, and has an end all the same: that to an
 * upload, and the headers of a download. What is wanted of a download may take as long as it does.
 */
static void answers_have_an_end(void **state)
{
    struct http_fixture *fixture = *state;
    static const char *const answers[] = {
        "HTTP/1.1 201 Created\r\n" MANY_LINES "Content-Length: 0\r\n\r\n",
        "HTTP/1.1 400 Bad\r\nContent-Length: 200\r\n\r\n" MANY_DIGITS,
    };
    registry_http_set_timeouts(fixture->http, 5, 1, 2);
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        http_fixture_answer(fixture,
                            (struct fake_http_rule){.response = answers[i], .byte_ms = 20});
        struct err err = ERR_INIT;
        int64_t start = now_ms();
        assert_int_equal(http_fixture_put(fixture, "hello", 5, &err), -EHOSTUNREACH);
        assert_int_equal(err.code, ERR_UNREACHABLE);
        assert_non_null(strstr(err.text, "its answer took more than 2 seconds"));
        assert_in_range(now_ms() - start, 1900, 20000);
    }
    static const char *const downloads[] = {"HTTP/1.1 200 OK\r\n" MANY_LINES "\r\n",
                                            "HTTP/1.1 200 OK\r\n\r\n" MANY_DIGITS};
    cleanup_buf struct buf body = BUF_INIT(4096);
    struct registry_http_request request = {.method = REGISTRY_HTTP_GET,
                                            .url = fixture->base,
                                            .sink = http_fixture_add,
                                            .sink_arg = &body,
                                            .sink_max = UINT64_MAX};
    for (int wanted = 0; wanted < 2; wanted++) {
        http_fixture_answer(fixture, (struct fake_http_rule){.response = downloads[wanted],
                                                             .byte_ms = 20,
                                                             .end = FAKE_CLOSE});
        cleanup_http_response struct registry_http_response response = {0};
        int rc = registry_http_perform(fixture->http, &request, &response, NULL);
        assert_int_equal(rc, wanted ? 0 : -EHOSTUNREACH);
        assert_int_equal(body.len, wanted ? strlen(MANY_DIGITS) : 0);
    }
}

static void total_time_is_limited_on_request(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(fixture, (struct fake_http_rule){.response = "", .end = FAKE_STALL});
    struct registry_http_request request = {
        .method = REGISTRY_HTTP_DELETE, .url = fixture->base, .total_timeout_s = 1};
    cleanup_http_response struct registry_http_response response = {0};
    int64_t start = now_ms();
    assert_int_equal(registry_http_perform(fixture->http, &request, &response, NULL),
                     -EHOSTUNREACH);
    assert_in_range(now_ms() - start, 900, 20000);
}

#define test(name) cmocka_unit_test_setup_teardown(name, http_fixture_setup, http_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(short_bodies_are_failures),
        test(long_bodies_are_cut),
        test(lost_connections_are_unreachable),
        test(nobody_listens),
        test(names_that_do_not_exist),
        test(other_protocols_are_damaged_answers),
        test(absurd_lengths_are_no_lengths),
        test(headers_are_bounded),
        test(status_lines_are_bounded),
        test(interim_answers_are_forgotten),
        test(longest_location_is_kept),
        test(headers_with_control_characters_are_refused),
        test(endless_interim_answers_end),
        test(sinks_are_bounded),
        test(refusals_are_bounded),
        test(failure_of_the_sink_is_the_result),
        test(slow_sinks_are_waited_for),
        test(files_that_are_too_short_fail),
        test(unreadable_files_fail),
        test(uploads_can_be_cancelled),
        test(silent_uploads_can_be_cancelled),
        test(early_refusals_of_uploads_are_told),
        test(silence_before_the_answer_ends),
        test(silence_within_the_answer_ends),
        test(uploads_that_nobody_reads_end),
        test(storing_an_upload_may_take_longer),
        test(answers_have_an_end),
        test(total_time_is_limited_on_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
