#include "checkpoint_upkeep_plan.h"

#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    FULL = 16 << 20,
    MIB = 1 << 20,
    PACKS = 200,
};

static struct pack packs[PACKS];
static struct pack_use uses[PACKS];
static struct volume_root root;
static struct upkeep_packs all;

/* `leaves` leaves, all of them set. */
static int setup(void **state)
{
    (void)state;
    all = (struct upkeep_packs){.packs = packs, .uses = uses, .root = &root, .full = FULL};
    volume_root_init(&root, UINT64_C(10) << 30);
    for (uint32_t i = 0; i < root.leaf_count; i++)
        root.set[i] = true;
    return 0;
}

static void add(uint64_t size, uint64_t live, uint64_t groups)
{
    packs[all.count].size = size;
    uses[all.count++] = (struct pack_use){.live = live, .groups = groups};
}

/* The plan of 16 MiB; which packs are emptied, as bits of the first 64. */
static uint64_t plan(uint64_t *ret_groups)
{
    struct err err = ERR_INIT;
    struct upkeep_plan made = {.groups = 99};
    uint64_t emptied = 0;
    all.shift = pack_usage_shift(root.leaf_count);
    assert_int_equal(upkeep_plan_make(&all, FULL, &made, &err), 0);
    for (size_t i = 0; made.emptied && i < all.count && i < 64; i++)
        emptied |= (uint64_t)made.emptied[i] << i;
    if (ret_groups)
        *ret_groups = made.groups;
    upkeep_plan_free(&made);
    return emptied;
}

static void nothing_to_do(void **state)
{
    (void)state;
    uint64_t groups;
    assert_int_equal(plan(&groups), 0);
    assert_int_equal(groups, 0);
    add(FULL, FULL / 4, 1);
    add(FULL, FULL, 2);
    add(FULL, 0, 0);                         /* leaves the lists anyway */
    add(FULL, PACK_USE_UNKNOWN, UINT64_MAX); /* nobody has counted */
    add(FULL / 4 - 1, 1, 1);                 /* small, and alone */
    assert_int_equal(plan(NULL), 0);
}

static void mostly_dead(void **state)
{
    (void)state;
    uint64_t groups;
    add(FULL, FULL, 1);
    add(FULL, FULL / 4 - 1, 6);
    add(FULL / 4, FULL / 16 - 1, 16);
    assert_int_equal(plan(&groups), 6);
    assert_int_equal(groups, 22);
}

/* With the two of the checkpoint itself they are 64. */
static void many_small_ones(void **state)
{
    (void)state;
    for (int i = 0; i < UPKEEP_SMALL_PACKS - 3; i++)
        add(100000, 100000, 1);
    assert_int_equal(plan(NULL), 0);
    add(100000, 100000, 1);
    assert_int_equal(plan(NULL), (UINT64_C(1) << (UPKEEP_SMALL_PACKS - 2)) - 1);
}

/* More than there is room for: those first that cost least, and one more in part. */
static void least_first(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 10; i++)
        add((uint64_t)64 * MIB, (10 - i) * MIB, 1);
    assert_int_equal(plan(NULL), 0x3F0); /* 1 + 2 + 3 + 4 + 5 + 6 MiB */
    for (uint64_t i = 0; i < 100; i++)
        add(FULL, 10, 1);
    struct err err = ERR_INIT;
    struct upkeep_plan made;
    size_t count = 0;
    assert_int_equal(upkeep_plan_make(&all, FULL, &made, &err), 0);
    for (size_t i = 0; i < all.count; i++)
        count += made.emptied[i];
    assert_int_equal(count, UPKEEP_PACKS_MAX);
    upkeep_plan_free(&made);
}

/* Half dead ones, as soon as that is most of all there is. */
static void more_dead_than_alive(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        add(FULL, FULL / 2 - 1, 1);
    assert_int_equal(plan(NULL), 7); /* the last one in part */
    add(FULL, FULL, 2);
    assert_int_equal(plan(NULL), 0);
    setup(NULL);
    for (int i = 0; i < 3; i++)
        add(MIB, MIB / 3, 1); /* less than one full pack in all */
    assert_int_equal(plan(NULL), 0);
}

/* With more leaves than one checkpoint looks at: the groups that most packs want. */
static void many_leaves(void **state)
{
    (void)state;
    uint64_t groups;
    volume_root_init(&root, UINT64_C(64) << 30); /* 256 leaves: groups of 4 */
    for (uint32_t i = 0; i < root.leaf_count; i++)
        root.set[i] = true;
    add(FULL, MIB, UINT64_MAX);
    add(FULL, MIB, UINT64_C(0xFF) << 40);
    assert_int_equal(plan(&groups), 3);
    assert_int_equal(groups, UINT64_C(0xFF) << 40 | 0xFF);
    volume_root_init(&root, VOLUME_SIZE_MAX); /* groups of 64 */
    for (uint32_t i = 0; i < root.leaf_count; i++)
        root.set[i] = true;
    assert_int_equal(plan(&groups), 3);
    assert_int_equal(groups, UINT64_C(1) << 40);
}

#define with_root(test) cmocka_unit_test_setup(test, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_root(nothing_to_do), with_root(mostly_dead),          with_root(many_small_ones),
        with_root(least_first),   with_root(more_dead_than_alive), with_root(many_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
