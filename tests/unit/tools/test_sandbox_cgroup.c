#include "sandbox_cgroup.h"

#include "buf.h"
#include "cleanup.h"
#include "fdio.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Whether the text of /proc/PID/cgroup has a line that ends like the cgroup's path. */
static bool is_in(pid_t pid, const struct sandbox_cgroup *cgroup)
{
    char path[64];
    cleanup_buf struct buf text = BUF_INIT(65536);
    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fdio_read_all(fd, path, &text, NULL) < 0)
        return false;
    const char *name = strstr(cgroup->path, "/varve/");
    return name && strstr(buf_str(&text), name);
}

/* Starts a process by sandbox_cgroup_fork() and looks where it is. */
static bool forked_is_inside(struct sandbox_cgroup *cgroup)
{
    bool expected = cgroup->path[0] != '\0';
    int gate[2];
    char byte;
    if (pipe2(gate, O_CLOEXEC) < 0)
        return false;
    pid_t pid = sandbox_cgroup_fork(cgroup);
    if (pid == 0) {
        close(gate[1]);
        _exit(read(gate[0], &byte, 1) == 0 ? 7 : 1);
    }
    bool inside = pid > 0 && is_in(pid, cgroup) == expected;
    close(gate[0]);
    close(gate[1]);
    int status = 0;
    return pid > 0 && waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7 && inside;
}

/* Where the host has no tree that may be written, nothing is made and nothing fails. */
static void test_life_of_a_cgroup(void **state)
{
    (void)state;
    struct sandbox_cgroup cgroup = sandbox_cgroup_make("r-test");
    struct stat st;
    bool made = cgroup.path[0] != '\0';
    if (made)
        assert_int_equal(stat(cgroup.path, &st), 0);
    char path[sizeof cgroup.path];
    snprintf(path, sizeof path, "%s", cgroup.path);
    assert_true(forked_is_inside(&cgroup));
    sandbox_cgroup_remove(&cgroup);
    assert_string_equal(cgroup.path, "");
    if (made)
        assert_int_equal(stat(path, &st), -1);
    sandbox_cgroup_remove(&cgroup); /* harmless */
}

/* As on kernels before 5.7, and where a filter forbids the call. */
static void test_without_clone3_the_process_is_moved(void **state)
{
    (void)state;
    static struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = ARRAY_SIZE(code), .filter = code};
    pid_t pid = fork();
    if (pid == 0) {
        struct sandbox_cgroup cgroup = sandbox_cgroup_make("r-old");
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
            _exit(1);
        bool good = forked_is_inside(&cgroup);
        sandbox_cgroup_remove(&cgroup);
        _exit(good ? 0 : 2);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_a_cgroup_that_is_gone_costs_itself_only(void **state)
{
    (void)state;
    struct sandbox_cgroup cgroup = sandbox_cgroup_make("r-test");
    if (cgroup.path[0] != '\0')
        assert_int_equal(rmdir(cgroup.path), 0);
    pid_t pid = sandbox_cgroup_fork(&cgroup);
    if (pid == 0)
        _exit(7);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 7);
    assert_string_equal(cgroup.path, "");
}

static void test_what_a_killed_client_left_is_swept(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        struct sandbox_cgroup left = sandbox_cgroup_make("r-left");
        _exit(left.path[0] == '\0');
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    struct sandbox_cgroup cgroup = sandbox_cgroup_make("r-test");
    assert_int_equal(status == 0, cgroup.path[0] != '\0');
    char *slash = strrchr(cgroup.path, '/');
    if (slash) {
        char path[600];
        struct stat st;
        snprintf(path, sizeof path, "%.*s/run-r-left-%d", (int)(slash - cgroup.path), cgroup.path,
                 (int)pid);
        assert_int_equal(stat(path, &st), -1);
    }
    sandbox_cgroup_remove(&cgroup);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life_of_a_cgroup),
        cmocka_unit_test(test_without_clone3_the_process_is_moved),
        cmocka_unit_test(test_a_cgroup_that_is_gone_costs_itself_only),
        cmocka_unit_test(test_what_a_killed_client_left_is_swept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
