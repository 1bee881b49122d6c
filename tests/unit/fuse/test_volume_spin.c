#include "volume_spin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define US UINT64_C(1000)

/* Goes idle at `now`, sleeps at once or after looking, is woken `gap` later. Returns how long it
 * looked. */
static uint64_t idle(struct volume_spin *spin, uint64_t now, uint64_t gap)
{
    uint64_t at = now;
    while (volume_spin_again(spin, at) && at - now < gap)
        at += US;
    if (at - now < gap)
        volume_spin_woken(spin, now + gap);
    volume_spin_busy(spin);
    return at - now;
}

static void one_without_load_never_looks(void **state)
{
    (void)state;
    struct volume_spin spin = {.window_ns = 0};
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(idle(&spin, US + i * 1000 * US, 900 * US), 0);
}

static void it_looks_longer_when_that_pays(void **state)
{
    (void)state;
    struct volume_spin spin = {.window_ns = 0};
    uint64_t now = 1000 * US;
    assert_int_equal(idle(&spin, now, 30 * US), 0);
    assert_int_equal(idle(&spin, now += 1000 * US, 30 * US), VOLUME_SPIN_FIRST_NS);
    assert_int_equal(idle(&spin, now += 1000 * US, 30 * US), 30 * US);
    for (int i = 0; i < 10; i++)
        (void)idle(&spin, now += 1000 * US, VOLUME_SPIN_MAX_NS);
    assert_int_equal(spin.window_ns, VOLUME_SPIN_MAX_NS);
    assert_int_equal(idle(&spin, now += 1000 * US, 90 * US), 90 * US);
}

static void it_stops_when_that_does_not_pay(void **state)
{
    (void)state;
    struct volume_spin spin = {.window_ns = VOLUME_SPIN_MAX_NS};
    uint64_t now = 1000 * US;
    uint64_t looked = 0;
    for (int i = 0; i < 10; i++)
        looked += idle(&spin, now += 5000 * US, 2000 * US);
    assert_true(looked <= 2 * VOLUME_SPIN_MAX_NS);
    assert_int_equal(idle(&spin, now + 5000 * US, 2000 * US), 0);
}

static void it_leaves_the_processor_to_others(void **state)
{
    (void)state;
    struct volume_spin spin = {.window_ns = VOLUME_SPIN_MAX_NS};
    uint64_t now = 1000 * US;
    assert_true(volume_spin_again(&spin, now));
    assert_false(volume_spin_again(&spin, now + VOLUME_SPIN_STOLEN_NS + 1));
    volume_spin_woken(&spin, now + 60 * US);
    for (uint64_t at = now + 100 * US; at < now + VOLUME_SPIN_QUIET_NS; at += 100 * US)
        assert_int_equal(idle(&spin, at, 30 * US), 0);
    now += VOLUME_SPIN_QUIET_NS + 1000 * US;
    (void)idle(&spin, now, 30 * US);
    assert_true(idle(&spin, now + 1000 * US, 30 * US) > 0);
}

/* A sleep is no processor that was away. */
static void a_spurious_wake_is_no_theft(void **state)
{
    (void)state;
    struct volume_spin spin = {.window_ns = VOLUME_SPIN_FIRST_NS};
    uint64_t now = 1000 * US;
    assert_true(volume_spin_again(&spin, now));
    assert_false(volume_spin_again(&spin, now + VOLUME_SPIN_FIRST_NS));
    volume_spin_woken(&spin, now + 90 * US);
    assert_true(volume_spin_again(&spin, now + 300 * US));
    assert_int_equal(spin.quiet_ns, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_without_load_never_looks),
        cmocka_unit_test(it_looks_longer_when_that_pays),
        cmocka_unit_test(it_stops_when_that_does_not_pay),
        cmocka_unit_test(it_leaves_the_processor_to_others),
        cmocka_unit_test(a_spurious_wake_is_no_theft),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
