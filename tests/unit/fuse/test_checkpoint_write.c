/* What a checkpoint stores, and what it does not. */
#include "checkpoint_site.h"
#include "cleanup.h"
#include "plain_checkpoint.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void nothing_but_zeros(void **state)
{
    struct checkpoint_site *site = *state;
    struct plain_checkpoint plain;
    checkpoint_site_fill(site, 3, 0);
    checkpoint_site_write(site);
    assert_false(site->written.unchanged);
    assert_int_equal(site->written.chunks_read, 1);
    assert_int_equal(site->written.chunks_new, 0);
    assert_int_equal(site->written.chunks, 0);
    assert_int_equal(site->written.pack_count, 0);
    checkpoint_site_compare(site);
    plain_checkpoint_open(site->oci, SITE_REPOSITORY, SITE_TAG, &plain);
    assert_int_equal(plain.list_count, 0);
    plain_checkpoint_close(&plain);
}

/* Each once, whatever number of chunks has them. */
static void the_same_bytes_are_stored_once(void **state)
{
    struct checkpoint_site *site = *state;
    for (uint64_t chunk = 0; chunk < 300; chunk++)
        checkpoint_site_fill(site, 2 * chunk, 1 + (uint32_t)(chunk % 3));
    checkpoint_site_write(site);
    assert_int_equal(site->written.chunks_read, 300);
    assert_int_equal(site->written.chunks_new, 3);
    assert_int_equal(site->written.chunks, 300);
    assert_int_equal(site->written.pack_count, 2); /* of chunks, and of the leaf */
    checkpoint_site_compare(site);
    checkpoint_site_compare_read(site);
}

static void what_the_parent_has(void **state)
{
    struct checkpoint_site *site = *state;
    for (uint64_t chunk = 0; chunk < 100; chunk++)
        checkpoint_site_fill(site, chunk, 7 + (uint32_t)chunk);
    checkpoint_site_write(site);
    site->plain = true; /* the source does not know what is the parent's */
    for (uint64_t chunk = 0; chunk < 100; chunk++)
        site->dirty[chunk] = true;
    checkpoint_site_fill(site, 50, 1000);
    checkpoint_site_fill(site, 51, 0);
    checkpoint_site_write(site);
    assert_int_equal(site->written.chunks_read, 100);
    assert_int_equal(site->written.chunks_new, 1);
    assert_int_equal(site->written.chunks, 99);
    assert_true(site->written.bytes_new < 100 * 1024);
    checkpoint_site_compare(site);
}

/* Neither the tag nor anything else is touched. */
static void nothing_has_changed(void **state)
{
    struct checkpoint_site *site = *state;
    struct digest before;
    struct digest after;
    checkpoint_site_fill(site, 9, 9);
    checkpoint_site_write(site);
    uint64_t total = site->written.bytes_total;
    assert_true(checkpoint_site_tag(site, &before));
    for (int i = 0; i < 3; i++) {
        site->plain = i == 1;
        if (i < 2)
            site->dirty[9] = site->dirty[700] = true;
        int puts = site->hook.puts;
        int calls = site->hook.calls;
        checkpoint_site_write(site);
        assert_true(site->written.unchanged);
        assert_true(digest_equal(&site->written.digest, &before));
        assert_int_equal(site->written.bytes_total, total);
        assert_int_equal(site->written.bytes_new, 0);
        assert_int_equal(site->written.chunks, 1);
        assert_int_equal(site->hook.puts, puts);
        assert_int_equal(site->hook.calls, calls);
    }
    assert_true(checkpoint_site_tag(site, &after));
    assert_true(digest_equal(&after, &before));
}

static void always(void **state)
{
    struct checkpoint_site *site = *state;
    struct plain_checkpoint first;
    struct plain_checkpoint second;
    checkpoint_site_fill(site, 9, 9);
    checkpoint_site_write(site);
    plain_checkpoint_open(site->oci, SITE_REPOSITORY, SITE_TAG, &first);
    site->write.always = true;
    checkpoint_site_write(site);
    assert_false(site->written.unchanged);
    assert_int_equal(site->written.pack_count, 0);
    plain_checkpoint_open(site->oci, SITE_REPOSITORY, SITE_TAG, &second);
    assert_false(digest_equal(&first.index, &second.index));
    assert_true(digest_equal(&first.root, &second.root));
    assert_int_equal(second.list_count, 1);
    assert_true(digest_equal(&first.lists[0], &second.lists[0]));
    assert_string_equal(json_string_value(json_object_get(second.config, "parent")),
                        digest_format(&first.index).s);
    checkpoint_site_compare(site);
    plain_checkpoint_close(&first);
    plain_checkpoint_close(&second);
}

/* What was there two checkpoints ago makes the same packs, which are named again. */
static void there_and_back(void **state)
{
    struct checkpoint_site *site = *state;
    site->plain = true;
    checkpoint_site_fill(site, 5, 1);
    checkpoint_site_fill(site, 9, 1); /* the same place, which stays in use */
    checkpoint_site_write(site);
    checkpoint_site_fill(site, 5, 2);
    checkpoint_site_write(site);
    assert_int_equal(site->written.pack_count, 2);
    checkpoint_site_fill(site, 5, 1);
    checkpoint_site_write(site);
    assert_false(site->written.unchanged);
    assert_int_equal(site->written.pack_count, 1); /* of leaves */
    checkpoint_site_compare(site);
    checkpoint_site_compare_read(site);
}

static struct digest write_once(bool plain, bool passes_over)
{
    struct checkpoint_site *site;
    assert_int_equal(checkpoint_site_setup((void **)&site), 0);
    site->plain = plain;
    site->passes_over = passes_over;
    site->write.pack_bytes = 500000;
    for (uint32_t i = 0; i < 200; i++)
        checkpoint_site_fill(site, i * 5, i);
    checkpoint_site_write(site);
    for (uint32_t i = 0; i < 50; i++)
        checkpoint_site_set(site, i * 200, i + 5);
    for (uint32_t i = 0; i < 300; i++) /* some are set in the parent */
        checkpoint_site_fill(site, 500 + i, 0);
    checkpoint_site_write(site);
    const struct digest digest = site->written.digest;
    assert_int_equal(checkpoint_site_teardown((void **)&site), 0);
    return digest;
}

/* Whoever writes it, and in whatever pieces the source gives it. */
static void always_the_same_bytes(void **state)
{
    (void)state;
    const struct digest first = write_once(true, false);
    for (int i = 0; i < 4; i++) {
        const struct digest again = write_once(i % 2 == 0, i < 2);
        assert_true(digest_equal(&again, &first));
    }
}

static void volumes_grow(void **state)
{
    struct checkpoint_site *site = *state;
    checkpoint_site_fill(site, 1023, 5);
    checkpoint_site_write(site);
    checkpoint_site_grow(site, UINT64_C(128) << 20); /* in its last leaf */
    checkpoint_site_write(site);
    assert_false(site->written.unchanged);
    checkpoint_site_compare(site);
    checkpoint_site_grow(site, UINT64_C(1) << 30); /* with new ones */
    checkpoint_site_fill(site, 16383, 6);
    checkpoint_site_fill(site, 1024, 7);
    checkpoint_site_write(site);
    assert_int_equal(site->written.chunks, 3);
    checkpoint_site_compare(site);
    checkpoint_site_compare_read(site);
    struct err err = ERR_INIT;
    site->size = UINT64_C(512) << 20;
    assert_true(checkpoint_site_try(site, &err) < 0);
    assert_int_equal(err.code, ERR_INVALID);
    site->size = (UINT64_C(1) << 30) + 1;
    err_clear(&err);
    assert_true(checkpoint_site_try(site, &err) < 0);
    assert_int_equal(err.code, ERR_INVALID);
    site->size = UINT64_C(1) << 30;
}

/* More leaves than wait for their packs at once; a leaf that becomes empty, and is set again. */
static void many_leaves(void **state)
{
    struct checkpoint_site *site = *state;
    checkpoint_site_grow(site, (uint64_t)(2 * CHECKPOINT_LEAVES_PENDING + 3) * VOLUME_LEAF_CHUNKS *
                                   VOLUME_CHUNK);
    uint64_t chunks = site->size / VOLUME_CHUNK;
    for (uint64_t chunk = 0; chunk < chunks; chunk += VOLUME_LEAF_CHUNKS / 2)
        checkpoint_site_fill(site, chunk + 17, (uint32_t)chunk + 1);
    checkpoint_site_write(site);
    assert_int_equal(site->written.chunks, 2 * (2 * CHECKPOINT_LEAVES_PENDING + 3));
    checkpoint_site_compare(site);
    checkpoint_site_fill(site, 17, 0);
    checkpoint_site_fill(site, VOLUME_LEAF_CHUNKS / 2 + 17, 0);
    checkpoint_site_fill(site, chunks - 1, 99);
    checkpoint_site_write(site);
    checkpoint_site_compare(site);
    checkpoint_site_fill(site, 18, 4);
    checkpoint_site_write(site);
    checkpoint_site_compare(site);
    checkpoint_site_compare_read(site);
}

/* Full lists stay as they are; the last one is written anew, and those that lose a pack. */
static void more_packs_than_a_list_has(void **state)
{
    struct checkpoint_site *site = *state;
    /* The first chunk that is changed, and how many; then packs and lists, and of these the same.
     */
    static const struct {
        uint64_t chunk, chunks;
        size_t packs, lists, same;
    } rounds[] = {
        {0, 998, 999, 1, 0},   {2000, 1, 1000, 1, 0}, /* the leaf before is gone */
        {5000, 1, 1002, 2, 1}, {5001, 1, 1003, 2, 1}, /* as one of the second list is */
        {0, 1, 1003, 2, 0},
    };
    struct plain_checkpoint plain[ARRAY_SIZE(rounds)];
    uint32_t value = 1;
    site->plain = true;
    site->write.pack_bytes = 1; /* each chunk and each leaf is a pack */
    checkpoint_site_grow(site, UINT64_C(1) << 30);
    for (size_t i = 0; i < ARRAY_SIZE(rounds); i++) {
        for (uint64_t j = 0; j < rounds[i].chunks; j++)
            checkpoint_site_set(site, (rounds[i].chunk + j) * VOLUME_CHUNK_BLOCKS, value++);
        checkpoint_site_write(site);
        assert_int_equal(site->written.pack_count, rounds[i].chunks + 1);
        plain_checkpoint_open(site->oci, SITE_REPOSITORY, SITE_TAG, &plain[i]);
        assert_int_equal(plain[i].pack_count, rounds[i].packs);
        assert_int_equal(plain[i].list_count, rounds[i].lists);
        size_t same = 0;
        for (size_t j = 0; i > 0 && j < plain[i].list_count && j < plain[i - 1].list_count; j++)
            same += digest_equal(&plain[i].lists[j], &plain[i - 1].lists[j]);
        assert_int_equal(same, rounds[i].same);
    }
    checkpoint_site_compare(site);
    for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
        plain_checkpoint_close(&plain[i]);
}

static void it_is_signed(void **state)
{
    static const struct hmac_key key = {.bytes = "0123456789abcdef", .len = 16};
    static const struct hmac_key other = {.bytes = "0123456789abcdeg", .len = 16};
    struct checkpoint_site *site = *state;
    struct err err = ERR_INIT;
    site->write.key = &key;
    checkpoint_site_fill(site, 1, 1);
    checkpoint_site_write(site);
    const struct checkpoint_config *config = checkpoint_config_of(site->head);
    assert_int_equal(checkpoint_config_verify(config, &key, NULL), 0);
    assert_true(checkpoint_config_verify(config, &other, &err) < 0);
    assert_int_equal(err.code, ERR_DENIED);
}

/* Who chooses the tag. */
struct chooser {
    struct checkpoint_site *site;
    const char *tag;
    bool refuses;
    unsigned asked;
    struct digest index; /* that it was told of */
};

static int choose(void *arg, const struct digest *index, const char **ret_tag, struct err *err)
{
    struct chooser *chooser = arg;
    struct digest now;
    chooser->asked++;
    chooser->index = *index;
    (void)checkpoint_site_tag(chooser->site, &now); /* it may look */
    if (chooser->refuses)
        return err_fail(err, ERR_CONFLICT, "somebody else has gone on");
    *ret_tag = chooser->tag;
    return 0;
}

static bool names(struct checkpoint_site *site, const char *tag, const struct digest *digest)
{
    struct remote_manifest_stat stat;
    struct err err = ERR_INIT;
    return remote_manifest_stat(site->oci, SITE_REPOSITORY, tag, NULL, NULL, &stat, &err) == 0 &&
           digest_equal(&stat.digest, digest);
}

/* The tag is chosen last of all; a kept one is never taken from another index, a live one is. */
static void compare_and_swap(struct checkpoint_site *site)
{
    static const char kept[] = "0123456789ab-g3-node-a";
    struct err err = ERR_INIT;
    struct chooser chooser = {.site = site, .tag = SITE_TAG};
    site->write.choose = choose;
    site->write.choose_arg = &chooser;
    for (uint32_t i = 1; i < 3; i++) {
        checkpoint_site_fill(site, 1, i);
        checkpoint_site_write(site);
        assert_true(digest_equal(&chooser.index, &site->written.digest));
        assert_true(names(site, SITE_TAG, &site->written.digest));
    }
    assert_int_equal(chooser.asked, 2);
    chooser.tag = kept;
    checkpoint_site_fill(site, 1, 3);
    checkpoint_site_write(site);
    const struct digest third = site->written.digest;
    assert_true(names(site, kept, &third));
    checkpoint_site_fill(site, 1, 4);
    assert_true(checkpoint_site_try(site, &err) < 0);
    assert_int_equal(err.code, ERR_EXISTS);
    err_clear(&err);
    chooser.refuses = true;
    assert_true(checkpoint_site_try(site, &err) < 0);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_true(names(site, kept, &third));
    chooser.refuses = false;
    chooser.tag = "0123456789ab-d3-node-a"; /* it is kept under another tag */
    checkpoint_site_write(site);
    assert_true(names(site, chooser.tag, &site->written.digest));
    assert_true(names(site, kept, &third));
}

static void compare_and_swap_in_one_step(void **state)
{
    compare_and_swap(*state);
}

/* A registry has no such operation. */
static void compare_and_swap_in_two(void **state)
{
    struct checkpoint_site *site = *state;
    hook_remote_free(&site->hook);
    site->hook.swapless = true;
    (void)hook_remote_init(&site->hook, site->oci);
    compare_and_swap(site);
}

static void expect_other_packs(const struct checkpoint *one, const struct checkpoint *other)
{
    size_t count;
    size_t other_count;
    const struct pack *packs = checkpoint_packs_of(one, &count);
    const struct pack *others = checkpoint_packs_of(other, &other_count);
    assert_int_equal(count, 2);
    assert_int_equal(other_count, 2);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < other_count; j++)
            assert_false(digest_equal(&packs[i].digest, &others[j].digest));
}

/* Ones that cannot be built on are what comes before all the same; packs of none of them are ever
 * named, also where the same bytes would make them again, and nobody can read which they had. */
static void without_the_parent(void **state)
{
    struct checkpoint_site *site = *state;
    struct checkpoint *lost[2] = {NULL};
    for (uint32_t i = 0; i < 40; i++)
        checkpoint_site_fill(site, i, 2 * i + 1);
    checkpoint_site_write(site);
    site->write.fresh = true;
    site->write.always = true;
    site->plain = true;
    for (size_t round = 0; round < ARRAY_SIZE(lost); round++) {
        struct err err = ERR_INIT;
        lost[round] = steal_ptr(site->head);
        const struct digest before = *checkpoint_digest(lost[round]);
        site->write.after = &before;
        for (uint64_t i = 0; i < site->size / VOLUME_CHUNK; i++)
            site->dirty[i] = true;
        if (checkpoint_site_try(site, &err) < 0)
            fail_msg("%s", err.text);
        assert_true(checkpoint_config_of(site->head)->has_parent);
        assert_true(digest_equal(&checkpoint_config_of(site->head)->parent, &before));
        assert_true(digest_equal(&checkpoint_index_of(site->head)->parent, &before));
        for (size_t i = 0; i <= round; i++)
            expect_other_packs(site->head, lost[i]);
        checkpoint_site_compare(site);
    }
    for (size_t i = 0; i < ARRAY_SIZE(lost); i++)
        checkpoint_free(lost[i]);
}

/* With so few digits many packs are alike, the parent's among them. */
static void digits_that_are_taken(void **state)
{
    struct checkpoint_site *site = *state;
    site->write.id_bits = 6;
    site->write.pack_bytes = 100000;
    site->plain = true;
    for (uint32_t i = 1; i < 12; i++) {
        for (uint32_t j = 0; j < 6; j++)
            checkpoint_site_fill(site, 20 * i + j, 100 * i + 2 * j + 1);
        checkpoint_site_write(site);
    }
    struct plain_checkpoint plain;
    bool taken[64] = {false};
    plain_checkpoint_open(site->oci, SITE_REPOSITORY, SITE_TAG, &plain);
    assert_true(plain.pack_count >= 20);
    for (size_t i = 0; i < plain.pack_count; i++) {
        assert_false(taken[plain.packs[i].bytes[0] >> 2]);
        taken[plain.packs[i].bytes[0] >> 2] = true;
    }
    plain_checkpoint_close(&plain);
    checkpoint_site_compare(site);
    checkpoint_site_compare_read(site);
}

#define with_site(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, checkpoint_site_setup, checkpoint_site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_site(nothing_but_zeros),
        with_site(the_same_bytes_are_stored_once),
        with_site(what_the_parent_has),
        with_site(nothing_has_changed),
        with_site(always),
        with_site(there_and_back),
        cmocka_unit_test(always_the_same_bytes),
        with_site(volumes_grow),
        with_site(many_leaves),
        with_site(more_packs_than_a_list_has),
        with_site(it_is_signed),
        with_site(compare_and_swap_in_one_step),
        with_site(compare_and_swap_in_two),
        with_site(without_the_parent),
        with_site(digits_that_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
