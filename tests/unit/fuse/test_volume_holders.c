#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "clock.h"
#include "fs_site.h"
#include "mount_users.h"
#include "volume_fs.h"
#include "volume_holders.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* After the headers of the C library, whose sys/mount.h has the same names as linux/mount.h. */
#include <sys/mount.h>

enum how {
    OPENS_FILE,
    CHANGES_DIRECTORY,
    OPENS_DEVICE,
    HAS_NAMESPACE,
    HAS_NAMESPACE_WITHOUT,
};

/* In the child. False: it did not work. */
static bool hold(const struct fs_site *site, enum how how)
{
    char path[256];
    snprintf(path, sizeof path, "%s/f", site->mount);
    switch (how) {
    case OPENS_FILE:
        return open(path, O_RDONLY) >= 0;
    case CHANGES_DIRECTORY:
        return chdir(site->mount) == 0;
    case OPENS_DEVICE:
        return open(site->loop.path, O_RDONLY) >= 0;
    case HAS_NAMESPACE:
    case HAS_NAMESPACE_WITHOUT:
        return unshare(CLONE_NEWNS) == 0 &&
               mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
               (how == HAS_NAMESPACE || umount2(site->mount, MNT_DETACH) == 0);
    }
    return false;
}

/* A process that holds on until it is ended. */
static pid_t start(const struct fs_site *site, enum how how, const char *name)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)prctl(PR_SET_NAME, name);
        close(site->loop_fd); /* the parent's own, which is not what is looked for */
        if (!hold(site, how) || write(ready[1], "x", 1) != 1)
            _exit(1);
        while (pause() < 0)
            ;
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void stop(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static struct volume_holders find(const struct fs_site *site)
{
    struct volume_holders holders;
    struct err err = ERR_INIT;
    if (volume_holders_find(site->loop.device, &holders, &err) < 0)
        fail_msg("%s", err.text);
    return holders;
}

/* Others have a device open for a moment, to see what it is (losetup -l). */
static struct volume_holders find_only(const struct fs_site *site, const char *expected)
{
    struct volume_holders holders = find(site);
    for (int i = 0; i < 50 && strcmp(holders.text, expected) != 0; i++) {
        usleep(100000);
        holders = find(site);
    }
    assert_string_equal(holders.text, expected);
    return holders;
}

static int setup(void **state)
{
    assert_int_equal(fs_site_setup(state), 0);
    struct fs_site *site = *state;
    fs_site_mount(site);
    fs_site_write(site, "f", 10, false);
    return 0;
}

static void assert_nobody(const struct fs_site *site)
{
    struct volume_holders holders = find_only(site, "");
    assert_int_equal(holders.open + holders.namespaces + holders.shown, 0);
}

static void test_who_has_it_open(void **state)
{
    struct fs_site *site = *state;
    static const enum how ways[] = {OPENS_FILE, CHANGES_DIRECTORY, OPENS_DEVICE};
    assert_nobody(site);
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        char expected[64];
        pid_t pid = start(site, ways[i], "holder one");
        snprintf(expected, sizeof expected, "holder one (%d)", pid);
        struct volume_holders holders = find_only(site, expected);
        stop(pid);
        assert_int_equal(holders.open, 1);
        assert_int_equal(holders.namespaces, 0);
        assert_int_equal(holders.shown, 1);
        assert_int_equal(holders.pids[0], pid);
        assert_nobody(site);
    }
}

static void test_a_loop_device_on_a_file(void **state)
{
    struct fs_site *site = *state;
    char path[256];
    char expected[128];
    struct loop_device loop;
    struct err err = ERR_INIT;
    const struct loop_device_options options = {.autoclear = true};
    fs_site_write(site, "image", 1 << 20, true);
    snprintf(path, sizeof path, "%s/image", site->mount);
    int file = open(path, O_RDWR | O_CLOEXEC);
    int fd = loop_device_attach(file, &options, &loop, &err);
    close(file);
    assert_true(fd >= 0);
    snprintf(expected, sizeof expected, "the loop device %s", loop.path);
    struct volume_holders holders = find_only(site, expected);
    assert_int_equal(holders.kernel, 1);
    assert_int_equal(holders.open + holders.namespaces + holders.shown, 0);
    pid_t pid = start(site, OPENS_FILE, "one");
    snprintf(expected, sizeof expected, "one (%d); the loop device %s", pid, loop.path);
    (void)find_only(site, expected);
    stop(pid);
    close(fd);
    assert_nobody(site);
}

/* X17: unmounted here, alive there. */
static void test_other_mount_namespaces(void **state)
{
    struct fs_site *site = *state;
    char expected[128];
    struct err err = ERR_INIT;
    pid_t without = start(site, HAS_NAMESPACE_WITHOUT, "without");
    assert_nobody(site);
    pid_t with = start(site, HAS_NAMESPACE, "sandbox");
    int rc = volume_fs_unmount(site->mount, site->loop.device, false, 30000, &err);
    snprintf(expected, sizeof expected, "mounted in the mount namespace of sandbox (%d)", with);
    struct volume_holders holders = find_only(site, expected);
    int busy = volume_fs_check(site->loop.path, 30000, NULL, NULL);
    stop(with);
    stop(without);
    assert_int_equal(rc, 0);
    assert_int_equal(busy, -EBUSY);
    assert_int_equal(holders.namespaces, 1);
    assert_int_equal(holders.open, 0);
    assert_int_equal(holders.pids[0], with);
    assert_nobody(site);
}

static void test_both_and_many(void **state)
{
    struct fs_site *site = *state;
    pid_t pids[8];
    char expected[VOLUME_HOLDERS_TEXT_MAX];
    for (size_t i = 0; i < 7; i++)
        pids[i] = start(site, OPENS_FILE, "many");
    pids[7] = start(site, HAS_NAMESPACE, "other");
    snprintf(expected, sizeof expected,
             "many (%d), many (%d), many (%d), many (%d), many (%d) and 2 more; mounted in the "
             "mount namespace of other (%d)",
             pids[0], pids[1], pids[2], pids[3], pids[4], pids[7]);
    struct volume_holders holders = find_only(site, expected);
    for (size_t i = 0; i < 8; i++)
        stop(pids[i]);
    assert_int_equal(holders.open, 7);
    assert_int_equal(holders.namespaces, 1);
    assert_int_equal(holders.shown, VOLUME_HOLDERS_SHOWN + 1);
}

/* --- a process that is stuck --- */

struct stuck {
    char *page; /* of a file on the frozen file system */
};

static void *write_page(void *arg)
{
    struct stuck *stuck = arg;
    stuck->page[0] = 'y'; /* waits for the thaw, with the mapping locked */
    return NULL;
}

/* Changes the mapping that a page fault of another thread has: waits for that, with the whole
 * memory of the process locked. */
static _Noreturn void be_stuck(const struct fs_site *site, int report)
{
    char path[256];
    pthread_t thread;
    snprintf(path, sizeof path, "%s/f", site->mount);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stuck stuck = {mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)};
    int mount_fd = open(site->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (stuck.page == MAP_FAILED || ioctl(mount_fd, FIFREEZE, 0) < 0 ||
        pthread_create(&thread, NULL, write_page, &stuck) != 0)
        _exit(1);
    close(fd);
    close(mount_fd);
    usleep(200000);
    (void)!write(report, "x", 1);
    (void)mprotect(stuck.page, 4096, PROT_READ);
    _exit(0);
}

/* Ends what hangs, if the test does not. */
static pid_t start_guard(const struct fs_site *site)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        sleep(30);
        cleanup_fd int fd = open(site->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)ioctl(fd, FITHAW, 0);
        _exit(0);
    }
    return pid;
}

static void test_a_process_that_is_stuck(void **state)
{
    struct fs_site *site = *state;
    struct clock clock = clock_system();
    int ready[2];
    char byte;
    char name[32];
    pid_t first;
    struct err err = ERR_INIT;
    close(steal_fd(&site->data_fd)); /* it lies in "outer" */
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t stuck = fork();
    if (stuck == 0)
        be_stuck(site, ready[1]);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    usleep(200000);
    pid_t guard = start_guard(site);
    pid_t other = start(site, OPENS_DEVICE, "other one");
    int64_t begin = clock_mono_ns(&clock);
    /* Nobody uses this one, and who is stuck does not keep that from being seen. */
    int users = mount_users_find(site->outer, &first, name, &err);
    int64_t took = clock_mono_ns(&clock) - begin;
    /* Of the others all are found. */
    struct volume_holders holders = find(site);
    cleanup_fd int fd = open(site->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int thawed = ioctl(fd, FITHAW, 0);
    stop(guard);
    stop(other);
    assert_int_equal(waitpid(stuck, NULL, 0), stuck);
    assert_int_equal(users, 0);
    assert_int_equal(thawed, 0);
    assert_true(took < 15 * CLOCK_NS_PER_S);
    assert_non_null(strstr(holders.text, "other one"));
}

#define on_site(test) cmocka_unit_test_setup_teardown(test, setup, fs_site_teardown)

/* In a namespace of our own: programs that run at the same time make namespaces, and each that is
 * made of the host's has a copy of what is mounted there. */
static int setup_namespace(void **state)
{
    (void)state;
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ? 0
                                                                                               : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_site(test_who_has_it_open),         on_site(test_a_loop_device_on_a_file),
        on_site(test_other_mount_namespaces),  on_site(test_both_and_many),
        on_site(test_a_process_that_is_stuck),
    };
    return cmocka_run_group_tests(tests, setup_namespace, NULL);
}
