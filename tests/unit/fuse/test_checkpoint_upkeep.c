/* Packs that are hardly needed any more, and small ones: chains of checkpoints that change the same
 * few MiB, each compared byte by byte, and the bounds of what one checkpoint does about it. The
 * tests' own reader counts what is named in each pack and compares (plain_checkpoint.c). */
#include "checkpoint_site.h"

#include "checkpoint_tag.h"
#include "checkpoint_upkeep.h"
#include "cleanup.h"
#include "long_counts.h"
#include "plain_checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    CHAIN = 80,
    CHAIN_LONG = 200,
    AREA = 160, /* chunks: 10 MiB */
    KEPT_EVERY = 20,
    FULL = 300000, /* bytes of a pack, of most tests */
};

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    (void)fd;
    return 0;
}

int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    (void)fd;
    return 0;
}

/* --- chains --- */

/* Checkpoints of a chain that stay under tags of their own. */
struct kept {
    char tag[CHECKPOINT_TAG_MAX];
    uint32_t *blocks; /* of the area */
};

static void keep(struct checkpoint_site *site, struct kept *kept)
{
    cleanup_remote_manifest struct remote_manifest index = {.bytes = NULL};
    struct err err = ERR_INIT;
    snprintf(kept->tag, sizeof kept->tag, "0123456789ab-g%d-node-a", (int)site->generation);
    kept->blocks = malloc(AREA * VOLUME_CHUNK_BLOCKS * sizeof *kept->blocks);
    assert_non_null(kept->blocks);
    memcpy(kept->blocks, site->parent, AREA * VOLUME_CHUNK_BLOCKS * sizeof *kept->blocks);
    if (remote_manifest_get(site->oci, SITE_REPOSITORY, SITE_TAG, &index, &err) < 0 ||
        remote_manifest_put(site->oci, SITE_REPOSITORY, kept->tag, NULL, index.bytes, index.len,
                            &err) < 0)
        fail_msg("%s", err.text);
}

static void check_kept(struct checkpoint_site *site, const struct kept *kept)
{
    static uint8_t got[VOLUME_CHUNK];
    static uint8_t wanted[VOLUME_CHUNK];
    struct plain_checkpoint plain;
    plain_checkpoint_open(site->oci, SITE_REPOSITORY, kept->tag, &plain);
    for (uint64_t chunk = 0; chunk < AREA; chunk++) {
        bool set = checkpoint_site_bytes(kept->blocks, chunk, wanted);
        assert_int_equal(plain_checkpoint_read(&plain, chunk, got), set);
        if (set)
            assert_memory_equal(got, wanted, VOLUME_CHUNK);
    }
    plain_checkpoint_close(&plain);
}

/* Some chunks here and there, a run, now and then most of it. */
static void change(struct checkpoint_site *site, uint32_t round)
{
    uint64_t count = 1 + checkpoint_site_below(site, round % 50 == 49 ? AREA : 20);
    uint64_t run = checkpoint_site_below(site, AREA - 10);
    for (uint64_t i = 0; i < count; i++)
        checkpoint_site_fill(site, checkpoint_site_below(site, AREA),
                             (uint32_t)checkpoint_site_below(site, 100000));
    for (uint64_t i = 0; i < 5; i++)
        checkpoint_site_fill(site, run + i, round % 7 ? 2000000 + 16 * round + (uint32_t)i : 0);
}

/* At most; fewer where time is short. */
static uint32_t chain(void)
{
    return long_counts() ? CHAIN_LONG : CHAIN;
}

static void run_chain(struct checkpoint_site *site, uint32_t length, uint64_t slack)
{
    struct kept kept[CHAIN_LONG / KEPT_EVERY];
    uint64_t moved = 0;
    uint64_t stored = 0;
    for (uint32_t i = 0; i < AREA; i++)
        checkpoint_site_fill(site, i, 1 + i);
    checkpoint_site_write(site);
    for (uint32_t round = 0; round < length; round++) {
        change(site, round);
        checkpoint_site_write(site);
        checkpoint_site_compare(site);
        if (site->written.bytes_total > 2 * site->live + slack)
            fail_msg("round %u: %llu bytes for %llu", round,
                     (unsigned long long)site->written.bytes_total, (unsigned long long)site->live);
        assert_in_range(site->small, 0, UPKEEP_SMALL_PACKS);
        assert_int_equal(site->uncounted, 0);
        moved += site->written.bytes_moved;
        stored += site->written.bytes_new;
        if (round % KEPT_EVERY == 0)
            keep(site, &kept[round / KEPT_EVERY]);
    }
    checkpoint_site_compare_read(site);
    print_message("# moved %llu of %llu bytes\n", (unsigned long long)moved,
                  (unsigned long long)stored);
    assert_true(moved > 0);
    assert_true(moved < stored / 2);
    for (size_t i = 0; i < length / KEPT_EVERY; i++) {
        check_kept(site, &kept[i]);
        free(kept[i].blocks);
    }
}

/* What a checkpoint adds is seen by the next one alone. */
static void the_same_few_mib(void **state)
{
    struct checkpoint_site *site = *state;
    site->write.pack_bytes = PACK_BYTES;
    run_chain(site, chain(), PACK_BYTES + (6 << 20));
}

static void the_same_few_mib_in_small_packs(void **state)
{
    struct checkpoint_site *site = *state;
    site->write.pack_bytes = FULL;
    run_chain(site, chain() / 2, FULL + (6 << 20));
}

/* One chunk a time: the packs of 64 of them become one or two. */
static void small_ones_become_one(void **state)
{
    struct checkpoint_site *site = *state;
    size_t most = 0;
    bool fell = false;
    site->write.pack_bytes = PACK_BYTES;
    checkpoint_site_grow(site, UINT64_C(512) << 20);
    for (uint32_t i = 0; i < 3 * UPKEEP_SMALL_PACKS; i++) {
        checkpoint_site_set(site, (uint64_t)i * 40 * VOLUME_CHUNK_BLOCKS, i + 1);
        checkpoint_site_write(site);
        checkpoint_site_compare(site);
        if (most >= UPKEEP_SMALL_PACKS - 3 && site->packs < 8)
            fell = true;
        most = site->packs > most ? site->packs : most;
    }
    assert_true(fell);
    assert_in_range(most, UPKEEP_SMALL_PACKS - 3, UPKEEP_SMALL_PACKS);
}

/* Chunks with the same bytes have one place, also after it was moved. */
static void what_is_alike_is_moved_once(void **state)
{
    struct checkpoint_site *site = *state;
    site->write.pack_bytes = PACK_BYTES;
    site->plain = true;
    for (uint32_t i = 0; i < 30; i++)
        checkpoint_site_fill(site, i, 1);
    for (uint32_t i = 0; i < UPKEEP_SMALL_PACKS; i++) {
        checkpoint_site_fill(site, 40 + i, 3 + 2 * i);
        checkpoint_site_write(site);
        if (site->written.bytes_moved > 0)
            break;
    }
    assert_in_range(site->written.bytes_moved, 1, 100 * VOLUME_CHUNK);
    struct plain_checkpoint plain;
    plain_checkpoint_open(site->oci, SITE_REPOSITORY, SITE_TAG, &plain);
    for (size_t i = 1; i < 30; i++) {
        assert_string_equal(plain.chunks[i].pack, plain.chunks[0].pack);
        assert_int_equal(plain.chunks[i].offset, plain.chunks[0].offset);
    }
    plain_checkpoint_close(&plain);
    checkpoint_site_compare(site);
}

/* --- bounds and failures --- */

/* Chunks in many packs, most of which are overwritten then, so that upkeep is due. */
static void make_due(struct checkpoint_site *site, uint32_t base)
{
    site->hooked = true;
    for (uint32_t i = 0; i < AREA; i++)
        checkpoint_site_fill(site, i, base + 1 + 2 * i);
    checkpoint_site_write(site);
    for (uint32_t i = 0; i < AREA; i++)
        if (i % 8 != 0)
            checkpoint_site_fill(site, i, base + 1001 + 2 * i);
    checkpoint_site_write(site);
    assert_int_equal(site->written.bytes_moved, 0);
    checkpoint_site_fill(site, AREA, base + 7);
}

/* Reads of blobs: which are counted, and fail when their digest begins so. */
struct reads {
    char pack[DIGEST_HEX_LEN + 1];
    enum err_code code;
    size_t count;
    size_t failed;
};

static int before(void *arg, const char *what, const char *name, struct err *err)
{
    struct reads *reads = arg;
    if (strcmp(what, "blob_read") != 0)
        return 0;
    reads->count++;
    if (reads->pack[0] == '\0' || strcmp(reads->pack, name) != 0)
        return 0;
    reads->failed++;
    return err_fail(err, reads->code, "blob %.12s is not there", name);
}

static void name_pack_of(struct checkpoint_site *site, uint64_t chunk, char *ret)
{
    struct plain_checkpoint plain;
    plain_checkpoint_open(site->oci, SITE_REPOSITORY, SITE_TAG, &plain);
    for (size_t i = 0; i < plain.pack_count; i++)
        if (strcmp(plain.pack_ids[i], plain.chunks[chunk].pack) == 0)
            snprintf(ret, DIGEST_HEX_LEN + 1, "%.64s", digest_hex(&plain.packs[i]).s);
    plain_checkpoint_close(&plain);
}

/* A pack that is lost stays where it is, the others are emptied. */
static void a_pack_is_lost(void **state)
{
    struct checkpoint_site *site = *state;
    static const enum err_code codes[] = {ERR_NOT_FOUND, ERR_DIGEST};
    site->write.pack_bytes = FULL;
    site->plain = true;
    site->hook.before = before;
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        struct reads reads = {.code = codes[i]};
        char after[DIGEST_HEX_LEN + 1];
        site->hook.arg = &reads;
        make_due(site, 10000 * (uint32_t)i);
        name_pack_of(site, 0, reads.pack);
        checkpoint_site_write(site);
        assert_true(reads.failed > 0);
        assert_true(site->written.bytes_moved > 0);
        name_pack_of(site, 0, after);
        assert_string_equal(after, reads.pack);
        name_pack_of(site, 40, after);
        checkpoint_site_compare(site);
        memset(reads.pack, 0, sizeof reads.pack); /* it is there again, and is emptied now */
        checkpoint_site_fill(site, AREA, 9 + (uint32_t)i);
        checkpoint_site_write(site);
        checkpoint_site_compare(site);
    }
}

/* A remote that answers no read of a pack: the checkpoint is made all the same. */
static void the_remote_does_not_answer(void **state)
{
    struct checkpoint_site *site = *state;
    struct reads reads = {.code = ERR_UNREACHABLE};
    site->write.pack_bytes = FULL;
    site->plain = true;
    make_due(site, 0);
    name_pack_of(site, 0, reads.pack);
    site->hook.before = before;
    site->hook.arg = &reads;
    checkpoint_site_write(site);
    assert_int_equal(reads.failed, 1);
    assert_int_equal(site->written.bytes_moved, 0);
    checkpoint_site_compare(site);
    reads.pack[0] = '\0';
    checkpoint_site_fill(site, AREA, 9);
    checkpoint_site_write(site);
    assert_true(site->written.bytes_moved > 0);
    checkpoint_site_compare(site);
}

static int stop_at_once(void *arg, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    const struct reads *reads = arg;
    return reads->count > 2;
}

static void it_is_cancelled(void **state)
{
    struct checkpoint_site *site = *state;
    struct reads reads = {.count = 0};
    struct err err = ERR_INIT;
    site->write.pack_bytes = FULL;
    site->plain = true;
    make_due(site, 0);
    site->hook.before = before;
    site->hook.arg = &reads;
    site->write.stop = stop_at_once;
    site->write.stop_arg = &reads;
    assert_true(checkpoint_site_try(site, &err) < 0);
    assert_int_equal(err.code, ERR_CANCELLED);
    site->write.stop = NULL;
    checkpoint_site_write(site);
    checkpoint_site_compare(site);
}

/* Nothing is done about it by a checkpoint that has nothing to store. */
static void nothing_changed(void **state)
{
    struct checkpoint_site *site = *state;
    site->write.pack_bytes = FULL;
    make_due(site, 0);
    checkpoint_site_fill(site, AREA, 0);
    checkpoint_site_write(site);
    assert_true(site->written.unchanged);
    site->write.always = true;
    checkpoint_site_write(site);
    assert_false(site->written.unchanged);
    assert_int_equal(site->written.bytes_moved, 0);
    checkpoint_site_compare(site);
}

/* With more leaves than one checkpoint looks at, several share the work; each is within bounds. */
static void many_leaves(void **state)
{
    struct checkpoint_site *site = *state;
    const uint32_t leaves = 3 * UPKEEP_LEAVES_MAX / 2;
    struct reads reads = {.count = 0};
    uint64_t total = 0;
    uint64_t packs = 0;
    site->write.pack_bytes = 2 << 20;
    site->plain = true;
    site->hooked = true;
    checkpoint_site_grow(site, (uint64_t)leaves * VOLUME_LEAF_CHUNKS * VOLUME_CHUNK);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < leaves; i++)
            for (uint32_t j = 0; j < 5; j++)
                if (round == 0 || j > 0)
                    checkpoint_site_fill(site, (uint64_t)i * VOLUME_LEAF_CHUNKS + 7 * j,
                                         10000 * round + 16 * i + 2 * j + 1);
        checkpoint_site_write(site);
    }
    site->hook.before = before;
    site->hook.arg = &reads;
    for (uint32_t round = 0; round < 3; round++) {
        if (round == 0)
            total = site->written.bytes_total;
        reads.count = 0;
        checkpoint_site_fill(site, 4, 500000 + round);
        checkpoint_site_write(site);
        assert_in_range(reads.count, 1, UPKEEP_LEAVES_MAX + UPKEEP_READS + 8);
        assert_in_range(site->written.bytes_moved, 0, UPKEEP_BYTES + VOLUME_CHUNK);
        packs += site->written.bytes_moved;
        checkpoint_site_compare(site);
    }
    assert_true(packs > 0);
    assert_true(site->written.bytes_total < total / 4 * 3);
}

/* A pack that all groups of leaves name, in a volume that grows and has fewer then. */
static void named_from_everywhere(void **state)
{
    struct checkpoint_site *site = *state;
    checkpoint_site_grow(site, (uint64_t)PACK_USAGE_GROUPS * VOLUME_LEAF_CHUNKS * VOLUME_CHUNK);
    for (uint64_t i = 0; i < PACK_USAGE_GROUPS; i++)
        checkpoint_site_set(site, i * VOLUME_LEAF_CHUNKS * VOLUME_CHUNK_BLOCKS, (uint32_t)i + 2);
    checkpoint_site_write(site);
    checkpoint_site_compare(site);
    checkpoint_site_grow(site, site->size + (UINT64_C(4) << 30));
    checkpoint_site_set(site, 17, 4711);
    checkpoint_site_write(site);
    checkpoint_site_compare(site);
    assert_int_equal(site->uncounted, 0);
}

/* What little is left of packs lies far apart: not all between is fetched for it. */
static void little_is_read(void **state)
{
    struct checkpoint_site *site = *state;
    const uint64_t chunks = VOLUME_SIZE_MIN / VOLUME_CHUNK;
    site->write.pack_bytes = 2 << 20;
    site->plain = true;
    site->hooked = true;
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < chunks; i++)
            if (i % 2 == 1 || round == 0)
                checkpoint_site_fill(site, i, 2 * (uint32_t)i + (i % 2 ? 100001 * (round + 1) : 0));
        for (uint64_t i = 0; i < chunks; i += 2) /* next to nothing */
            if (round == 0)
                for (uint32_t j = 0; j < VOLUME_CHUNK_BLOCKS; j++)
                    checkpoint_site_set(site, i * VOLUME_CHUNK_BLOCKS + j,
                                        j == 0 ? 2 + 2 * (uint32_t)i : 0);
        checkpoint_site_write(site);
    }
    site->hook.read = 0;
    checkpoint_site_fill(site, 0, 4711);
    checkpoint_site_write(site);
    assert_true(site->written.bytes_moved > 0);
    if (site->hook.read > 4 * site->written.bytes_moved + (1 << 20))
        fail_msg("%llu bytes are read for %llu", (unsigned long long)site->hook.read,
                 (unsigned long long)site->written.bytes_moved);
    checkpoint_site_compare(site);
}

#define with_site(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, checkpoint_site_setup, checkpoint_site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_site(the_same_few_mib),      with_site(the_same_few_mib_in_small_packs),
        with_site(small_ones_become_one), with_site(what_is_alike_is_moved_once),
        with_site(a_pack_is_lost),        with_site(the_remote_does_not_answer),
        with_site(it_is_cancelled),       with_site(nothing_changed),
        with_site(many_leaves),           with_site(named_from_everywhere),
        with_site(little_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
