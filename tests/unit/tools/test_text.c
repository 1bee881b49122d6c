#include "text.h"

#include "cleanup.h"
#include "clock.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        int64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1.0 KiB"},
        {1536, "1.5 KiB"},
        {1048575, "1023.9 KiB"}, /* never "1024.0 KiB" */
        {1048576, "1.0 MiB"},
        {12910592, "12.3 MiB"},
        {INT64_C(1) << 40, "1.0 TiB"},
        {INT64_MAX, "7.9 EiB"},
        {-1, "-"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_string_equal(text_size(cases[i].bytes).s, cases[i].text);
}

static void test_ages(void **state)
{
    (void)state;
    static const struct {
        int64_t seconds;
        const char *text;
    } cases[] = {{-5, "now"},           {0, "now"},       {1, "1 s"},
                 {119, "119 s"},        {120, "2 min"},   {7199, "119 min"},
                 {7200, "2 h"},         {172799, "47 h"}, {172800, "2 d"},
                 {86400 * 400, "400 d"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_string_equal(text_age(cases[i].seconds * CLOCK_NS_PER_S).s, cases[i].text);
}

static void test_times(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ns;
    } good[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2026-11-29T16:38:56Z", INT64_C(1795970336) * CLOCK_NS_PER_S},
        {"2026-11-29T16:38:56.25Z", INT64_C(1795970336) * CLOCK_NS_PER_S + 250000000},
        {"2026-11-29T17:38:56+01:00", INT64_C(1795970336) * CLOCK_NS_PER_S},
        {"2026-11-29T11:08:56-05:30", INT64_C(1795970336) * CLOCK_NS_PER_S},
        {"2026-11-29T16:38:56.123456789123Z", INT64_C(1795970336) * CLOCK_NS_PER_S + 123456789},
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        int64_t ns = -1;
        assert_int_equal(text_parse_time(good[i].text, &ns, NULL), 0);
        assert_int_equal(ns, good[i].ns);
    }
    static const char *const bad[] = {"",
                                      "yesterday",
                                      "2026-11-29",
                                      "2026-11-29T16:38:56",
                                      "2026-11-29T16:38:56Zx",
                                      "2026-11-29T16:38:56+1:00",
                                      "2026-11-29T16:38:56+25:00",
                                      "1969-12-31T23:59:59Z",
                                      "99999-01-01T00:00:00Z",
                                      "2026-13-01T00:00:00Z"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        int64_t ns = 7;
        struct err err = ERR_INIT;
        assert_int_equal(text_parse_time(bad[i], &ns, &err), -EBADMSG);
        assert_int_equal(err.code, ERR_DAMAGED);
        assert_int_equal(ns, 7);
    }
}

static void expect_escaped(const char *text, const char *expected)
{
    cleanup_buf struct buf out = BUF_INIT(1000);
    assert_int_equal(text_escape(text, &out, NULL), 0);
    assert_string_equal(buf_str(&out), expected);
}

static void test_control_characters_are_escaped(void **state)
{
    (void)state;
    expect_escaped("plain text, Grüße, 日本, 😀", "plain text, Grüße, 日本, 😀");
    expect_escaped("a\x1b[31mred\n\tb\x7f", "a\\x1b[31mred\\x0a\\x09b\\x7f");
    expect_escaped("\xc2\x9b"
                   "31m",
                   "\\x9b31m"); /* C1: another way to say ESC [ */
    expect_escaped("\xe2\x80\xae"
                   "gpj.exe",
                   "\\u{202e}gpj.exe");
    expect_escaped("\xe2\x80\xa8", "\\u{2028}");
    expect_escaped("\xef\xbb\xbf", "\\u{feff}");
}

static void test_bytes_that_are_not_utf8_are_escaped(void **state)
{
    (void)state;
    expect_escaped("\xff", "\\xff");
    expect_escaped("a\x80z", "a\\x80z");
    expect_escaped("\xc0\xaf", "\\xc0\\xaf");          /* overlong "/" */
    expect_escaped("\xed\xa0\x80", "\\xed\\xa0\\x80"); /* half of a surrogate pair */
    expect_escaped("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");
    expect_escaped("\xe2\x82", "\\xe2\\x82"); /* ends early */
}

static void test_escaping_is_bounded(void **state)
{
    (void)state;
    cleanup_buf struct buf out = BUF_INIT(3);
    struct err err = ERR_INIT;
    assert_int_equal(text_escape("\n", &out, &err), -EFBIG);
}

static void test_width_counts_code_points(void **state)
{
    (void)state;
    assert_int_equal(text_width(""), 0);
    assert_int_equal(text_width("abc"), 3);
    assert_int_equal(text_width("Grüße"), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_ages),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_control_characters_are_escaped),
        cmocka_unit_test(test_bytes_that_are_not_utf8_are_escaped),
        cmocka_unit_test(test_escaping_is_bounded),
        cmocka_unit_test(test_width_counts_code_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
