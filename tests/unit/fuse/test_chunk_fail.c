/* Failures of the disk under chunk_io, and the order of its calls: the calls are wrapped at link
 * time, noted, and made to fail as told.
 */
#include "chunk_io.h"

#include "chunk_site.h"
#include "cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define K UINT64_C(1024)

/* Letters: w a write of data, m one of the map, s a sync of data, y one of the map, r a rename,
 * p a punch. */
static char trace[4096];
static _Atomic size_t trace_len;
static ino_t data_inode; /* 0: nothing is noted or fails */
static int fail_write, fail_sync, fail_map, fail_map_sync, fail_punch, fail_rename; /* errno */
static int short_write; /* bytes after which fail_write hits */
static struct chunk_io *dirty_on_map;
static unsigned slow_sync; /* microseconds */

static bool is_data(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_ino == data_inode;
}

static void note(char what)
{
    size_t at = atomic_fetch_add(&trace_len, 1);
    if (at < sizeof trace - 1)
        trace[at] = what;
}

static int refuse(int error)
{
    errno = error;
    return -1;
}

ssize_t __real_pwritev64(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int count, off_t offset)
{
    if (data_inode == 0)
        return __real_pwritev64(fd, iov, count, offset);
    bool data = is_data(fd);
    note(data ? 'w' : 'm');
    if (!data && dirty_on_map)
        atomic_store(&dirty_on_map->dirty, true);
    if (data && fail_write && short_write > 0) {
        struct iovec part = {iov[0].iov_base, (size_t)short_write};
        short_write = 0;
        return __real_pwritev64(fd, &part, 1, offset);
    }
    if (data ? fail_write : fail_map)
        return refuse(data ? fail_write : fail_map);
    return __real_pwritev64(fd, iov, count, offset);
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    if (data_inode == 0)
        return __real_fdatasync(fd);
    bool data = is_data(fd);
    note(data ? 's' : 'y');
    if (data && slow_sync)
        (void)usleep(slow_sync);
    if (data ? fail_sync : fail_map_sync)
        return refuse(data ? fail_sync : fail_map_sync);
    return __real_fdatasync(fd);
}

int __real_fallocate64(int fd, int mode, off_t offset, off_t len);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t len);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t len)
{
    if (data_inode == 0 || !is_data(fd))
        return fail_map ? refuse(fail_map) : __real_fallocate64(fd, mode, offset, len);
    note('p');
    return fail_punch ? refuse(fail_punch) : __real_fallocate64(fd, mode, offset, len);
}

int __real_renameat2(int from, const char *old, int to, const char *new, unsigned flags);
int __wrap_renameat2(int from, const char *old, int to, const char *new, unsigned flags);
int __wrap_renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
    if (data_inode != 0)
        note('r');
    return fail_rename ? refuse(fail_rename) : __real_renameat2(from, old, to, new, flags);
}

static void reset(void)
{
    fail_write = fail_sync = fail_map = fail_map_sync = fail_punch = fail_rename = 0;
    short_write = 0;
    slow_sync = 0;
    atomic_store(&trace_len, 0);
    memset(trace, 0, sizeof trace);
}

static int setup(void **state)
{
    reset();
    data_inode = 0;
    if (chunk_site_setup(state) != 0)
        return -1;
    const struct volume *volume = *state;
    struct stat st;
    assert_int_equal(fstat(volume->site.io.data_fd, &st), 0);
    data_inode = st.st_ino;
    return 0;
}

static void assert_trace(const char *wanted)
{
    assert_string_equal(trace, wanted);
    reset();
}

static void test_order_of_a_flush(void **state)
{
    struct volume *volume = *state;
    struct chunk_io *io = &volume->site.io;
    assert_int_equal(put(volume, 'a', 256 * K, 4 * K), 0); /* five chunks, one call */
    assert_trace("w");
    assert_int_equal(chunk_io_flush(io), 0);
    assert_trace("smy");
    assert_int_equal(chunk_io_flush(io), 0); /* nothing was written */
    assert_trace("");
    assert_int_equal(put(volume, 'b', 4 * K, 8 * K), 0);
    assert_int_equal(chunk_io_flush(io), 0); /* no state has changed */
    assert_trace("ws");
    assert_int_equal(chunk_io_discard(io, 64 * K, 64 * K), 0);
    assert_int_equal(chunk_io_flush(io), 0);
    assert_trace("psmy");
    assert_int_equal(chunk_io_discard(io, 64 * K, 64 * K), 0); /* is a hole */
    assert_int_equal(chunk_io_discard(io, VOLUME_SIZE_MIN / 2, VOLUME_SIZE_MIN / 2), 0);
    assert_int_equal(chunk_io_flush(io), 0);
    assert_trace("");
}

/* A map that is written anew says nothing that is not on disk. */
static void test_order_of_a_new_map(void **state)
{
    struct volume *volume = *state;
    struct chunk_io *io = &volume->site.io;
    for (uint64_t i = 0; i <= MAP_LOG_LONG; i++) {
        assert_int_equal(put(volume, 'a', 4 * K, i % 2 * 64 * K), 0);
        assert_int_equal(chunk_io_discard(io, 64 * K, i % 2 * 64 * K), 0);
        if (map_log_length(&volume->site.log) == MAP_LOG_LONG)
            break;
        assert_int_equal(chunk_io_flush(io), 0);
    }
    reset();
    assert_int_equal(put(volume, 'b', 4 * K, 512 * K), 0);
    dirty_on_map = io; /* as if another thread wrote while the flush writes to the map */
    assert_int_equal(chunk_io_flush(io), 0);
    dirty_on_map = NULL;
    /* Its own flush, with zeros ahead; then data again, base, zeros, header, name. */
    assert_trace("wsmymysmmmr");
    assert_int_equal(put(volume, 'c', 4 * K, 1024 * K), 0);
    reset();
    assert_int_equal(chunk_io_finish(io, NULL), 0);
    assert_memory_equal(trace, "smy", 3);
}

static void test_full_disk(void **state)
{
    struct volume *volume = *state;
    struct chunk_io *io = &volume->site.io;
    for (int i = 0; i < 2; i++) {
        fail_write = i == 0 ? ENOSPC : EDQUOT;
        assert_int_equal(put(volume, 'a', 64 * K, 64 * K), -fail_write);
        assert_bytes(volume, 0, 64 * K, 64 * K); /* nothing has happened */
        fail_write = ENOSPC;
        short_write = 8192; /* room for a part */
        assert_int_equal(put(volume, 'a', 64 * K, 64 * K), -ENOSPC);
        assert_bytes(volume, 0, 64 * K, 64 * K);
        reset();
    }
    assert_int_equal(put(volume, 'a', 64 * K, 64 * K), 0); /* repeated as a whole */
    assert_bytes(volume, 'a', 64 * K, 64 * K);
    fail_map = ENOSPC;
    assert_int_equal(chunk_io_flush(io), -ENOSPC);
    assert_int_equal(chunk_io_flush(io), -ENOSPC);
    struct err err = ERR_INIT;
    assert_int_equal(chunk_io_finish(io, &err), -ENOSPC);
    assert_int_equal(err.code, ERR_NO_SPACE);
    fail_map = 0;
    assert_int_equal(put(volume, 'b', 4 * K, 0), 0); /* it goes on */
    assert_int_equal(chunk_io_flush(io), 0);
    chunk_site_power_cut(&volume->site);
    assert_bytes(volume, 'a', 64 * K, 64 * K);
    assert_bytes(volume, 'b', 4 * K, 0);
}

/* Where all is flushed the old map says all that a new one would. */
static void test_no_room_to_close(void **state)
{
    struct volume *volume = *state;
    struct chunk_io *io = &volume->site.io;
    assert_int_equal(put(volume, 'a', 64 * K, 64 * K), 0);
    assert_int_equal(chunk_io_flush(io), 0);
    fail_rename = EIO;
    assert_int_equal(chunk_io_finish(io, NULL), -EIO);
    assert_int_equal(put(volume, 'b', 4 * K, 0), 0); /* it goes on */
    assert_int_equal(chunk_io_flush(io), 0);
    fail_rename = 0;
    fail_map = ENOSPC;
    struct err err = ERR_INIT;
    assert_int_equal(chunk_io_finish(io, &err), 0);
    assert_int_equal(err.code, ERR_NONE);
    assert_int_equal(put(volume, 'c', 4 * K, 0), -EIO);
    assert_int_equal(chunk_io_finish(io, NULL), 0);
    fail_map = 0;
    chunk_site_restart(&volume->site); /* a successor that is to end */
    assert_int_equal(put(volume, 'c', 4 * K, 0), -EIO);
    assert_int_equal(chunk_io_finish(&volume->site.io, NULL), 0);
    chunk_site_power_cut(&volume->site);
    assert_false(volume->site.was_closed);
    assert_bytes(volume, 'a', 64 * K, 64 * K);
    assert_bytes(volume, 'b', 4 * K, 0);
}

static void test_punch_that_fails(void **state)
{
    struct volume *volume = *state;
    struct chunk_io *io = &volume->site.io;
    static const int harmless[] = {ENOSPC, EDQUOT, EOPNOTSUPP};
    for (size_t i = 0; i < ARRAY_SIZE(harmless); i++) {
        assert_int_equal(put(volume, 'a', 64 * K, 0), 0);
        fail_punch = harmless[i];
        assert_int_equal(chunk_io_discard(io, 64 * K, 0), 0);
        assert_bytes(volume, 0, 64 * K, 0); /* whatever `data` holds */
    }
    assert_int_equal(put(volume, 'a', 4 * K, 0), 0);
    assert_bytes(volume, 0, 60 * K, 4 * K);
    fail_punch = EIO;
    assert_int_equal(chunk_io_discard(io, 64 * K, 0), -EIO);
    assert_bytes(volume, 0, 64 * K, 0);
}

static void test_write_that_fails(void **state)
{
    struct volume *volume = *state;
    assert_int_equal(put(volume, 'a', 64 * K, 0), 0);
    fail_write = EIO;
    assert_int_equal(put(volume, 'b', 64 * K, 0), -EIO);
    assert_int_equal(put(volume, 'b', 64 * K, 64 * K), -EIO);
    assert_bytes(volume, 0, 64 * K, 64 * K);
    fail_write = 0;
    assert_bytes(volume, 'a', 64 * K, 0);
    assert_int_equal(chunk_io_flush(&volume->site.io), 0); /* of that request alone */
}

static void test_sync_of_data_that_fails(void **state)
{
    static const int errors[] = {EIO, ENOSPC, EDQUOT};
    struct volume *volume = *state;
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        assert_int_equal(put(volume, 'a', 64 * K, 0), 0);
        fail_sync = errors[i];
        assert_int_equal(chunk_io_flush(&volume->site.io), -EIO);
        fail_sync = 0;
        assert_int_equal(chunk_io_flush(&volume->site.io), -EIO); /* for good */
        /* What the kernel said is told to whoever looks. */
        assert_int_equal(atomic_load(&volume->site.live.header->failed_num), errors[i]);
        assert_true(chunk_io_finish(&volume->site.io, NULL) < 0);
        assert_bytes(volume, 'a', 64 * K, 0);
        /* A successor, of which the same flush may be asked again. */
        chunk_site_restart(&volume->site);
        assert_int_equal(chunk_io_flush(&volume->site.io), -EIO);
        assert_true(chunk_io_finish(&volume->site.io, NULL) < 0);
        chunk_site_power_cut(&volume->site);
        assert_int_equal(chunk_io_flush(&volume->site.io), 0);
    }
}

static void test_sync_of_the_map_that_fails(void **state)
{
    struct volume *volume = *state;
    assert_int_equal(put(volume, 'a', 64 * K, 0), 0);
    fail_map_sync = EIO;
    assert_int_equal(chunk_io_flush(&volume->site.io), -EIO);
    fail_map_sync = 0;
    assert_int_equal(chunk_io_flush(&volume->site.io), -EIO);
    chunk_site_restart(&volume->site);
    assert_int_equal(chunk_io_flush(&volume->site.io), -EIO);
}

/* A log that can't be made shorter is a nuisance, no failure. */
static void test_new_map_that_fails(void **state)
{
    struct volume *volume = *state;
    struct chunk_io *io = &volume->site.io;
    fail_rename = EIO;
    for (uint64_t i = 0; i < MAP_LOG_LONG + 40; i++) {
        assert_int_equal(i % 2 == 0 ? put(volume, 'a', 4 * K, 0) : chunk_io_discard(io, 64 * K, 0),
                         0);
        assert_int_equal(chunk_io_flush(io), 0);
    }
    const char *first = strchr(trace, 'r');
    assert_true(!first || !strchr(first + 1, 'r')); /* not tried each time */
    fail_rename = 0;
    io->rewrite_at = 0;
    assert_int_equal(put(volume, 'b', 4 * K, 0), 0);
    assert_int_equal(chunk_io_flush(io), 0);
    assert_true(map_log_length(&volume->site.log) < 4);
}

static void *flush(void *arg)
{
    return (void *)(intptr_t)chunk_io_flush(arg);
}

/* Flushes that come while one runs share the next one. */
static void test_resize_is_synced(void **state)
{
    struct volume *volume = *state;
    struct chunk_io *io = &volume->site.io;
    struct err err = ERR_INIT;
    reset();
    assert_int_equal(chunk_io_resize(io, 2 * VOLUME_SIZE_MIN, &err), 0);
    assert_trace("s");
    assert_int_equal(chunk_io_resize(io, 2 * VOLUME_SIZE_MIN, &err),
                     0); /* one that nobody heard the end of */
    assert_trace("s");
    fail_sync = EIO;
    assert_true(chunk_io_resize(io, 2 * VOLUME_SIZE_MIN, &err) < 0);
    assert_int_equal(err.num, EIO);
    assert_int_not_equal(io->failed, 0);
}

static void test_flushes_join(void **state)
{
    struct volume *volume = *state;
    struct chunk_io *io = &volume->site.io;
    pthread_t threads[12];
    slow_sync = 100000;
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
        assert_int_equal(put(volume, 'a', 4 * K, i * 64 * K), 0);
        assert_int_equal(pthread_create(&threads[i], NULL, flush, io), 0);
        if (i == 0)
            (void)usleep(30000); /* the first one is on its way */
    }
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
        void *rc;
        assert_int_equal(pthread_join(threads[i], &rc), 0);
        assert_null(rc);
    }
    size_t syncs = 0;
    for (size_t i = 0; trace[i]; i++)
        syncs += trace[i] == 's';
    assert_in_range(syncs, 2, 4);
    reset();
    chunk_site_power_cut(&volume->site);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        assert_bytes(volume, 'a', 4 * K, i * 64 * K);
}

static void test_ways_of_writing(void **state)
{
    struct volume *volume = *state;
    assert_int_equal(volume->site.io.mode, CHUNK_IO_DIRECT); /* of this file system */
    assert_int_equal(atomic_load(&volume->site.live.header->data_mode), CHUNK_IO_DIRECT);
    assert_int_equal(put(volume, 'a', 64 * K, 0), 0);
    assert_int_equal(chunk_io_flush(&volume->site.io), 0);
#ifdef VARVE_FAULT_POINTS
    assert_int_equal(setenv("VARVE_VOLUME_DATA", "buffered", 1), 0);
    chunk_site_restart(&volume->site);
    assert_int_equal(volume->site.io.mode, CHUNK_IO_BUFFERED);
    assert_int_equal(fcntl(volume->site.io.data_fd, F_GETFL) & O_DIRECT, 0);
    assert_bytes(volume, 'a', 64 * K, 0);
    assert_int_equal(put(volume, 'b', 4 * K, 0), 0);
    assert_int_equal(chunk_io_flush(&volume->site.io), 0);
    assert_int_equal(setenv("VARVE_VOLUME_DATA", "direct", 1), 0);
    chunk_site_restart(&volume->site);
    assert_int_equal(volume->site.io.mode, CHUNK_IO_DIRECT);
    assert_int_equal(unsetenv("VARVE_VOLUME_DATA"), 0);
    assert_bytes(volume, 'b', 4 * K, 0);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order_of_a_flush, setup, chunk_site_teardown),
        cmocka_unit_test_setup_teardown(test_order_of_a_new_map, setup, chunk_site_teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, setup, chunk_site_teardown),
        cmocka_unit_test_setup_teardown(test_no_room_to_close, setup, chunk_site_teardown),
        cmocka_unit_test_setup_teardown(test_punch_that_fails, setup, chunk_site_teardown),
        cmocka_unit_test_setup_teardown(test_write_that_fails, setup, chunk_site_teardown),
        cmocka_unit_test_setup_teardown(test_sync_of_data_that_fails, setup, chunk_site_teardown),
        cmocka_unit_test_setup_teardown(test_sync_of_the_map_that_fails, setup,
                                        chunk_site_teardown),
        cmocka_unit_test_setup_teardown(test_new_map_that_fails, setup, chunk_site_teardown),
        cmocka_unit_test_setup_teardown(test_resize_is_synced, setup, chunk_site_teardown),
        cmocka_unit_test_setup_teardown(test_flushes_join, setup, chunk_site_teardown),
        cmocka_unit_test_setup_teardown(test_ways_of_writing, setup, chunk_site_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
