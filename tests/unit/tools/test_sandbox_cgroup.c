#include "sandbox_cgroup.h"

#include "cleanup.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_the_v2_tree_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *path; /* NULL: none */
    } cases[] = {
        {"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup"},
        {"29 23 0:25 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"
         "31 29 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
         "32 29 0:28 / /sys/fs/cgroup/unified rw shared:1 master:2 - cgroup2 cgroup2 rw",
         "/sys/fs/cgroup/unified"},
        {"31 29 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", NULL},
        {"31 29 0:27 / /a\\040b rw - cgroup2 c rw\n", NULL},
        {"31 29 0:27 / /a rw - cgroup23 c rw\n", NULL},
        {"- cgroup2 x", NULL},
        {" - cgroup2", NULL},
        {"a b c d\n\n - cgroup2\n", NULL},
        {"", NULL},
        {"1 2 3 / /this/path/is/longer/than/the/room/that/there/is/for/it/here rw - cgroup2 c rw",
         NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char path[40] = "unset";
        assert_int_equal(sandbox_cgroup_find(cases[i].text, path, sizeof path),
                         cases[i].path != NULL);
        assert_string_equal(path, cases[i].path ? cases[i].path : "unset");
    }
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
    pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    sandbox_cgroup_add(&cgroup, pid);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    sandbox_cgroup_remove(&cgroup);
    assert_string_equal(cgroup.path, "");
    if (made)
        assert_int_equal(stat(path, &st), -1);
    sandbox_cgroup_remove(&cgroup); /* harmless */
}

static void test_a_process_that_is_gone_costs_the_cgroup_only(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    struct sandbox_cgroup cgroup = sandbox_cgroup_make("r-test");
    sandbox_cgroup_add(&cgroup, pid);
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
        cmocka_unit_test(test_the_v2_tree_is_found),
        cmocka_unit_test(test_life_of_a_cgroup),
        cmocka_unit_test(test_a_process_that_is_gone_costs_the_cgroup_only),
        cmocka_unit_test(test_what_a_killed_client_left_is_swept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
