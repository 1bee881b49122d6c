#include "confine.h"

#include "cleanup.h"
#include "scratch.h"
#include "spawn.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    USER = 65534,
};

/* What a shell says that is confined, with `dir` as its descriptor 3. Its exit status. */
static int ask(const char *script, int dir, char ret_said[1024])
{
    const struct confine confine = {.uid = USER, .gid = USER, .writable = dir < 0 ? -1 : 3};
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    struct err err = ERR_INIT;
    cleanup_fd int said = memfd_create("said", MFD_CLOEXEC);
    struct spawn spawn = {.argv = argv,
                          .stdin_fd = -1,
                          .stdout_fd = said,
                          .stderr_fd = said,
                          .extra = {dir},
                          .extra_count = dir >= 0,
                          .confine = &confine};
    pid_t pid = spawn_start(&spawn, &err);
    if (pid < 0)
        fail_msg("%s", err.text);
    int status = spawn_wait(pid, &err);
    ssize_t n = pread(said, ret_said, 1023, 0);
    ret_said[n > 0 ? n : 0] = '\0';
    return status;
}

static void expect(const char *script, int dir, int status, const char *says)
{
    char said[1024];
    int found = ask(script, dir, said);
    if (found != status || !strstr(said, says))
        fail_msg("%s: %d '%s'", script, found, said);
}

static void test_it_is_nobody(void **state)
{
    (void)state;
    expect("echo $(id -u) $(id -g) $(id -G)", -1, 0, "65534 65534 65534\n");
    expect("grep -E 'CapPrm|CapEff|CapAmb' /proc/self/status | cut -f2 | sort -u", -1, 0,
           "0000000000000000\n");
    expect("grep NoNewPrivs /proc/self/status", -1, 0, "\t1\n");
    expect("ulimit -c", -1, 0, "0\n");
    expect("cat /proc/self/oom_score_adj", -1, 0, "1000\n");
    const struct confine root = {.uid = 0, .gid = 0, .writable = -1};
    assert_int_equal(confine_apply(&root), -EINVAL);
}

static void test_it_sees_nobody(void **state)
{
    (void)state;
    char script[128];
    expect("echo $$ $PPID", -1, 0, "1 0\n");
    /* A process that it could signal, were it in the same namespace. */
    snprintf(script, sizeof script, "kill -0 %d", (int)getpid());
    char said[1024];
    assert_int_not_equal(ask(script, -1, said), 0);
    assert_non_null(strstr(said, "No such process"));
    expect("grep -c : /proc/self/net/dev", -1, 0, "1\n"); /* the loopback alone */
}

static void test_it_writes_where_it_may_alone(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(mkdir(scratch_path(scratch, "open"), 0777), 0);
    assert_int_equal(chmod(scratch_path(scratch, "open"), 0777), 0);
    assert_int_equal(chmod(scratch->path, 0755), 0);
    scratch_write(scratch, "open/f", "x", 1);
    scratch_write(scratch, "other", "x", 1);
    assert_int_equal(chmod(scratch_path(scratch, "open/f"), 0666), 0);
    assert_int_equal(chmod(scratch_path(scratch, "other"), 0666), 0);
    cleanup_fd int dir = open(scratch_path(scratch, "open"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    expect("echo y >/proc/self/fd/3/f && cat /proc/self/fd/3/f", dir, 0, "y\n");
    if (syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1) {
        print_message("# this kernel has no Landlock: modes of files alone decide\n");
        return;
    }
    char script[256];
    snprintf(script, sizeof script, "echo y >%s/other", scratch->path);
    expect(script, dir, 2, "Permission denied");
    expect("echo y >/proc/self/fd/3/new", dir, 2, "Permission denied");
    expect("echo y >/proc/self/fd/3/f", -1, 2, ""); /* none is allowed, and none is there */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_nobody),
        cmocka_unit_test(test_it_sees_nobody),
        cmocka_unit_test_setup_teardown(test_it_writes_where_it_may_alone, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
