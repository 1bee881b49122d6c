/* Which chunks of an open epoch a checkpoint is given, and which it is spared. */
#include "workspace_checkpoint_source.h"

#include "chunk_site.h"
#include "cleanup.h"
#include "epochs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    C = VOLUME_CHUNK,
    CHUNKS = VOLUME_SIZE_MIN / VOLUME_CHUNK,
};

static uint64_t tokens;

static uint64_t cut(struct volume *volume)
{
    struct err err = ERR_INIT;
    uint64_t epoch = 0;
    if (chunk_io_cut(&volume->site.io, ++tokens, LIVE_USE_CHECKPOINT | LIVE_USE_VIEW, &epoch,
                     &err) < 0)
        fail_msg("%s", err.text);
    return epoch;
}

static void open_epoch(int dir_fd, int live_fd, uint64_t number, struct volumes_epoch *ret)
{
    struct err err = ERR_INIT;
    *ret = (struct volumes_epoch){.number = number};
    if (epoch_reader_open(dir_fd, live_fd, number, &ret->reader, &err) < 0)
        fail_msg("%s", err.text);
}

/* How many chunks the source gives, each of which is marked. */
static uint64_t ask(const struct checkpoint_source *source, bool zeros, bool given[CHUNKS])
{
    uint64_t count = 0;
    memset(given, 0, CHUNKS);
    for (uint64_t from = 0; from < CHUNKS; count++) {
        uint64_t chunk = source->next(source->arg, from, CHUNKS, zeros);
        if (chunk == UINT64_MAX)
            break;
        assert_true(chunk >= from && chunk < CHUNKS);
        given[chunk] = true;
        from = chunk + 1;
    }
    return count;
}

/* What the chunk is; its first byte where it has any, else -1. */
static int look(const struct checkpoint_source *source, uint64_t chunk, int *ret_byte)
{
    struct err err = ERR_INIT;
    uint32_t mask = 0;
    cleanup_free uint8_t *bytes = chunk_site_buffer(VOLUME_CHUNK_BLOCKS);
    int what = source->read(source->arg, chunk, bytes, &mask, &err);
    if (what < 0)
        fail_msg("%s", err.text);
    *ret_byte = what == CHECKPOINT_CHUNK_BYTES ? bytes[0] : -1;
    return what;
}

static void assert_zero(const struct checkpoint_source *source, uint64_t chunk)
{
    int byte;
    assert_int_equal(look(source, chunk, &byte), CHECKPOINT_CHUNK_ZERO);
}

static void assert_byte(const struct checkpoint_source *source, uint64_t chunk, int wanted)
{
    int byte;
    assert_int_equal(look(source, chunk, &byte), CHECKPOINT_CHUNK_BYTES);
    assert_int_equal(byte, wanted);
}

/* What was zero at the cut is, whatever was written since; and so with what was not. */
static void zeros_are_those_of_the_cut(void **state)
{
    struct volume *volume = *state;
    struct chunk_io *io = &volume->site.io;
    struct volumes_epoch epoch;
    bool given[CHUNKS];
    for (int again = 0; again < 2; again++) { /* in later epochs words have other tags */
        assert_int_equal(put(volume, 'a', C, (uint64_t)3 * C), 0);
        assert_int_equal(put(volume, 'b', C, (uint64_t)5 * C), 0);
        assert_int_equal(put(volume, 'c', C, (uint64_t)7 * C), 0);
        assert_int_equal(put(volume, 'd', C, (uint64_t)8 * C), 0);
        assert_int_equal(chunk_io_discard(io, C, (uint64_t)8 * C), 0);
        assert_int_equal(chunk_io_discard(io, C, (uint64_t)9 * C), 0);
        const uint64_t number = cut(volume);
        open_epoch(volume->site.dir_fd, volume->site.live_fd, number, &epoch);
        struct workspace_checkpoint_source chunks = {.epoch = &epoch, .whole = again == 1};
        const struct checkpoint_source source = workspace_checkpoint_source(&chunks);
        for (int since = 0; since < 2; since++) {
            assert_int_equal(ask(&source, true, given), CHUNKS); /* nothing is known of before */
            uint64_t count = ask(&source, false, given);
            assert_true(given[3] && given[5] && given[7]);
            assert_byte(&source, 3, 'a');
            assert_byte(&source, 5, 'b');
            assert_byte(&source, 7, 'c');
            assert_zero(&source, 0);
            assert_zero(&source, 8);
            assert_zero(&source, 9);
            assert_zero(&source, 11);
            /* What was written since may be given, as it has to be looked for. */
            assert_true(since == 0 ? count == 3 : count <= 7);
            assert_false(given[0] || given[12] || given[CHUNKS - 1]);
            assert_int_equal(put(volume, 'x', C, 3 * (uint64_t)C), 0);
            assert_int_equal(chunk_io_discard(io, C, (uint64_t)5 * C), 0);
            assert_int_equal(put(volume, 'y', C, 8 * (uint64_t)C), 0);
            assert_int_equal(put(volume, 'z', VOLUME_BLOCK, 11 * (uint64_t)C), 0);
        }
        epoch_reader_close(&epoch.reader);
        struct err err = ERR_INIT;
        assert_int_equal(chunk_io_release(io, number, &err), 0);
        assert_int_equal(epoch_slots_empty(&volume->site.live, &err), 0);
        assert_int_equal(chunk_io_discard(io, VOLUME_SIZE_MIN, 0), 0);
    }
}

/* After a checkpoint of the same life only what was written since is given. */
static void what_was_written_since(void **state)
{
    struct volume *volume = *state;
    struct volumes_epoch epoch;
    bool given[CHUNKS];
    assert_int_equal(put(volume, 'a', C, (uint64_t)3 * C), 0);
    const uint64_t first = cut(volume);
    atomic_store(&volume->site.live.header->clean_epoch, first);
    assert_int_equal(put(volume, 'b', C, (uint64_t)5 * C), 0);
    assert_int_equal(put(volume, 'c', C, (uint64_t)6 * C), 0);
    assert_int_equal(chunk_io_discard(&volume->site.io, C, (uint64_t)6 * C), 0);
    open_epoch(volume->site.dir_fd, volume->site.live_fd, cut(volume), &epoch);
    struct workspace_checkpoint_source chunks = {.epoch = &epoch};
    const struct checkpoint_source source = workspace_checkpoint_source(&chunks);
    assert_int_equal(ask(&source, true, given), 2);
    assert_true(given[5] && given[6]);
    assert_int_equal(ask(&source, false, given), 1);
    assert_true(given[5]);
    assert_byte(&source, 5, 'b');
    assert_zero(&source, 6);
    assert_int_equal(source.next(source.arg, 0, 5, true), UINT64_MAX);
    assert_int_equal(source.next(source.arg, 5, 6, true), 5);
    source.done(source.arg, 5);
    epoch_reader_close(&epoch.reader);
}

/* One that is nearly empty is passed over by its words alone: the planes, with eight bytes a chunk
 * and slot, are not touched. */
static void a_tebibyte_of_nothing(void **state)
{
    struct volume *volume = *state;
    const uint64_t size = (uint64_t)1 << 40;
    struct err err = ERR_INIT;
    struct live_map live;
    struct stat before;
    struct stat after;
    struct volumes_epoch epoch;
    cleanup_fd int fd = live_map_make(CHUNK_SITE_ID, volume->site.uuid, size, &err);
    assert_true(fd >= 0);
    assert_int_equal(live_map_open(fd, false, &live, &err), 0);
    struct live_slot *slot = &live.header->slots[2];
    atomic_store(&slot->size, size);
    atomic_store(&slot->number, 1);
    atomic_store(&slot->state, LIVE_SLOT_OPEN);
    atomic_store(&live.header->epoch, 2);
    atomic_store(&live.header->data_mode, LIVE_DATA_BUFFERED);
    open_epoch(volume->site.dir_fd, fd, 1, &epoch);
    struct workspace_checkpoint_source chunks = {.epoch = &epoch};
    const struct checkpoint_source source = workspace_checkpoint_source(&chunks);
    const uint64_t last = size / VOLUME_CHUNK - 1;
    assert_int_equal(source.size, size);
    assert_int_equal(fstat(fd, &before), 0);
    assert_int_equal(source.next(source.arg, 0, last, false), UINT64_MAX);
    assert_int_equal(fstat(fd, &after), 0);
    /* 4 bytes a chunk at most, which a worker has made already. */
    assert_true((uint64_t)(after.st_blocks - before.st_blocks) * 512 <= (last + 1) * 4);
    assert_zero(&source, last);
    assert_int_equal(source.next(source.arg, last, last + 1, true), last);
    epoch_reader_close(&epoch.reader);
    live_map_close(&live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_volume(zeros_are_those_of_the_cut),
        with_volume(what_was_written_since),
        with_volume(a_tebibyte_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
