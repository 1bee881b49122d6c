/* What lives is neither checked nor taken from whoever uses it: in another mount namespace, without
 * a path, below a mount point that somebody has taken away, or while a detach has failed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "volumes_site.h"

#include "cleanup.h"
#include "clock.h"
#include "spawn.h"
#include "volumes_internal.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    DETACH_MS = 5000,
    HELD_MS = 200,
    WAIT_MS = 15000,
};

static void pause_ms(int ms)
{
    (void)nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* Writes and syncs a file in the root directory `dir` of the volume. */
static bool writes(int dir, const char *name)
{
    cleanup_fd int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    return fd >= 0 && write(fd, "still here", 10) == 10 && fsync(fd) == 0;
}

static void expect_written(const struct volumes_site *site, const char *name)
{
    char path[256];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/%s", site->mount, name);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 10);
}

/* Whoever uses it, with the file system unmounted here by hand. */
struct user {
    pid_t pid; /* a mount namespace; 0: the directory alone keeps it */
    int dir;
};

static struct user begin(struct volumes_site *site, bool namespace)
{
    struct user user = {.pid = 0};
    char path[256];
    site_attach_and_mount(site);
    if (namespace)
        user.pid = site_start_namespace();
    (void)snprintf(path, sizeof path, "/proc/%d/root%s", user.pid ? (int)user.pid : (int)getpid(),
                   site->mount);
    user.dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(user.dir >= 0);
    assert_true(writes(user.dir, "begun"));
    assert_int_equal(umount2(site->mount, namespace ? 0 : MNT_DETACH), 0);
    return user;
}

static void end(struct user *user)
{
    (void)close(user->dir);
    if (user->pid)
        site_end_namespace(user->pid);
}

/* The journal is in use, and e2fsck would say so; a check that is asked for does not matter either.
 * Writes that wait for the host's disk are the user's, who must not be fenced for a mount. */
static void test_mounted_once_more(void **state)
{
    struct volumes_site *site = *state;
    for (int i = 0; i < 4; i++) {
        struct volumes_mended mended = {.replayed = true, .said = "untouched"};
        struct err err = ERR_INIT;
        struct user user = begin(site, i % 2 == 0);
        site->volumes->room_ms = 0;
        atomic_store(&site_live(site)->held, 1);
        int rc = volumes_mount(site->volumes, SITE_ID, site->mount, false, i < 2, &mended, &err);
        pause_ms(HELD_MS);
        atomic_store(&site_live(site)->held, 0);
        bool fenced = site_status(site).fenced;
        site->volumes->room_ms = VOLUMES_ROOM_MS;
        bool written = writes(user.dir, "later");
        if (rc == 0)
            expect_written(site, "later");
        end(&user);
        site_ok(rc, &err);
        assert_true(written);
        assert_false(fenced);
        assert_false(mended.replayed);
        assert_string_equal(mended.said, "");
        site_unmount_and_detach(site);
        site_expect_nothing(site);
        site_fsck(site);
    }
}

static void ignore(void *arg, const char *id, const char *event, const char *detail)
{
    (void)arg;
    (void)id;
    (void)event;
    (void)detail;
}

/* It is looked after as before: one that is cut off meanwhile is found dead. */
static void test_a_detach_that_fails(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    struct user user = begin(site, true);
    site_expect(volumes_detach(site->volumes, SITE_ID, 100, &err), &err, ERR_CONFLICT, "in use");
    err = (struct err)ERR_INIT;
    site_expect(volumes_discard(site->volumes, SITE_ID, &err), &err, ERR_CONFLICT, "in use");
    err = (struct err)ERR_INIT;
    struct volume_status status = site_status(site);
    bool written = writes(user.dir, "later");
    struct volume *volume = volume_pin(site->volumes, SITE_ID, status.life);
    if (volume) {
        volume_cut(site->volumes, volume);
        volume_unpin(site->volumes, volume);
    }
    volumes_watch(site->volumes, 0, ignore, NULL);
    bool dead = site_status(site).dead;
    end(&user);
    assert_true(status.attached && !status.detaching && !status.dead);
    assert_true(written);
    assert_true(dead);
    site_ok(volumes_abandon(site->volumes, SITE_ID, site->mount, true, &err), &err);
    site_expect_nothing(site);
}

/* The loop device is found by the name of its file, which has no name then. */
static void test_a_mount_point_that_was_taken_away(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    char path[256];
    site_attach_and_mount(site);
    pid_t worker = site_pid(site, "varve-volume");
    cleanup_fd int dir = open(site->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)snprintf(path, sizeof path, "%s/volumes/%s", site->run, SITE_ID);
    assert_int_equal(umount2(path, MNT_DETACH), 0);
    int rc = volumes_detach(site->volumes, SITE_ID, 100, &err);
    bool written = writes(dir, "later");
    bool same = site_pid(site, "varve-volume") == worker;
    (void)close(steal_fd(&dir));
    assert_int_equal(umount2(site->mount, 0), 0);
    site_expect(rc, &err, ERR_CONFLICT, "in use");
    assert_true(written);
    assert_true(same);
    /* With its last user it can go. */
    err = (struct err)ERR_INIT;
    site_ok(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err);
    site_expect_nothing(site);
    site_attach_and_mount(site);
    expect_written(site, "later");
    site_unmount_and_detach(site);
    site_fsck(site);
}

/* Nobody has its descriptors but its worker, who cannot be asked: he serves it all the same. */
static void test_a_worker_that_cannot_be_asked(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    char path[256];
    site_attach_and_mount(site);
    site_close(site);
    assert_int_equal(kill(site_pid(site, "varve-keeper"), SIGKILL), 0);
    for (int64_t until = clock_now_ms() + WAIT_MS;
         site_pid(site, "varve-keeper") > 0 && clock_now_ms() < until;)
        pause_ms(5);
    (void)snprintf(path, sizeof path, "%s/workers/%s.sock", site->run, SITE_ID);
    assert_int_equal(unlink(path), 0);
    site_open(site);
    site_ok(volumes_adopt(site->volumes, &err), &err);
    volumes_watch(site->volumes, 0, ignore, NULL);
    struct volume_status status = site_status(site);
    assert_true(status.attached && !status.dead);
    site_put(site, "a", 1, 1 << 20);
    assert_int_equal(kill(site_pid(site, "varve-volume"), SIGKILL), 0);
    for (int64_t until = clock_now_ms() + WAIT_MS;
         !site_status(site).dead && clock_now_ms() < until;)
        volumes_watch(site->volumes, 50, ignore, NULL);
    assert_true(site_status(site).dead);
    site_ok(volumes_abandon(site->volumes, SITE_ID, site->mount, true, &err), &err);
    site_attach_and_mount(site);
    site_check(site, "a", 1, 1 << 20);
    site_unmount_and_detach(site);
    site_expect_nothing(site);
    site_fsck(site);
}

/* What is told takes a while, as it is written down; somebody serves the volume afterwards. */
struct recovering {
    struct live_map_header *header;
    uint32_t pid;
    int told;
};

static void recover(void *arg, const char *id, const char *event, const char *detail)
{
    struct recovering *recovering = arg;
    (void)id;
    (void)detail;
    if (strcmp(event, "worker-refused") != 0)
        return;
    recovering->told++;
    (void)atomic_fetch_and(&recovering->header->facts, ~(uint32_t)LIVE_FACT_REFUSED);
    recovering->header->text[0] = '\0';
    atomic_store(&recovering->header->pid, recovering->pid);
}

static void test_served_again_while_it_is_told(void **state)
{
    struct volumes_site *site = *state;
    site_attach_and_mount(site);
    struct live_map_header *header = site_live(site);
    struct recovering recovering = {.header = header, .pid = atomic_load(&header->pid)};
    volumes_watch(site->volumes, 0, ignore, NULL);
    atomic_store(&header->pid, 0);
    (void)snprintf(header->text, sizeof header->text, "not now");
    (void)atomic_fetch_or(&header->facts, LIVE_FACT_REFUSED);
    volumes_watch(site->volumes, 0, recover, &recovering);
    assert_int_equal(recovering.told, 1);
    assert_false(site_status(site).dead);
    site_put(site, "a", 1, 1 << 20);
    site_unmount_and_detach(site);
    site_expect_nothing(site);
    site_fsck(site);
}

#define with_site(test) cmocka_unit_test_setup_teardown(test, site_setup, site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_site(test_mounted_once_more),
        with_site(test_a_detach_that_fails),
        with_site(test_a_mount_point_that_was_taken_away),
        with_site(test_a_worker_that_cannot_be_asked),
        with_site(test_served_again_while_it_is_told),
    };
    return cmocka_run_group_tests_name("volumes_living", tests, NULL, NULL);
}
