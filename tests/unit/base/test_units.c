#include "units.h"

#include "cleanup.h"

#include <errno.h>
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
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"1", 1},
        {"512B", 512},
        {"1K", 1024},
        {"1KiB", 1024},
        {"3M", 3 << 20},
        {"10G", 10ULL << 30},
        {"2TiB", 2ULL << 40},
        {"1P", 1ULL << 50},
        {"8191P", 8191ULL << 50},
        {"9223372036854775807", INT64_MAX},
        {"007", 7},
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        uint64_t bytes = 99;
        assert_int_equal(units_parse_size(good[i].text, &bytes, NULL), 0);
        assert_int_equal(bytes, good[i].bytes);
    }
    static const char *const wrong[] = {"",
                                        " 1",
                                        "1 K",
                                        "K",
                                        "-1",
                                        "+1",
                                        "1.5G",
                                        "1k",
                                        "1KB",
                                        "1Gi",
                                        "0x10",
                                        "1e3",
                                        "8192P",
                                        "1GG",
                                        "9223372036854775808",
                                        "1\n",
                                        "G1",
                                        "10 ",
                                        "1E",
                                        "99999999999999999999",
                                        "1KiBs",
                                        "1000000000000T"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        uint64_t bytes = 99;
        struct err err = ERR_INIT;
        assert_int_equal(units_parse_size(wrong[i], &bytes, &err), -EINVAL);
        assert_int_equal(bytes, 99);
        assert_non_null(strstr(err.text, "size"));
        assert_true(err.hint[0] != '\0');
    }
}

static void test_durations(void **state)
{
    (void)state;
    const int64_t second = 1000000000;
    const struct {
        const char *text;
        int64_t ns;
    } good[] = {{"0", 0},
                {"200ms", second / 5},
                {"90", 90 * second},
                {"90s", 90 * second},
                {"2m", 120 * second},
                {"12h", 12 * 3600 * second},
                {"7d", 7 * 86400 * second},
                {"2w", 14 * 86400 * second},
                {"9223372036", 9223372036 * second}};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        int64_t ns = 99;
        assert_int_equal(units_parse_duration(good[i].text, &ns, NULL), 0);
        assert_int_equal(ns, good[i].ns);
    }
    static const char *const wrong[] = {"",   "s",   "1 s", "-1s", "1.5h",       "1M",
                                        "1y", "1us", "1sd", "d7",  "9223372037", "15251w"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        int64_t ns = 99;
        struct err err = ERR_INIT;
        assert_int_equal(units_parse_duration(wrong[i], &ns, &err), -EINVAL);
        assert_int_equal(ns, 99);
        assert_non_null(strstr(err.text, "duration"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_durations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
