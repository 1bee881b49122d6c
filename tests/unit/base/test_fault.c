#include "fault.h"

#include "cleanup.h"
#include "fdio.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int point(struct err *err)
{
    return FAULT_POINT("test.point", err);
}

static int other(void)
{
    return FAULT_POINT("test.other", NULL);
}

/* Exit status of a child that runs the point so many times with VARVE_FAULT set. */
static int run(const char *spec, int times)
{
    pid_t pid = fork();
    if (pid == 0) {
        setenv("VARVE_FAULT", spec, 1);
        for (int i = 0; i < times; i++) {
            struct err err = ERR_INIT;
            int rc = point(&err);
            if (rc < 0)
                _exit(rc == -ENOSPC && err.code == ERR_NO_SPACE ? 30 + i : 99);
        }
        _exit(other() == 0 ? 0 : 98);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void test_unarmed_points_do_nothing(void **state)
{
    (void)state;
    assert_int_equal(run("", 3), 0);
    assert_int_equal(run("test.poin=kill", 3), 0);
    assert_int_equal(run("test.point-other=kill", 3), 0);
}

static void test_actions(void **state)
{
    (void)state;
    assert_int_equal(run("test.point=kill", 1), 128 + SIGKILL);
    assert_int_equal(run("test.point=enospc", 1), 30);
    assert_int_equal(run("test.point=enospc:3", 5), 32);
    assert_int_equal(run("test.point=kill:4", 3), 0);
}

static void test_trace_names_each_hit(void **state)
{
    (void)state;
    char text[256];
    cleanup_fd int file = memfd_create("stderr", MFD_CLOEXEC);
    cleanup_fd int old = dup(STDERR_FILENO);
    assert_true(file >= 0 && old >= 0);
    assert_int_equal(dup2(file, STDERR_FILENO), STDERR_FILENO);
    int status = run("trace", 2);
    assert_int_equal(dup2(old, STDERR_FILENO), STDERR_FILENO);
    assert_int_equal(status, 0);
    ssize_t len = pread(file, text, sizeof text - 1, 0);
    assert_true(len >= 0);
    text[len] = '\0';
    assert_string_equal(text, "fault point: test.point\nfault point: test.point\n"
                              "fault point: test.other\n");
}

static void test_points_are_listed(void **state)
{
    (void)state;
    cleanup_free char *text = NULL;
    size_t len;
    cleanup_file FILE *out = open_memstream(&text, &len);
    fault_list(out);
    fflush(out);
    assert_non_null(strstr(text, "test.other\ntest.point\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unarmed_points_do_nothing),
        cmocka_unit_test(test_actions),
        cmocka_unit_test(test_trace_names_each_hit),
        cmocka_unit_test(test_points_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
