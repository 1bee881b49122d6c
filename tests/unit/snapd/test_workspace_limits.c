#include "workspace_limits.h"

#include "cleanup.h"

#include <stdbool.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_without_a_budget(void **state)
{
    (void)state;
    struct workspace_share shares[] = {{.rate = 5, .limit = 9}, {.rate = 0}};
    workspace_limits_share(0, 0, shares, 2);
    assert_int_equal(shares[0].limit, 0);
    assert_int_equal(shares[1].limit, 0);
    workspace_limits_share(0, 70, shares, 2);
    assert_int_equal(shares[0].limit, 70);
    assert_int_equal(shares[1].limit, 70);
    workspace_limits_share(100, 0, shares, 0); /* nobody */
}

/* One that is alone may have everything as soon as it wants it. */
static void test_one_alone(void **state)
{
    (void)state;
    struct workspace_share share = {0};
    workspace_limits_share(1000, 0, &share, 1);
    assert_int_equal(share.limit, 1000);
    share.rate = 1000;
    workspace_limits_share(1000, 0, &share, 1);
    assert_int_equal(share.limit, 1000);
    workspace_limits_share(1000, 300, &share, 1);
    assert_int_equal(share.limit, 300);
}

static void test_the_hungry_get_equal_parts_of_what_the_others_leave(void **state)
{
    (void)state;
    struct workspace_share shares[] = {{.rate = 100, .limit = 250},
                                       {.rate = 240, .limit = 250},
                                       {.rate = 250, .limit = 250},
                                       {.rate = 0, .limit = 250}};
    workspace_limits_share(1000, 0, shares, 4);
    assert_int_equal(shares[1].limit, 450); /* (1000 - 100) / 2 */
    assert_int_equal(shares[2].limit, 450);
    assert_int_equal(shares[0].limit, 250); /* an equal part, more than twice what it did */
    assert_int_equal(shares[3].limit, 250);
}

static void test_the_own_limit_is_never_passed(void **state)
{
    (void)state;
    struct workspace_share shares[] = {{.rate = 100, .limit = 100}, {.rate = 900, .limit = 900}};
    workspace_limits_share(1000, 100, shares, 2);
    assert_int_equal(shares[0].limit, 100);
    assert_int_equal(shares[1].limit, 100);
}

/* What the ones with a limit of their own leave goes to nobody else than the hungry. */
static void test_all_want_everything(void **state)
{
    (void)state;
    struct workspace_share shares[3] = {{0}};
    for (int second = 0; second < 5; second++) {
        workspace_limits_share(900, 0, shares, 3);
        for (int i = 0; i < 3; i++)
            shares[i].rate = shares[i].limit; /* each takes all that it may */
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(shares[i].limit, 300);
}

/* A model of volumes with given wants: within seconds the sum is the budget, nobody who wants less
 * than an equal part has less than he wants, and the others have the same. */
static void test_it_settles(void **state)
{
    (void)state;
    static const uint64_t wants[][6] = {
        {10, 20, 5000, 5000, 0, 0}, {5000, 5000, 5000, 5000, 5000, 5000}, {0, 0, 0, 0, 0, 5000},
        {1, 1, 1, 1, 1, 1},         {150, 160, 170, 180, 190, 5},         {999, 1, 999, 1, 999, 1},
    };
    enum {
        BUDGET = 1000,
        COUNT = 6,
    };
    for (size_t w = 0; w < ARRAY_SIZE(wants); w++) {
        struct workspace_share shares[COUNT] = {{0}};
        for (int second = 0; second < 30; second++) {
            for (int i = 0; i < COUNT; i++) {
                uint64_t may = shares[i].limit ? shares[i].limit : UINT64_MAX;
                shares[i].rate = wants[w][i] < may ? wants[w][i] : may;
            }
            workspace_limits_share(BUDGET, 0, shares, COUNT);
        }
        uint64_t sum = 0;
        uint64_t wanted = 0;
        uint64_t most = 0;
        for (int i = 0; i < COUNT; i++) {
            sum += shares[i].rate;
            wanted += wants[w][i];
            most = shares[i].rate > most ? shares[i].rate : most;
        }
        assert_true(sum <= BUDGET);
        assert_true(sum >= (wanted < BUDGET ? wanted : BUDGET) * 8 / 10);
        for (int i = 0; i < COUNT; i++) {
            bool has_all = shares[i].rate == wants[w][i];
            if (!has_all && shares[i].rate < most * 9 / 10)
                fail_msg("%zu: %d has %llu of %llu, another one %llu", w, i,
                         (unsigned long long)shares[i].rate, (unsigned long long)wants[w][i],
                         (unsigned long long)most);
            assert_true(has_all || wants[w][i] > BUDGET / COUNT);
        }
    }
}

static void test_large_and_small_numbers(void **state)
{
    (void)state;
    struct workspace_share shares[] = {{.rate = UINT64_MAX, .limit = UINT64_MAX},
                                       {.rate = UINT64_MAX, .limit = 1}};
    workspace_limits_share(UINT64_MAX, 0, shares, 2);
    assert_int_equal(shares[0].limit, UINT64_MAX / 2);
    assert_int_equal(shares[1].limit, UINT64_MAX / 2);
    struct workspace_share many[5] = {{0}};
    workspace_limits_share(3, 0, many, 5); /* less than one each: still not "none" */
    for (int i = 0; i < 5; i++)
        assert_int_equal(many[i].limit, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_budget),
        cmocka_unit_test(test_one_alone),
        cmocka_unit_test(test_the_hungry_get_equal_parts_of_what_the_others_leave),
        cmocka_unit_test(test_the_own_limit_is_never_passed),
        cmocka_unit_test(test_all_want_everything),
        cmocka_unit_test(test_it_settles),
        cmocka_unit_test(test_large_and_small_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
