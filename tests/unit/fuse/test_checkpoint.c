/* Checkpoints that are opened and read. */
#include "checkpoint_maker.h"

#include "cleanup.h"
#include "remote_oci.h"
#include "scratch.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

static bool some(uint64_t chunk)
{
    return chunk % 5 == 0 || (chunk >= 200 && chunk < 260);
}

static int setup(void **state)
{
    struct checkpoint_maker *maker = calloc(1, sizeof *maker);
    if (!maker)
        return -1;
    maker->memory = memory_remote_open();
    maker->size = 64 * MIB;
    maker->is_set = some;
    maker->pack_chunks = 60;
    *state = maker;
    return 0;
}

static int teardown(void **state)
{
    struct checkpoint_maker *maker = *state;
    memory_remote_close(maker->memory);
    free(maker);
    return 0;
}

static struct checkpoint *open_it(struct checkpoint_maker *maker)
{
    struct err err = ERR_INIT;
    struct checkpoint *checkpoint;
    if (checkpoint_maker_open(maker, NULL, &checkpoint, &err) < 0)
        fail_msg("%s", err.text);
    return checkpoint;
}

static void read_it(struct checkpoint_maker *maker, struct checkpoint *checkpoint,
                    const uint64_t *chunks, size_t count)
{
    struct err err = ERR_INIT;
    if (checkpoint_maker_read(maker, checkpoint, chunks, count, &err) < 0)
        fail_msg("%s", err.text);
}

static void test_sound(void **state)
{
    struct checkpoint_maker *maker = *state;
    struct err err = ERR_INIT;
    checkpoint_maker_make(maker);
    struct checkpoint *checkpoint = open_it(maker);
    size_t packs, set = 0;
    assert_true(digest_equal(checkpoint_digest(checkpoint), &maker->digest));
    assert_int_equal(checkpoint_config_of(checkpoint)->generation, 7);
    assert_int_equal(checkpoint_index_of(checkpoint)->list_count, 1);
    assert_int_equal(checkpoint_root_of(checkpoint)->leaf_count, 1);
    assert_int_equal(checkpoint_root_of(checkpoint)->size, 64 * MIB);
    assert_non_null(checkpoint_packs_of(checkpoint, &packs));
    assert_int_equal(packs, (205 + 48 + 59) / 60 + 1);
    read_it(maker, checkpoint, NULL, 0);
    read_it(maker, checkpoint, (const uint64_t[]){1023, 0, 210}, 3);
    read_it(maker, checkpoint, (const uint64_t[]){1}, 1);
    struct volume_leaf *leaf = malloc(sizeof *leaf);
    assert_int_equal(checkpoint_leaf(checkpoint, 0, NULL, NULL, leaf, &err), 0);
    for (uint32_t i = 0; i < 1024; i++) {
        struct volume_entry entry;
        assert_int_equal(leaf->set[i], some(i));
        assert_int_equal(checkpoint_find(checkpoint, i, NULL, NULL, &entry, &err), some(i));
        if (some(i))
            assert_memory_equal(&entry, &leaf->entries[i], sizeof entry);
        set += leaf->set[i];
    }
    assert_int_equal(leaf->count, set);
    assert_int_equal(checkpoint_root_of(checkpoint)->chunks, set);
    free(leaf);
    checkpoint_free(checkpoint);
    checkpoint_free(NULL);
}

static void test_arguments(void **state)
{
    struct checkpoint_maker *maker = *state;
    struct err err = ERR_INIT;
    struct volume_entry entry;
    struct checkpoint *other;
    checkpoint_maker_make(maker);
    struct checkpoint *checkpoint = open_it(maker);
    assert_int_equal(checkpoint_find(checkpoint, 1024, NULL, NULL, &entry, &err), -EINVAL);
    err_clear(&err);
    assert_int_equal(checkpoint_leaf(checkpoint, 1, NULL, NULL, NULL, &err), -EINVAL);
    err_clear(&err);
    assert_int_equal(checkpoint_read(checkpoint, (const uint64_t[]){UINT64_MAX}, 1, NULL, NULL,
                                     NULL, NULL, &err),
                     -EINVAL);
    err_clear(&err);
    assert_int_equal(checkpoint_read(checkpoint, NULL, 0, NULL, NULL, NULL, NULL, &err), 0);
    checkpoint_free(checkpoint);
    const struct checkpoint_options options = {.remote = &maker->memory->remote,
                                               .repository = CHECKPOINT_MAKER_REPOSITORY};
    assert_true(checkpoint_open(&options, "no-such-tag", NULL, NULL, &other, &err) < 0);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "no-such-tag"));
    err_clear(&err);
    assert_int_equal(
        checkpoint_open(&options, digest_format(&maker->digest).s, NULL, NULL, &other, &err), 0);
    checkpoint_free(other);
}

/* A volume of which nothing is set has no packs and no lists. */
static bool none(uint64_t chunk)
{
    (void)chunk;
    return false;
}

static void test_empty(void **state)
{
    struct checkpoint_maker *maker = *state;
    size_t packs;
    maker->is_set = none;
    checkpoint_maker_make(maker);
    struct checkpoint *checkpoint = open_it(maker);
    read_it(maker, checkpoint, NULL, 0);
    (void)checkpoint_packs_of(checkpoint, &packs);
    assert_int_equal(packs, 0);
    checkpoint_free(checkpoint);
}

/* --- ranged reads --- */

static bool all(uint64_t chunk)
{
    (void)chunk;
    return true;
}

/* Of the packs, without the config, the root and leaves. */
static size_t reads_of_chunks(const struct checkpoint_maker *maker, size_t *ret_bytes)
{
    size_t count = 0;
    *ret_bytes = 0;
    for (size_t i = 3; i < maker->memory->read_count; i++) {
        assert_true(maker->memory->reads[i].len <= CHECKPOINT_READ_MAX);
        *ret_bytes += maker->memory->reads[i].len;
        count++;
    }
    return count;
}

static void test_neighbours_come_together(void **state)
{
    struct checkpoint_maker *maker = *state;
    size_t bytes;
    uint64_t chunks[64];
    for (size_t i = 0; i < 64; i++)
        chunks[i] = (i * 37 + 11) % 64;
    maker->is_set = all;
    checkpoint_maker_make(maker);
    struct checkpoint *checkpoint = open_it(maker);
    read_it(maker, checkpoint, chunks, 64);
    /* 60 are in the first pack, the others in the next one. */
    assert_int_equal(reads_of_chunks(maker, &bytes), 2);
    assert_true(bytes < 3 * MIB);
    checkpoint_free(checkpoint);
}

static void test_gaps(void **state)
{
    struct checkpoint_maker *maker = *state;
    size_t bytes;
    maker->is_set = all;
    maker->pack_chunks = 8;
    for (int wide = 0; wide < 2; wide++) {
        maker->memory->read_count = 0;
        maker->gap = CHECKPOINT_GAP + (unsigned)wide;
        checkpoint_maker_make(maker);
        struct checkpoint *checkpoint = open_it(maker);
        read_it(maker, checkpoint, (const uint64_t[]){3, 4, 5, 6}, 4);
        assert_int_equal(reads_of_chunks(maker, &bytes), wide ? 4 : 1);
        assert_true(wide ? bytes <= 4 * VOLUME_CHUNK : bytes > 3 * CHECKPOINT_GAP);
        checkpoint_free(checkpoint);
        /* The tag moves. */
        for (size_t i = 0; i < maker->memory->count; i++)
            maker->memory->objects[i].tag[0] = '\0';
    }
}

static void test_reads_are_bounded(void **state)
{
    struct checkpoint_maker *maker = *state;
    size_t bytes;
    maker->is_set = all;
    maker->pack_chunks = 50;
    maker->gap = 80 * 1024;
    checkpoint_maker_make(maker);
    struct checkpoint *checkpoint = open_it(maker);
    uint64_t chunks[50];
    for (size_t i = 0; i < 50; i++)
        chunks[i] = i;
    read_it(maker, checkpoint, chunks, 50);
    assert_in_range(reads_of_chunks(maker, &bytes), 2, 3);
    checkpoint_free(checkpoint);
}

struct stopping {
    int before; /* ranged reads that may begin */
    int within;
};

static int stop_before(void *arg, uint64_t done, uint64_t total)
{
    struct stopping *stopping = arg;
    (void)done;
    if (total != 0)
        return stopping->within-- <= 0;
    return stopping->before-- <= 0;
}

static int take_nothing(void *arg, uint64_t chunk, const void *bytes, struct err *err)
{
    (void)chunk, (void)bytes, (void)err;
    ++*(int *)arg;
    return 0;
}

static int refuse(void *arg, uint64_t chunk, const void *bytes, struct err *err)
{
    (void)arg, (void)bytes;
    return err_fail(err, ERR_CONFLICT, "not %d", (int)chunk);
}

static void test_stop(void **state)
{
    struct checkpoint_maker *maker = *state;
    struct err err = ERR_INIT;
    int taken = 0;
    maker->is_set = all;
    checkpoint_maker_make(maker);
    struct checkpoint *checkpoint = open_it(maker);
    const uint64_t chunks[] = {1, 70, 140};
    read_it(maker, checkpoint, chunks, 3); /* the leaf is here from now on */
    struct stopping stopping = {.before = 2, .within = 1000};
    assert_true(checkpoint_read(checkpoint, chunks, 3, stop_before, &stopping, take_nothing, &taken,
                                &err) < 0);
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_int_equal(taken, 2);
    err_clear(&err);
    maker->memory->delay_ms = 5000;
    stopping = (struct stopping){.before = 2, .within = 2};
    assert_true(checkpoint_read(checkpoint, chunks, 3, stop_before, &stopping, take_nothing, &taken,
                                &err) < 0);
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_int_equal(taken, 2);
    err_clear(&err);
    maker->memory->delay_ms = 0;
    assert_true(checkpoint_read(checkpoint, chunks, 3, NULL, NULL, refuse, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_CONFLICT);
    checkpoint_free(checkpoint);
}

static void test_remote_away(void **state)
{
    struct checkpoint_maker *maker = *state;
    checkpoint_maker_make(maker);
    struct checkpoint *checkpoint = open_it(maker);
    static const enum err_code codes[] = {ERR_UNREACHABLE, ERR_REFUSED, ERR_DENIED};
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        struct err err = ERR_INIT;
        maker->memory->fail = codes[i];
        maker->memory->fail_times = 1;
        assert_true(checkpoint_maker_read(maker, checkpoint, NULL, 0, &err) < 0);
        assert_int_equal(err.code, codes[i]);
        struct checkpoint *other;
        err_clear(&err);
        maker->memory->fail_times = 1;
        assert_true(checkpoint_maker_open(maker, NULL, &other, &err) < 0);
        assert_int_equal(err.code, codes[i]);
    }
    read_it(maker, checkpoint, NULL, 0);
    checkpoint_free(checkpoint);
}

/* --- a real remote --- */

static void test_oci(void **state)
{
    struct checkpoint_maker *maker = *state;
    struct err err = ERR_INIT;
    void *scratch;
    char url[128];
    assert_int_equal(scratch_setup(&scratch), 0);
    (void)snprintf(url, sizeof url, "oci:%s", scratch_path(scratch, "r"));
    struct remote *remote;
    if (remote_oci_open(url, &remote, &err) < 0)
        fail_msg("%s", err.text);
    checkpoint_maker_make(maker);
    memory_remote_copy(maker->memory, remote, CHECKPOINT_MAKER_REPOSITORY);
    const struct checkpoint_options options = {.remote = remote,
                                               .repository = CHECKPOINT_MAKER_REPOSITORY};
    struct checkpoint *checkpoint;
    if (checkpoint_open(&options, CHECKPOINT_MAKER_TAG, NULL, NULL, &checkpoint, &err) < 0)
        fail_msg("%s", err.text);
    read_it(maker, checkpoint, NULL, 0);
    checkpoint_free(checkpoint);
    remote_close(remote);
    assert_int_equal(scratch_teardown(&scratch), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_sound), TEST(test_arguments),
        TEST(test_empty), TEST(test_neighbours_come_together),
        TEST(test_gaps),  TEST(test_reads_are_bounded),
        TEST(test_stop),  TEST(test_remote_away),
        TEST(test_oci),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
