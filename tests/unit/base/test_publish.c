#include "publish.h"

#include "fdio.h"
#include "scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int count_entries(int dir_fd)
{
    cleanup_dir DIR *dir = fdopendir(openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int count = -2;
    while (readdir(dir))
        count++;
    return count;
}

static void assert_content(int dir_fd, const char *name, const char *expected)
{
    cleanup_buf struct buf buf = BUF_INIT(100);
    assert_int_equal(fdio_read_file(dir_fd, name, &buf, NULL), 0);
    assert_string_equal(buf_str(&buf), expected);
}

static void test_publish_replaces_or_refuses(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(publish_bytes(scratch->fd, "f", "one", 3, 0444, PUBLISH_NOREPLACE, NULL), 0);
    struct err err = ERR_INIT;
    assert_int_equal(publish_bytes(scratch->fd, "f", "two", 3, 0444, PUBLISH_NOREPLACE, &err),
                     -EEXIST);
    assert_int_equal(err.code, ERR_EXISTS);
    assert_content(scratch->fd, "f", "one");
    assert_int_equal(publish_bytes(scratch->fd, "f", "two", 3, 0444, PUBLISH_REPLACE, NULL), 0);
    assert_content(scratch->fd, "f", "two");
    assert_int_equal(count_entries(scratch->fd), 1);
}

static void test_mode_is_independent_of_the_umask(void **state)
{
    const struct scratch *scratch = *state;
    mode_t old = umask(077);
    assert_int_equal(publish_bytes(scratch->fd, "f", "x", 1, 0644, PUBLISH_REPLACE, NULL), 0);
    umask(old);
    struct stat st;
    assert_int_equal(fstatat(scratch->fd, "f", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
}

static void test_abort_leaves_nothing(void **state)
{
    const struct scratch *scratch = *state;
    struct publish publish = PUBLISH_INIT;
    assert_int_equal(publish_begin(scratch->fd, 0600, &publish, NULL), 0);
    assert_int_equal(fdio_write_full(publish.fd, "half", 4), 0);
    publish_abort(&publish);
    publish_abort(&publish);
    assert_int_equal(count_entries(scratch->fd), 0);
}

/* A repeat after a crash knows the temporary name again. */
static void test_a_name_of_the_caller(void **state)
{
    const struct scratch *scratch = *state;
    struct publish publish = PUBLISH_INIT;
    scratch_write(scratch, ".tmp-j-1", "left by a crash", 15);
    assert_int_equal(publish_begin_as(scratch->fd, ".tmp-j-1", 0600, &publish, NULL), 0);
    assert_content(scratch->fd, ".tmp-j-1", "");
    assert_int_equal(fdio_write_full(publish.fd, "new", 3), 0);
    assert_int_equal(publish_commit(&publish, scratch->fd, "f", PUBLISH_NOREPLACE, NULL), 0);
    publish_abort(&publish);
    assert_content(scratch->fd, "f", "new");
    assert_int_equal(count_entries(scratch->fd), 1);
    /* A link is replaced, not followed; a directory stays. */
    assert_int_equal(symlinkat("f", scratch->fd, ".tmp-l"), 0);
    assert_int_equal(publish_begin_as(scratch->fd, ".tmp-l", 0600, &publish, NULL), 0);
    publish_abort(&publish);
    assert_content(scratch->fd, "f", "new");
    assert_int_equal(mkdirat(scratch->fd, ".tmp-d", 0700), 0);
    assert_true(publish_begin_as(scratch->fd, ".tmp-d", 0600, &publish, NULL) < 0);
    assert_int_equal(faccessat(scratch->fd, ".tmp-d", F_OK, 0), 0);
    static const char *const wrong[] = {"", "f", "tmp-x", ".tmp-0123456789012345678901234567"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        assert_true(publish_begin_as(scratch->fd, wrong[i], 0600, &publish, NULL) < 0);
    assert_content(scratch->fd, "f", "new");
}

static void test_full_disk_leaves_the_old_file(void **state)
{
    const struct scratch *scratch = *state;
    scratch_tmpfs(scratch, "small", 64 * 1024);
    cleanup_fd int dir = openat(scratch->fd, "small", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(publish_bytes(dir, "f", "old", 3, 0600, PUBLISH_REPLACE, NULL), 0);
    size_t len = 1 << 20;
    cleanup_free char *big = calloc(1, len);
    struct err err = ERR_INIT;
    assert_int_equal(publish_bytes(dir, "f", big, len, 0600, PUBLISH_REPLACE, &err), -ENOSPC);
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_content(dir, "f", "old");
    assert_int_equal(count_entries(dir), 1);
}

static void test_tree_is_published_whole(void **state)
{
    const struct scratch *scratch = *state;
    cleanup_fd int temp = fdio_open_dir(scratch->fd, "temp", 0700, NULL);
    cleanup_fd int final = fdio_open_dir(scratch->fd, "final", 0700, NULL);
    assert_int_equal(mkdirat(temp, "t", 0711), 0);
    scratch_write(scratch, "temp/t/f", "x", 1);
    assert_int_equal(publish_tree(temp, "t", final, "tree", NULL), 0);
    assert_content(final, "tree/f", "x");
    assert_int_equal(count_entries(temp), 0);
    assert_int_equal(mkdirat(temp, "t", 0711), 0);
    struct err err = ERR_INIT;
    assert_int_equal(publish_tree(temp, "t", final, "tree", &err), -EEXIST);
    assert_int_equal(err.code, ERR_EXISTS);
}

static void test_files_are_published_whole(void **state)
{
    const struct scratch *scratch = *state;
    static const char *const files[] = {"f", "g"};
    static const char *const missing[] = {"f", "h"};
    cleanup_fd int temp = fdio_open_dir(scratch->fd, "temp", 0700, NULL);
    assert_int_equal(mkdirat(temp, "t", 0711), 0);
    scratch_write(scratch, "temp/t/f", "x", 1);
    scratch_write(scratch, "temp/t/g", "y", 1);
    struct err err = ERR_INIT;
    assert_int_equal(publish_files(temp, "t", missing, 2, scratch->fd, "tree", &err), -ENOENT);
    assert_non_null(strstr(err.text, "h of tree"));
    assert_int_equal(faccessat(scratch->fd, "tree", F_OK, 0), -1);
    assert_int_equal(publish_files(temp, "t", files, 2, scratch->fd, "tree", NULL), 0);
    assert_content(scratch->fd, "tree/f", "x");
    assert_content(scratch->fd, "tree/g", "y");
    assert_int_equal(count_entries(temp), 0);
    assert_int_equal(mkdirat(temp, "t", 0711), 0);
    err_clear(&err);
    assert_int_equal(publish_files(temp, "t", files, 0, scratch->fd, "tree", &err), -EEXIST);
    assert_int_equal(err.code, ERR_EXISTS);
}

/* I1: at every fault point a kill leaves the old content or the new, never a mixture. */
static void test_kill_leaves_old_or_new(void **state)
{
    const struct scratch *scratch = *state;
    static const struct {
        const char *fault;
        const char *content;
    } cases[] = {{"publish.before-sync=kill", "old"},
                 {"publish.before-rename=kill", "old"},
                 {"publish.before-dir-sync=kill", "new"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(publish_bytes(scratch->fd, "f", "old", 3, 0600, PUBLISH_REPLACE, NULL), 0);
        pid_t pid = fork();
        if (pid == 0) {
            setenv("VARVE_FAULT", cases[i].fault, 1);
            publish_bytes(scratch->fd, "f", "new", 3, 0600, PUBLISH_REPLACE, NULL);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_content(scratch->fd, "f", cases[i].content);
        assert_int_equal(publish_sweep(scratch->fd, NULL), 0);
        assert_int_equal(count_entries(scratch->fd), 1);
    }
}

/* A failure before the rename leaves the name alone; one after it is told all the same. */
static void test_failure_at_each_point(void **state)
{
    const struct scratch *scratch = *state;
    static const struct {
        const char *fault;
        const char *content;
    } cases[] = {{"publish.before-sync=eio", "old"},
                 {"publish.before-rename=eio", "old"},
                 {"publish.before-dir-sync=eio", "new"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(publish_bytes(scratch->fd, "f", "old", 3, 0600, PUBLISH_REPLACE, NULL), 0);
        pid_t pid = fork();
        if (pid == 0) {
            setenv("VARVE_FAULT", cases[i].fault, 1);
            int rc = publish_bytes(scratch->fd, "f", "new", 3, 0600, PUBLISH_REPLACE, NULL);
            _exit(-rc);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), EIO);
        assert_content(scratch->fd, "f", cases[i].content);
        assert_int_equal(count_entries(scratch->fd), 1);
    }
}

static void test_sweep_takes_temporary_names_only(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(mkdirat(scratch->fd, ".tmp-tree", 0700), 0);
    scratch_write(scratch, ".tmp-tree/f", "x", 1);
    scratch_write(scratch, ".tmp-file", "x", 1);
    scratch_write(scratch, "tmp-other", "x", 1);
    assert_int_equal(publish_sweep(scratch->fd, NULL), 0);
    assert_int_equal(count_entries(scratch->fd), 1);
    assert_int_equal(faccessat(scratch->fd, "tmp-other", F_OK, 0), 0);
}

/* I9 */
static void test_sweep_goes_on_after_a_failure(void **state)
{
    const struct scratch *scratch = *state;
    scratch_tmpfs(scratch, ".tmp-mounted", 1 << 20);
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, ".tmp-%d", i);
        scratch_write(scratch, name, "x", 1);
    }
    struct err err = ERR_INIT;
    assert_true(publish_sweep(scratch->fd, &err) < 0);
    assert_non_null(strstr(err.text, ".tmp-mounted"));
    assert_int_equal(count_entries(scratch->fd), 1);
}

static void test_unlink_of_a_missing_name_is_fine(void **state)
{
    const struct scratch *scratch = *state;
    scratch_write(scratch, "f", "x", 1);
    assert_int_equal(publish_unlink(scratch->fd, "f", NULL), 0);
    assert_int_equal(publish_unlink(scratch->fd, "f", NULL), 0);
    assert_int_equal(count_entries(scratch->fd), 0);
}

#define with_scratch(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_scratch(test_publish_replaces_or_refuses),
        with_scratch(test_mode_is_independent_of_the_umask),
        with_scratch(test_a_name_of_the_caller),
        with_scratch(test_abort_leaves_nothing),
        with_scratch(test_full_disk_leaves_the_old_file),
        with_scratch(test_tree_is_published_whole),
        with_scratch(test_files_are_published_whole),
        with_scratch(test_kill_leaves_old_or_new),
        with_scratch(test_failure_at_each_point),
        with_scratch(test_sweep_takes_temporary_names_only),
        with_scratch(test_sweep_goes_on_after_a_failure),
        with_scratch(test_unlink_of_a_missing_name_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
