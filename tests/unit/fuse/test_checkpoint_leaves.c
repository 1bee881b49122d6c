/* Leaves of a checkpoint: fetched once for all who want them, by many threads, and forgotten when
 * there are too many. */
#include "checkpoint_maker.h"

#include "checkpoint_parts.h"
#include "cleanup.h"
#include "clock.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    THREADS = 8,
    LEAVES = CHECKPOINT_LEAVES_KEPT + 2,
};
#define LEAF_BYTES ((uint64_t)VOLUME_LEAF_CHUNKS * VOLUME_CHUNK)

struct site {
    struct checkpoint_maker maker;
    struct checkpoint *checkpoint;
    int turn; /* of threads */
    struct err errs[THREADS];
    int rcs[THREADS];
    int took_ms[THREADS];
    _Atomic int next;
    uint64_t chunk; /* that all ask for */
    bool cancels;   /* the first asks for the end */
};

static bool first_of_leaf(uint64_t chunk)
{
    return chunk % VOLUME_LEAF_CHUNKS == 17;
}

static bool scattered(uint64_t chunk)
{
    return chunk % VOLUME_LEAF_CHUNKS < 40 || chunk % 173 == 0;
}

static void make(struct site *site, uint64_t size, bool (*is_set)(uint64_t chunk))
{
    struct err err = ERR_INIT;
    site->maker.size = size;
    site->maker.is_set = is_set;
    site->maker.pack_chunks = 30;
    checkpoint_maker_make(&site->maker);
    if (checkpoint_maker_open(&site->maker, NULL, &site->checkpoint, &err) < 0)
        fail_msg("%s", err.text);
}

static int setup(void **state)
{
    struct site *site = calloc(1, sizeof *site);
    if (!site)
        return -1;
    site->maker.memory = memory_remote_open();
    *state = site;
    return 0;
}

static int teardown(void **state)
{
    struct site *site = *state;
    checkpoint_free(site->checkpoint);
    memory_remote_close(site->maker.memory);
    free(site);
    return 0;
}

static size_t reads(struct site *site)
{
    struct memory_remote *memory = site->maker.memory;
    pthread_mutex_lock(&memory->lock);
    size_t count = memory->read_count;
    pthread_mutex_unlock(&memory->lock);
    return count;
}

static void set_delay(struct site *site, int ms)
{
    pthread_mutex_lock(&site->maker.memory->lock);
    site->maker.memory->delay_ms = ms;
    pthread_mutex_unlock(&site->maker.memory->lock);
}

static void test_least_recently_used(void **state)
{
    struct site *site = *state;
    struct err err = ERR_INIT;
    struct volume_entry entry;
    make(site, LEAVES * LEAF_BYTES, first_of_leaf);
    size_t before = reads(site);
    for (uint64_t i = 0; i < CHECKPOINT_LEAVES_KEPT; i++)
        assert_int_equal(checkpoint_find(site->checkpoint, i * VOLUME_LEAF_CHUNKS + 17, NULL, NULL,
                                         &entry, &err),
                         1);
    assert_int_equal(reads(site) - before, CHECKPOINT_LEAVES_KEPT);
    assert_int_equal(checkpoint_find(site->checkpoint, 16, NULL, NULL, &entry, &err), 0);
    for (uint64_t i = CHECKPOINT_LEAVES_KEPT; i < LEAVES; i++)
        assert_int_equal(checkpoint_find(site->checkpoint, i * VOLUME_LEAF_CHUNKS + 17, NULL, NULL,
                                         &entry, &err),
                         1);
    assert_int_equal(reads(site) - before, LEAVES);
    /* The first one was used in between, so the next two have gone. */
    const struct {
        uint64_t leaf;
        size_t reads;
    } looks[] = {{0, 0}, {3, 0}, {1, 1}, {2, 2}};
    for (size_t i = 0; i < ARRAY_SIZE(looks); i++) {
        assert_int_equal(checkpoint_find(site->checkpoint, looks[i].leaf * VOLUME_LEAF_CHUNKS + 17,
                                         NULL, NULL, &entry, &err),
                         1);
        assert_int_equal(reads(site) - before, LEAVES + looks[i].reads);
    }
}

/* A leaf that is lost takes its own chunks along. */
static void test_one_is_lost(void **state)
{
    struct site *site = *state;
    struct err err = ERR_INIT;
    struct volume_entry entry;
    make(site, 3 * LEAF_BYTES, first_of_leaf);
    site->maker.memory->objects[3].len = 50; /* chunks, leaf, chunks, leaf */
    const uint64_t chunks[] = {17, 1, VOLUME_LEAF_CHUNKS + 17, 2 * VOLUME_LEAF_CHUNKS + 17};
    assert_true(checkpoint_maker_read(&site->maker, site->checkpoint, chunks, 4, &err) < 0);
    assert_int_equal(err.code, ERR_DIGEST);
    assert_non_null(strstr(err.text, "leaf 1"));
    assert_int_equal(checkpoint_find(site->checkpoint, chunks[3], NULL, NULL, &entry, &err), 1);
    /* The other leaves are here, and their chunks were read. */
    assert_int_equal(
        memory_remote_reads(site->maker.memory, &site->maker.memory->objects[4].digest, 0, 0), 1);
}

static int end_at_once(void *arg, uint64_t done, uint64_t total)
{
    (void)arg, (void)done, (void)total;
    return 1;
}

static void *find_one(void *arg)
{
    struct site *site = arg;
    struct volume_entry entry;
    const int i = site->next++;
    const int64_t before = clock_now_ms();
    if (site->cancels && i > 0)
        usleep(10000);
    site->rcs[i] =
        checkpoint_find(site->checkpoint, site->chunk, site->cancels && i == 0 ? end_at_once : NULL,
                        NULL, &entry, &site->errs[i]);
    site->took_ms[i] = (int)(clock_now_ms() - before);
    return NULL;
}

static void find_together(struct site *site)
{
    pthread_t threads[THREADS];
    site->next = 0;
    memset(site->errs, 0, sizeof site->errs);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, find_one, site), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void test_one_fetch_for_all(void **state)
{
    struct site *site = *state;
    make(site, 2 * LEAF_BYTES, scattered);
    size_t before = reads(site);
    set_delay(site, 100);
    find_together(site);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(site->rcs[i], 1);
    assert_int_equal(reads(site) - before, 1);
}

/* All of them hear of the failure of one, and the next one tries again. */
static void test_one_failure_for_all(void **state)
{
    struct site *site = *state;
    make(site, 2 * LEAF_BYTES, scattered);
    size_t before = reads(site);
    set_delay(site, 200);
    site->maker.memory->fail = ERR_UNREACHABLE;
    site->maker.memory->fail_times = 1;
    find_together(site);
    for (size_t i = 0; i < THREADS; i++) {
        assert_true(site->rcs[i] < 0);
        assert_int_equal(site->errs[i].code, ERR_UNREACHABLE);
        assert_non_null(strstr(site->errs[i].text, "leaf 0"));
    }
    assert_int_equal(reads(site) - before, 1);
    set_delay(site, 0);
    find_together(site);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(site->rcs[i], 1);
    assert_int_equal(reads(site) - before, 2);
}

/* Who fetches is asked to end: that is not the others' end. */
static void test_one_end_is_not_all(void **state)
{
    struct site *site = *state;
    make(site, 2 * LEAF_BYTES, scattered);
    set_delay(site, 60);
    site->cancels = true;
    find_together(site);
    assert_int_equal(site->errs[0].code, ERR_CANCELLED);
    for (size_t i = 1; i < THREADS; i++)
        assert_int_equal(site->rcs[i], 1);
}

static void *fetch_slowly(void *arg)
{
    struct site *site = arg;
    struct err err = ERR_INIT;
    struct volume_entry entry;
    site->rcs[0] = checkpoint_find(site->checkpoint, VOLUME_LEAF_CHUNKS, NULL, NULL, &entry, &err);
    return NULL;
}

/* A fetch holds up nobody who wants a leaf that is here; who waits for it can be told to end. */
static void test_others_go_on(void **state)
{
    struct site *site = *state;
    struct err err = ERR_INIT;
    struct volume_entry entry;
    pthread_t thread;
    make(site, 2 * LEAF_BYTES, scattered);
    assert_int_equal(checkpoint_find(site->checkpoint, 0, NULL, NULL, &entry, &err), 1);
    size_t before = reads(site);
    set_delay(site, 1500);
    assert_int_equal(pthread_create(&thread, NULL, fetch_slowly, site), 0);
    while (reads(site) == before)
        usleep(1000);
    int64_t began = clock_now_ms();
    for (int i = 0; i < 100; i++)
        assert_int_equal(checkpoint_find(site->checkpoint, 0, NULL, NULL, &entry, &err), 1);
    assert_true(clock_now_ms() - began < 500);
    began = clock_now_ms();
    assert_true(checkpoint_find(site->checkpoint, VOLUME_LEAF_CHUNKS + 1, end_at_once, NULL, &entry,
                                &err) < 0);
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_true(clock_now_ms() - began < 1000);
    pthread_join(thread, NULL);
    assert_int_equal(site->rcs[0], 1);
    assert_int_equal(reads(site) - before, 1);
}

static void *read_at_random(void *arg)
{
    struct site *site = arg;
    const int i = site->next++;
    unsigned seed = (unsigned)i * 7919 + 1;
    const uint64_t all = site->maker.size / VOLUME_CHUNK;
    for (int round = 0; round < 40 && site->rcs[i] == 0; round++) {
        uint64_t chunks[8];
        size_t count = 0;
        uint64_t chunk = (uint64_t)rand_r(&seed) % all;
        for (; count < ARRAY_SIZE(chunks) && chunk < all; count++) {
            chunks[count] = chunk;
            chunk += 1 + (uint64_t)rand_r(&seed) % 30;
        }
        site->rcs[i] =
            checkpoint_maker_read(&site->maker, site->checkpoint, chunks, count, &site->errs[i]);
    }
    return NULL;
}

static void test_many_threads(void **state)
{
    struct site *site = *state;
    pthread_t threads[THREADS];
    make(site, 4 * LEAF_BYTES, scattered);
    set_delay(site, 1);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_at_random, site), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < THREADS; i++)
        if (site->rcs[i] < 0)
            fail_msg("%s", site->errs[i].text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_least_recently_used), TEST(test_one_is_lost),        TEST(test_one_fetch_for_all),
        TEST(test_one_failure_for_all), TEST(test_one_end_is_not_all), TEST(test_others_go_on),
        TEST(test_many_threads),
    };
    return cmocka_run_group_tests_name("checkpoint_leaves", tests, NULL, NULL);
}
