/* The life of a volume, with the real programs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "volumes_site.h"

#include "cleanup.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

enum {
    DETACH_MS = 5000,
};

static void test_content_stays(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    site_attach_and_mount(site);
    site_put(site, "a", 1, 3 << 20);
    site_unmount_and_detach(site);
    site_expect_nothing(site);
    site_fsck(site);
    site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
    site_ok(volumes_mount(site->volumes, SITE_ID, site->mount, false, false, NULL, &err), &err);
    site_check(site, "a", 1, 3 << 20);
    site_unmount_and_detach(site);
    site_expect_nothing(site);
}

static void test_repeats(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    bool mounted = true;
    site_attach_and_mount(site);
    site_attach_and_mount(site);
    site_put(site, "a", 2, 10000);
    site_ok(volumes_is_mounted(site->volumes, SITE_ID, site->mount, &mounted, &err), &err);
    assert_true(mounted);
    site_unmount_and_detach(site);
    site_unmount_and_detach(site);
    site_ok(volumes_is_mounted(site->volumes, SITE_ID, site->mount, &mounted, &err), &err);
    assert_false(mounted);
    site_ok(volumes_remove(site->volumes, SITE_ID, &err), &err);
    site_ok(volumes_remove(site->volumes, SITE_ID, &err), &err);
    struct volume_status none;
    site_expect(volumes_status(site->volumes, SITE_ID, &none, &err), &err, ERR_NOT_FOUND, SITE_ID);
    err = (struct err)ERR_INIT;
    site_expect(volumes_attach(site->volumes, SITE_ID, &err), &err, ERR_NOT_FOUND, SITE_ID);
    site_expect_nothing(site);
}

static void test_status(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    site_ok(volumes_create(site->volumes, SITE_ID, SITE_SIZE, &err), &err);
    struct volume_status detached = site_status(site);
    assert_false(detached.attached);
    assert_int_equal(detached.size, SITE_SIZE);
    assert_in_range(detached.local, 4096, 64 << 20);
    site_attach_and_mount(site);
    struct volume_status before = site_status(site);
    assert_true(before.attached);
    assert_false(before.detaching || before.dead || before.fenced);
    assert_int_equal(before.worker, site_pid(site, "varve-volume"));
    assert_memory_equal(before.device, "/dev/loop", 9);
    assert_int_equal(before.starts, 1);
    assert_true(before.resends);
    site_put(site, "a", 3, 8 << 20);
    struct volume_status after = site_status(site);
    assert_in_range(after.local - before.local, 8 << 20, 16 << 20);
    assert_true(after.write_bytes - before.write_bytes >= 8 << 20);
    site_expect(volumes_remove(site->volumes, SITE_ID, &err), &err, ERR_CONFLICT, "attached");
    err = (struct err)ERR_INIT;
    site_expect(volumes_detach(site->volumes, SITE_ID, 100, &err), &err, ERR_CONFLICT, site->mount);
    assert_false(site_status(site).detaching);
    site_unmount_and_detach(site);
    assert_int_equal(site_status(site).worker, 0);
}

/* A held write is one request of the worker, and reads have requests left. */
static void test_queue(void **state)
{
    struct volumes_site *site = *state;
    const struct {
        const char *name;
        long value;
    } wanted[] = {{"max_sectors_kb", VOLUME_MAX_WRITE / 1024},
                  {"nr_requests", VOLUME_LOOP_REQUESTS}};
    site_attach_and_mount(site);
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        char path[768];
        char text[32] = "";
        (void)snprintf(path, sizeof path, "/sys/block/%s/queue/%s",
                       site_status(site).device + strlen("/dev/"), wanted[i].name);
        cleanup_fd int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0 && errno == EROFS)
            continue; /* a container: said in the docs */
        assert_true(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
        assert_int_equal(strtol(text, NULL, 10), wanted[i].value);
    }
    site_unmount_and_detach(site);
}

/* --- more than one --- */

struct attaching {
    pthread_t thread;
    struct volumes *volumes;
    struct err err;
    int rc;
};

static void *attach_one(void *arg)
{
    struct attaching *attaching = arg;
    attaching->rc = volumes_attach(attaching->volumes, SITE_ID, &attaching->err);
    return NULL;
}

static void test_two_attach(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    struct attaching all[4];
    site_ok(volumes_create(site->volumes, SITE_ID, SITE_SIZE, &err), &err);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        all[i] = (struct attaching){.volumes = site->volumes, .err = ERR_INIT};
        assert_int_equal(pthread_create(&all[i].thread, NULL, attach_one, &all[i]), 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        (void)pthread_join(all[i].thread, NULL);
        site_ok(all[i].rc, &all[i].err);
    }
    assert_int_equal(site_status(site).starts, 1);
    site_ok(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err);
    site_expect_nothing(site);
}

/* --- who holds on --- */

static void test_busy_mount(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    char pid[32];
    site_attach_and_mount(site);
    site_writer_start(site);
    site_writer_wait(site, 2);
    (void)snprintf(pid, sizeof pid, "(%d)", (int)site->writer);
    /* Between two files it has none open. */
    cleanup_fd int dir = open(site->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    site_expect(volumes_unmount(site->volumes, SITE_ID, site->mount, &err), &err, ERR_CONFLICT,
                pid);
    site_writer_wait(site, 2);
    site_writer_stop(site);
    (void)close(steal_fd(&dir));
    site_unmount_and_detach(site);
    site_fsck(site);
}

/* No process is to blame for these: the mount that is in the way is named. */
static void test_mounts_in_the_way(void **state)
{
    struct volumes_site *site = *state;
    char below[512];
    const char *const points[] = {below, site->mount};
    const char *const says[] = {"is in use by what is mounted at",
                                "something else than the volume is mounted at"};
    site_attach_and_mount(site);
    (void)snprintf(below, sizeof below, "%s/below", site->mount);
    assert_int_equal(mkdir(below, 0700), 0);
    for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
        struct err err = ERR_INIT;
        char text[600];
        (void)snprintf(text, sizeof text, "%s %s", says[i], points[i]);
        assert_int_equal(mount("none", points[i], "tmpfs", 0, NULL), 0);
        int rc = volumes_unmount(site->volumes, SITE_ID, site->mount, &err);
        assert_int_equal(umount2(points[i], MNT_DETACH), 0);
        site_expect(rc, &err, ERR_CONFLICT, text);
        assert_string_equal(err.hint, "unmount that first");
    }
    site_unmount_and_detach(site);
    site_expect_nothing(site);
}

static void test_other_namespace(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    char text[32];
    site_attach_and_mount(site);
    site_put(site, "a", 4, 100000);
    pid_t pid = site_start_namespace();
    site_ok(volumes_unmount(site->volumes, SITE_ID, site->mount, &err), &err);
    int rc = volumes_detach(site->volumes, SITE_ID, 300, &err);
    (void)snprintf(text, sizeof text, "(%d)", (int)pid);
    site_end_namespace(pid);
    site_expect(rc, &err, ERR_CONFLICT, text);
    assert_true(site_status(site).attached && !site_status(site).detaching);
    err = (struct err)ERR_INIT;
    site_ok(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err);
    site_expect_nothing(site);
    site_fsck(site);
}

/* An attach in the middle of that finds it out and harms nobody. */
static void test_attach_while_held(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    char path[512];
    site_attach_and_mount(site);
    pid_t pid = site_start_namespace();
    site_ok(volumes_unmount(site->volumes, SITE_ID, site->mount, &err), &err);
    int detached = volumes_detach(site->volumes, SITE_ID, 100, NULL);
    int attached = volumes_attach(site->volumes, SITE_ID, &err);
    (void)snprintf(path, sizeof path, "/proc/%d/root%s/a", (int)pid, site->mount);
    cleanup_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    bool written = fd >= 0 && write(fd, "still here", 10) == 10 && fsync(fd) == 0;
    (void)close(steal_fd(&fd));
    site_end_namespace(pid);
    assert_true(detached < 0);
    site_ok(attached, &err);
    assert_true(written);
    site_attach_and_mount(site);
    (void)snprintf(path, sizeof path, "%s/a", site->mount);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 10);
    site_unmount_and_detach(site);
    site_expect_nothing(site);
    site_fsck(site);
}

/* What sits in the old mount keeps the old device, not the volume. */
static void test_abandon(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    site_attach_and_mount(site);
    site_put(site, "a", 5, 1 << 20);
    cleanup_fd int dir = open(site->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    site_ok(volumes_abandon(site->volumes, SITE_ID, site->mount, true, &err), &err);
    assert_true(openat(dir, "b", O_WRONLY | O_CREAT | O_CLOEXEC, 0644) < 0 || fsync(dir) < 0);
    site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
    site_ok(volumes_mount(site->volumes, SITE_ID, site->mount, false, true, NULL, &err), &err);
    site_check(site, "a", 5, 1 << 20);
    site_unmount_and_detach(site);
    (void)close(steal_fd(&dir));
    site_fsck(site);
}

/* --- size, discards, fencing --- */

static void test_resize(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    struct statvfs fs;
    site_attach_and_mount(site);
    site_writer_start(site);
    site_writer_wait(site, 3);
    /* 1: this host may not grow what is in use. */
    site_ok(volumes_resize(site->volumes, SITE_ID, 2 * SITE_SIZE, site->mount, &err), &err);
    assert_int_equal(site_status(site).size, 2 * SITE_SIZE);
    site_writer_wait(site, 3);
    site_writer_stop(site);
    if (volumes_resize(site->volumes, SITE_ID, 2 * SITE_SIZE, site->mount, &err) == 1) {
        site_ok(volumes_unmount(site->volumes, SITE_ID, site->mount, &err), &err);
        site_ok(volumes_mount(site->volumes, SITE_ID, site->mount, false, false, NULL, &err), &err);
    }
    assert_int_equal(volumes_resize(site->volumes, SITE_ID, 2 * SITE_SIZE, site->mount, &err), 0);
    assert_int_equal(statvfs(site->mount, &fs), 0);
    assert_true(fs.f_blocks * fs.f_frsize > SITE_SIZE + SITE_SIZE / 2);
    site_put(site, "large", 6, SITE_SIZE + (8 << 20));
    site_check(site, "large", 6, SITE_SIZE + (8 << 20));
    site_expect(volumes_resize(site->volumes, SITE_ID, SITE_SIZE, site->mount, &err), &err,
                ERR_INVALID, "only grow");
    site_unmount_and_detach(site);
    site_fsck(site);
    err = (struct err)ERR_INIT;
    /* Unmounted: the next mount grows the file system. */
    site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
    site_ok(volumes_resize(site->volumes, SITE_ID, 3 * SITE_SIZE, NULL, &err), &err);
    site_ok(volumes_mount(site->volumes, SITE_ID, site->mount, false, false, NULL, &err), &err);
    site_check(site, "large", 6, SITE_SIZE + (8 << 20));
    assert_int_equal(statvfs(site->mount, &fs), 0);
    assert_true(fs.f_blocks * fs.f_frsize > 2 * SITE_SIZE + SITE_SIZE / 2);
    site_unmount_and_detach(site);
    site_fsck(site);
}

static void test_trim(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    char path[256];
    site_attach_and_mount(site);
    uint64_t empty = site_status(site).local;
    site_put(site, "a", 7, 32 << 20);
    site_put(site, "b", 8, 1 << 20);
    (void)snprintf(path, sizeof path, "%s/a", site->mount);
    assert_int_equal(unlink(path), 0);
    /* ext4 trims what its journal has let go of. */
    cleanup_fd int dir = open(site->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(syncfs(dir), 0);
    assert_true(site_status(site).local >= empty + (32 << 20));
    site_ok(volumes_trim(site->volumes, SITE_ID, site->mount, &err), &err);
    assert_in_range(site_status(site).local, 0, empty + (4 << 20));
    site_check(site, "b", 8, 1 << 20);
    (void)close(steal_fd(&dir));
    site_unmount_and_detach(site);
    site_fsck(site);
}

/* Somebody unmounts without us. */
static void test_unmounted_by_hand(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    site_attach_and_mount(site);
    site_put(site, "a", 10, 1 << 20);
    assert_int_equal(umount(site->mount), 0);
    for (int i = 0; i < 2000 && site_status(site).device[0] != '\0'; i++)
        (void)usleep(1000);
    assert_string_equal(site_status(site).device, "");
    assert_true(site_status(site).attached);
    site_ok(volumes_mount(site->volumes, SITE_ID, site->mount, false, false, NULL, &err), &err);
    site_check(site, "a", 10, 1 << 20);
    site_unmount_and_detach(site);
    site_expect_nothing(site);
}

/* Fenced, then given up by an ordinary unmount: what was written before is there. */
static void test_unmount_fenced(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    site_attach_and_mount(site);
    site_put(site, "a", 11, 1 << 20);
    site_ok(volumes_fence(site->volumes, SITE_ID, site_status(site).life, site->mount, &err), &err);
    site_unmount_and_detach(site);
    site_expect_nothing(site);
    site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
    assert_false(site_status(site).fenced);
    site_ok(volumes_mount(site->volumes, SITE_ID, site->mount, false, true, NULL, &err), &err);
    site_check(site, "a", 11, 1 << 20);
    site_unmount_and_detach(site);
    site_fsck(site);
}

static void test_fence(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    site_attach_and_mount(site);
    site_put(site, "a", 9, 1 << 20);
    site_ok(volumes_fence(site->volumes, SITE_ID, site_status(site).life, site->mount, &err), &err);
    assert_true(site_status(site).fenced);
    char path[256];
    (void)snprintf(path, sizeof path, "%s/b", site->mount);
    assert_int_equal(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644), -1);
    assert_int_equal(errno, EIO);
    site_ok(volumes_abandon(site->volumes, SITE_ID, site->mount, true, &err), &err);
    site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
    site_ok(volumes_mount(site->volumes, SITE_ID, site->mount, false, true, NULL, &err), &err);
    site_check(site, "a", 9, 1 << 20);
    site_unmount_and_detach(site);
    site_fsck(site);
}

static int count(void *arg, const char *id, struct err *err)
{
    (void)err;
    assert_string_equal(id, SITE_ID);
    (*(int *)arg)++;
    return 0;
}

static void test_each(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    int seen = 0;
    site_ok(volumes_each(site->volumes, count, &seen, &err), &err);
    assert_int_equal(seen, 0);
    site_attach_and_mount(site);
    site_ok(volumes_each(site->volumes, count, &seen, &err), &err);
    assert_int_equal(seen, 1);
    volumes_limit(site->volumes, SITE_ID, 1 << 20, 0);
    site_unmount_and_detach(site);
    volumes_limit(site->volumes, SITE_ID, 0, 0);
    site_ok(volumes_each(site->volumes, count, &seen, &err), &err);
    assert_int_equal(seen, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_content_stays, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_repeats, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_status, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_queue, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_two_attach, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_busy_mount, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_mounts_in_the_way, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_other_namespace, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_attach_while_held, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_abandon, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_resize, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_trim, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_unmounted_by_hand, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_unmount_fenced, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_fence, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_each, site_setup, site_teardown),
    };
    return cmocka_run_group_tests_name("volumes", tests, NULL, NULL);
}
