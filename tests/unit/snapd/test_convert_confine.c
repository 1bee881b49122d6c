/* How a conversion ends early, and what its child can do. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#include "child_look.h"
#include "convert_run_fixture.h"
#include "fdio.h"

/* Says stop at the third question. */
static int stop_third(void *arg, struct err *err)
{
    int *asked = arg;
    return ++*asked < 3 ? 0 : err_fail(err, ERR_CANCELLED, "enough of it");
}

static double seconds_since(const struct timespec *from)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - from->tv_sec) + (double)(now.tv_nsec - from->tv_nsec) / 1e9;
}

static void test_stop(void **state)
{
    struct fixture *f = *state;
    const struct convert_request request = request_of(f);
    struct err err = ERR_INIT;
    struct convert *convert;
    assert_int_equal(convert_start(&request, &convert, &err), 0);
    pid_t child = child_find(getpid());
    assert_true(child > 0);
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    int asked = 0;
    struct convert_result result;
    assert_true(convert_wait(convert, stop_third, &asked, &result, &err) < 0);
    assert_true(seconds_since(&begin) < 1);
    assert_int_equal(asked, 3);
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_string_equal(err.text, "enough of it");
    assert_int_equal(child_find(getpid()), 0);
    convert_free(convert);
}

/* Freed in the middle, the child goes too. */
static void test_free_anywhere(void **state)
{
    struct fixture *f = *state;
    const struct convert_request request = request_of(f);
    for (int i = 0; i < 2; i++) {
        struct err err = ERR_INIT;
        struct convert *convert;
        assert_int_equal(convert_start(&request, &convert, &err), 0);
        if (i == 1)
            child_await_confined(getpid());
        convert_free(convert);
        assert_int_equal(child_find(getpid()), 0);
    }
    convert_free(NULL);
}

static void test_killed_child(void **state)
{
    struct fixture *f = *state;
    const struct convert_request request = request_of(f);
    struct err err = ERR_INIT;
    struct convert *convert;
    assert_int_equal(convert_start(&request, &convert, &err), 0);
    assert_int_equal(kill(child_await_confined(getpid()), SIGKILL), 0);
    struct convert_result result;
    assert_true(convert_wait(convert, NULL, NULL, &result, &err) < 0);
    assert_int_equal(err.code, ERR_INTERNAL);
    assert_non_null(strstr(err.text, "signal 9 (Killed)"));
    assert_non_null(strstr(err.hint, "memory"));
    convert_free(convert);
}

/* A child whose parent is killed does not go on alone. */
static void test_killed_parent(void **state)
{
    struct fixture *f = *state;
    pid_t parent = fork();
    assert_true(parent >= 0);
    if (parent == 0) {
        const struct convert_request request = request_of(f);
        struct convert *convert;
        struct convert_result result;
        if (convert_start(&request, &convert, NULL) == 0)
            (void)convert_wait(convert, NULL, NULL, &result, NULL);
        _exit(0);
    }
    pid_t child = child_await_confined(parent);
    assert_int_equal(kill(parent, SIGKILL), 0);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    child_await_gone(child);
}

/* Feeding a child that does not listen takes no time, and it gets the newest size afterwards. */
static void test_feeding_a_sleeper(void **state)
{
    struct fixture *f = *state;
    struct convert_request request = request_of(f);
    request.diff_id = &f->digest;
    struct err err = ERR_INIT;
    struct convert *convert;
    assert_int_equal(convert_start(&request, &convert, &err), 0);
    pid_t child = child_await_confined(getpid());
    assert_int_equal(kill(child, SIGSTOP), 0);
    assert_int_equal(fdio_write_full(f->blob_fd, f->body, BODY), 0);
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (uint64_t size = 0; size < 200000; size++)
        assert_int_equal(convert_feed(convert, size, false, &err), 0);
    assert_int_equal(convert_feed(convert, BODY, true, &err), 0);
    assert_true(seconds_since(&begin) < 10);
    assert_int_equal(kill(child, SIGCONT), 0);
    struct convert_result result;
    if (convert_wait(convert, NULL, NULL, &result, &err) != CONVERT_DONE)
        fail_msg("%s", err.text);
    convert_result_free(&result);
    convert_free(convert);
    assert_target(f, BODY);
}

static void assert_namespaces_of_its_own(pid_t child)
{
    static const char *const namespaces[] = {"mnt", "net", "ipc", "uts"};
    for (size_t i = 0; i < ARRAY_SIZE(namespaces); i++) {
        char path[64];
        char mine[64] = "";
        char theirs[64] = "";
        snprintf(path, sizeof path, "/proc/self/ns/%s", namespaces[i]);
        assert_true(readlink(path, mine, sizeof mine - 1) > 0);
        snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)child, namespaces[i]);
        assert_true(readlink(path, theirs, sizeof theirs - 1) > 0);
        assert_string_not_equal(mine, theirs);
    }
}

/* One mount, and nothing in it. */
static void assert_root_is_empty(pid_t child)
{
    char text[4096];
    child_read(child, "mountinfo", text, sizeof text);
    assert_non_null(strstr(text, " / ro,nosuid,nodev,noexec,relatime"));
    assert_ptr_equal(strchr(text, '\n'), strrchr(text, '\n'));
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/root", (int)child);
    cleanup_dir DIR *root = opendir(path);
    assert_non_null(root);
    for (const struct dirent *e = readdir(root); e; e = readdir(root))
        assert_int_equal(e->d_name[0], '.');
}

/* Its socket, the archive (not to be written, though we can), the target, and what it made. */
static void assert_descriptors(const struct fixture *f, pid_t child)
{
    char path[64];
    struct stat archive;
    struct stat target;
    int archives = 0;
    int targets = 0;
    assert_int_equal(fstat(f->blob_fd, &archive), 0);
    assert_int_equal(fstat(f->target_fd, &target), 0);
    snprintf(path, sizeof path, "/proc/%d/fd", (int)child);
    cleanup_dir DIR *fds = opendir(path);
    assert_non_null(fds);
    for (const struct dirent *e = readdir(fds); e; e = readdir(fds)) {
        struct stat st;
        if (e->d_name[0] == '.')
            continue;
        assert_int_equal(fstatat(dirfd(fds), e->d_name, &st, 0), 0);
        char info[512];
        snprintf(path, sizeof path, "fdinfo/%.20s", e->d_name);
        child_read(child, path, info, sizeof info);
        const char *flags = strstr(info, "flags:");
        assert_non_null(flags);
        const long access = strtol(flags + strlen("flags:"), NULL, 8) & O_ACCMODE;
        if (st.st_ino == archive.st_ino && st.st_dev == archive.st_dev) {
            assert_int_equal(access, O_RDONLY);
            archives++;
        } else if (st.st_ino == target.st_ino && st.st_dev == target.st_dev) {
            targets++;
        } else {
            assert_false(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode));
        }
    }
    assert_int_equal(archives, 1);
    assert_int_equal(targets, 1);
}

/* Before the first byte of input: everything but the two files is given up. */
static void test_confinement(void **state)
{
    struct fixture *f = *state;
    const struct convert_request request = request_of(f);
    struct err err = ERR_INIT;
    struct convert *convert;
    assert_int_equal(convert_start(&request, &convert, &err), 0);
    pid_t child = child_await_confined(getpid());
    char text[4096];
    child_read(child, "status", text, sizeof text);
    static const char *const wanted[] = {
        "NoNewPrivs:\t1",
        "CapInh:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "CapAmb:\t0000000000000000",
        "Uid:\t65534\t65534\t65534\t65534",
        "Gid:\t65534\t65534\t65534\t65534",
        "Groups:\t \n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
        if (!strstr(text, wanted[i]))
            fail_msg("no %s in %s", wanted[i], text);
    assert_namespaces_of_its_own(child);
    assert_root_is_empty(child);
    assert_descriptors(f, child);
    child_read(child, "limits", text, sizeof text);
    assert_non_null(strstr(text, "Max core file size        0                    0"));
    assert_non_null(strstr(text, "Max open files            256                  256"));
    assert_non_null(strstr(text, "Max file size             1099511627776        1099511627776"));
    /* Not dumpable: what is its own in /proc is root's. */
    struct stat st;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", (int)child);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_uid, 0);
    convert_free(convert);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, convert_run_setup, convert_run_teardown)
    const struct CMUnitTest tests[] = {
        T(test_stop),          T(test_free_anywhere),     T(test_killed_child),
        T(test_killed_parent), T(test_feeding_a_sleeper), T(test_confinement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
