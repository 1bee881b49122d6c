/* Writers in a pid namespace of their own and the volume that they write to, frozen together: in
 * the one order in which that comes to an end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "volumes_site.h"

#include "cleanup.h"
#include "freeze.h"
#include "volumes_epoch.h"
#include "volumes_internal.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    WRITERS = 3,
    BUDGET_MS = 20000, /* others use this machine too */
    ROUNDS = 4,
};

static void write_on(const char *mount, int number)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/writer%d", mount, number);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    for (unsigned i = 0; fd >= 0; i++) {
        char block[4096];
        (void)snprintf(block, sizeof block, "%u", i);
        if (pwrite(fd, block, sizeof block, (off_t)(i % 64) * 4096) < 0 || fsync(fd) < 0)
            _exit(1);
    }
    _exit(1);
}

static pid_t start_writers(const char *mount)
{
    struct {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
    } args = {.flags = CLONE_NEWPID, .exit_signal = SIGCHLD};
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid != 0)
        return pid;
    for (int i = 1; i < WRITERS; i++)
        if (fork() == 0)
            write_on(mount, i);
    write_on(mount, 0);
    return 0;
}

static void test_processes_first(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    struct freeze_set set;
    struct freeze freezes[2];
    struct freeze_times times[2];
    struct cgroup_tree tree;
    if (cgroup_tree_pick(&tree, &err) < 0) {
        print_message("# %s\n", err.text);
        skip();
    }
    site_attach_and_mount(site);
    const dev_t device = site_status(site).device_dev;
    pid_t pid = start_writers(site->mount);
    assert_true(pid > 0);
    site_ok(freeze_set_of(pid, &set, &err), &err);
    /* As no caller has to know, in the wrong order. */
    const struct freeze_order orders[] = {
        {.volume = SITE_ID, .path = site->mount, .device = device, .budget_ms = BUDGET_MS},
        {.set = &set, .budget_ms = BUDGET_MS}};
    for (int i = 0; i < ROUNDS; i++) {
        struct volumes_epoch epoch = {0};
        (void)usleep(20000);
        site_ok(freeze_begin(site->volumes->freezes_fd, orders, 2, freezes, &err), &err);
        site_ok(volumes_epoch_cut(site->volumes, SITE_ID, (uint64_t)i + 1, LIVE_USE_CHECKPOINT,
                                  NULL, &epoch, &err),
                &err);
        site_ok(freeze_end(freezes, 2, times, &err), &err);
        volumes_epoch_end(site->volumes, SITE_ID, &epoch);
        print_message("# processes %.1f + %.1f ms, file system %.1f + %.1f ms\n",
                      (double)times[1].took_ns / 1e6, (double)times[1].frozen_ns / 1e6,
                      (double)times[0].took_ns / 1e6, (double)times[0].frozen_ns / 1e6);
        /* They stood still all the time. */
        assert_true(times[1].frozen_ns >= times[0].took_ns);
    }
    /* What one of them cannot do, none has done. */
    const struct freeze_order bad[] = {
        {.set = &set, .budget_ms = BUDGET_MS},
        {.volume = SITE_ID, .path = "/proc", .device = device, .budget_ms = BUDGET_MS}};
    site_expect(freeze_begin(site->volumes->freezes_fd, bad, 2, freezes, &err), &err, ERR_CONFLICT,
                "cannot freeze");
    assert_int_equal(volumes_thaw_left(site->volumes, 0), 0);
    (void)kill(pid, SIGKILL); /* which one that is frozen in a v1 cgroup would not see */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    site_unmount_and_detach(site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_processes_first, site_setup, site_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
