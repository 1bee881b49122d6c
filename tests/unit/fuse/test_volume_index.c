/* Leaves and roots of checkpoints: there and back, and what is no such thing. */
#include "volume_index.h"

#include "cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct volume_leaf leaf;
static struct volume_leaf leaf_again;
static struct volume_root root;
static struct volume_root root_again;
static uint8_t bytes[VOLUME_LEAF_BYTES_MAX + 1];
static uint8_t bytes_again[VOLUME_LEAF_BYTES_MAX + 1];
_Static_assert(sizeof bytes > VOLUME_ROOT_BYTES_MAX, "both fit");

static struct volume_entry entry_of(unsigned seed, uint32_t length)
{
    struct volume_entry entry = {.place = {.offset = seed * 7919, .length = length}};
    memset(entry.digest.bytes, (int)(1 + seed % 255), DIGEST_BYTES);
    memset(entry.place.pack, (int)(seed % 251), VOLUME_PACK_ID);
    return entry;
}

static void assert_same(const struct volume_entry *a, const struct volume_entry *b)
{
    assert_true(digest_equal(&a->digest, &b->digest));
    assert_memory_equal(a->place.pack, b->place.pack, VOLUME_PACK_ID);
    assert_int_equal(a->place.offset, b->place.offset);
    assert_int_equal(a->place.length, b->place.length);
}

static void make_leaf(uint32_t number, uint32_t step)
{
    volume_leaf_init(&leaf, number);
    for (uint32_t i = 0; step > 0 && i < VOLUME_LEAF_CHUNKS; i += step) {
        const struct volume_entry entry = entry_of(i, 1 + i * 16);
        volume_leaf_set(&leaf, i, &entry);
    }
}

static void leaves_go_there_and_back(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    static const uint32_t steps[] = {0, 1, 2, 7, 4095, 4096};
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        make_leaf(17, steps[i]);
        uint32_t count = steps[i] ? (VOLUME_LEAF_CHUNKS + steps[i] - 1) / steps[i] : 0;
        assert_int_equal(leaf.count, count);
        size_t len = volume_leaf_encode(&leaf, bytes);
        assert_int_equal(len, VOLUME_LEAF_BYTES_MIN + count * VOLUME_ENTRY_BYTES);
        assert_int_equal(volume_leaf_decode(bytes, len, 17, &leaf_again, &err), 0);
        assert_int_equal(leaf_again.count, count);
        for (uint32_t j = 0; j < VOLUME_LEAF_CHUNKS; j++) {
            assert_int_equal(leaf.set[j], leaf_again.set[j]);
            if (leaf.set[j])
                assert_same(&leaf.entries[j], &leaf_again.entries[j]);
        }
        assert_int_equal(volume_leaf_encode(&leaf_again, bytes_again), len);
        assert_memory_equal(bytes, bytes_again, len);
    }
}

static void entries_come_and_go(void **state)
{
    (void)state;
    const struct volume_entry one = entry_of(1, 1);
    const struct volume_entry two = entry_of(2, VOLUME_CHUNK);
    volume_leaf_init(&leaf, 0);
    volume_leaf_set(&leaf, 5, &one);
    volume_leaf_set(&leaf, 5, &two);
    assert_int_equal(leaf.count, 1);
    assert_same(&leaf.entries[5], &two);
    volume_leaf_set(&leaf, 6, NULL);
    assert_int_equal(leaf.count, 1);
    volume_leaf_set(&leaf, 5, NULL);
    volume_leaf_set(&leaf, 5, NULL);
    assert_int_equal(leaf.count, 0);
    assert_int_equal(volume_leaf_encode(&leaf, bytes), VOLUME_LEAF_BYTES_MIN);
}

/* As docs/FORMAT.md has it, by hand. */
static void a_leaf_is_what_the_format_says(void **state)
{
    (void)state;
    const struct volume_entry entry = {.digest = {{0xAA, 0xBB}},
                                       .place = {{1, 2, 3, 4, 5, 6, 7, 8}, 0x01020304, 0x1234}};
    volume_leaf_init(&leaf, 0x0A0B);
    volume_leaf_set(&leaf, 11, &entry);
    size_t len = volume_leaf_encode(&leaf, bytes);
    uint8_t wanted[544 + 48] = {'V', 'R', 'V', 'L',  'E',  'A', 'F', '1', 1,
                                0,   0,   0,   0x0B, 0x0A, 0,   0,   1};
    wanted[32 + 1] = 1 << 3;
    static const uint8_t place[] = {1, 2, 3, 4, 5, 6, 7, 8, 4, 3, 2, 1, 0x34, 0x12};
    wanted[544] = 0xAA;
    wanted[545] = 0xBB;
    memcpy(wanted + 544 + 32, place, sizeof place);
    assert_int_equal(len, sizeof wanted);
    assert_memory_equal(bytes, wanted, len);
}

static void assert_leaf_refused(size_t len, uint32_t number, enum err_code code)
{
    struct err err = ERR_INIT;
    assert_true(volume_leaf_decode(bytes, len, number, &leaf_again, &err) < 0);
    assert_int_equal(err.code, code);
}

static void bad_leaves(void **state)
{
    (void)state;
    make_leaf(3, 100);
    size_t len = volume_leaf_encode(&leaf, bytes);
    for (size_t cut = 0; cut < len; cut += cut < 40 ? 1 : 37)
        assert_leaf_refused(cut, 3, ERR_DAMAGED);
    assert_leaf_refused(len + 1, 3, ERR_DAMAGED);
    assert_leaf_refused(len, 4, ERR_DAMAGED);
    static const struct {
        size_t at;
        uint8_t value;
        enum err_code code;
    } cases[] = {
        {0, 'v', ERR_DAMAGED},      {7, '2', ERR_DAMAGED},      {8, 2, ERR_TOO_NEW},
        {8, 0, ERR_DAMAGED},        {11, 1, ERR_TOO_NEW},       {12, 2, ERR_DAMAGED},
        {16, 40, ERR_DAMAGED},      {19, 1, ERR_DAMAGED},       {20, 1, ERR_DAMAGED},
        {31, 1, ERR_DAMAGED},       {32, 0, ERR_DAMAGED},       {33, 1, ERR_DAMAGED},
        {543, 1, ERR_DAMAGED},      {544 + 44, 0, ERR_DAMAGED}, /* a length of 0 */
        {544 + 47, 1, ERR_DAMAGED},                             /* and of more than a chunk */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint8_t was = bytes[cases[i].at];
        bytes[cases[i].at] = cases[i].value;
        assert_leaf_refused(len, 3, cases[i].code);
        bytes[cases[i].at] = was;
    }
    struct err err = ERR_INIT;
    assert_int_equal(volume_leaf_decode(bytes, len, 3, &leaf_again, &err), 0);
}

static uint32_t leaf_length(uint32_t count)
{
    return VOLUME_LEAF_BYTES_MIN + count * VOLUME_ENTRY_BYTES;
}

static void roots_go_there_and_back(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    static const uint64_t sizes[] = {VOLUME_SIZE_MIN, UINT64_C(256) << 20, UINT64_C(257) << 20,
                                     UINT64_C(10) << 30, VOLUME_SIZE_MAX};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        volume_root_init(&root, sizes[i]);
        uint64_t chunks = 0;
        for (uint32_t j = 0; j < root.leaf_count; j += 3) {
            const struct volume_entry entry = entry_of(j, leaf_length(1 + j % 1000));
            volume_root_set(&root, j, &entry, 7, 0);
            volume_root_set(&root, j, &entry, 1 + j % 1000, 7);
            chunks += 1 + j % 1000;
        }
        assert_int_equal(root.chunks, chunks);
        size_t len = volume_root_encode(&root, bytes);
        assert_int_equal(volume_root_decode(bytes, len, &root_again, &err), 0);
        assert_int_equal(root_again.size, sizes[i]);
        assert_int_equal(root_again.chunks, chunks);
        for (uint32_t j = 0; j < root.leaf_count; j++) {
            assert_int_equal(root.set[j], root_again.set[j]);
            if (root.set[j])
                assert_same(&root.leaves[j], &root_again.leaves[j]);
        }
        assert_int_equal(volume_root_encode(&root_again, bytes_again), len);
        assert_memory_equal(bytes, bytes_again, len);
    }
    volume_root_set(&root, 0, NULL, 0, 1);
    assert_false(root.set[0]);
}

static void assert_root_refused(size_t len, enum err_code code)
{
    struct err err = ERR_INIT;
    assert_true(volume_root_decode(bytes, len, &root_again, &err) < 0);
    assert_int_equal(err.code, code);
}

static void bad_roots(void **state)
{
    (void)state;
    const struct volume_entry entry = entry_of(1, leaf_length(5));
    volume_root_init(&root, UINT64_C(1) << 30);
    volume_root_set(&root, 1, &entry, 5, 0);
    size_t len = volume_root_encode(&root, bytes);
    for (size_t cut = 0; cut < len; cut++)
        assert_root_refused(cut, ERR_DAMAGED);
    assert_root_refused(len + 1, ERR_DAMAGED);
    static const struct {
        size_t at;
        uint8_t value;
        enum err_code code;
    } cases[] = {
        {4, 'L', ERR_DAMAGED},          {8, 3, ERR_TOO_NEW},     {12, 5, ERR_DAMAGED},
        {15, 1, ERR_DAMAGED},           {16, 1, ERR_DAMAGED},    {18, 15, ERR_DAMAGED},
        {19, 0, ERR_DAMAGED},           {23, 0xFF, ERR_DAMAGED}, {24, 6, ERR_DAMAGED},
        {30, 1, ERR_DAMAGED},           {32, 1, ERR_DAMAGED}, /* an empty leaf is not */
        {32 + 48 + 44, 0, ERR_DAMAGED},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint8_t was = bytes[cases[i].at];
        bytes[cases[i].at] = cases[i].value;
        assert_root_refused(len, cases[i].code);
        bytes[cases[i].at] = was;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_go_there_and_back),       cmocka_unit_test(entries_come_and_go),
        cmocka_unit_test(a_leaf_is_what_the_format_says), cmocka_unit_test(bad_leaves),
        cmocka_unit_test(roots_go_there_and_back),        cmocka_unit_test(bad_roots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
