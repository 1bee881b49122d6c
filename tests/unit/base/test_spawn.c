#include "spawn.h"

#include "fdio.h"
#include "scratch.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_tool_output_is_collected(void **state)
{
    (void)state;
    cleanup_buf struct buf out = BUF_INIT(1000);
    const char *argv[] = {"echo", "a b", "c", NULL};
    assert_int_equal(spawn_tool(argv, &out, NULL), 0);
    assert_string_equal(buf_str(&out), "a b c\n");
}

static void test_failing_tool_gives_its_last_line(void **state)
{
    (void)state;
    const char *argv[] = {"sh", "-c", "echo first >&2; echo the reason >&2; exit 3", NULL};
    struct err err = ERR_INIT;
    assert_true(spawn_tool(argv, NULL, &err) < 0);
    assert_string_equal(err.text, "sh ended with status 3: the reason");
}

static void test_missing_tool_is_named(void **state)
{
    (void)state;
    const char *argv[] = {"no-such-tool", NULL};
    struct err err = ERR_INIT;
    assert_int_equal(spawn_tool(argv, NULL, &err), -ENOENT);
    assert_string_equal(err.text, "the program no-such-tool is not installed");
    char path[4096];
    err_clear(&err);
    assert_true(spawn_find("no-such-helper", path, &err) < 0);
    assert_int_equal(err.code, ERR_UNSUPPORTED); /* not found is what somebody asked for */
}

static void test_output_over_the_limit_does_not_block(void **state)
{
    (void)state;
    cleanup_buf struct buf out = BUF_INIT(100);
    const char *argv[] = {"head", "-c", "1000000", "/dev/zero", NULL};
    struct err err = ERR_INIT;
    assert_int_equal(spawn_tool(argv, &out, &err), -EFBIG);
}

static void test_output_that_nobody_wants_has_no_limit(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    const char *argv[] = {"head", "-c", "2000000", "/dev/zero", NULL};
    assert_int_equal(spawn_tool(argv, NULL, &err), 0);
}

static void test_child_has_only_what_it_was_given(void **state)
{
    const struct scratch *scratch = *state;
    cleanup_fd int out = openat(scratch->fd, "out", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cleanup_fd int extra = openat(scratch->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int leaky = open("/dev/null", O_RDONLY); /* not close-on-exec, as a library may leave it */
    assert_true(leaky >= 0);
    char script[128];
    snprintf(script, sizeof script, "test -d /proc/self/fd/3/ && test ! -e /proc/self/fd/%d && env",
             leaky);
    const char *argv[] = {"/bin/sh", "-c", script, NULL};
    struct spawn spawn = {.argv = argv,
                          .stdin_fd = -1,
                          .stdout_fd = out,
                          .stderr_fd = -1,
                          .extra = {extra},
                          .extra_count = 1};
    pid_t pid = spawn_start(&spawn, NULL);
    assert_true(pid > 0);
    assert_int_equal(spawn_wait(pid, NULL), 0);
    close(leaky);
    cleanup_buf struct buf text = BUF_INIT(10000);
    assert_int_equal(fdio_read_file(scratch->fd, "out", &text, NULL), 0);
    assert_non_null(strstr(buf_str(&text), "LC_ALL=C\n"));
    assert_null(strstr(buf_str(&text), "HOME="));
}

static void test_child_has_a_clean_signal_state(void **state)
{
    const struct scratch *scratch = *state;
    cleanup_fd int out = openat(scratch->fd, "out", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const char *argv[] = {"/bin/cat", "/proc/self/status", NULL};
    struct spawn spawn = {.argv = argv, .stdin_fd = -1, .stdout_fd = out, .stderr_fd = -1};
    sigset_t term;
    sigset_t before;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    assert_int_equal(sigprocmask(SIG_BLOCK, &term, &before), 0);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN); /* as nohup leaves it */
    assert_int_equal(spawn_wait(spawn_start(&spawn, NULL), NULL), 0);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
    cleanup_buf struct buf text = BUF_INIT(10000);
    assert_int_equal(fdio_read_file(scratch->fd, "out", &text, NULL), 0);
    assert_non_null(strstr(buf_str(&text), "SigBlk:\t0000000000000000\n"));
    assert_non_null(strstr(buf_str(&text), "SigIgn:\t0000000000000000\n"));
}

static void test_exec_failure_is_reported_by_start(void **state)
{
    (void)state;
    const char *argv[] = {"/nonexistent/program", NULL};
    struct spawn spawn = {.argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1};
    struct err err = ERR_INIT;
    assert_int_equal(spawn_start(&spawn, &err), -ENOENT);
    assert_string_equal(err.text, "cannot start /nonexistent/program: No such file or directory");
}

static void test_signal_of_the_child_is_seen(void **state)
{
    (void)state;
    const char *argv[] = {"/bin/sh", "-c", "kill -9 $$", NULL};
    struct spawn spawn = {.argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1};
    assert_int_equal(spawn_wait(spawn_start(&spawn, NULL), NULL), 128 + 9);
}

static void test_the_callers_path_has_no_say(void **state)
{
    const struct scratch *scratch = *state;
    char path[4096];
    scratch_write(scratch, "no-such-program", "#!/bin/sh\n", 10);
    assert_int_equal(fchmodat(scratch->fd, "no-such-program", 0755, 0), 0);
    assert_int_equal(setenv("PATH", scratch->path, 1), 0);
    struct err err = ERR_INIT;
    assert_int_equal(spawn_find_tool("no-such-program", path, &err), -ENOENT);
    assert_string_equal(err.text, "the program no-such-program is not installed");
    assert_int_equal(spawn_find_tool("sh", path, NULL), 0);
    assert_string_equal(strrchr(path, '/'), "/sh");
    assert_int_equal(setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1), 0);
}

static void expect_last_line(const char *text, const char *expected)
{
    char line[SPAWN_LINE_MAX] = "unset";
    cleanup_fd int fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(fdio_write_full(fd, text, strlen(text)), 0);
    spawn_last_line(fd, line);
    assert_string_equal(line, expected);
}

static void test_last_lines(void **state)
{
    (void)state;
    expect_last_line("", "");
    expect_last_line("\n\n", "");
    expect_last_line("one", "one");
    expect_last_line("one\ntwo \n\n", "two");
    char text[10000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    memcpy(text + sizeof text - 6, "\nend\n", 5);
    expect_last_line(text, "end");
    text[sizeof text - 6] = 'x'; /* a line that is longer than anybody reads */
    char line[SPAWN_LINE_MAX];
    cleanup_fd int fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(fdio_write_full(fd, text, sizeof text - 1), 0);
    spawn_last_line(fd, line);
    assert_int_equal(strlen(line), sizeof line - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tool_output_is_collected),
        cmocka_unit_test(test_failing_tool_gives_its_last_line),
        cmocka_unit_test(test_missing_tool_is_named),
        cmocka_unit_test(test_output_over_the_limit_does_not_block),
        cmocka_unit_test(test_output_that_nobody_wants_has_no_limit),
        cmocka_unit_test(test_last_lines),
        cmocka_unit_test_setup_teardown(test_the_callers_path_has_no_say, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_child_has_only_what_it_was_given, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_child_has_a_clean_signal_state, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(test_exec_failure_is_reported_by_start),
        cmocka_unit_test(test_signal_of_the_child_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
