#include "volume_pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define S UINT64_C(1000000000)

/* How many requests of `bytes` go within `ns` after `start`. */
static uint64_t run(struct volume_pace *pace, uint64_t start, uint64_t ns, size_t bytes,
                    uint64_t limit_bytes, uint64_t limit_ops)
{
    uint64_t now = start;
    uint64_t gone = 0;
    while (now < start + ns) {
        uint64_t wait = volume_pace_take(pace, now, bytes, limit_bytes, limit_ops);
        if (wait == 0)
            gone++;
        now += wait;
    }
    return gone;
}

static void no_limit_is_none(void **state)
{
    (void)state;
    struct volume_pace pace;
    volume_pace_init(&pace);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(volume_pace_take(&pace, S, 1 << 20, 0, 0), 0);
}

static void bytes_are_exact_over_time(void **state)
{
    (void)state;
    struct volume_pace pace;
    volume_pace_init(&pace);
    uint64_t gone = run(&pace, 1000 * S, 10 * S, 4096, 4096 * 1000, 0);
    assert_in_range(gone, 9990, 10110); /* and the burst, a tenth of a second */
}

static void requests_are_exact_over_time(void **state)
{
    (void)state;
    struct volume_pace pace;
    volume_pace_init(&pace);
    uint64_t gone = run(&pace, 1000 * S, 10 * S, 4096, 0, 250);
    assert_in_range(gone, 2495, 2530);
}

static void the_lower_limit_counts(void **state)
{
    (void)state;
    struct volume_pace pace;
    volume_pace_init(&pace);
    assert_in_range(run(&pace, 1000 * S, 10 * S, 4096, 4096 * 100, 1000), 995, 1015);
    volume_pace_init(&pace);
    assert_in_range(run(&pace, 1000 * S, 10 * S, 4096, 4096 * 1000, 100), 995, 1015);
}

static void a_large_request_goes_and_is_paid(void **state)
{
    (void)state;
    struct volume_pace pace;
    volume_pace_init(&pace);
    assert_int_equal(volume_pace_take(&pace, 1000 * S, 1 << 20, 1 << 10, 0), 0);
    uint64_t wait = volume_pace_take(&pace, 1000 * S, 1, 1 << 10, 0);
    assert_in_range(wait, 1000 * S, 1024 * S);
}

static void extremes_do_not_overflow(void **state)
{
    (void)state;
    struct volume_pace pace;
    volume_pace_init(&pace);
    assert_int_equal(volume_pace_take(&pace, UINT64_MAX / 2, SIZE_MAX / 2, UINT64_MAX, UINT64_MAX),
                     0);
    (void)volume_pace_take(&pace, UINT64_MAX, 1, UINT64_MAX, UINT64_MAX);
    (void)volume_pace_take(&pace, 0, 1, 1, 1); /* time that goes back */
    uint64_t wait = volume_pace_take(&pace, 1, 1, 1, 1);
    assert_in_range(wait, 0, 3600 * S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_limit_is_none),
        cmocka_unit_test(bytes_are_exact_over_time),
        cmocka_unit_test(requests_are_exact_over_time),
        cmocka_unit_test(the_lower_limit_counts),
        cmocka_unit_test(a_large_request_goes_and_is_paid),
        cmocka_unit_test(extremes_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
