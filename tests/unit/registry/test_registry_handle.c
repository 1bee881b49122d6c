/* Ranges: how they are asked for, and which answers are taken. */

#include "registry_handle.h"

#include "http_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A GET of a range into a buffer; the status or a failure. */
struct ranged {
    struct buf body;
    long status; /* what the head said before the first byte */
    uint64_t total;
    int heads;
    int head_rc;
};

static int on_head(void *arg, const struct registry_http_response *head, struct err *err)
{
    struct ranged *ranged = arg;
    ranged->heads++;
    ranged->status = head->status;
    ranged->total = head->range_total;
    assert_int_equal(ranged->body.len, 0);
    return ranged->head_rc < 0 ? err_fail(err, ERR_CONFLICT, "not wanted") : 0;
}

static int add_to_ranged(void *arg, const void *bytes, size_t len, struct err *err)
{
    struct ranged *ranged = arg;
    return buf_add(&ranged->body, bytes, len, "body", err);
}

static int get_range(struct http_fixture *fixture, uint64_t offset, uint64_t len,
                     struct ranged *ranged, struct err *err)
{
    struct registry_http_request request = {.method = REGISTRY_HTTP_GET,
                                            .url = fixture->base,
                                            .sink = add_to_ranged,
                                            .head = on_head,
                                            .sink_arg = ranged,
                                            .sink_max = 100,
                                            .range_offset = offset,
                                            .range_len = len};
    cleanup_http_response struct registry_http_response response = {0};
    int rc = registry_http_perform(fixture->http, &request, &response, err);
    return rc < 0 ? rc : (int)response.status;
}

static void ranges_are_asked_for(void **state)
{
    struct http_fixture *fixture = *state;
    static const struct {
        const char *answer;
        const char *body;
        uint64_t total;
        int status;
    } cases[] = {
        {"HTTP/1.1 206 Partial\r\nContent-Range: bytes 3-7/20\r\nContent-Length: 5\r\n\r\nhello",
         "hello", 20, 206},
        {"HTTP/1.1 206 Partial\r\nContent-Range: bytes 3-5/6\r\nContent-Length: 3\r\n\r\nhel",
         "hel", 6, 206},
        {"HTTP/1.1 206 Partial\r\nContent-Range: bytes 3-7/*\r\n"
         "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
         "hello", UINT64_MAX, 206},
        {"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n012hello", "012hello", UINT64_MAX, 200},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        http_fixture_answer(fixture, (struct fake_http_rule){.response = cases[i].answer});
        struct ranged ranged = {.body = BUF_INIT(1000)};
        struct err err = ERR_INIT;
        if (get_range(fixture, 3, 5, &ranged, &err) != cases[i].status)
            fail_msg("answer %zu: %s", i, err.text);
        assert_string_equal(buf_str(&ranged.body), cases[i].body);
        assert_int_equal(ranged.status, cases[i].status);
        assert_true(ranged.total == cases[i].total);
        assert_int_equal(ranged.heads, 1);
        assert_string_equal(fake_http_header(fake_http_at(fixture->fake, 0), "Range"), "bytes=3-7");
        buf_free(&ranged.body);
    }
}

static void other_ranges_are_damaged_answers(void **state)
{
    struct http_fixture *fixture = *state;
    static const char *const ranges[] = {
        "Content-Range: bytes 2-6/20",
        "Content-Range: bytes 3-8/20",
        "Content-Range: bytes 3-6/20",
        "Content-Range: bytes 4-8/20",
        "Content-Range: bytes",
        "Content-Range: bytes 3-7/5",
        "Content-Type: multipart/byteranges; boundary=x",
    };
    for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
        char answer[256];
        snprintf(answer, sizeof answer,
                 "HTTP/1.1 206 Partial\r\n%s\r\nContent-Length: 5\r\n\r\nhello", ranges[i]);
        http_fixture_answer(fixture, (struct fake_http_rule){.response = answer});
        struct ranged ranged = {.body = BUF_INIT(1000)};
        struct err err = ERR_INIT;
        if (get_range(fixture, 3, 5, &ranged, &err) >= 0)
            fail_msg("%s was taken", ranges[i]);
        assert_int_equal(err.code, ERR_DAMAGED);
        assert_int_equal(ranged.body.len, 0);
        assert_int_equal(ranged.heads, 0);
    }
    http_fixture_answer(fixture,
                        (struct fake_http_rule){
                            .response = "HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-4/20\r\n"
                                        "Content-Length: 5\r\n\r\nhello"});
    cleanup_buf struct buf body = BUF_INIT(100);
    struct err err = ERR_INIT;
    assert_true(http_fixture_get(fixture, &body, &err) < 0); /* nobody has asked for a range */
    assert_int_equal(err.code, ERR_DAMAGED);
}

static void heads_can_end_a_transfer(void **state)
{
    struct http_fixture *fixture = *state;
    http_fixture_answer(
        fixture,
        (struct fake_http_rule){.response = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
                                .repeat = 1000000});
    struct ranged ranged = {.body = BUF_INIT(1000), .head_rc = -1};
    struct err err = ERR_INIT;
    assert_true(get_range(fixture, 3, 5, &ranged, &err) < 0);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(ranged.body.len, 0);
    http_fixture_answer(fixture, (struct fake_http_rule){
                                     .response = "HTTP/1.1 416 No\r\nContent-Range: bytes */20\r\n"
                                                 "Content-Length: 5\r\n\r\nhello"});
    ranged.heads = 0;
    assert_int_equal(get_range(fixture, 30, 5, &ranged, NULL), 416);
    assert_int_equal(ranged.heads, 0);
}

#define test(name) cmocka_unit_test_setup_teardown(name, http_fixture_setup, http_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(ranges_are_asked_for),
        test(other_ranges_are_damaged_answers),
        test(heads_can_end_a_transfer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
