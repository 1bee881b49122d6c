#include "mount_users.h"

#include "cleanup.h"
#include "fdio.h"
#include "scratch.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Real processes against a real overlay at <scratch>/root, which holds "file" and the program
 * "sleep". */

static void copy_program(const struct scratch *scratch, const char *from, const char *to)
{
    cleanup_fd int in = open(from, O_RDONLY | O_CLOEXEC);
    cleanup_fd int out = openat(scratch->fd, to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    assert_true(in >= 0 && out >= 0);
    assert_true(sendfile(out, in, NULL, 1 << 30) > 0);
}

static int setup(void **state)
{
    static const char *const dirs[] = {"layers", "layers/a", "upper", "work", "root"};
    assert_int_equal(scratch_setup(state), 0);
    const struct scratch *scratch = *state;
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        assert_int_equal(mkdirat(scratch->fd, dirs[i], 0755), 0);
    scratch_write(scratch, "layers/a/file", "content", 7);
    copy_program(scratch, "/bin/sleep", "layers/a/sleep");
    char options[512];
    snprintf(options, sizeof options, "lowerdir=%s/layers/a,upperdir=%s/upper,workdir=%s/work",
             scratch->path, scratch->path, scratch->path);
    assert_int_equal(mount("overlay", scratch_path(scratch, "root"), "overlay", 0, options), 0);
    return 0;
}

/* A child that did something and then waits to be killed. `act` returns 0 when it worked. */
struct child {
    pid_t pid;
    int alive; /* write end; reports the result, and closes with the child */
};

typedef int (*child_fn)(const struct scratch *scratch, int report);

static void report_result(int report, int result)
{
    char byte = (char)(result != 0);
    if (write(report, &byte, 1) != 1)
        _exit(1);
}

static _Noreturn void wait_forever(void)
{
    for (;;)
        pause();
}

static pid_t start(const struct scratch *scratch, child_fn act)
{
    int report[2];
    char byte = 1;
    assert_int_equal(pipe2(report, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        report_result(report[1], act(scratch, report[1]));
        wait_forever();
    }
    close(report[1]);
    assert_int_equal(read(report[0], &byte, 1), 1);
    assert_int_equal(byte, 0);
    close(report[0]);
    return pid;
}

static void stop(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static int count(const struct scratch *scratch, pid_t *ret_first, char ret_name[32])
{
    struct err err = ERR_INIT;
    int rc = mount_users_find(scratch_path(scratch, "root"), ret_first, ret_name, &err);
    assert_string_equal(err.text, "");
    return rc;
}

static void assert_nobody(const struct scratch *scratch)
{
    pid_t first = 0;
    char name[32] = "";
    assert_int_equal(count(scratch, &first, name), 0);
    assert_int_equal(first, 0);
}

static void assert_counts(void **state, child_fn act, const char *expected_name)
{
    const struct scratch *scratch = *state;
    pid_t first = 0;
    char name[32] = "";
    assert_nobody(scratch);
    pid_t pid = start(scratch, act);
    int found = count(scratch, &first, name);
    stop(pid);
    assert_int_equal(found, 1);
    assert_int_equal(first, pid);
    assert_string_equal(name, expected_name);
    assert_nobody(scratch);
}

static int act_root(const struct scratch *scratch, int report)
{
    (void)report;
    return chdir("/") || chroot(scratch_path(scratch, "root"));
}

static void test_root(void **state)
{
    assert_counts(state, act_root, "test_mount_user");
}

static int act_cwd(const struct scratch *scratch, int report)
{
    (void)report;
    return chdir(scratch_path(scratch, "root")) || prctl(PR_SET_NAME, "a\nb\x80");
}

static void test_cwd_and_odd_name(void **state)
{
    assert_counts(state, act_cwd, "a?b?");
}

static int act_fd(const struct scratch *scratch, int report)
{
    (void)report;
    return openat(scratch->fd, "root/file", O_RDONLY | O_CLOEXEC) < 0;
}

static void test_open_file(void **state)
{
    assert_counts(state, act_fd, "test_mount_user");
}

static int act_deleted(const struct scratch *scratch, int report)
{
    (void)report;
    return openat(scratch->fd, "root/gone", O_RDWR | O_CREAT | O_CLOEXEC, 0600) < 0 ||
           unlinkat(scratch->fd, "root/gone", 0);
}

static void test_open_deleted_file(void **state)
{
    assert_counts(state, act_deleted, "test_mount_user");
}

static int act_mmap(const struct scratch *scratch, int report)
{
    (void)report;
    int fd = openat(scratch->fd, "root/file", O_RDONLY | O_CLOEXEC);
    void *at = mmap(NULL, 7, PROT_READ, MAP_PRIVATE, fd, 0);
    return at == MAP_FAILED || close(fd);
}

static void test_mapping(void **state)
{
    assert_counts(state, act_mmap, "test_mount_user");
}

/* Reports first, as the program that follows cannot. */
static int act_exec(const struct scratch *scratch, int report)
{
    char path[128];
    snprintf(path, sizeof path, "%s/root/sleep", scratch->path);
    const char *argv[] = {path, "1000", NULL};
    if (chdir("/") < 0)
        return -1;
    report_result(report, 0);
    execv(path, (char **)(uintptr_t)argv);
    _exit(1);
}

static void test_executable(void **state)
{
    const struct scratch *scratch = *state;
    pid_t first = 0;
    char name[32] = "";
    pid_t pid = start(scratch, act_exec);
    int found = 0;
    for (int i = 0; i < 200 && found == 0; i++) {
        usleep(10000);
        found = count(scratch, &first, name);
    }
    stop(pid);
    assert_int_equal(found, 1);
    assert_int_equal(first, pid);
    assert_string_equal(name, "sleep");
    assert_nobody(scratch);
}

static int act_namespace_root(const struct scratch *scratch, int report)
{
    (void)report;
    const char *root = scratch_path(scratch, "root");
    return unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
           mount(root, root, NULL, MS_BIND, NULL) || chdir("/") || chroot(root);
}

static void test_root_in_another_mount_namespace(void **state)
{
    assert_counts(state, act_namespace_root, "test_mount_user");
}

static int act_namespace_copy(const struct scratch *scratch, int report)
{
    (void)scratch;
    (void)report;
    return chdir("/") || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

static void test_a_copy_of_the_mount_is_not_use(void **state)
{
    const struct scratch *scratch = *state;
    pid_t pid = start(scratch, act_namespace_copy);
    assert_nobody(scratch);
    stop(pid);
}

static int act_elsewhere(const struct scratch *scratch, int report)
{
    (void)report;
    return chdir(scratch_path(scratch, "upper")) ||
           openat(scratch->fd, "layers/a/file", O_RDONLY | O_CLOEXEC) < 0;
}

static void test_the_directories_below_are_not_the_mount(void **state)
{
    const struct scratch *scratch = *state;
    pid_t pid = start(scratch, act_elsewhere);
    assert_nobody(scratch);
    stop(pid);
}

struct thread {
    const struct scratch *scratch;
    int report;
};

static void *thread_with_own_cwd(void *arg)
{
    const struct thread *thread = arg;
    report_result(thread->report,
                  unshare(CLONE_FS) || chdir(scratch_path(thread->scratch, "root")));
    wait_forever();
}

static void *thread_with_own_descriptors(void *arg)
{
    const struct thread *thread = arg;
    int report = dup(thread->report);
    report_result(report,
                  unshare(CLONE_FILES) || openat(thread->scratch->fd, "root/file", O_RDONLY) < 0);
    wait_forever();
}

static void *thread_with_mapping(void *arg)
{
    const struct thread *thread = arg;
    usleep(100000); /* the first thread has ended by then */
    report_result(thread->report, act_mmap(thread->scratch, thread->report));
    wait_forever();
}

static int start_thread(const struct scratch *scratch, int report, void *(*fn)(void *))
{
    static struct thread thread;
    pthread_t id;
    thread = (struct thread){.scratch = scratch, .report = report};
    return chdir("/") || pthread_create(&id, NULL, fn, &thread);
}

static int act_thread_cwd(const struct scratch *scratch, int report)
{
    if (start_thread(scratch, report, thread_with_own_cwd))
        return -1;
    wait_forever();
}

static void test_thread_with_own_working_directory(void **state)
{
    assert_counts(state, act_thread_cwd, "test_mount_user");
}

static int act_thread_fd(const struct scratch *scratch, int report)
{
    if (start_thread(scratch, report, thread_with_own_descriptors))
        return -1;
    wait_forever();
}

static void test_thread_with_own_descriptors(void **state)
{
    assert_counts(state, act_thread_fd, "test_mount_user");
}

static int act_first_thread_gone(const struct scratch *scratch, int report)
{
    if (start_thread(scratch, report, thread_with_mapping))
        return -1;
    syscall(SYS_exit, 0);
    return -1;
}

static void test_first_thread_gone(void **state)
{
    assert_counts(state, act_first_thread_gone, "test_mount_user");
}

static void test_several(void **state)
{
    const struct scratch *scratch = *state;
    static const child_fn acts[] = {act_root, act_fd, act_mmap, act_namespace_copy};
    pid_t pids[ARRAY_SIZE(acts)];
    pid_t first;
    char name[32];
    for (size_t i = 0; i < ARRAY_SIZE(acts); i++)
        pids[i] = start(scratch, acts[i]);
    int found = count(scratch, &first, name);
    for (size_t i = 0; i < ARRAY_SIZE(acts); i++)
        stop(pids[i]);
    assert_int_equal(found, 3);
    assert_true(first == pids[0] || first == pids[1] || first == pids[2]);
}

static void test_own_process_does_not_count(void **state)
{
    const struct scratch *scratch = *state;
    cleanup_fd int fd = openat(scratch->fd, "root/file", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_nobody(scratch);
}

/* Processes come and go while the scan runs. */
static int act_churn(const struct scratch *scratch, int report)
{
    (void)scratch;
    report_result(report, 0);
    for (;;) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        waitpid(pid, NULL, 0);
    }
}

static void test_processes_that_vanish(void **state)
{
    const struct scratch *scratch = *state;
    pid_t pids[4];
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
        pids[i] = start(scratch, act_churn);
    for (int i = 0; i < 50; i++)
        assert_nobody(scratch);
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
        stop(pids[i]);
}

static void test_nothing_mounted(void **state)
{
    const struct scratch *scratch = *state;
    pid_t first = 0;
    char name[32];
    struct err err = ERR_INIT;
    assert_int_equal(mount_users_find(scratch_path(scratch, "none"), &first, name, &err), 0);
    assert_int_equal(mount_users_find(scratch_path(scratch, "upper"), &first, name, &err), 0);
    assert_int_equal(mount_users_find(scratch_path(scratch, "root/file"), &first, name, &err), 0);
    assert_int_equal(mount_users_find(scratch_path(scratch, "layers/a/file/x"), &first, name, &err),
                     -ENOTDIR);
    assert_int_equal(err.code, ERR_IO);
}

/* Loses the rights to look into processes that still have all of them. */
static int drop_rights(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) < 0)
        return -1;
    data[0].permitted &= ~(1U << CAP_SYS_PTRACE | 1U << CAP_SYS_TIME);
    data[0].effective &= ~(1U << CAP_SYS_PTRACE | 1U << CAP_SYS_TIME);
    return (int)syscall(SYS_capset, &header, data);
}

/* What a scan without rights finds, as the exit status of a child. */
static int count_without_rights(const struct scratch *scratch)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        pid_t first;
        char name[32];
        if (drop_rights() < 0)
            _exit(99);
        int rc = mount_users_find(scratch_path(scratch, "root"), &first, name, NULL);
        _exit(rc < 0 ? 98 : rc);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_processes_that_cannot_be_read(void **state)
{
    const struct scratch *scratch = *state;
    pid_t copy = start(scratch, act_namespace_copy);
    assert_int_equal(count_without_rights(scratch), 0);
    pid_t root = start(scratch, act_namespace_root);
    assert_int_equal(count_without_rights(scratch), 1);
    stop(root);
    stop(copy);
}

#define overlay_test(fn) cmocka_unit_test_setup_teardown(fn, setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        overlay_test(test_root),
        overlay_test(test_cwd_and_odd_name),
        overlay_test(test_open_file),
        overlay_test(test_open_deleted_file),
        overlay_test(test_mapping),
        overlay_test(test_executable),
        overlay_test(test_root_in_another_mount_namespace),
        overlay_test(test_a_copy_of_the_mount_is_not_use),
        overlay_test(test_the_directories_below_are_not_the_mount),
        overlay_test(test_thread_with_own_working_directory),
        overlay_test(test_thread_with_own_descriptors),
        overlay_test(test_first_thread_gone),
        overlay_test(test_several),
        overlay_test(test_own_process_does_not_count),
        overlay_test(test_processes_that_vanish),
        overlay_test(test_nothing_mounted),
        overlay_test(test_processes_that_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
