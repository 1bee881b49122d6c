/* Many threads on one volume, each on blocks of its own that lie between those of the others, so
 * that they share chunks; with flushes, kills and power cuts. Made for ThreadSanitizer too.
 */
#include "chunk_io.h"

#include "block_model.h"
#include "chunk_site.h"
#include "cleanup.h"
#include "long_counts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    THREADS = 8,
    BLOCKS = 2048,  /* in use: 128 chunks, half of them shared between all threads */
    SHARED = 1024,  /* of these; the thread of such a block is its number modulo THREADS */
    OWN_CHUNKS = 8, /* each thread has of its own behind them */
    ROUNDS = 12,
    ROUNDS_LONG = 200,
    STEPS = 300,
};
_Static_assert(SHARED + THREADS * OWN_CHUNKS * VOLUME_CHUNK_BLOCKS == BLOCKS, "all of it");

struct worker {
    pthread_t thread;
    struct chunk_io *io;
    struct block_model *blocks; /* it touches its own alone */
    uint32_t *buffer;           /* a chunk */
    unsigned index;
    uint64_t random;
    uint32_t next; /* number */
    const char *failure;
    uint64_t flushes;
};

static uint64_t random_below(struct worker *worker, uint64_t end)
{
    worker->random ^= worker->random << 13;
    worker->random ^= worker->random >> 7;
    worker->random ^= worker->random << 17;
    return worker->random % end;
}

static bool is_own(const struct worker *worker, uint64_t at)
{
    uint64_t span = (uint64_t)OWN_CHUNKS * VOLUME_CHUNK_BLOCKS;
    return at < SHARED ? at % THREADS == worker->index : (at - SHARED) / span == worker->index;
}

/* One block of the shared ones, or a stretch of its own. */
static uint64_t choose(struct worker *worker, uint64_t *ret_count)
{
    *ret_count = 1;
    if (random_below(worker, 2) == 0)
        return random_below(worker, SHARED / THREADS) * THREADS + worker->index;
    uint64_t span = (uint64_t)OWN_CHUNKS * VOLUME_CHUNK_BLOCKS;
    uint64_t from = random_below(worker, span);
    uint64_t most = span - from < VOLUME_CHUNK_BLOCKS ? span - from : VOLUME_CHUNK_BLOCKS;
    *ret_count = 1 + random_below(worker, most);
    return SHARED + worker->index * span + from;
}

static int do_write(struct worker *worker)
{
    uint64_t count;
    uint64_t from = choose(worker, &count);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t number = worker->next++ * THREADS + worker->index;
        block_model_fill(worker->buffer + i * BLOCK_MODEL_WORDS, number);
        block_model_note(&worker->blocks[from + i], number);
    }
    return chunk_io_write(worker->io, worker->buffer, count * VOLUME_BLOCK, from * VOLUME_BLOCK);
}

static int do_discard(struct worker *worker)
{
    uint64_t count;
    uint64_t from = choose(worker, &count);
    if (from >= SHARED && random_below(worker, 4) != 0) {
        from -= from % VOLUME_CHUNK_BLOCKS;
        count = VOLUME_CHUNK_BLOCKS;
    }
    for (uint64_t i = 0; i < count; i++)
        block_model_note(&worker->blocks[from + i], 0);
    return chunk_io_discard(worker->io, count * VOLUME_BLOCK, from * VOLUME_BLOCK);
}

static int do_read(struct worker *worker)
{
    uint64_t count;
    uint64_t from = choose(worker, &count);
    int rc = chunk_io_read(worker->io, worker->buffer, count * VOLUME_BLOCK, from * VOLUME_BLOCK);
    for (uint64_t i = 0; rc == 0 && i < count; i++) {
        const uint32_t *words = worker->buffer + i * BLOCK_MODEL_WORDS;
        for (size_t w = 0; w < BLOCK_MODEL_WORDS; w++) {
            if (words[w] != worker->blocks[from + i].now)
                return -EILSEQ;
        }
    }
    return rc;
}

static int do_flush(struct worker *worker)
{
    int rc = chunk_io_flush(worker->io);
    for (uint64_t at = 0; rc == 0 && at < BLOCKS; at++) {
        if (is_own(worker, at))
            block_model_settle(&worker->blocks[at]);
    }
    worker->flushes++;
    return rc;
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    for (int i = 0; i < STEPS && !worker->failure; i++) {
        uint64_t kind = random_below(worker, 100);
        int rc;
        if (kind < 45)
            rc = do_write(worker);
        else if (kind < 60)
            rc = do_discard(worker);
        else if (kind < 95)
            rc = do_read(worker);
        else
            rc = do_flush(worker);
        if (rc < 0) /* cmocka's failures are the main thread's alone */
            worker->failure = rc == -EILSEQ ? "a read shows what was not written" : strerror(-rc);
    }
    return NULL;
}

static void run_round(struct worker *workers)
{
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        if (workers[i].failure)
            fail_msg("%s", workers[i].failure);
    }
}

static void check_all(struct chunk_site *site, struct block_model *blocks, uint32_t *buffer,
                      bool is_cut)
{
    uint64_t local = 0;
    for (uint64_t at = 0; at < BLOCKS; at++) {
        assert_int_equal(chunk_io_read(&site->io, buffer, VOLUME_BLOCK, at * VOLUME_BLOCK), 0);
        if (is_cut)
            block_model_check_cut(&blocks[at], at, buffer);
        else
            block_model_check(&blocks[at], at, buffer);
    }
    for (uint64_t chunk = 0; chunk < site->size / VOLUME_CHUNK; chunk++)
        local += live_word_state(site->live.words[chunk]) == VOLUME_CHANGED;
    assert_int_equal(local, atomic_load(&site->live.header->local_chunks));
}

static void test_threads(void **state)
{
    struct chunk_site site;
    chunk_site_make(&site, *state, VOLUME_SIZE_MIN);
    struct block_model *blocks = calloc(BLOCKS, sizeof *blocks);
    assert_non_null(blocks);
    for (uint64_t at = 0; at < BLOCKS; at++)
        block_model_settle(&blocks[at]);
    struct worker workers[THREADS] = {0};
    for (unsigned i = 0; i < THREADS; i++)
        workers[i] = (struct worker){.io = &site.io,
                                     .blocks = blocks,
                                     .buffer = chunk_site_buffer(VOLUME_CHUNK_BLOCKS),
                                     .index = i,
                                     .random = 20261129 + i,
                                     .next = 1};
    int rounds = long_counts() ? ROUNDS_LONG : ROUNDS;
    uint64_t flushes = 0;
    for (int round = 0; round < rounds; round++) {
        run_round(workers);
        check_all(&site, blocks, workers[0].buffer, false);
        if (round % 3 == 1)
            chunk_site_restart(&site);
        else if (round % 3 == 2)
            chunk_site_power_cut(&site);
        check_all(&site, blocks, workers[0].buffer, round % 3 == 2);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        flushes += workers[i].flushes;
        free(workers[i].buffer);
    }
    assert_true(flushes > 50);
    chunk_site_leave(&site);
    block_model_free(blocks, BLOCKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_threads, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
