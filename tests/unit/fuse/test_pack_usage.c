#include "pack_usage.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    LEAVES = 4, /* of most tests: groups 0 to 3 */
};

static uint8_t bytes[PACK_USAGE_HEAD + 4 * PACK_USE_BYTES + 1];
static const struct pack_use uses[] = {
    {.live = 1000, .groups = 5}, {.live = 0, .groups = 0}, {PACK_USE_UNKNOWN, UINT64_MAX}};

static void there_and_back(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct pack_use *got = NULL;
    size_t count = 99;
    size_t len = pack_usage_encode(uses, 3, bytes);
    assert_int_equal(len, PACK_USAGE_HEAD + 3 * PACK_USE_BYTES);
    assert_int_equal(pack_usage_decode(bytes, len, LEAVES, &got, &count, &err), 0);
    assert_int_equal(count, 3);
    assert_memory_equal(got, uses, sizeof uses);
    free(got);
    assert_int_equal(pack_usage_encode(NULL, 0, bytes), PACK_USAGE_HEAD);
    assert_int_equal(pack_usage_decode(bytes, PACK_USAGE_HEAD, LEAVES, &got, &count, &err), 0);
    assert_int_equal(count, 0);
    assert_null(got);
}

static void assert_refused(size_t len, uint32_t leaves)
{
    struct err err = ERR_INIT;
    struct pack_use *got = NULL;
    size_t count;
    assert_true(pack_usage_decode(bytes, len, leaves, &got, &count, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_null(got);
}

static void bad_ones(void **state)
{
    (void)state;
    size_t len = pack_usage_encode(uses, 3, bytes);
    for (size_t cut = 0; cut < len; cut++)
        assert_refused(cut, LEAVES);
    assert_refused(len + 1, LEAVES);
    assert_refused(len, 2); /* there is no group 2 */
    static const struct pack_use wrong[] = {
        {.live = 1, .groups = 0},                /* named from nowhere */
        {.live = 0, .groups = 1},                /* nothing, from somewhere */
        {.live = 7, .groups = 16},               /* from a leaf that there is not */
        {.live = PACK_USE_UNKNOWN, .groups = 1}, /* nobody knows, but from where */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        len = pack_usage_encode(&wrong[i], 1, bytes);
        assert_refused(len, LEAVES);
    }
    memset(bytes, 0xFF, PACK_USAGE_HEAD);
    assert_refused(PACK_USAGE_HEAD, LEAVES);
    assert_refused(sizeof bytes, LEAVES);
}

static void groups(void **state)
{
    (void)state;
    static const struct {
        uint32_t leaves;
        unsigned shift;
    } shifts[] = {{0, 0}, {1, 0}, {64, 0}, {65, 1}, {128, 1}, {129, 2}, {4096, 6}};
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++)
        assert_int_equal(pack_usage_shift(shifts[i].leaves), shifts[i].shift);
    assert_int_equal(pack_usage_group(63, 0), UINT64_C(1) << 63);
    assert_int_equal(pack_usage_group(4095, 6), UINT64_C(1) << 63);
    /* Each leaf is in the group that it was in, of the larger ones. */
    for (unsigned to = 0; to < 7; to++)
        for (uint32_t leaf = 0; leaf < 64; leaf++)
            assert_int_equal(pack_usage_regroup(pack_usage_group(leaf, 0), 0, to),
                             pack_usage_group(leaf, to));
    assert_int_equal(pack_usage_regroup(0xF1, 0, 1), 0xD);
    assert_int_equal(pack_usage_regroup(UINT64_MAX, 0, 1), UINT32_MAX);
    assert_int_equal(pack_usage_regroup(UINT64_MAX, 0, 3), 0xFF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(bad_ones),
        cmocka_unit_test(groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
