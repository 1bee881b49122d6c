#include "program.h"

#include "cleanup.h"
#include "fdio.h"
#include "sandbox_probe.h"
#include "tiny_root.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_the_callers_path_has_no_say(void **state)
{
    const struct scratch *scratch = *state;
    char path[4096];
    scratch_write(scratch, "no-such-program", "#!/bin/sh\n", 10);
    assert_int_equal(fchmodat(scratch->fd, "no-such-program", 0755, 0), 0);
    assert_int_equal(setenv("PATH", scratch->path, 1), 0);
    struct err err = ERR_INIT;
    assert_int_equal(program_find("no-such-program", path, &err), -ENOENT);
    assert_string_equal(err.text, "the program no-such-program is not installed");
    assert_int_equal(program_find("sh", path, NULL), 0);
    assert_string_equal(strrchr(path, '/'), "/sh");
    assert_int_equal(setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1), 0);
}

static void expect_last_line(const char *text, const char *expected)
{
    char line[512] = "unset";
    cleanup_fd int fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(fdio_write_full(fd, text, strlen(text)), 0);
    program_last_line(fd, line);
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
    char line[512];
    cleanup_fd int fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(fdio_write_full(fd, text, sizeof text - 1), 0);
    program_last_line(fd, line);
    assert_int_equal(strlen(line), sizeof line - 1);
}

/* Covers a program of the host by a file that is none, in a mount namespace of the test's own. */
static void hide(const struct scratch *scratch, const char *name)
{
    char path[4096];
    scratch_write(scratch, "none", "", 0);
    if (program_find(name, path, NULL) == 0)
        assert_int_equal(mount(scratch_path(scratch, "none"), path, NULL, MS_BIND, NULL), 0);
    assert_int_equal(program_find(name, path, NULL), -ENOENT);
}

static void test_programs_that_are_not_installed_are_named(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(unshare(CLONE_NEWNS), 0);
    assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    struct sandbox_probe_result result;
    hide(scratch, "pasta");
    struct sandbox_probe probe = {.script = "true", .net = SANDBOX_NET_PASTA};
    sandbox_probe_run(scratch, &probe, &result);
    assert_int_equal(result.status, SANDBOX_PROBE_FAILED);
    assert_non_null(strstr(result.err, "the program pasta is not installed; install the package "
                                       "passt, or use --net none or host"));
    hide(scratch, "bwrap");
    sandbox_probe_script(scratch, "true", &result);
    assert_int_equal(result.status, SANDBOX_PROBE_FAILED);
    assert_non_null(strstr(result.err, "the program bwrap is not installed; install the package "
                                       "bubblewrap"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_callers_path_has_no_say),
        cmocka_unit_test(test_last_lines),
        cmocka_unit_test(test_programs_that_are_not_installed_are_named),
    };
    return cmocka_run_group_tests(tests, tiny_root_setup, scratch_teardown);
}
