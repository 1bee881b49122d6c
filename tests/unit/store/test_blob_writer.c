#include "blobs.h"

#include "store_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Writes `text` in two pieces and commits it. */
static int write_blob(struct blobs *blobs, const char *text, const struct digest *expected,
                      uint64_t expected_size, struct err *err)
{
    cleanup_blob_writer struct blob_writer writer = BLOB_WRITER_INIT;
    size_t half = strlen(text) / 2;
    struct digest digest;
    int rc = blob_writer_begin(blobs, UINT64_MAX, &writer, err);
    if (rc == 0)
        rc = blob_writer_write(&writer, text, half, err);
    if (rc == 0)
        rc = blob_writer_write(&writer, text + half, strlen(text) - half, err);
    if (rc == 0)
        rc = blob_writer_commit(&writer, expected, expected_size, &digest, err);
    return rc;
}

static void test_commit_publishes_under_the_digest(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct digest digest = store_digest("hello world");
    assert_ok(write_blob(fixture->blobs, "hello world", &digest, 11, &err), err);
    assert_ok(blobs_verify(fixture->blobs, &digest, &err), err);
    assert_int_equal(store_count(fixture->scratch, "l/.varve"), 0);
}

static void test_nothing_has_the_name_before_the_commit(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_blob_writer struct blob_writer writer = BLOB_WRITER_INIT;
    assert_ok(blob_writer_begin(fixture->blobs, 100, &writer, &err), err);
    assert_ok(blob_writer_write(&writer, "hello", 5, &err), err);
    assert_int_equal(store_count(fixture->scratch, "l/blobs/sha256"), 0);
    assert_int_equal(store_count(fixture->scratch, "l/.varve"), 1);
    blob_writer_free(&writer);
    blob_writer_free(&writer);
    assert_int_equal(store_count(fixture->scratch, "l/.varve"), 0);
    int before = fcntl(0, F_GETFD);
    struct blob_writer zero = {.blobs = NULL};
    blob_writer_free(&zero);
    assert_int_equal(fcntl(0, F_GETFD), before);
}

static void test_wrong_digest_or_size_publishes_nothing(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct digest wanted = store_digest("wanted");
    struct digest sent = store_digest("sent!");
    int rc = write_blob(fixture->blobs, "sent!", &wanted, 6, &err);
    assert_non_null(strstr(err.text, digest_format(&wanted).s));
    assert_non_null(strstr(err.text, "6 bytes"));
    assert_non_null(strstr(err.text, "5 bytes"));
    assert_fails(rc, err, ERR_DIGEST, digest_format(&sent).s);
    assert_fails(write_blob(fixture->blobs, "sent!", &wanted, UINT64_MAX, &err), err, ERR_DIGEST,
                 "5 bytes with the digest");
    assert_fails(write_blob(fixture->blobs, "sent!", &sent, 6, &err), err, ERR_DIGEST,
                 "has 5 bytes, but 6 were announced");
    assert_fails(write_blob(fixture->blobs, "sent!", NULL, 4, &err), err, ERR_DIGEST,
                 "has 5 bytes, but 4 were announced");
    assert_int_equal(store_count(fixture->scratch, "l/blobs/sha256"), 0);
    assert_int_equal(store_count(fixture->scratch, "l/.varve"), 0);
}

static void test_size_is_cut_off_when_it_is_passed(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_blob_writer struct blob_writer writer = BLOB_WRITER_INIT;
    assert_ok(blob_writer_begin(fixture->blobs, 8, &writer, &err), err);
    assert_ok(blob_writer_write(&writer, "12345678", 8, &err), err);
    assert_fails(blob_writer_write(&writer, "9", 1, &err), err, ERR_TOO_LARGE, "limit of 8 bytes");
    struct stat st;
    assert_int_equal(fstat(writer.publish.fd, &st), 0);
    assert_int_equal(st.st_size, 8);
    assert_fails(blob_writer_write(&writer, "9", SIZE_MAX, &err), err, ERR_TOO_LARGE, "limit");
}

static void test_existing_blob_is_not_written_again(void **state)
{
    struct store_fixture *fixture = *state;
    const struct scratch *scratch = fixture->scratch;
    struct err err = ERR_INIT;
    struct digest digest = store_digest("hello");
    struct stat before;
    struct stat after;
    assert_ok(write_blob(fixture->blobs, "hello", NULL, UINT64_MAX, &err), err);
    assert_int_equal(fstatat(scratch->fd, store_file(&digest), &before, 0), 0);
    assert_ok(write_blob(fixture->blobs, "hello", NULL, UINT64_MAX, &err), err);
    assert_int_equal(fstatat(scratch->fd, store_file(&digest), &after, 0), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(store_count(scratch, "l/.varve"), 0);
}

static void test_existing_blob_of_another_size_is_replaced(void **state)
{
    struct store_fixture *fixture = *state;
    const struct scratch *scratch = fixture->scratch;
    struct err err = ERR_INIT;
    struct digest digest = store_digest("hello");
    scratch_write(scratch, store_file(&digest), "hel", 3);
    assert_ok(write_blob(fixture->blobs, "hello", NULL, UINT64_MAX, &err), err);
    assert_ok(blobs_verify(fixture->blobs, &digest, &err), err);
    /* A link of that name is not followed, but replaced. */
    scratch_write(scratch, "victim", "hello", 5);
    assert_int_equal(unlinkat(scratch->fd, store_file(&digest), 0), 0);
    assert_int_equal(symlinkat(scratch_path(scratch, "victim"), scratch->fd, store_file(&digest)),
                     0);
    assert_ok(write_blob(fixture->blobs, "hello", NULL, UINT64_MAX, &err), err);
    struct stat st;
    assert_int_equal(fstatat(scratch->fd, store_file(&digest), &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISREG(st.st_mode));
}

static void test_temporary_file_is_locked_while_it_is_written(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_blob_writer struct blob_writer writer = BLOB_WRITER_INIT;
    assert_ok(blob_writer_begin(fixture->blobs, 100, &writer, &err), err);
    cleanup_fd int other =
        openat(blobs_temp_fd(fixture->blobs), writer.publish.temp, O_RDONLY | O_CLOEXEC);
    assert_true(other >= 0);
    assert_int_equal(flock(other, LOCK_EX | LOCK_NB), -1);
    assert_int_equal(errno, EWOULDBLOCK);
}

static void test_full_disk(void **state)
{
    struct store_fixture *fixture = *state;
    const struct scratch *scratch = fixture->scratch;
    struct err err = ERR_INIT;
    scratch_tmpfs(scratch, "small", 256 * 1024);
    struct blobs *blobs;
    assert_ok(blobs_open(scratch_path(scratch, "small/l"), &blobs, &err), err);
    cleanup_free char *big = calloc(1, 1 << 20);
    struct digest digest;
    assert_fails(blobs_put(blobs, big, 1 << 20, &digest, &err), err, ERR_NO_SPACE,
                 "cannot write a blob in");
    assert_int_equal(store_count(scratch, "small/l/.varve"), 0);
    assert_ok(blobs_put(blobs, big, 1000, &digest, &err), err);
    blobs_close(blobs);
}

/* The digest has seen the bytes that did not get into the file. */
static void test_nothing_is_stored_after_a_failed_write(void **state)
{
    struct store_fixture *fixture = *state;
    const struct scratch *scratch = fixture->scratch;
    struct err err = ERR_INIT;
    scratch_tmpfs(scratch, "small", 256 * 1024);
    struct blobs *blobs;
    assert_ok(blobs_open(scratch_path(scratch, "small/l"), &blobs, &err), err);
    cleanup_free char *big = calloc(1, 1 << 20);
    cleanup_blob_writer struct blob_writer writer = BLOB_WRITER_INIT;
    struct digest digest;
    assert_ok(blob_writer_begin(blobs, UINT64_MAX, &writer, &err), err);
    assert_fails(blob_writer_write(&writer, big, 1 << 20, &err), err, ERR_NO_SPACE, "cannot write");
    assert_fails(blob_writer_commit(&writer, NULL, UINT64_MAX, &digest, &err), err, ERR_INTERNAL,
                 "a write of it failed");
    assert_int_equal(store_count(scratch, "small/l/blobs/sha256"), 0);
    blob_writer_free(&writer);
    blobs_close(blobs);
}

static void *put_again_and_again(void *arg)
{
    static const char text[] = "the same bytes from everybody";
    long failures = 0;
    for (int i = 0; i < 50; i++) {
        struct digest digest;
        failures += blobs_put(arg, text, sizeof text, &digest, NULL) < 0;
    }
    return (void *)failures;
}

static void test_two_writers_both_succeed(void **state)
{
    struct store_fixture *fixture = *state;
    pthread_t threads[4];
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, put_again_and_again, fixture->blobs), 0);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
        void *failures;
        assert_int_equal(pthread_join(threads[i], &failures), 0);
        assert_null(failures);
    }
    assert_int_equal(store_count(fixture->scratch, "l/blobs/sha256"), 1);
    assert_int_equal(store_count(fixture->scratch, "l/.varve"), 0);
}

static void test_kill_leaves_whole_blobs_or_none(void **state)
{
    struct store_fixture *fixture = *state;
    static const struct {
        const char *fault;
        int blobs;
    } cases[] = {{"publish.before-sync=kill", 0},
                 {"publish.before-rename=kill", 0},
                 {"publish.before-dir-sync=kill", 1}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            setenv("VARVE_FAULT", cases[i].fault, 1);
            _exit(write_blob(fixture->blobs, "hello", NULL, UINT64_MAX, NULL) == 0 ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_int_equal(store_count(fixture->scratch, "l/blobs/sha256"), cases[i].blobs);
    }
    struct err err = ERR_INIT;
    struct digest digest = store_digest("hello");
    assert_ok(blobs_verify(fixture->blobs, &digest, &err), err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_store(test_commit_publishes_under_the_digest),
        with_store(test_nothing_has_the_name_before_the_commit),
        with_store(test_wrong_digest_or_size_publishes_nothing),
        with_store(test_size_is_cut_off_when_it_is_passed),
        with_store(test_existing_blob_is_not_written_again),
        with_store(test_existing_blob_of_another_size_is_replaced),
        with_store(test_temporary_file_is_locked_while_it_is_written),
        with_store(test_full_disk),
        with_store(test_nothing_is_stored_after_a_failed_write),
        with_store(test_two_writers_both_succeed),
        with_store(test_kill_leaves_whole_blobs_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
