#include "blobs.h"

#include "store_fixture.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_put_and_read(void **state)
{
    struct store_fixture *fixture = *state;
    const struct scratch *scratch = fixture->scratch;
    struct err err = ERR_INIT;
    struct digest digest = store_put(fixture->blobs, "hello");
    assert_string_equal(digest_format(&digest).s,
                        "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
    uint64_t size = 0;
    assert_ok(blobs_stat(fixture->blobs, &digest, &size, &err), err);
    assert_int_equal(size, 5);
    cleanup_buf struct buf buf = BUF_INIT(5);
    assert_ok(blobs_read(fixture->blobs, &digest, &buf, &err), err);
    assert_string_equal(buf_str(&buf), "hello");
    assert_ok(blobs_verify(fixture->blobs, &digest, &err), err);
    size = 0;
    cleanup_fd int fd = blobs_open_blob(fixture->blobs, &digest, &size, &err);
    assert_ok(fd, err);
    assert_int_equal(size, 5);
    struct stat st;
    assert_int_equal(fstatat(scratch->fd, store_file(&digest), &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0444);
}

static void test_empty_blob(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct digest digest = store_put(fixture->blobs, "");
    cleanup_buf struct buf buf = BUF_INIT(0);
    assert_ok(blobs_read(fixture->blobs, &digest, &buf, &err), err);
    assert_int_equal(buf.len, 0);
    assert_ok(blobs_verify(fixture->blobs, &digest, &err), err);
}

static void test_missing_blob(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct digest digest = store_digest("nobody wrote this");
    uint64_t size = 77;
    cleanup_buf struct buf buf = BUF_INIT(100);
    assert_fails(blobs_stat(fixture->blobs, &digest, &size, &err), err, ERR_NOT_FOUND,
                 digest_format(&digest).s);
    assert_fails(blobs_open_blob(fixture->blobs, &digest, &size, &err), err, ERR_NOT_FOUND,
                 "is not in");
    assert_fails(blobs_read(fixture->blobs, &digest, &buf, &err), err, ERR_NOT_FOUND, "is not in");
    assert_fails(blobs_verify(fixture->blobs, &digest, &err), err, ERR_NOT_FOUND, "is not in");
    assert_int_equal(size, 77);
    assert_null(buf.data);
}

static void test_damaged_blob_is_noticed(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct digest digest = store_put(fixture->blobs, "hello");
    scratch_write(fixture->scratch, store_file(&digest), "hallo", 5);
    cleanup_buf struct buf buf = BUF_INIT(100);
    assert_fails(blobs_verify(fixture->blobs, &digest, &err), err, ERR_DIGEST, "is damaged");
    struct digest other = store_digest("hallo");
    assert_int_equal(blobs_verify(fixture->blobs, &digest, &err), -EBADMSG);
    assert_non_null(strstr(err.hint, store_file(&digest)));
    err_clear(&err);
    assert_fails(blobs_read(fixture->blobs, &digest, &buf, &err), err, ERR_DIGEST,
                 digest_format(&other).s);
    assert_null(buf.data);
}

static void test_read_is_bounded(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct digest digest = store_put(fixture->blobs, "hello");
    cleanup_buf struct buf buf = BUF_INIT(4);
    assert_fails(blobs_read(fixture->blobs, &digest, &buf, &err), err, ERR_TOO_LARGE,
                 "has 5 bytes, more than the limit of 4");
}

static void test_refuses_what_is_no_regular_file(void **state)
{
    struct store_fixture *fixture = *state;
    const struct scratch *scratch = fixture->scratch;
    struct err err = ERR_INIT;
    uint64_t size;
    struct digest link = store_digest("link");
    struct digest fifo = store_digest("fifo");
    struct digest dir = store_digest("dir");
    assert_int_equal(symlinkat("/etc/passwd", scratch->fd, store_file(&link)), 0);
    assert_int_equal(mkfifoat(scratch->fd, store_file(&fifo), 0600), 0);
    assert_int_equal(mkdirat(scratch->fd, store_file(&dir), 0700), 0);
    const struct digest *all[] = {&link, &fifo, &dir};
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        assert_fails(blobs_open_blob(fixture->blobs, all[i], &size, &err), err, ERR_DAMAGED,
                     "not a regular file");
        assert_fails(blobs_stat(fixture->blobs, all[i], &size, &err), err, ERR_DAMAGED,
                     "not a regular file");
    }
}

static void test_remove(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    uint64_t size;
    struct digest digest = store_put(fixture->blobs, "hello");
    assert_ok(blobs_remove(fixture->blobs, &digest, &err), err);
    assert_fails(blobs_stat(fixture->blobs, &digest, &size, &err), err, ERR_NOT_FOUND, "is not in");
    assert_ok(blobs_remove(fixture->blobs, &digest, &err), err);
}

static void make_temp(const struct scratch *scratch, const char *name, time_t age)
{
    scratch_write(scratch, name, "x", 1);
    struct timespec times[2] = {{.tv_sec = time(NULL) - age}, {.tv_sec = time(NULL) - age}};
    assert_int_equal(utimensat(scratch->fd, name, times, 0), 0);
}

static void test_sweep_takes_old_files_of_the_dead_only(void **state)
{
    struct store_fixture *fixture = *state;
    const struct scratch *scratch = fixture->scratch;
    struct err err = ERR_INIT;
    make_temp(scratch, "l/.varve/.tmp-dead", BLOBS_STALE_AGE_S + 100);
    make_temp(scratch, "l/.varve/.tmp-young", BLOBS_STALE_AGE_S - 100);
    make_temp(scratch, "l/.varve/.tmp-alive", BLOBS_STALE_AGE_S + 100);
    make_temp(scratch, "l/.varve/lock", BLOBS_STALE_AGE_S + 100);
    cleanup_fd int alive = openat(scratch->fd, "l/.varve/.tmp-alive", O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(alive, LOCK_EX), 0);
    assert_ok(blobs_sweep_stale(fixture->blobs, &err), err);
    assert_int_equal(faccessat(scratch->fd, "l/.varve/.tmp-dead", F_OK, 0), -1);
    assert_int_equal(faccessat(scratch->fd, "l/.varve/.tmp-young", F_OK, 0), 0);
    assert_int_equal(faccessat(scratch->fd, "l/.varve/.tmp-alive", F_OK, 0), 0);
    assert_int_equal(faccessat(scratch->fd, "l/.varve/lock", F_OK, 0), 0);
}

static void test_reader_reads(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct digest digest = store_put(fixture->blobs, "hello");
    struct blobs *reader;
    assert_ok(blobs_open_reader(scratch_path(fixture->scratch, "l"), &reader, &err), err);
    cleanup_buf struct buf buf = BUF_INIT(100);
    assert_ok(blobs_read(reader, &digest, &buf, &err), err);
    assert_string_equal(buf_str(&buf), "hello");
    blobs_close(reader);
    blobs_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_store(test_put_and_read),    with_store(test_empty_blob),
        with_store(test_missing_blob),    with_store(test_damaged_blob_is_noticed),
        with_store(test_read_is_bounded), with_store(test_refuses_what_is_no_regular_file),
        with_store(test_remove),          with_store(test_sweep_takes_old_files_of_the_dead_only),
        with_store(test_reader_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
