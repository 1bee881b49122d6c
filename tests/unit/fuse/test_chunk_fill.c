/* What is brought of absent chunks, one step at a time. */
#include "chunk_io.h"

#include "chunk_site.h"
#include "cleanup.h"
#include "epoch_read.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    K = 1024,
    C = VOLUME_CHUNK,
    ABSENT = 4, /* the first of the chunks that begin absent */
    ABSENT_CHUNKS = 8,
};

static int setup(void **state)
{
    if (scratch_setup(state) != 0)
        return -1;
    struct scratch *scratch = *state;
    struct volume *volume = calloc(1, sizeof *volume);
    assert_non_null(volume);
    chunk_site_make_absent(&volume->site, scratch, scratch->fd, VOLUME_SIZE_MIN, ABSENT,
                           ABSENT_CHUNKS);
    volume->buffer = chunk_site_buffer(CHUNK_SITE_BUFFER_BLOCKS);
    *state = volume;
    return 0;
}

static int fill(struct volume *volume, uint64_t chunk, int byte)
{
    memset(volume->buffer, byte, C);
    return chunk_io_fill(&volume->site.io, chunk, volume->buffer);
}

static uint32_t word(const struct volume *volume, uint64_t chunk)
{
    return atomic_load(&volume->site.live.words[chunk]);
}

static void assert_word(const struct volume *volume, uint64_t chunk, enum volume_state state,
                        uint32_t mask)
{
    assert_int_equal(word(volume, chunk) & (LIVE_WORD_STATE | LIVE_WORD_MASK),
                     live_word(state, mask));
}

static void assert_counts(const struct volume *volume, uint64_t local, uint64_t absent)
{
    const struct live_map_header *header = volume->site.live.header;
    assert_int_equal(atomic_load(&header->local_chunks), local);
    assert_int_equal(atomic_load(&header->absent_chunks), absent);
}

static void untouched_ones_become_clean(void **state)
{
    struct volume *volume = *state;
    assert_counts(volume, 0, ABSENT_CHUNKS);
    assert_int_equal(fill(volume, ABSENT, 'r'), 0);
    assert_word(volume, ABSENT, VOLUME_CLEAN, VOLUME_MASK_ALL);
    assert_true(word(volume, ABSENT) & LIVE_WORD_UNLOGGED);
    assert_int_equal(word(volume, ABSENT) & (LIVE_WORD_TAG | LIVE_WORD_TOUCHED), 0);
    assert_bytes(volume, 'r', C, (uint64_t)ABSENT * C);
    assert_counts(volume, 1, ABSENT_CHUNKS - 1);
    /* Zero ones take no room. */
    assert_int_equal(chunk_io_fill(&volume->site.io, ABSENT + 1, NULL), 0);
    assert_word(volume, ABSENT + 1, VOLUME_ZERO, 0);
    assert_bytes(volume, 0, C, (uint64_t)(ABSENT + 1) * C);
    assert_counts(volume, 1, ABSENT_CHUNKS - 2);
    /* The next write is one into a chunk that the remote has otherwise. */
    assert_int_equal(put(volume, 'w', 4 * K, (uint64_t)ABSENT * C), 0);
    assert_word(volume, ABSENT, VOLUME_CHANGED, VOLUME_MASK_ALL);
    assert_true(word(volume, ABSENT) & LIVE_WORD_UNLOGGED);
    assert_bytes(volume, 'r', 60 * K, (uint64_t)ABSENT * C + 4 * K);
}

static void written_blocks_stay(void **state)
{
    struct volume *volume = *state;
    const uint64_t at = (uint64_t)ABSENT * C;
    assert_int_equal(put(volume, 'w', 8 * K, at + 4 * K), 0);
    assert_int_equal(put(volume, 'x', 4 * K, at + 60 * K), 0);
    assert_word(volume, ABSENT, VOLUME_ABSENT, 0x8006);
    uint32_t before = word(volume, ABSENT);
    assert_int_equal(fill(volume, ABSENT, 'r'), 0);
    assert_word(volume, ABSENT, VOLUME_CHANGED, VOLUME_MASK_ALL);
    assert_int_equal(word(volume, ABSENT) & (LIVE_WORD_TAG | LIVE_WORD_TOUCHED),
                     before & (LIVE_WORD_TAG | LIVE_WORD_TOUCHED));
    for (int i = 0; i < 2; i++) {
        assert_bytes(volume, 'r', 4 * K, at);
        assert_bytes(volume, 'w', 8 * K, at + 4 * K);
        assert_bytes(volume, 'r', 48 * K, at + 12 * K);
        assert_bytes(volume, 'x', 4 * K, at + 60 * K);
        /* Brought twice: nothing happens. */
        assert_int_equal(fill(volume, ABSENT, 's'), 0);
        assert_int_equal(chunk_io_fill(&volume->site.io, ABSENT, NULL), 0);
    }
    assert_counts(volume, 1, ABSENT_CHUNKS - 1);
    /* One that is zero in the remote, with blocks of its own. */
    assert_int_equal(put(volume, 'w', 4 * K, at + C), 0);
    assert_int_equal(chunk_io_fill(&volume->site.io, ABSENT + 1, NULL), 0);
    assert_word(volume, ABSENT + 1, VOLUME_CHANGED, VOLUME_MASK_ALL);
    assert_bytes(volume, 'w', 4 * K, at + C);
    assert_bytes(volume, 0, 60 * K, at + C + 4 * K);
}

static void what_is_not_absent_is_left_alone(void **state)
{
    struct volume *volume = *state;
    assert_int_equal(put(volume, 'w', C, 0), 0);
    assert_int_equal(fill(volume, 0, 'r'), 0);
    assert_bytes(volume, 'w', C, 0);
    assert_int_equal(fill(volume, 1, 'r'), 0);
    assert_bytes(volume, 0, C, C);
    assert_int_equal(chunk_io_discard(&volume->site.io, C, (uint64_t)ABSENT * C), 0);
    assert_int_equal(fill(volume, ABSENT, 'r'), 0);
    assert_bytes(volume, 0, C, (uint64_t)ABSENT * C);
    assert_int_equal(fill(volume, VOLUME_SIZE_MIN / C, 'r'), -EINVAL);
    assert_int_equal(fill(volume, UINT64_MAX, 'r'), -EINVAL);
}

/* Clean as the disk map says it of a volume that was closed; changed after a power cut. */
static void the_map_says_so(void **state)
{
    struct volume *volume = *state;
    const uint64_t at = (uint64_t)ABSENT * C;
    assert_int_equal(fill(volume, ABSENT, 'r'), 0);
    assert_int_equal(put(volume, 'w', 4 * K, at + C), 0);
    assert_int_equal(fill(volume, ABSENT + 1, 'r'), 0);
    assert_int_equal(chunk_io_flush(&volume->site.io), 0);
    assert_int_equal(word(volume, ABSENT) & LIVE_WORD_UNLOGGED, 0);
    chunk_site_power_cut(&volume->site);
    assert_word(volume, ABSENT, VOLUME_CHANGED, VOLUME_MASK_ALL);
    assert_word(volume, ABSENT + 1, VOLUME_CHANGED, VOLUME_MASK_ALL);
    assert_word(volume, ABSENT + 2, VOLUME_ABSENT, 0);
    assert_counts(volume, 2, ABSENT_CHUNKS - 2);
    assert_int_equal(fill(volume, ABSENT + 2, 'r'), 0);
    memset(volume->site.live.header->clean_of, 0xba, MAP_LOG_DIGEST);
    assert_int_equal(chunk_io_finish(&volume->site.io, NULL), 0);
    assert_int_equal(fill(volume, ABSENT + 3, 'r'), -EIO);
    chunk_site_power_cut(&volume->site); /* the next attach */
    assert_true(volume->site.was_closed);
    assert_word(volume, ABSENT, VOLUME_CHANGED, VOLUME_MASK_ALL);
    assert_word(volume, ABSENT + 2, VOLUME_CLEAN, VOLUME_MASK_ALL);
    assert_word(volume, ABSENT + 3, VOLUME_ABSENT, 0);
    assert_bytes(volume, 'r', C, at + 2 * C);
    /* The first write is answered; its record is lost, and what the map says is not believed. */
    assert_int_equal(put(volume, 'w', 4 * K, at + 2 * C), 0);
    chunk_site_power_cut(&volume->site);
    assert_word(volume, ABSENT + 2, VOLUME_CHANGED, VOLUME_MASK_ALL);
}

/* Of no checkpoint: then it may as well be of none. */
static void clean_of_nothing_is_changed(void **state)
{
    struct volume *volume = *state;
    uint64_t epoch;
    assert_int_equal(put(volume, 'a', C, 0), 0);
    assert_int_equal(fill(volume, ABSENT, 'r'), 0);
    assert_int_equal(chunk_io_cut(&volume->site.io, 1, LIVE_USE_CHECKPOINT, &epoch, NULL), 0);
    atomic_store(&volume->site.live.header->clean_epoch, epoch);
    assert_int_equal(chunk_io_finish(&volume->site.io, NULL), 0);
    chunk_site_power_cut(&volume->site);
    assert_true(volume->site.was_closed);
    assert_word(volume, 0, VOLUME_CHANGED, VOLUME_MASK_ALL);
    assert_word(volume, ABSENT, VOLUME_CHANGED, VOLUME_MASK_ALL);
    assert_word(volume, ABSENT + 1, VOLUME_ABSENT, 0);
    assert_bytes(volume, 'r', C, (uint64_t)ABSENT * C);
}

/* What a checkpoint has stored is clean at the next attach. */
static void the_last_map_knows_what_is_stored(void **state)
{
    struct volume *volume = *state;
    struct chunk_io *io = &volume->site.io;
    uint64_t epoch;
    assert_int_equal(put(volume, 'a', 2 * C, 0), 0);
    assert_int_equal(put(volume, 'b', 4 * K, (uint64_t)ABSENT * C), 0);
    assert_int_equal(chunk_io_cut(io, 1, LIVE_USE_CHECKPOINT, &epoch, NULL), 0);
    assert_int_equal(put(volume, 'c', 4 * K, C), 0);
    assert_int_equal(put(volume, 'd', C, 2 * C), 0);
    memset(volume->site.live.header->clean_of, 0x5c, MAP_LOG_DIGEST);
    atomic_store(&volume->site.live.header->clean_epoch, epoch);
    assert_int_equal(chunk_io_release(io, epoch, NULL), 0);
    assert_int_equal(chunk_io_finish(io, NULL), 0);
    chunk_site_power_cut(&volume->site);
    assert_true(volume->site.was_closed);
    assert_word(volume, 0, VOLUME_CLEAN, VOLUME_MASK_ALL);
    assert_word(volume, 1, VOLUME_CHANGED, VOLUME_MASK_ALL);
    assert_word(volume, 2, VOLUME_CHANGED, VOLUME_MASK_ALL);
    assert_word(volume, 3, VOLUME_ZERO, 0);
    assert_word(volume, ABSENT, VOLUME_ABSENT,
                1); /* the remote has other bytes of it by this name */
    assert_bytes(volume, 'a', C, 0);
    assert_bytes(volume, 'c', 4 * K, C);
    for (size_t i = 0; i < MAP_LOG_DIGEST; i++) /* and of which checkpoint */
        assert_int_equal(volume->site.live.header->clean_of[i], 0x5c);
    chunk_site_power_cut(&volume->site);
    assert_false(volume->site.was_closed);
    assert_int_equal(volume->site.live.header->clean_of[31], 0x5c);
}

static bool is_dirty(struct volume *volume, uint64_t epoch, uint64_t chunk)
{
    struct epoch_reader reader;
    struct err err = ERR_INIT;
    if (epoch_reader_open(volume->site.dir_fd, volume->site.live_fd, epoch, &reader, &err) < 0)
        fail_msg("%s", err.text);
    bool dirty = epoch_reader_is_dirty(&reader, chunk);
    epoch_reader_close(&reader);
    return dirty;
}

/* What is only brought differs in nothing from the remote. */
static void the_first_checkpoint_has_what_was_written(void **state)
{
    struct volume *volume = *state;
    struct chunk_io *io = &volume->site.io;
    uint64_t epoch;
    assert_int_equal(fill(volume, ABSENT, 'r'), 0);
    assert_int_equal(fill(volume, ABSENT + 1, 'r'), 0);
    assert_int_equal(put(volume, 'w', 4 * K, (uint64_t)(ABSENT + 1) * C), 0);
    assert_int_equal(put(volume, 'w', 4 * K, (uint64_t)(ABSENT + 2) * C), 0);
    assert_int_equal(chunk_io_cut(io, 1, LIVE_USE_CHECKPOINT, &epoch, NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_true(is_dirty(volume, epoch, 0)); /* nobody knows what was there */
        assert_false(is_dirty(volume, epoch, ABSENT));
        assert_true(is_dirty(volume, epoch, ABSENT + 1));
        assert_true(is_dirty(volume, epoch, ABSENT + 2));
        assert_false(is_dirty(volume, epoch, ABSENT + 3));
        /* What comes later belongs to the next one. */
        assert_int_equal(put(volume, 'x', 4 * K, (uint64_t)ABSENT * C), 0);
        assert_int_equal(put(volume, 'x', 4 * K, (uint64_t)(ABSENT + 3) * C), 0);
        assert_int_equal(fill(volume, ABSENT + 2, 'r'), 0);
        assert_int_equal(fill(volume, ABSENT + 3, 'r'), 0);
    }
    assert_int_equal(chunk_io_cut(io, 2, LIVE_USE_CHECKPOINT, &epoch, NULL), 0);
    for (uint64_t chunk = ABSENT; chunk < ABSENT + 4; chunk++)
        assert_true(is_dirty(volume, epoch, chunk));
    assert_false(is_dirty(volume, epoch, ABSENT + 4));
}

/* A trim in varved and a fill in the worker change the same word. */
static void a_mark_of_varved_is_not_lost(void **state)
{
    struct volume *volume = *state;
    atomic_fetch_or(&volume->site.live.words[ABSENT], LIVE_WORD_TOUCHED);
    assert_int_equal(fill(volume, ABSENT, 'r'), 0);
    assert_true(word(volume, ABSENT) & LIVE_WORD_TOUCHED);
    assert_word(volume, ABSENT, VOLUME_CLEAN, VOLUME_MASK_ALL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, chunk_site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(untouched_ones_become_clean),
        TEST(written_blocks_stay),
        TEST(what_is_not_absent_is_left_alone),
        TEST(the_map_says_so),
        TEST(clean_of_nothing_is_changed),
        TEST(the_last_map_knows_what_is_stored),
        TEST(the_first_checkpoint_has_what_was_written),
        TEST(a_mark_of_varved_is_not_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
