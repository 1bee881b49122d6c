#include "fdio.h"

#include "scratch.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_read_full_over_a_slow_pipe(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 10; i++) {
            if (write(fds[1], "x", 1) != 1)
                _exit(1);
            usleep(1000);
        }
        _exit(0);
    }
    close(fds[1]);
    char bytes[64];
    assert_int_equal(fdio_read_full(fds[0], bytes, sizeof bytes), 10);
    close(fds[0]);
}

static void test_write_full_reports_a_full_device(void **state)
{
    (void)state;
    cleanup_fd int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_int_equal(fdio_write_full(fd, "x", 1), -ENOSPC);
}

static void test_read_file_bounds_and_kinds(void **state)
{
    const struct scratch *scratch = *state;
    scratch_write(scratch, "f", "0123456789", 10);
    assert_int_equal(symlinkat("f", scratch->fd, "link"), 0);
    assert_int_equal(mkfifoat(scratch->fd, "fifo", 0600), 0);
    cleanup_buf struct buf exact = BUF_INIT(10);
    assert_int_equal(fdio_read_file(scratch->fd, "f", &exact, NULL), 0);
    assert_string_equal(buf_str(&exact), "0123456789");
    cleanup_buf struct buf small = BUF_INIT(9);
    assert_int_equal(fdio_read_file(scratch->fd, "f", &small, NULL), -EFBIG);
    assert_int_equal(fdio_read_file(scratch->fd, "link", &exact, NULL), -ELOOP);
    assert_int_equal(fdio_read_file(scratch->fd, "fifo", &exact, NULL), -EINVAL);
    assert_int_equal(fdio_read_file(scratch->fd, "none", &exact, NULL), -ENOENT);
}

static void test_open_beneath_never_leaves(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(mkdirat(scratch->fd, "d", 0700), 0);
    scratch_write(scratch, "d/f", "x", 1);
    assert_int_equal(symlinkat("/etc", scratch->fd, "d/etc"), 0);
    assert_int_equal(symlinkat("f", scratch->fd, "d/same"), 0);
    cleanup_fd int dir = openat(scratch->fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_fd int good = fdio_open_beneath(dir, "f", O_RDONLY, 0);
    assert_true(good >= 0);
    assert_int_equal(fdio_open_beneath(dir, "../d/f", O_RDONLY, 0), -EXDEV);
    assert_int_equal(fdio_open_beneath(dir, "/etc/passwd", O_RDONLY, 0), -EXDEV);
    assert_int_equal(fdio_open_beneath(dir, "etc/passwd", O_RDONLY, 0), -ELOOP);
    assert_int_equal(fdio_open_beneath(dir, "same", O_RDONLY, 0), -ELOOP);
    cleanup_fd int made = fdio_open_beneath(dir, "new", O_WRONLY | O_CREAT | O_EXCL, 0640);
    assert_true(made >= 0);
}

static void test_open_dir_refuses_a_link(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(symlinkat("/tmp", scratch->fd, "s"), 0);
    struct err err = ERR_INIT;
    assert_true(fdio_open_dir(scratch->fd, "s", 0700, &err) < 0);
    cleanup_fd int made = fdio_open_dir(scratch->fd, "made", 0700, NULL);
    cleanup_fd int again = fdio_open_dir(scratch->fd, "made", 0700, NULL);
    assert_true(made >= 0 && again >= 0);
}

static int count_entries(int dir_fd, const char *name)
{
    cleanup_dir DIR *dir = fdio_list(dir_fd, name);
    int count = 0;
    while (dir && readdir(dir))
        count++;
    return dir ? count : -errno;
}

static void test_list_always_begins_at_the_first_entry(void **state)
{
    const struct scratch *scratch = *state;
    scratch_write(scratch, "one", "1", 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(count_entries(scratch->fd, "."), 3); /* with "." and ".." */
    assert_int_equal(count_entries(scratch->fd, "none"), -ENOENT);
    assert_int_equal(count_entries(scratch->fd, "one"), -ENOTDIR);
    assert_int_equal(symlinkat("/tmp", scratch->fd, "s"), 0);
    assert_int_equal(count_entries(scratch->fd, "s"), -ENOTDIR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_full_over_a_slow_pipe),
        cmocka_unit_test(test_write_full_reports_a_full_device),
        cmocka_unit_test_setup_teardown(test_read_file_bounds_and_kinds, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_open_beneath_never_leaves, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_open_dir_refuses_a_link, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_list_always_begins_at_the_first_entry, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
