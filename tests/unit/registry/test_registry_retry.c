#include "registry_retry.h"

#include "registry_error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static char url[] = "https://reg.example:5000/v2/";

static struct registry_http_response answer(long status, const char *retry_after)
{
    return (struct registry_http_response){
        .status = status, .url = url, .retry_after = (char *)retry_after};
}

static void statuses_that_pass(void **state)
{
    (void)state;
    static const long final[] = {501, 505, 506, 507, 508, 510, 511};
    for (long status = 100; status < 1000; status++) {
        struct registry_http_response response = answer(status, NULL);
        bool wanted = status == 408 || status == 421 || status == 425 || status == 429;
        wanted = wanted || status >= 500;
        assert_int_equal(registry_retry_is_open(&response), wanted && status != 501);
        for (size_t i = 0; i < ARRAY_SIZE(final); i++)
            wanted = wanted && status != final[i];
        assert_int_equal(registry_retry_is_passing(&response), wanted);
        assert_int_equal(registry_retry_is_cut_off(&response),
                         status == 408 || status == 502 || status == 504 ||
                             (status >= 520 && status <= 524));
        assert_int_equal(registry_retry_is_put_off(&response), status == 429);
        response.retry_after = (char *)"1";
        assert_int_equal(registry_retry_is_put_off(&response), status == 429 || status == 503);
    }
}

static void connections_that_are_lost(void **state)
{
    (void)state;
    static const struct {
        CURLcode code;
        bool lost;
    } cases[] = {
        {CURLE_COULDNT_CONNECT, true},
        {CURLE_COULDNT_RESOLVE_HOST, true},
        {CURLE_OPERATION_TIMEDOUT, true},
        {CURLE_RECV_ERROR, true},
        {CURLE_GOT_NOTHING, true},
        {CURLE_PARTIAL_FILE, true},
        {CURLE_SEND_ERROR, true},
        {CURLE_HTTP2_STREAM, true},
        {CURLE_PEER_FAILED_VERIFICATION, false},
        {CURLE_SSL_CACERT_BADFILE, false},
        {CURLE_SSL_CERTPROBLEM, false},
        {CURLE_SSL_ISSUER_ERROR, false},
        {CURLE_WEIRD_SERVER_REPLY, false},
        {CURLE_URL_MALFORMAT, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        (void)registry_error_transfer(cases[i].code, "why", url, &err);
        if (registry_retry_is_lost(&err) != cases[i].lost)
            fail_msg("%s", err.text);
    }
    static const struct {
        const char *detail;
        bool lost;
    } tls[] = {
        {"error:0A000102:SSL routines::unsupported protocol", false},
        {"error:0A00010B:SSL routines::wrong version number", false},
        {"error:0A000126:SSL routines::unexpected eof while reading", true},
        {"OpenSSL SSL_connect: Connection reset by peer in connection to h:443", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(tls); i++) {
        struct err err = ERR_INIT;
        (void)registry_error_transfer(CURLE_SSL_CONNECT_ERROR, tls[i].detail, url, &err);
        assert_int_equal(err.code, ERR_UNREACHABLE);
        assert_int_equal(registry_retry_is_lost(&err), tls[i].lost);
    }
    struct err own = ERR_INIT;
    (void)err_fail(&own, ERR_CANCELLED, "the transfer was cancelled");
    assert_false(registry_retry_is_lost(&own));
    struct err none = ERR_INIT;
    assert_false(registry_retry_is_lost(&none));
}

static void pauses_double_and_end(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct registry_retry retry = {0};
        int64_t longest = REGISTRY_RETRY_FIRST_MS;
        for (int i = 1; i < REGISTRY_RETRY_MAX; i++) {
            int64_t ms = -1;
            bool all = true;
            assert_int_equal(registry_retry_next(&retry, NULL, 0, 0, &ms, &all), 1);
            assert_in_range(ms, longest / 2, longest);
            assert_false(all);
            longest = longest * 2 < REGISTRY_RETRY_LAST_MS ? longest * 2 : REGISTRY_RETRY_LAST_MS;
        }
        int64_t ms;
        bool all;
        assert_int_equal(registry_retry_next(&retry, NULL, 0, 0, &ms, &all), 0);
        registry_retry_progress(&retry);
        assert_int_equal(registry_retry_next(&retry, NULL, 0, 0, &ms, &all), 1);
        assert_in_range(ms, REGISTRY_RETRY_FIRST_MS / 2, REGISTRY_RETRY_FIRST_MS);
    }
}

/* Another way has attempts of its own; pauses and the time go on. */
static void another_way_is_tried(void **state)
{
    (void)state;
    struct registry_retry retry = {0};
    int64_t ms;
    bool all;
    for (int way = 0; way < 2; way++) {
        for (int i = 1; i < REGISTRY_RETRY_MAX; i++)
            assert_int_equal(registry_retry_next(&retry, NULL, 0, 1000, &ms, &all), 1);
        registry_retry_differently(&retry);
    }
    assert_int_equal(registry_retry_next(&retry, NULL, 0, 1000, &ms, &all), 1);
    assert_in_range(ms, REGISTRY_RETRY_LAST_MS / 2, REGISTRY_RETRY_LAST_MS);
    int64_t late = 1001 + REGISTRY_RETRY_TIME_MAX_S * INT64_C(1000);
    assert_int_equal(registry_retry_next(&retry, NULL, 0, late, &ms, &all), 0);
}

static void two_do_not_come_back_at_once(void **state)
{
    (void)state;
    int64_t first = -1;
    bool differ = false;
    for (int i = 0; i < 100; i++) {
        struct registry_retry retry = {0};
        int64_t ms;
        bool all;
        assert_int_equal(registry_retry_next(&retry, NULL, 0, 0, &ms, &all), 1);
        differ = differ || (first >= 0 && ms != first);
        first = ms;
    }
    assert_true(differ);
}

static void forms_of_retry_after(void **state)
{
    (void)state;
    static const int64_t date = 784111777; /* Sun, 06 Nov 1994 08:49:37 GMT */
    static const struct {
        const char *value;
        int64_t seconds; /* -1: neither form */
    } cases[] = {
        {"0", 0},
        {"3", 3},
        {"86400", 86400},
        {"Sun, 06 Nov 1994 08:49:37 GMT", 7},
        {"Sunday, 06-Nov-94 08:49:37 GMT", 7},
        {"Sun Nov  6 08:49:37 1994", 7},
        {"Sun, 06 Nov 1994 08:49:29 GMT", 0},
        {"Sun, 06 Nov 1993 08:49:37 GMT", 0},
        {"", -1},
        {"-1", -1},
        {"1.5", -1},
        {"soon", -1},
        {"3 seconds", -1},
        {"0x10", -1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int64_t seconds = -1;
        int rc = registry_retry_after(cases[i].value, date - 7, &seconds, NULL);
        if ((rc == 0) != (cases[i].seconds >= 0) || seconds != cases[i].seconds)
            fail_msg("'%s' is %d, %lld", cases[i].value, rc, (long long)seconds);
    }
    int64_t seconds = 0;
    assert_int_equal(registry_retry_after("99999999999999999999999999999999", 0, &seconds, NULL),
                     0);
    assert_true(seconds > 1000000000);
}

static void what_the_registry_asks_for_is_obeyed(void **state)
{
    (void)state;
    struct registry_http_response response = answer(429, "3");
    for (int i = 0; i < 100; i++) {
        struct registry_retry retry = {0};
        int64_t ms;
        bool all = false;
        assert_int_equal(registry_retry_next(&retry, &response, 0, 0, &ms, &all), 1);
        assert_in_range(ms, 3000, 3000 + 1000 + 300);
        assert_true(all);
    }
    struct registry_retry retry = {0};
    int64_t ms;
    bool all = false;
    response = answer(503, "Thu, 01 Jan 1970 00:01:40 GMT");
    assert_int_equal(registry_retry_next(&retry, &response, 90, 0, &ms, &all), 1);
    assert_in_range(ms, 10000, 12000);
    assert_true(all);
    /* All wait after a 429 that says no time; nobody does after another failure. */
    response = answer(429, "nonsense");
    assert_int_equal(registry_retry_next(&retry, &response, 0, 0, &ms, &all), 1);
    assert_in_range(ms, REGISTRY_RETRY_FIRST_MS, 2 * REGISTRY_RETRY_FIRST_MS);
    assert_true(all);
    response = answer(503, NULL);
    assert_int_equal(registry_retry_next(&retry, &response, 0, 0, &ms, &all), 1);
    assert_false(all);
}

static void one_that_is_too_long_ends_it(void **state)
{
    (void)state;
    static const char *const too_long[] = {"601", "86400", "99999999999999999999",
                                           "Sun, 09 Sep 2001 01:57:00 GMT"};
    struct registry_retry retry = {0};
    int64_t ms;
    bool all;
    struct registry_http_response response = answer(429, "600");
    assert_int_equal(registry_retry_next(&retry, &response, 1000000000, 0, &ms, &all), 1);
    for (size_t i = 0; i < ARRAY_SIZE(too_long); i++) {
        retry = (struct registry_retry){0};
        response = answer(429, too_long[i]);
        assert_int_equal(registry_retry_next(&retry, &response, 1000000000, 0, &ms, &all), 0);
    }
}

/* Whoever is told when to come back may come back often, as far as the time goes; the pauses grow
 * all the same. */
static void what_is_put_off_counts_by_time(void **state)
{
    (void)state;
    struct registry_retry retry = {0};
    struct registry_http_response response = answer(503, "0");
    int64_t ms = 0;
    int64_t now = 1000;
    int attempts = 0;
    bool all;
    while (registry_retry_next(&retry, &response, 0, now, &ms, &all) == 1) {
        now += ms;
        attempts++;
    }
    assert_in_range(attempts, 2 * REGISTRY_RETRY_MAX, 150);
    assert_in_range(now - 1000, (REGISTRY_RETRY_TIME_MAX_S - 22) * 1000,
                    REGISTRY_RETRY_TIME_MAX_S * 1000);
    assert_in_range(ms, REGISTRY_RETRY_LAST_MS / 2, REGISTRY_RETRY_LAST_MS + 1000);
    /* Other failures in between are counted by themselves. */
    retry = (struct registry_retry){0};
    for (int i = 1; i < REGISTRY_RETRY_MAX; i++) {
        assert_int_equal(registry_retry_next(&retry, &response, 0, 0, &ms, &all), 1);
        assert_int_equal(registry_retry_next(&retry, NULL, 0, 0, &ms, &all), 1);
    }
    assert_int_equal(registry_retry_next(&retry, NULL, 0, 0, &ms, &all), 0);
}

static void the_time_without_progress_is_bounded(void **state)
{
    (void)state;
    const int64_t most = REGISTRY_RETRY_TIME_MAX_S * INT64_C(1000);
    struct registry_retry retry = {0};
    int64_t ms;
    bool all;
    assert_int_equal(registry_retry_next(&retry, NULL, 0, 5000, &ms, &all), 1);
    assert_int_equal(registry_retry_next(&retry, NULL, 0, 4000 + most, &ms, &all), 1);
    assert_int_equal(registry_retry_next(&retry, NULL, 0, 5001 + most, &ms, &all), 0);
    registry_retry_moved(&retry, 2000);
    retry.attempts = 1;
    assert_int_equal(registry_retry_next(&retry, NULL, 0, 5001 + most, &ms, &all), 1);
    assert_int_equal(registry_retry_next(&retry, NULL, 0, 7001 + most, &ms, &all), 0);
    registry_retry_progress(&retry);
    assert_int_equal(registry_retry_next(&retry, NULL, 0, 5001 + most, &ms, &all), 1);
    /* A Retry-After that would be fine by itself does not fit in what is left. */
    struct registry_http_response response = answer(429, "500");
    retry = (struct registry_retry){0};
    assert_int_equal(registry_retry_next(&retry, &response, 0, 7000, &ms, &all), 1);
    assert_int_equal(registry_retry_next(&retry, &response, 0, 7000 + 550000, &ms, &all), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_that_pass),
        cmocka_unit_test(connections_that_are_lost),
        cmocka_unit_test(pauses_double_and_end),
        cmocka_unit_test(another_way_is_tried),
        cmocka_unit_test(two_do_not_come_back_at_once),
        cmocka_unit_test(forms_of_retry_after),
        cmocka_unit_test(what_the_registry_asks_for_is_obeyed),
        cmocka_unit_test(one_that_is_too_long_ends_it),
        cmocka_unit_test(what_is_put_off_counts_by_time),
        cmocka_unit_test(the_time_without_progress_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
