#include "chunk_io.h"

#include "chunk_site.h"
#include "cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SIZE VOLUME_SIZE_MIN
#define K    UINT64_C(1024)

static uint32_t word(const struct volume *volume, uint64_t chunk)
{
    return atomic_load(&volume->site.live.words[chunk]);
}

static void set_word(struct volume *volume, uint64_t chunk, enum volume_state state, uint32_t mask)
{
    atomic_store(&volume->site.live.words[chunk], live_word(state, mask));
}

static uint64_t local_chunks(const struct volume *volume)
{
    return atomic_load(&volume->site.live.header->local_chunks);
}

static void test_new_volume_reads_zeros(void **state)
{
    struct volume *volume = *state;
    assert_bytes(volume, 0, 256 * K, 0);
    assert_bytes(volume, 0, 4 * K, SIZE - 4 * K);
}

static void test_zero_chunk_never_reads_data(void **state)
{
    struct volume *volume = *state;
    cleanup_fd int fd = openat(volume->site.dir_fd, "data", O_RDWR | O_CLOEXEC);
    char junk[4096];
    memset(junk, 'j', sizeof junk);
    assert_int_equal(pwrite(fd, junk, sizeof junk, 64 * 1024), sizeof junk);
    assert_bytes(volume, 0, 256 * K, 0);
}

static void test_first_write_fills_the_chunk(void **state)
{
    struct volume *volume = *state;
    cleanup_fd int fd = openat(volume->site.dir_fd, "data", O_RDWR | O_CLOEXEC);
    for (off_t at = 0; at < 3 * 65536; at += 4096) { /* what an earlier life left there */
        char junk[4096];
        memset(junk, 'j', sizeof junk);
        assert_int_equal(pwrite(fd, junk, sizeof junk, at), sizeof junk);
    }
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(put(volume, 'a', 4 * K, 64 * K + 8 * K), 0);
    assert_bytes(volume, 0, 8 * K, 64 * K);
    assert_bytes(volume, 'a', 4 * K, 72 * K);
    assert_bytes(volume, 0, 52 * K, 76 * K);
    assert_bytes(volume, 0, 64 * K, 128 * K);
    assert_int_equal(word(volume, 0), 0);
    assert_int_equal(word(volume, 1), live_word(VOLUME_CHANGED, VOLUME_MASK_ALL) |
                                          LIVE_WORD_UNLOGGED | LIVE_WORD_TOUCHED |
                                          epoch_tag(EPOCH_FIRST));
    assert_int_equal(word(volume, 2), 0);
    assert_int_equal(local_chunks(volume), 1);
}

static void test_write_over_several_chunks(void **state)
{
    struct volume *volume = *state;
    assert_int_equal(put(volume, 'x', 4 * K, 256 * K), 0);
    assert_int_equal(put(volume, 'b', 256 * K, 68 * K), 0); /* chunks 1 to 5; 4 is there */
    assert_bytes(volume, 0, 4 * K, 64 * K);
    assert_bytes(volume, 'b', 256 * K, 68 * K);
    assert_bytes(volume, 0, 60 * K, 324 * K);
    assert_int_equal(local_chunks(volume), 5);
}

static void test_write_keeps_what_is_beside_it(void **state)
{
    struct volume *volume = *state;
    assert_int_equal(put(volume, 'a', 64 * K, 0), 0);
    assert_int_equal(put(volume, 'b', 4 * K, 4 * K), 0);
    assert_bytes(volume, 'a', 4 * K, 0);
    assert_bytes(volume, 'b', 4 * K, 4 * K);
    assert_bytes(volume, 'a', 56 * K, 8 * K);
}

static void test_discard_of_whole_chunks(void **state)
{
    struct volume *volume = *state;
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(put(volume, 'a', 256 * K, i * 256 * K), 0);
    assert_int_equal(chunk_io_flush(&volume->site.io), 0);
    struct stat before;
    struct stat after;
    assert_int_equal(fstat(volume->site.io.data_fd, &before), 0);
    assert_int_equal(chunk_io_discard(&volume->site.io, 1024 * K, 512 * K), 0);
    assert_int_equal(fstat(volume->site.io.data_fd, &after), 0);
    assert_true(after.st_blocks <= before.st_blocks - 2048);
    assert_int_equal(local_chunks(volume), 16);
    assert_bytes(volume, 'a', 4 * K, 508 * K);
    assert_bytes(volume, 0, 256 * K, 512 * K);
    assert_bytes(volume, 0, 4 * K, 1532 * K);
    assert_bytes(volume, 'a', 4 * K, 1536 * K);
    assert_int_equal(word(volume, 8), LIVE_WORD_UNLOGGED | epoch_tag(EPOCH_FIRST));
}

static void test_discard_of_parts(void **state)
{
    struct volume *volume = *state;
    for (uint64_t i = 0; i < 2; i++)
        assert_int_equal(put(volume, 'a', 256 * K, i * 256 * K), 0);
    assert_int_equal(chunk_io_discard(&volume->site.io, 136 * K, 60 * K), 0);
    assert_bytes(volume, 'a', 60 * K, 0);
    assert_bytes(volume, 0, 136 * K, 60 * K);
    assert_bytes(volume, 'a', 256 * K, 196 * K);
    assert_int_equal(live_word_state(word(volume, 0)), VOLUME_CHANGED);
    assert_int_equal(live_word_state(word(volume, 1)), VOLUME_ZERO);
    assert_int_equal(live_word_state(word(volume, 3)), VOLUME_CHANGED);
    assert_int_equal(chunk_io_discard(&volume->site.io, 8 * K, 4 * K), 0); /* inside one */
    assert_bytes(volume, 'a', 4 * K, 0);
    assert_bytes(volume, 0, 8 * K, 4 * K);
    assert_bytes(volume, 'a', 48 * K, 12 * K);
    assert_int_equal(chunk_io_discard(&volume->site.io, 8 * K, 1024 * K), 0); /* of a zero one */
    assert_int_equal(word(volume, 16), 0);
}

static void test_discard_of_everything(void **state)
{
    struct volume *volume = *state;
    for (uint64_t at = 0; at < SIZE; at += 4096 * K)
        assert_int_equal(put(volume, 'a', 64 * K, at), 0);
    assert_int_equal(chunk_io_discard(&volume->site.io, SIZE, 0), 0);
    assert_int_equal(local_chunks(volume), 0);
    struct stat st;
    assert_int_equal(fstat(volume->site.io.data_fd, &st), 0);
    assert_int_equal(st.st_blocks, 0);
}

/* A worker was killed between the state and the punch; the request comes again. */
static void test_repeated_discard_gives_room_back(void **state)
{
    struct volume *volume = *state;
    assert_int_equal(put(volume, 'a', 64 * K, 0), 0);
    atomic_store(&volume->site.live.words[0], LIVE_WORD_UNLOGGED);
    assert_int_equal(chunk_io_discard(&volume->site.io, 64 * K, 0), 0);
    struct stat st;
    assert_int_equal(fstat(volume->site.io.data_fd, &st), 0);
    assert_int_equal(st.st_blocks, 0);
}

static void test_clean_becomes_changed(void **state)
{
    struct volume *volume = *state;
    assert_int_equal(put(volume, 'a', 64 * K, 0), 0);
    assert_int_equal(chunk_io_flush(&volume->site.io), 0);
    set_word(volume, 0, VOLUME_CLEAN, VOLUME_MASK_ALL);
    assert_int_equal(put(volume, 'b', 4 * K, 0), 0);
    assert_int_equal(live_word_state(word(volume, 0)), VOLUME_CHANGED);
    assert_bytes(volume, 'a', 60 * K, 4 * K);
    set_word(volume, 0, VOLUME_CLEAN, VOLUME_MASK_ALL);
    assert_int_equal(chunk_io_discard(&volume->site.io, 4 * K, 8 * K), 0);
    assert_int_equal(live_word_state(word(volume, 0)), VOLUME_CHANGED);
    assert_bytes(volume, 0, 4 * K, 8 * K);
}

static void test_absent_chunk(void **state)
{
    struct volume *volume = *state;
    struct chunk_io *io = &volume->site.io;
    set_word(volume, 2, VOLUME_ABSENT, 0);
    assert_int_equal(chunk_io_read(io, volume->buffer, 4 * K, 128 * K), -EAGAIN);
    assert_int_equal(put(volume, 'a', 8 * K, 132 * K), 0);
    assert_int_equal(word(volume, 2) & (LIVE_WORD_STATE | LIVE_WORD_MASK),
                     live_word(VOLUME_ABSENT, 0x6));
    assert_bytes(volume, 'a', 8 * K, 132 * K);
    assert_int_equal(chunk_io_read(io, volume->buffer, 12 * K, 132 * K), -EAGAIN);
    assert_int_equal(local_chunks(volume), 0);
    assert_int_equal(chunk_io_discard(io, 4 * K, 140 * K), 0);
    assert_bytes(volume, 0, 4 * K, 140 * K);
    assert_int_equal(put(volume, 'b', 4 * K, 128 * K), 0);
    assert_int_equal(put(volume, 'c', 48 * K, 144 * K), 0); /* the rest */
    assert_int_equal(live_word_state(word(volume, 2)), VOLUME_CHANGED);
    assert_int_equal(local_chunks(volume), 1);
    set_word(volume, 3, VOLUME_ABSENT, 0x10);
    assert_int_equal(put(volume, 'd', 64 * K, 192 * K), 0);
    assert_int_equal(live_word_state(word(volume, 3)), VOLUME_CHANGED);
    set_word(volume, 4, VOLUME_ABSENT, 0x10);
    assert_int_equal(chunk_io_discard(io, 64 * K, 256 * K), 0);
    assert_bytes(volume, 0, 64 * K, 256 * K);
}

static void test_range_is_checked(void **state)
{
    struct volume *volume = *state;
    struct chunk_io *io = &volume->site.io;
    static const struct {
        uint64_t len, offset;
    } bad[] = {{4096, SIZE},    {8192, SIZE - 4096},       {512, 0},
               {4096, 512},     {4096, UINT64_MAX - 4095}, {UINT64_MAX - 4095, 4096},
               {4096, SIZE * 2}};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(chunk_io_read(io, volume->buffer, bad[i].len, bad[i].offset), -EINVAL);
        assert_int_equal(chunk_io_write(io, volume->buffer, bad[i].len, bad[i].offset), -EINVAL);
        assert_int_equal(chunk_io_discard(io, bad[i].len, bad[i].offset), -EINVAL);
    }
    assert_int_equal(chunk_io_read(io, volume->buffer, 0, SIZE), 0);
    assert_int_equal(chunk_io_write(io, volume->buffer, 0, 0), 0);
    assert_int_equal(chunk_io_discard(io, 0, 0), 0);
}

static void test_flushed_survives_power_cut(void **state)
{
    struct volume *volume = *state;
    assert_int_equal(put(volume, 'a', 64 * K, 0), 0);
    assert_int_equal(put(volume, 'b', 4 * K, 1024 * K), 0);
    assert_int_equal(chunk_io_flush(&volume->site.io), 0);
    assert_int_equal(word(volume, 0) & LIVE_WORD_UNLOGGED, 0);
    assert_int_equal(put(volume, 'c', 4 * K, 2048 * K), 0);
    assert_int_equal(chunk_io_discard(&volume->site.io, 64 * K, 0), 0);
    chunk_site_power_cut(&volume->site);
    assert_false(volume->site.was_closed);
    assert_bytes(volume, 'b', 4 * K, 1024 * K);
    assert_bytes(volume, 0, 4 * K, 2048 * K); /* nobody said that it was there */
    assert_int_equal(local_chunks(volume), 2);
}

static void test_kill_keeps_everything(void **state)
{
    struct volume *volume = *state;
    assert_int_equal(put(volume, 'a', 64 * K, 64 * K), 0);
    chunk_site_restart(&volume->site);
    assert_bytes(volume, 'a', 64 * K, 64 * K);
    assert_int_equal(local_chunks(volume), 1);
    /* The successor knows that it has to be logged. */
    assert_int_equal(chunk_io_flush(&volume->site.io), 0);
    chunk_site_power_cut(&volume->site);
    assert_bytes(volume, 'a', 64 * K, 64 * K);
}

static void test_more_records_than_fit_at_once(void **state)
{
    struct volume *volume = *state;
    uint64_t size = UINT64_C(2) << 30; /* 32,768 chunks, twice CHUNK_IO_RECORDS */
    assert_int_equal(chunk_io_resize(&volume->site.io, size, NULL), 0);
    volume->site.size = size;
    chunk_site_restart(&volume->site);
    for (uint64_t chunk = 0; chunk < size / VOLUME_CHUNK; chunk++)
        atomic_store(&volume->site.live.words[chunk],
                     live_word(VOLUME_CHANGED, VOLUME_MASK_ALL) | LIVE_WORD_UNLOGGED);
    chunk_site_restart(&volume->site);
    assert_int_equal(chunk_io_flush(&volume->site.io), 0);
    chunk_site_power_cut(&volume->site);
    assert_int_equal(local_chunks(volume), size / VOLUME_CHUNK);
}

static void test_long_log_is_written_anew(void **state)
{
    struct volume *volume = *state;
    uint64_t longest = 0;
    for (int i = 0; i < MAP_LOG_LONG + 3; i++) {
        uint64_t offset = (uint64_t)(i % 64) * 64 * K;
        if (i / 64 % 2 == 0)
            assert_int_equal(put(volume, 'a' + i % 26, 4 * K, offset), 0);
        else
            assert_int_equal(chunk_io_discard(&volume->site.io, 64 * K, offset), 0);
        assert_int_equal(chunk_io_flush(&volume->site.io), 0);
        uint64_t blocks = atomic_load(&volume->site.live.header->map_blocks);
        longest = blocks > longest ? blocks : longest;
    }
    assert_int_equal(longest, MAP_LOG_LONG);
    assert_true(atomic_load(&volume->site.live.header->map_blocks) < 8);
    uint64_t local = local_chunks(volume);
    chunk_site_power_cut(&volume->site);
    assert_int_equal(local_chunks(volume), local);
    assert_bytes(volume, 'a' + 1024 % 26, 4 * K, 0);
}

static void test_finish(void **state)
{
    struct volume *volume = *state;
    struct chunk_io *io = &volume->site.io;
    assert_int_equal(put(volume, 'a', 4 * K, 0), 0);
    assert_int_equal(chunk_io_finish(io, NULL), 0);
    assert_int_equal(chunk_io_finish(io, NULL), 0);
    for (int life = 0; life < 2; life++) { /* of a successor it is true, too */
        assert_int_equal(put(volume, 'b', 4 * K, 0), -EIO);
        assert_int_equal(chunk_io_discard(io, 64 * K, 0), -EIO);
        assert_int_equal(chunk_io_flush(io), 0);
        assert_bytes(volume, 'a', 4 * K, 0);
        assert_true(volume->site.log.closed);
        chunk_site_restart(&volume->site);
    }
    chunk_site_power_cut(&volume->site); /* what a new attach does */
    assert_true(volume->site.was_closed);
    assert_false(volume->site.log.closed);
    assert_bytes(volume, 'a', 4 * K, 0);
    assert_int_equal(put(volume, 'b', 4 * K, 0), 0);
    chunk_site_power_cut(&volume->site);
    assert_false(volume->site.was_closed); /* though no state has changed */
}

static void test_resize(void **state)
{
    struct volume *volume = *state;
    struct chunk_io *io = &volume->site.io;
    struct err err = ERR_INIT;
    assert_int_equal(put(volume, 'a', 4 * K, SIZE - 4 * K), 0);
    assert_true(chunk_io_resize(io, SIZE / 2, &err) < 0);
    assert_int_equal(err.code, ERR_INVALID);
    assert_int_equal(chunk_io_resize(io, SIZE * 4, NULL), 0);
    assert_int_equal(chunk_io_resize(io, SIZE * 4, NULL), 0);
    volume->site.size = SIZE * 4;
    assert_bytes(volume, 'a', 4 * K, SIZE - 4 * K);
    assert_bytes(volume, 0, 4 * K, SIZE);
    assert_int_equal(put(volume, 'b', 4 * K, SIZE * 4 - 4 * K), 0);
    assert_int_equal(chunk_io_flush(io), 0);
    chunk_site_power_cut(&volume->site);
    assert_bytes(volume, 'b', 4 * K, SIZE * 4 - 4 * K);
}

static void assert_open_fails(struct volume *volume, enum err_code code)
{
    struct err err = ERR_INIT;
    struct chunk_io io;
    cleanup_fd int fd = openat(volume->site.dir_fd, "data", O_RDWR | O_CLOEXEC);
    assert_true(chunk_io_open(fd, &volume->site.live, &volume->site.log, &io, &err) < 0);
    assert_int_equal(err.code, code);
}

static void test_wrong_size_of_data(void **state)
{
    struct volume *volume = *state;
    int fd = volume->site.io.data_fd;
    assert_int_equal(ftruncate(fd, SIZE - VOLUME_SIZE_UNIT), 0);
    assert_open_fails(volume, ERR_DAMAGED);
    assert_int_equal(ftruncate(fd, SIZE + 4096), 0);
    assert_open_fails(volume, ERR_DAMAGED);
    assert_int_equal(ftruncate(fd, SIZE + VOLUME_SIZE_UNIT), 0); /* a resize was cut short */
    chunk_site_restart(&volume->site);
    assert_bytes(volume, 0, 4 * K, SIZE - 4 * K);
}

static void test_data_that_was_cut_off(void **state)
{
    struct volume *volume = *state;
    assert_int_equal(put(volume, 'a', 64 * K, 64 * K), 0);
    assert_int_equal(ftruncate(volume->site.io.data_fd, 64 * 1024), 0);
    assert_int_equal(chunk_io_read(&volume->site.io, volume->buffer, 4 * K, 64 * K), -EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_volume(test_new_volume_reads_zeros),
        with_volume(test_zero_chunk_never_reads_data),
        with_volume(test_first_write_fills_the_chunk),
        with_volume(test_write_over_several_chunks),
        with_volume(test_write_keeps_what_is_beside_it),
        with_volume(test_discard_of_whole_chunks),
        with_volume(test_discard_of_parts),
        with_volume(test_discard_of_everything),
        with_volume(test_repeated_discard_gives_room_back),
        with_volume(test_clean_becomes_changed),
        with_volume(test_absent_chunk),
        with_volume(test_range_is_checked),
        with_volume(test_flushed_survives_power_cut),
        with_volume(test_kill_keeps_everything),
        with_volume(test_more_records_than_fit_at_once),
        with_volume(test_long_log_is_written_anew),
        with_volume(test_finish),
        with_volume(test_resize),
        with_volume(test_wrong_size_of_data),
        with_volume(test_data_that_was_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
