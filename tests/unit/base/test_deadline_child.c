#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "clock.h"
#include "deadline_child.h"
#include "fdio.h"
#include "no_pidfd.h"
#include "scratch.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int64_t now_ms(void)
{
    struct clock clock = clock_system();
    return clock_mono_ns(&clock) / 1000000;
}

static int run(deadline_child_call *call, void *arg, int wait_ms, struct err *err)
{
    const struct deadline_child child = {.what = "do it", .wait_ms = wait_ms, .hint = "wake it up"};
    return deadline_child_run(&child, call, arg, NULL, 0, NULL, err);
}

static int call_answer(void *arg, void *result, int *ret_fd, struct err *err)
{
    (void)ret_fd;
    (void)err;
    memset(result, *(int *)arg, DEADLINE_CHILD_RESULT_MAX);
    /* It is for any structure, also where those before it end oddly. */
    return (uintptr_t)result % _Alignof(max_align_t) == 0 ? 7 : 8;
}

static void test_result(void **state)
{
    (void)state;
    unsigned char result[DEADLINE_CHILD_RESULT_MAX + 1] = {0};
    const struct deadline_child child = {.what = "do it", .wait_ms = 10000};
    int arg = 0x5a;
    struct err err = ERR_INIT;
    assert_int_equal(deadline_child_run(&child, call_answer, &arg, result,
                                        DEADLINE_CHILD_RESULT_MAX, NULL, &err),
                     7);
    assert_int_equal(result[0], 0x5a);
    assert_int_equal(result[DEADLINE_CHILD_RESULT_MAX - 1], 0x5a);
    assert_int_equal(result[DEADLINE_CHILD_RESULT_MAX], 0);
    assert_int_equal(err.code, ERR_NONE);
    assert_true(deadline_child_run(&child, call_answer, &arg, result, sizeof result, NULL, &err) <
                0);
    assert_int_equal(err.code, ERR_INTERNAL);
}

static int call_fail(void *arg, void *result, int *ret_fd, struct err *err)
{
    (void)arg;
    (void)ret_fd;
    *(int *)result = 1;
    int rc = err_fail(err, ERR_CONFLICT, "it is in use");
    err_hint(err, "go away");
    return rc;
}

static void test_failure(void **state)
{
    (void)state;
    const struct deadline_child child = {.what = "do it", .wait_ms = 10000};
    int result = 42;
    int fd = 42;
    struct err err = ERR_INIT;
    assert_int_equal(deadline_child_run(&child, call_fail, NULL, &result, sizeof result, &fd, &err),
                     -EBUSY);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_string_equal(err.text, "it is in use");
    assert_string_equal(err.hint, "go away");
    assert_int_equal(result, 42);
    assert_int_equal(fd, 42);
    assert_int_equal(run(call_fail, NULL, 10000, NULL), -EBUSY);
}

static int call_open(void *arg, void *result, int *ret_fd, struct err *err)
{
    (void)result;
    *ret_fd = open(arg, O_RDONLY | O_CLOEXEC);
    return *ret_fd < 0 ? err_errno(err, errno, "cannot open") : 0;
}

static void test_a_descriptor_comes_back(void **state)
{
    const struct scratch *scratch = *state;
    const struct deadline_child child = {.what = "open it", .wait_ms = 10000};
    char text[8] = "";
    int fd = -1;
    scratch_write(scratch, "f", "hello", 5);
    assert_int_equal(deadline_child_run(&child, call_open, (void *)scratch_path(scratch, "f"), NULL,
                                        0, &fd, NULL),
                     0);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, text, sizeof text), 5);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
    /* One that nobody takes does not stay. */
    int before = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(before);
    assert_int_equal(run(call_open, (void *)scratch_path(scratch, "f"), 10000, NULL), 0);
    int after = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(after);
    assert_int_equal(before, after);
}

static int call_sleep(void *arg, void *result, int *ret_fd, struct err *err)
{
    (void)result;
    (void)ret_fd;
    (void)err;
    (void)fdio_write_full(*(int *)arg, "x", 1);
    while (pause() < 0) /* always */
        ;
    return 0;
}

static void test_the_time_is_over(void **state)
{
    (void)state;
    int pipe_fds[2];
    char byte;
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    const struct deadline_child child = {.what = "do it",
                                         .wait_ms = 1000,
                                         .hint = "wake it up",
                                         .keep = &pipe_fds[1],
                                         .keep_count = 1};
    struct err err = ERR_INIT;
    int64_t start = now_ms();
    assert_int_equal(deadline_child_run(&child, call_sleep, &pipe_fds[1], NULL, 0, NULL, &err),
                     -EHOSTUNREACH);
    int64_t took = now_ms() - start;
    assert_true(took >= 1000 && took < 20000);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    assert_string_equal(err.text, "cannot do it: no answer within 1 s");
    assert_string_equal(err.hint, "wake it up");
    /* The child did run, and is gone: nobody has the other end any more. */
    close(pipe_fds[1]);
    assert_int_equal(read(pipe_fds[0], &byte, 1), 1);
    assert_int_equal(read(pipe_fds[0], &byte, 1), 0);
    close(pipe_fds[0]);
    assert_int_equal(deadline_child_reap(), 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static int call_crash(void *arg, void *result, int *ret_fd, struct err *err)
{
    (void)result;
    (void)ret_fd;
    (void)err;
    if (*(int *)arg != 0)
        raise(*(int *)arg);
    _exit(3);
}

static void test_a_child_that_ends_otherwise(void **state)
{
    (void)state;
    int kill_it = SIGKILL;
    int exit_it = 0;
    struct err err = ERR_INIT;
    assert_true(run(call_crash, &kill_it, 10000, &err) < 0);
    assert_int_equal(err.code, ERR_INTERNAL);
    assert_non_null(strstr(err.text, "status 137"));
    err_clear(&err);
    assert_true(run(call_crash, &exit_it, 10000, &err) < 0);
    assert_non_null(strstr(err.text, "status 3"));
}

struct look {
    int keep[2];
    int lost;
};

/* 1 when exactly the kept ones are open, besides standard streams that are /dev/null. */
static int call_look(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct look *look = arg;
    struct stat null;
    struct stat st;
    sigset_t blocked;
    (void)result;
    (void)ret_fd;
    (void)err;
    if (stat("/dev/null", &null) < 0)
        return -EIO;
    for (int fd = 0; fd <= 2; fd++)
        if (fstat(fd, &st) < 0 || st.st_rdev != null.st_rdev)
            return -EBADF;
    if (sigprocmask(SIG_BLOCK, NULL, &blocked) < 0 || !sigismember(&blocked, SIGTERM))
        return -EINTR;
    return fcntl(look->keep[0], F_GETFD) >= 0 && fcntl(look->keep[1], F_GETFD) >= 0 &&
           fcntl(look->lost, F_GETFD) < 0;
}

static void test_only_what_is_kept_is_open(void **state)
{
    const struct scratch *scratch = *state;
    struct look look;
    scratch_write(scratch, "lock", "", 0);
    /* In both orders, and around the lost one. */
    look.keep[1] = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    look.lost = openat(scratch->fd, "lock", O_RDONLY | O_CLOEXEC);
    look.keep[0] = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    assert_true(look.keep[1] < look.lost && look.lost < look.keep[0]);
    const struct deadline_child child = {
        .what = "look", .wait_ms = 10000, .keep = look.keep, .keep_count = 2};
    assert_int_equal(deadline_child_run(&child, call_look, &look, NULL, 0, NULL, NULL), 1);
    struct deadline_child many = child;
    many.keep_count = DEADLINE_CHILD_KEEP_MAX + 1;
    struct err err = ERR_INIT;
    assert_true(deadline_child_run(&many, call_look, &look, NULL, 0, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_INTERNAL);
    close(look.keep[0]);
    close(look.keep[1]);
    close(look.lost);
}

static bool waits_until(void *arg)
{
    return now_ms() < *(int64_t *)arg;
}

/* While somebody says what it waits for, the time does not run; afterwards it does. */
static void test_time_that_is_held(void **state)
{
    (void)state;
    static const char *const argv[] = {"/bin/sleep", "60", NULL};
    struct err err = ERR_INIT;
    int out = STDOUT_FILENO;
    char said[64];
    const struct deadline_child child = {.what = "sleep", .wait_ms = 300};
    for (int i = 0; i < 2; i++) {
        int64_t start = now_ms();
        int64_t until = start + 1500;
        deadline_child_hold(waits_until, &until);
        int rc = i == 0 ? deadline_child_run(&child, call_sleep, &out, NULL, 0, NULL, &err)
                        : deadline_child_tool(&child, argv, NULL, said, sizeof said, &err);
        deadline_child_hold(NULL, NULL);
        assert_int_equal(rc, -EHOSTUNREACH);
        assert_true(now_ms() - start >= 1500);
        assert_true(now_ms() - start < 10000);
        start = now_ms();
        err_clear(&err);
        assert_int_equal(deadline_child_run(&child, call_sleep, &out, NULL, 0, NULL, &err),
                         -EHOSTUNREACH);
        assert_true(now_ms() - start < 1400);
    }
}

static void test_without_descriptors_of_processes(void **state)
{
    (void)state;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        struct err err = ERR_INIT;
        int value = 3;
        int out = STDOUT_FILENO;
        unsigned char result[16];
        const struct deadline_child late = {.what = "sleep", .wait_ms = 300};
        const struct deadline_child soon = {.what = "answer", .wait_ms = 30000};
        int64_t start = now_ms();
        if (no_pidfd() < 0 ||
            deadline_child_run(&late, call_sleep, &out, NULL, 0, NULL, &err) != -EHOSTUNREACH)
            _exit(1);
        if (now_ms() - start > 10000)
            _exit(2);
        _exit(deadline_child_run(&soon, call_answer, &value, result, sizeof result, NULL, NULL) == 7
                  ? 0
                  : 3);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static int tool(const char *script, int wait_ms, char *said, size_t size, struct err *err)
{
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    const struct deadline_child child = {.what = "run it", .wait_ms = wait_ms};
    return deadline_child_tool(&child, argv, NULL, said, size, err);
}

static void test_tools(void **state)
{
    const struct scratch *scratch = *state;
    char said[16];
    assert_int_equal(tool("echo out; echo err >&2; exit 4", 10000, said, sizeof said, NULL), 4);
    assert_string_equal(said, "out\nerr");
    assert_int_equal(tool("echo 0123456789abcdefghij", 10000, said, sizeof said, NULL), 0);
    assert_string_equal(said, "6789abcdefghij");
    assert_int_equal(tool("true", 10000, said, sizeof said, NULL), 0);
    assert_string_equal(said, "");
    assert_int_equal(tool("kill -9 $$", 10000, said, sizeof said, NULL), 137);
    struct err err = ERR_INIT;
    int64_t start = now_ms();
    assert_int_equal(tool("exec sleep 1000", 300, said, sizeof said, &err), -EHOSTUNREACH);
    assert_true(now_ms() - start < 20000);
    assert_string_equal(err.text, "cannot run it: no answer within 300 ms");
    err_clear(&err);
    const char *const none[] = {"/nowhere/tool", NULL};
    const struct deadline_child child = {.what = "run it", .wait_ms = 1000};
    assert_int_equal(deadline_child_tool(&child, none, NULL, said, sizeof said, &err), -ENOENT);
    scratch_write(scratch, "in", "kept", 4);
    cleanup_fd int fd = openat(scratch->fd, "in", O_RDONLY | O_CLOEXEC);
    const char *const cat[] = {"/bin/cat", "/proc/self/fd/3", NULL};
    const struct deadline_child keeps = {
        .what = "run it", .wait_ms = 10000, .keep = &fd, .keep_count = 1};
    assert_int_equal(deadline_child_tool(&keeps, cat, NULL, said, sizeof said, NULL), 0);
    assert_string_equal(said, "kept");
}

/* --- many --- */

struct many {
    const int *hangs; /* 1: this one does */
    int report;       /* a byte for each call that is begun; -1 */
};

struct many_result {
    pid_t pid;
    size_t i;
};

static int item(void *arg, size_t i, void *result)
{
    const struct many *many = arg;
    if (many->report >= 0)
        (void)fdio_write_full(many->report, &(unsigned char){(unsigned char)i}, 1);
    while (many->hangs[i] == 1)
        (void)pause();
    if (many->hangs[i] == 2)
        return -ENOTCONN;
    if (many->hangs[i] == 3)
        _exit(1);
    *(struct many_result *)result = (struct many_result){getpid(), i};
    return (int)i;
}

enum {
    MANY = 40,
};

static int ask_many(struct many *many, int wait_ms, struct many_result results[MANY], int rcs[MANY])
{
    static char names[MANY][16];
    const char *objects[MANY];
    const struct deadline_child child = {.what = "ask many",
                                         .wait_ms = wait_ms,
                                         .keep = &many->report,
                                         .keep_count = many->report >= 0};
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(names[i], sizeof names[i], "object %d", i);
        objects[i] = names[i];
        results[i] = (struct many_result){.pid = -1};
        rcs[i] = 4711;
    }
    return deadline_child_each(&child, objects, MANY, item, many, results, sizeof *results, rcs,
                               NULL);
}

static void test_many_need_one_child(void **state)
{
    (void)state;
    static const int hangs[MANY] = {[7] = 2};
    struct many many = {hangs, -1};
    struct many_result results[MANY];
    int rcs[MANY];
    assert_int_equal(ask_many(&many, 10000, results, rcs), 0);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(rcs[i], i == 7 ? -ENOTCONN : i);
        assert_int_equal(results[i].pid, i == 7 ? -1 : results[0].pid);
        assert_int_equal(results[i].i, i == 7 ? 0 : i);
    }
    assert_true(results[0].pid != getpid());
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(deadline_child_each(&(struct deadline_child){.what = "ask", .wait_ms = 100},
                                         NULL, 0, item, NULL, NULL, 8, NULL, NULL),
                     0);
}

/* Those that hang, or end the child, cost the others nothing but the time. */
static void test_some_of_many_hang(void **state)
{
    (void)state;
    static const int hangs[MANY] = {[0] = 1, [3] = 1, [4] = 3, [20] = 1, [MANY - 1] = 1};
    struct many many = {hangs, -1};
    struct many_result results[MANY];
    int rcs[MANY];
    int64_t start = now_ms();
    assert_int_equal(ask_many(&many, 1000, results, rcs), 0);
    assert_true(now_ms() - start < DEADLINE_CHILD_EACH_MS + 2000);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(rcs[i], hangs[i] ? -EHOSTUNREACH : i);
        assert_int_equal(results[i].i, hangs[i] ? 0 : i);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

/* In all it takes bounded time. */
static void test_all_of_many_hang(void **state)
{
    (void)state;
    int hangs[MANY];
    struct many many = {hangs, -1};
    struct many_result results[MANY];
    int rcs[MANY];
    for (int i = 0; i < MANY; i++)
        hangs[i] = 1;
    int64_t start = now_ms();
    assert_int_equal(ask_many(&many, 1000, results, rcs), 0);
    assert_true(now_ms() - start < DEADLINE_CHILD_EACH_MS + 2000);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(rcs[i], -EHOSTUNREACH);
}

/* The only child of a process, or 0. */
static pid_t child_of(pid_t pid)
{
    char path[64];
    char text[64] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fdio_read_full(fd, text, sizeof text - 1) <= 0)
        return 0;
    return (pid_t)strtol(text, NULL, 10);
}

/* Gone, or only not waited for by whoever has it now. */
static bool has_ended(pid_t pid)
{
    char path[64];
    char text[256] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fdio_read_full(fd, text, sizeof text - 1) <= 0)
        return true;
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[2] == 'Z';
}

/* Nobody would wait for it, and what it works on is needed by the next one. */
static void test_a_tool_ends_with_who_waits_for_it(void **state)
{
    (void)state;
    static const struct confine confine = {.uid = 65534, .gid = 65534, .writable = -1};
    for (int confined = 0; confined < 2; confined++) {
        const struct deadline_child child = {
            .what = "sleep", .wait_ms = 600000, .confine = confined ? &confine : NULL};
        static const char *const argv[] = {"/bin/sleep", "1000", NULL};
        char said[64];
        pid_t pid = fork();
        if (pid == 0)
            _exit(deadline_child_tool(&child, argv, NULL, said, sizeof said, NULL) != 0);
        pid_t tool = 0;
        for (int i = 0; i < 5000 && (tool == 0 || has_ended(tool)); i++) {
            (void)usleep(1000);
            tool = child_of(pid);
        }
        assert_true(tool > 0);
        (void)usleep(200000); /* it may not have come to its exec */
        assert_false(has_ended(tool));
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        for (int i = 0; i < 10000 && !has_ended(tool); i++)
            (void)usleep(1000);
        assert_true(has_ended(tool));
    }
}

static void *stop_soon(void *arg)
{
    (void)arg;
    (void)usleep(300000);
    deadline_child_stop();
    return NULL;
}

/* 0 when all went as it should; in a process of its own, as there is no way back. */
static int stop_in_the_middle(void)
{
    static const struct deadline_child child = {.what = "sleep", .wait_ms = 600000};
    static const char *const argv[] = {"/bin/sleep", "1000", NULL};
    char said[64];
    pthread_t thread;
    struct err err = ERR_INIT;
    int64_t start = now_ms();
    if (pthread_create(&thread, NULL, stop_soon, NULL) != 0)
        return 1;
    int closed = -1;
    if (run(call_sleep, &closed, 600000, &err) >= 0 || err.code != ERR_INTERRUPTED)
        return 2;
    err_clear(&err);
    if (deadline_child_tool(&child, argv, NULL, said, sizeof said, &err) >= 0 ||
        err.code != ERR_INTERRUPTED)
        return 3;
    if (now_ms() - start > 2 * DEADLINE_CHILD_STOP_MS + 10000)
        return 4;
    /* What is done in time is done. */
    unsigned char result[DEADLINE_CHILD_RESULT_MAX];
    int arg = 1;
    if (deadline_child_run(&child, call_answer, &arg, result, sizeof result, NULL, &err) != 7)
        return 5;
    (void)pthread_join(thread, NULL);
    return 0;
}

static void test_the_end_of_the_program(void **state)
{
    int status = 0;
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(stop_in_the_middle());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : 99, 0);
}

#define with_scratch(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_result),
        cmocka_unit_test(test_failure),
        with_scratch(test_a_descriptor_comes_back),
        cmocka_unit_test(test_the_time_is_over),
        cmocka_unit_test(test_a_child_that_ends_otherwise),
        with_scratch(test_only_what_is_kept_is_open),
        cmocka_unit_test(test_time_that_is_held),
        cmocka_unit_test(test_without_descriptors_of_processes),
        cmocka_unit_test(test_a_tool_ends_with_who_waits_for_it),
        cmocka_unit_test(test_the_end_of_the_program),
        cmocka_unit_test(test_many_need_one_child),
        cmocka_unit_test(test_some_of_many_hang),
        cmocka_unit_test(test_all_of_many_hang),
        with_scratch(test_tools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
