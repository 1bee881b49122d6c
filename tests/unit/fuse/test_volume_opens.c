#include "volume_opens.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A kill is what is left in the header, and volume_opens_settle() of a successor. The steps of one
 * counting are cut in test_volume_kill. */

static void opens_are_counted(void **state)
{
    (void)state;
    struct live_map_header header = {.magic = ""};
    volume_opens_settle(&header);
    assert_int_equal(atomic_load(&header.facts), 0);
    volume_opens_count(&header, 2, 1);
    volume_opens_count(&header, 4, 1);
    volume_opens_count(&header, 6, -1);
    assert_int_equal(atomic_load(&header.opens), 1);
    assert_int_equal(atomic_load(&header.facts), LIVE_FACT_OPEN);
    volume_opens_count(&header, 8, -1);
    assert_int_equal(atomic_load(&header.opens), 0);
    assert_int_equal(atomic_load(&header.facts), 0);
    volume_opens_count(&header, 10, -1); /* of an OPEN that nobody saw */
    assert_int_equal(atomic_load(&header.opens), 0);
}

static void what_was_counted_is_not_counted_again(void **state)
{
    (void)state;
    struct live_map_header header = {.magic = ""};
    volume_opens_count(&header, 2, 1);
    volume_opens_settle(&header);
    volume_opens_count(&header, 2, 1);
    assert_int_equal(atomic_load(&header.opens), 1);
}

/* The successor meets another one first. */
static void nor_after_others_were(void **state)
{
    (void)state;
    struct live_map_header header = {.magic = ""};
    volume_opens_count(&header, 2, 1);
    volume_opens_count(&header, 4, -1); /* and dies before it answers */
    volume_opens_settle(&header);
    volume_opens_count(&header, 6, 1);
    volume_opens_count(&header, 4, -1);
    assert_int_equal(atomic_load(&header.opens), 1);
    assert_int_equal(atomic_load(&header.facts), LIVE_FACT_OPEN);
}

/* Each worker counts one and dies; the last one is asked all of them. */
static void nor_after_many_deaths(void **state)
{
    (void)state;
    struct live_map_header header = {.magic = ""};
    const uint64_t most = LIVE_MAP_OPENS_KEPT + 1;
    for (uint64_t i = 1; i <= most; i++) {
        volume_opens_count(&header, 2 * i, 1);
        volume_opens_settle(&header);
    }
    for (uint64_t i = most; i > 0; i--)
        volume_opens_count(&header, 2 * i, 1);
    assert_int_equal(atomic_load(&header.opens), most);
}

/* Killed when the number of the one before is put aside already, or noted and not counted yet. */
static void a_count_that_is_cut_is_finished_once(void **state)
{
    (void)state;
    struct live_map_header header = {.magic = ""};
    volume_opens_count(&header, 2, 1);
    atomic_store(&header.open_before[0], 2);
    atomic_store(&header.open_unique, 0);
    atomic_store(&header.open_target, 2);
    volume_opens_settle(&header);
    assert_int_equal(atomic_load(&header.opens), 1);
    volume_opens_count(&header, 2, 1);
    assert_int_equal(atomic_load(&header.opens), 1);
    atomic_store(&header.open_target, 2);
    atomic_store(&header.open_unique, 4);
    volume_opens_settle(&header);
    assert_int_equal(atomic_load(&header.opens), 2);
    volume_opens_count(&header, 4, 1);
    assert_int_equal(atomic_load(&header.opens), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_are_counted),
        cmocka_unit_test(what_was_counted_is_not_counted_again),
        cmocka_unit_test(nor_after_others_were),
        cmocka_unit_test(nor_after_many_deaths),
        cmocka_unit_test(a_count_that_is_cut_is_finished_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
