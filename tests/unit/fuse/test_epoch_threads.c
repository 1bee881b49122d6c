/* Cuts while many threads write and discard, and epochs that are read meanwhile: each shows all
 * that was answered before its cut, nothing that was asked for after it, and always the same. Made
 * for ThreadSanitizer too. */
#include "chunk_io.h"

#include "block_model.h"
#include "chunk_site.h"
#include "cleanup.h"
#include "epoch_read.h"
#include "long_counts.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    THREADS = 4,
    CHUNKS = 48, /* in use; the thread of a block is its number modulo THREADS */
    BLOCKS = CHUNKS * VOLUME_CHUNK_BLOCKS,
    DISCARDED = 40, /* the first chunk that is discarded too; their numbers go back to 0 */
    OPEN = 4,       /* epochs at a time */
    CUTS = 40,
    CUTS_LONG = 2000,
};

struct shared {
    struct chunk_io *io;
    _Atomic uint32_t asked[BLOCKS]; /* the last number of which a write was begun */
    _Atomic uint32_t done[BLOCKS];
    atomic_bool ends;
    atomic_int failure; /* -errno */
};

struct writer {
    pthread_t thread;
    struct shared *shared;
    unsigned index;
    uint64_t random;
    uint64_t writes;
};

struct snapshot {
    uint64_t epoch; /* 0: none */
    uint32_t least[BLOCKS];
    uint32_t most[BLOCKS];
    uint32_t seen[BLOCKS]; /* by the first reading */
    bool was_read;
};

static uint64_t random_below(uint64_t *random, uint64_t end)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random % end;
}

static int write_block(struct writer *writer, uint64_t block, uint32_t *buffer)
{
    struct shared *shared = writer->shared;
    uint32_t number = atomic_load(&shared->done[block]) + 1;
    block_model_fill(buffer, number);
    atomic_store(&shared->asked[block], number);
    int rc = chunk_io_write(shared->io, buffer, VOLUME_BLOCK, block * VOLUME_BLOCK);
    atomic_store(&shared->done[block], number);
    writer->writes++;
    return rc;
}

static void *work(void *arg)
{
    struct writer *writer = arg;
    struct shared *shared = writer->shared;
    uint32_t *buffer = chunk_site_buffer(1);
    while (!atomic_load(&shared->ends)) {
        uint64_t block = random_below(&writer->random, BLOCKS / THREADS) * THREADS + writer->index;
        int rc = write_block(writer, block, buffer);
        uint64_t chunk = DISCARDED + random_below(&writer->random, CHUNKS - DISCARDED);
        if (rc == 0 && random_below(&writer->random, 8) == 0)
            rc = chunk_io_discard(shared->io, VOLUME_CHUNK, chunk * VOLUME_CHUNK);
        if (rc < 0)
            atomic_store(&shared->failure, rc);
    }
    free(buffer);
    return NULL;
}

static void check_block(struct snapshot *snapshot, uint64_t block, const uint32_t *words)
{
    uint32_t number = words[0];
    for (size_t i = 1; i < BLOCK_MODEL_WORDS; i++)
        if (words[i] != number)
            fail_msg("epoch %llu, block %llu is of two writes", (unsigned long long)snapshot->epoch,
                     (unsigned long long)block);
    if (snapshot->was_read && snapshot->seen[block] != number)
        fail_msg("epoch %llu, block %llu was %u and is %u", (unsigned long long)snapshot->epoch,
                 (unsigned long long)block, snapshot->seen[block], number);
    snapshot->seen[block] = number;
    bool may_be_zero = block >= DISCARDED * VOLUME_CHUNK_BLOCKS && number == 0;
    if (!may_be_zero && (number < snapshot->least[block] || number > snapshot->most[block]))
        fail_msg("epoch %llu, block %llu is %u instead of %u to %u",
                 (unsigned long long)snapshot->epoch, (unsigned long long)block, number,
                 snapshot->least[block], snapshot->most[block]);
}

static void read_epoch(struct chunk_site *site, struct snapshot *snapshot, uint32_t *buffer)
{
    struct err err = ERR_INIT;
    struct epoch_reader reader;
    struct epoch_chunk what;
    if (epoch_reader_open(site->dir_fd, site->live_fd, snapshot->epoch, &reader, &err) < 0)
        fail_msg("%s", err.text);
    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
        if (epoch_reader_read(&reader, chunk, buffer, &what, &err) < 0)
            fail_msg("%s", err.text);
        for (uint64_t i = 0; i < VOLUME_CHUNK_BLOCKS; i++)
            check_block(snapshot, chunk * VOLUME_CHUNK_BLOCKS + i, buffer + i * BLOCK_MODEL_WORDS);
    }
    snapshot->was_read = true;
    epoch_reader_close(&reader);
}

static void cut(struct shared *shared, struct snapshot *snapshot, uint64_t token)
{
    struct err err = ERR_INIT;
    uint64_t epoch;
    snapshot->was_read = false;
    for (size_t i = 0; i < BLOCKS; i++)
        snapshot->least[i] = atomic_load(&shared->done[i]);
    if (chunk_io_cut(shared->io, token, LIVE_USE_VIEW, &epoch, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < BLOCKS; i++)
        snapshot->most[i] = atomic_load(&shared->asked[i]);
    snapshot->epoch = epoch;
}

static void release(struct chunk_site *site, struct snapshot *snapshot)
{
    struct err err = ERR_INIT;
    if (chunk_io_release(&site->io, snapshot->epoch, &err) < 0 ||
        epoch_slots_empty(&site->live, &err) < 0)
        fail_msg("%s", err.text);
    snapshot->epoch = 0;
}

static void test_threads(void **state)
{
    struct chunk_site site;
    chunk_site_make(&site, *state, VOLUME_SIZE_MIN);
    struct shared *shared = calloc(1, sizeof *shared);
    struct snapshot *snapshots = calloc(OPEN, sizeof *snapshots);
    assert_true(shared && snapshots);
    uint32_t *buffer = chunk_site_buffer(VOLUME_CHUNK_BLOCKS);
    struct writer writers[THREADS];
    uint64_t random = 20261130;
    uint64_t writes = 0;
    shared->io = &site.io;
    for (unsigned i = 0; i < THREADS; i++) {
        writers[i] = (struct writer){.shared = shared, .index = i, .random = 4711 + i};
        assert_int_equal(pthread_create(&writers[i].thread, NULL, work, &writers[i]), 0);
    }
    int cuts = long_counts() ? CUTS_LONG : CUTS;
    for (int i = 0; i < cuts; i++) {
        struct snapshot *snapshot = &snapshots[random_below(&random, OPEN)];
        if (snapshot->epoch > 0) {
            read_epoch(&site, snapshot, buffer);
            release(&site, snapshot);
        }
        cut(shared, snapshot, (uint64_t)i + 1);
        read_epoch(&site, snapshot, buffer);
    }
    for (size_t i = 0; i < OPEN; i++)
        if (snapshots[i].epoch > 0)
            read_epoch(&site, &snapshots[i], buffer);
    atomic_store(&shared->ends, true);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(writers[i].thread, NULL), 0);
        writes += writers[i].writes;
    }
    assert_int_equal(atomic_load(&shared->failure), 0);
    for (size_t i = 0; i < OPEN; i++)
        if (snapshots[i].epoch > 0)
            read_epoch(&site, &snapshots[i], buffer);
    print_message("# %llu writes, %d cuts\n", (unsigned long long)writes, cuts);
    assert_true(writes > (uint64_t)cuts * 10);
    chunk_site_leave(&site);
    free(buffer);
    free(snapshots);
    free(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_threads, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
