#include "userns.h"

#include "cleanup.h"
#include "fdio.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Calls `inside` as root of a namespace that this process maps; gives its exit status. */
static int in_namespace(int (*inside)(void))
{
    int sync[2];
    char byte = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sync), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (userns_unshare(NULL) < 0 || write(sync[1], "u", 1) != 1 ||
            read(sync[1], &byte, 1) != 1 || userns_become_root(NULL) < 0)
            _exit(200);
        _exit(inside());
    }
    assert_int_equal(read(sync[0], &byte, 1), 1);
    assert_int_equal(userns_map(pid, NULL), 0);
    assert_int_equal(write(sync[0], "m", 1), 1);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(sync[0]);
    close(sync[1]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 201;
}

static int look_at_ids(void)
{
    cleanup_fd int fd = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
    char text[100] = "";
    if (fd < 0 || fdio_read_full(fd, text, sizeof text - 1) <= 0)
        return 1;
    unsigned long inside;
    unsigned long outside;
    unsigned long count;
    if (sscanf(text, "%lu %lu %lu", &inside, &outside, &count) != 3 || inside != 0 ||
        outside != 0 || count != 65536)
        return 2;
    gid_t groups[8];
    if (getuid() != 0 || getegid() != 0 || getgroups(8, groups) != 0)
        return 3;
    return setresgid(65535, 65535, 65535) < 0 || setresuid(65535, 65535, 65535) < 0 ? 4 : 0;
}

static void test_ids_are_the_hosts(void **state)
{
    (void)state;
    assert_int_equal(in_namespace(look_at_ids), 0);
}

static int try_nested(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(unshare(CLONE_NEWUSER) < 0 ? errno : 0);
    int status;
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

static int forbid_nested(void)
{
    int before = try_nested();
    cleanup_fd int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (before != 0 || userns_forbid_nested(proc, NULL) < 0)
        return 99;
    return try_nested();
}

static void test_nested_ones_can_be_forbidden(void **state)
{
    (void)state;
    assert_int_equal(in_namespace(forbid_nested), ENOSPC);
    /* Only there. */
    assert_int_equal(userns_probe(NULL), 0);
}

static int probe_where_forbidden(void)
{
    cleanup_fd int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct err err = ERR_INIT;
    if (userns_forbid_nested(proc, NULL) < 0 || userns_probe(&err) >= 0)
        return 1;
    return strstr(err.text, "user.max_user_namespaces is 0") && err.code == ERR_DENIED &&
                   strstr(err.hint, "sysctl user.max_user_namespaces=")
               ? 0
               : 2;
}

static void test_a_refusal_says_what_to_set(void **state)
{
    (void)state;
    assert_int_equal(in_namespace(probe_where_forbidden), 0);
}

static int probe_without_rights(void)
{
    struct err err = ERR_INIT;
    if (setresuid(1000, 1000, 1000) < 0 || userns_probe(&err) >= 0)
        return 1;
    return strstr(err.text, "cannot map the ids 0 to 65535") ? 0 : 2;
}

static void test_only_root_can_map_the_range(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(probe_without_rights());
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_a_process_that_is_gone_is_a_failure(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    struct err err = ERR_INIT;
    assert_int_equal(userns_map(pid, &err), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_are_the_hosts),
        cmocka_unit_test(test_nested_ones_can_be_forbidden),
        cmocka_unit_test(test_a_refusal_says_what_to_set),
        cmocka_unit_test(test_only_root_can_map_the_range),
        cmocka_unit_test(test_a_process_that_is_gone_is_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
