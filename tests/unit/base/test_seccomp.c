#include "seccomp.h"

#include "cleanup.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A filter is for good, so each look is one of a child's. Returns its exit status, or 128 + signal.
 */
static int in_child(int (*look)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        syscall(SYS_exit_group, look());
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void begin(struct seccomp_filter *filter)
{
    static const int calls[] = {SYS_exit_group, SYS_getppid};
    seccomp_begin(filter);
    seccomp_allow(filter, calls, ARRAY_SIZE(calls));
}

static int apply(struct seccomp_filter *filter)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return seccomp_apply(filter, NULL);
}

static int look_at_others(void)
{
    struct seccomp_filter filter;
    begin(&filter);
    if (apply(&filter) < 0)
        return 1;
    if (syscall(SYS_getppid) <= 0)
        return 2;
    if (syscall(SYS_getuid) != -1 || errno != ENOSYS)
        return 3;
    return 0;
}

static int look_at_libc(void)
{
    struct seccomp_filter filter;
    seccomp_begin(&filter);
    seccomp_allow_libc(&filter);
    if (apply(&filter) < 0)
        return 1;
    if (syscall(SYS_getpid) <= 0 || syscall(SYS_sched_yield) != 0)
        return 2;
    if (syscall(SYS_getppid) != -1 || errno != ENOSYS)
        return 3;
    return syscall(SYS_openat, AT_FDCWD, "/", O_PATH) == -1 && errno == ENOSYS ? 0 : 4;
}

static int look_at_exec(void)
{
    struct seccomp_filter filter;
    seccomp_begin(&filter);
    seccomp_allow_libc(&filter);
    if (apply(&filter) < 0)
        return 1;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (syscall(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE, flags, -1, 0) == -1)
        return 2;
    if (syscall(SYS_mmap, NULL, 4096, PROT_READ | PROT_EXEC, flags, -1, 0) != -1)
        return 3;
    return errno == EACCES ? 0 : 4;
}

static int look_at_first(void)
{
    struct seccomp_filter filter;
    begin(&filter);
    const uint32_t me = (uint32_t)getpid();
    seccomp_allow_values(&filter, SYS_kill, 0, &me, 1);
    pid_t self = getpid();
    pid_t parent = getppid();
    if (apply(&filter) < 0)
        return 1;
    if (syscall(SYS_kill, self, 0) != 0)
        return 2;
    if (syscall(SYS_kill, parent, 0) != -1)
        return 3;
    return errno == EPERM ? 0 : 4;
}

static int look_at_second(void)
{
    static const uint32_t commands[] = {F_GETFL, F_GETFD};
    struct seccomp_filter filter;
    begin(&filter);
    seccomp_allow_values(&filter, SYS_fcntl, 1, commands, ARRAY_SIZE(commands));
    if (apply(&filter) < 0)
        return 1;
    if (syscall(SYS_fcntl, 1, F_GETFL) < 0 || syscall(SYS_fcntl, 1, F_GETFD) < 0)
        return 2;
    if (syscall(SYS_fcntl, 1, F_SETOWN, getpid()) != -1 || errno != EPERM)
        return 3;
    return syscall(SYS_fcntl, 1, F_SETSIG, SIGKILL) == -1 && errno == EPERM ? 0 : 4;
}

static int look_at_refused(void)
{
    static const uint32_t commands[] = {F_GETFD, F_SETOWN};
    struct seccomp_filter filter;
    begin(&filter);
    seccomp_allow_but(&filter, SYS_fcntl, 1, commands, ARRAY_SIZE(commands));
    if (apply(&filter) < 0)
        return 1;
    if (syscall(SYS_fcntl, 1, F_GETFL) < 0)
        return 2;
    if (syscall(SYS_fcntl, 1, F_GETFD) != -1 || errno != EPERM)
        return 3;
    return syscall(SYS_fcntl, 1, F_SETOWN, getpid()) == -1 && errno == EPERM ? 0 : 4;
}

#if defined(__x86_64__)
static int look_at_x32(void)
{
    struct seccomp_filter filter;
    begin(&filter);
    if (apply(&filter) < 0)
        return 1;
    return (int)syscall(SYS_getppid | 0x40000000) & 0x7f;
}
#endif

static int look_at_length(void)
{
    static const int calls[] = {SYS_getppid};
    struct seccomp_filter filter;
    begin(&filter);
    for (int i = 0; i < SECCOMP_FILTER_MAX; i++)
        seccomp_allow(&filter, calls, 1);
    return apply(&filter) < 0 ? 0 : 1;
}

static void others_are_refused(void **state)
{
    (void)state;
    assert_int_equal(in_child(look_at_others), 0);
}

static void the_library_has_what_it_needs(void **state)
{
    (void)state;
    assert_int_equal(in_child(look_at_libc), 0);
}

static void memory_is_not_executed(void **state)
{
    (void)state;
    assert_int_equal(in_child(look_at_exec), 0);
}

static void the_first_argument_decides(void **state)
{
    (void)state;
    assert_int_equal(in_child(look_at_first), 0);
}

static void the_values_of_another_argument_decide(void **state)
{
    (void)state;
    assert_int_equal(in_child(look_at_second), 0);
}

static void values_that_are_refused(void **state)
{
    (void)state;
    assert_int_equal(in_child(look_at_refused), 0);
}

#if defined(__x86_64__)
static void the_other_interface_ends_it(void **state)
{
    (void)state;
    assert_int_equal(in_child(look_at_x32), 128 + SIGSYS);
}
#endif

static void too_long_lists_are_refused(void **state)
{
    (void)state;
    assert_int_equal(in_child(look_at_length), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(the_library_has_what_it_needs),
        cmocka_unit_test(memory_is_not_executed),
        cmocka_unit_test(the_first_argument_decides),
#if defined(__x86_64__) /* others have one interface only */
        cmocka_unit_test(the_other_interface_ends_it),
#endif
        cmocka_unit_test(too_long_lists_are_refused),
        cmocka_unit_test(the_values_of_another_argument_decide),
        cmocka_unit_test(values_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
