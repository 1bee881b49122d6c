#include "node_internal.h"

#include "cleanup.h"
#include "mountinfo.h"
#include "node_places.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* How many mounts a process sees at a path; whether the last one is shared in *ret_shared. */
static int count_mounts(pid_t pid, const char *point, bool *ret_shared)
{
    char process[16];
    int count = 0;
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    snprintf(process, sizeof process, "%d", pid);
    assert_int_equal(mountinfo_open(process, &info, NULL), 0);
    while (mountinfo_next(&info, &entry, NULL) > 0)
        if (strcmp(entry.point, point) == 0) {
            count++;
            if (ret_shared)
                *ret_shared = entry.shared;
        }
    return count;
}

/* A process in a mount namespace of its own, a copy of this one's. */
static pid_t start_in_namespace(void)
{
    int ready[2];
    char byte = 1;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        byte = unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0;
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 0);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void stop(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_run_directory_is_a_shared_mount(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    bool shared = false;
    char point[512];
    use_scratch(scratch, &places);
    for (int i = 0; i < 2; i++) {
        struct node *node = open_node(&places.options);
        assert_int_equal(count_mounts(getpid(), places.run, &shared), 1);
        assert_true(shared);
        node_close(node);
    }
    struct node *node = open_node(&places.options);
    pid_t pid = start_in_namespace();
    assert_int_equal(mkdirat(node->run_runs_fd, "r", 0700), 0);
    snprintf(point, sizeof point, "%s/runs/r", places.run);
    assert_int_equal(mount("tmpfs", point, "tmpfs", 0, NULL), 0);
    assert_int_equal(count_mounts(pid, point, NULL), 1);
    assert_int_equal(umount(point), 0);
    assert_int_equal(count_mounts(pid, point, NULL), 0);
    stop(pid);
    node_close(node);
}

/* Where the mount around it is shared (systemd makes "/" so), a mount in the run directory must
 * appear once, and reach namespaces that were there before. */
static void test_run_directory_below_a_shared_mount(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    char point[512];
    assert_int_equal(mkdirat(scratch->fd, "around", 0700), 0);
    const char *around = scratch_path(scratch, "around");
    assert_int_equal(mount(around, around, NULL, MS_BIND, NULL), 0);
    assert_int_equal(mount(NULL, around, NULL, MS_PRIVATE, NULL), 0);
    assert_int_equal(mount(NULL, around, NULL, MS_SHARED, NULL), 0);
    pid_t earlier = start_in_namespace();
    use(&places, scratch_path(scratch, "data"), scratch_path(scratch, "around/run"));
    struct node *node = open_node(&places.options);
    assert_int_equal(count_mounts(getpid(), places.run, NULL), 1);
    assert_int_equal(count_mounts(earlier, places.run, NULL), 1);
    assert_int_equal(mkdirat(node->run_runs_fd, "r", 0700), 0);
    snprintf(point, sizeof point, "%s/runs/r", places.run);
    assert_int_equal(mount("tmpfs", point, "tmpfs", 0, NULL), 0);
    assert_int_equal(count_mounts(getpid(), point, NULL), 1);
    assert_int_equal(count_mounts(earlier, point, NULL), 1);
    stop(earlier);
    node_close(node);
}

static void test_run_directory_that_is_a_mount_already(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    bool shared = false;
    use_scratch(scratch, &places);
    scratch_tmpfs(scratch, "run", 1 << 20);
    assert_int_equal(mount(NULL, places.run, NULL, MS_PRIVATE, NULL), 0);
    node_close(open_node(&places.options));
    assert_int_equal(count_mounts(getpid(), places.run, &shared), 1);
    assert_true(shared);
}

/* What `fn` gives in a child; 99 when that did not come to its end. */
static int in_child(int (*fn)(bool), bool other)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(fn(other));
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
                                                                           : 99;
}

static int check(bool other)
{
    struct err err = ERR_INIT;
    if (other && unshare(CLONE_NEWNS) != 0)
        return 98;
    int rc = node_mount_check_namespace(&err);
    return rc == 0 ? 0 : err.code == ERR_CONFLICT && err.hint[0] != '\0' ? 1 : 97;
}

static int check_below_first(bool other)
{
    return mount("proc", "/proc", "proc", 0, NULL) == 0 ? in_child(check, other) : 96;
}

/* With a pid 1 of its own, as that of the host may be in another mount namespace than this test. */
static int check_in_namespace(bool other)
{
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return 95;
    return in_child(check_below_first, other);
}

static void test_mount_namespace(void **state)
{
    (void)state;
    assert_int_equal(in_child(check_in_namespace, false), 0);
    assert_int_equal(in_child(check_in_namespace, true), 1);
}

#define scratch_test(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        scratch_test(test_run_directory_is_a_shared_mount),
        scratch_test(test_run_directory_below_a_shared_mount),
        scratch_test(test_run_directory_that_is_a_mount_already),
        cmocka_unit_test(test_mount_namespace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
