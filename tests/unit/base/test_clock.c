#include "clock.h"

#include "cleanup.h"

#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int64_t fixed_wall(const struct clock *clock)
{
    return 1000 + clock->offset_ns;
}

static void test_a_source_can_be_replaced(void **state)
{
    (void)state;
    struct clock clock = {.wall_ns = fixed_wall, .mono_ns = fixed_wall, .offset_ns = 5};
    assert_int_equal(clock_wall_ns(&clock), 1005);
    assert_int_equal(clock_mono_ns(&clock), 1005);
}

static void test_offset_shifts_the_wall_clock_only(void **state)
{
    (void)state;
    unsetenv("VARVE_CLOCK_OFFSET");
    struct clock plain = clock_system();
    setenv("VARVE_CLOCK_OFFSET", "-86400", 1);
    struct clock shifted = clock_system();
    unsetenv("VARVE_CLOCK_OFFSET");
    int64_t difference = clock_wall_ns(&plain) - clock_wall_ns(&shifted);
    assert_true(difference > 86390 * CLOCK_NS_PER_S && difference <= 86400 * CLOCK_NS_PER_S);
    assert_true(clock_mono_ns(&shifted) - clock_mono_ns(&plain) < 10 * CLOCK_NS_PER_S);
}

static void test_offset_is_bounded(void **state)
{
    (void)state;
    static const char *const ignored[] = {
        "", "x", "1h", "3162240001", "-3162240001", "9223372036854775807", "99999999999999999999"};
    for (size_t i = 0; i < ARRAY_SIZE(ignored); i++) {
        setenv("VARVE_CLOCK_OFFSET", ignored[i], 1);
        assert_int_equal(clock_system().offset_ns, 0);
    }
    setenv("VARVE_CLOCK_OFFSET", "3162240000", 1);
    assert_int_equal(clock_system().offset_ns, CLOCK_OFFSET_MAX_S * CLOCK_NS_PER_S);
    setenv("VARVE_CLOCK_OFFSET", "-3162240000", 1);
    assert_int_equal(clock_system().offset_ns, -CLOCK_OFFSET_MAX_S * CLOCK_NS_PER_S);
    unsetenv("VARVE_CLOCK_OFFSET");
}

static void test_waits_are_by_the_kernels_clock(void **state)
{
    (void)state;
    int64_t ns = clock_now_ns();
    int64_t ms = clock_now_ms();
    assert_in_range(ms, ns / 1000000, ns / 1000000 + 10000);
    struct timespec until = clock_in_ms(1999);
    int64_t in_ns = until.tv_sec * CLOCK_NS_PER_S + until.tv_nsec;
    assert_in_range(until.tv_nsec, 0, CLOCK_NS_PER_S - 1);
    assert_in_range(in_ns, ns + INT64_C(1999000000), ns + INT64_C(11999000000));
}

static void test_monotonic_never_goes_back(void **state)
{
    (void)state;
    struct clock clock = clock_system();
    int64_t before = clock_mono_ns(&clock);
    for (int i = 0; i < 1000; i++) {
        int64_t now = clock_mono_ns(&clock);
        assert_true(now >= before);
        before = now;
    }
}

static void test_format_is_rfc3339(void **state)
{
    (void)state;
    assert_string_equal(clock_format(0).s, "1970-01-01T00:00:00Z");
    assert_string_equal(clock_format(INT64_C(1795970336) * CLOCK_NS_PER_S + 999).s,
                        "2026-11-29T16:38:56Z");
}

static void test_parse_takes_what_is_written(void **state)
{
    (void)state;
    int64_t ns = 42;
    assert_true(clock_parse("1970-01-01T00:00:00Z", &ns));
    assert_int_equal(ns, 0);
    assert_true(clock_parse("2026-11-29T16:38:56Z", &ns));
    assert_int_equal(ns, INT64_C(1795970336) * CLOCK_NS_PER_S);
    assert_true(clock_parse("2262-04-11T23:47:16Z", &ns)); /* the last second of 64 bits */
    ns = 42;
    static const char *const wrong[] = {"",
                                        "2026-11-29",
                                        "2026-11-29T16:38:56",
                                        "2026-11-29T16:38:56Zx",
                                        "2026-11-29T16:38:56+00:00",
                                        "2026-11-29T16:38:56.5Z",
                                        "2026-11-31T16:38:56Z",
                                        "2026-11-29T24:38:56Z",
                                        "2026-11-29T16:38:60Z",
                                        "2026-1-29T16:38:56Z",
                                        " 2026-11-29T16:38:56Z",
                                        "1969-12-31T23:59:59Z",
                                        "2262-04-11T23:47:17Z",
                                        "9999-12-31T23:59:59Z",
                                        "99999-12-31T23:59:59Z"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        assert_false(clock_parse(wrong[i], &ns));
        assert_int_equal(ns, 42);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_source_can_be_replaced),
        cmocka_unit_test(test_offset_shifts_the_wall_clock_only),
        cmocka_unit_test(test_offset_is_bounded),
        cmocka_unit_test(test_waits_are_by_the_kernels_clock),
        cmocka_unit_test(test_monotonic_never_goes_back),
        cmocka_unit_test(test_format_is_rfc3339),
        cmocka_unit_test(test_parse_takes_what_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
