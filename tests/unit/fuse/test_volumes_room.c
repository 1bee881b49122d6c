/* What a check or a mount has to write finds no room on the host's disk: it ends, and the volume is
 * of no use until it was taken down. Workers are as the live map shows them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "volumes_site.h"

#include "cleanup.h"
#include "clock.h"
#include "volume_mount.h"
#include "volumes_internal.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    ROOM_MS = 300,
    LONG_MS = 3 * ROOM_MS, /* the guard has looked and has decided */
};

static void pause_ms(int ms)
{
    (void)nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static void attach(struct volumes_site *site)
{
    struct err err = ERR_INIT;
    site->volumes->room_ms = ROOM_MS;
    site_ok(volumes_create(site->volumes, SITE_ID, SITE_SIZE, &err), &err);
    site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
}

/* As a worker shows it. */
static void show_waiting(struct volumes_site *site, uint64_t count)
{
    atomic_store(&site_live(site)->held, count);
}

static void end(struct volumes_site *site)
{
    struct err err = ERR_INIT;
    show_waiting(site, 0);
    site_ok(volumes_discard(site->volumes, SITE_ID, &err), &err);
    site_expect_nothing(site);
    site_fsck(site);
}

static struct volume *guard_begin(struct volumes_site *site, struct room_guard *guard)
{
    struct err err = ERR_INIT;
    struct volume *volume;
    site_ok(volume_enter(site->volumes, SITE_ID, &volume, &err), &err);
    room_guard_begin(site->volumes, volume, guard);
    return volume;
}

static int guard_end(struct volumes_site *site, struct room_guard *guard, int rc, struct err *err)
{
    rc = room_guard_end(guard, rc, err);
    volume_leave(site->volumes, guard->volume);
    return rc;
}

static void test_nothing_waits(void **state)
{
    struct volumes_site *site = *state;
    struct room_guard guard;
    struct err err = ERR_INIT;
    attach(site);
    (void)guard_begin(site, &guard);
    pause_ms(LONG_MS);
    assert_int_equal(guard_end(site, &guard, 0, &err), 0);
    (void)guard_begin(site, &guard);
    (void)err_errno(&err, EIO, "cannot mount it");
    assert_int_equal(guard_end(site, &guard, -EIO, &err), -EIO);
    assert_int_equal(err.code, ERR_IO);
    assert_false(site_status(site).fenced);
    end(site);
}

/* Each time for much less than the bound, all together for longer. */
static void test_waiting_that_ends(void **state)
{
    struct volumes_site *site = *state;
    struct room_guard guard;
    struct err err = ERR_INIT;
    attach(site);
    site->volumes->room_ms = 3 * ROOM_MS;
    (void)guard_begin(site, &guard);
    for (int i = 0; i < 7; i++) {
        show_waiting(site, 1);
        pause_ms(ROOM_MS / 2);
        show_waiting(site, 0);
        pause_ms(ROOM_MS);
    }
    assert_int_equal(guard_end(site, &guard, 0, &err), 0);
    assert_false(site_status(site).fenced);
    end(site);
}

static void expect_no_room(int rc, struct err *err)
{
    site_expect(rc, err, ERR_NO_SPACE, "no room for what has to be written to it first");
    assert_string_equal(err->hint, "free space there, then try again");
    *err = (struct err)ERR_INIT;
}

/* What came of it is no longer of interest, neither a failure of its own nor a success. */
static void test_no_room(void **state)
{
    static const int results[] = {0, -EIO};
    struct volumes_site *site = *state;
    struct room_guard guard;
    struct err err = ERR_INIT;
    attach(site);
    for (size_t i = 0; i < ARRAY_SIZE(results); i++) {
        site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
        assert_false(site_status(site).fenced);
        (void)guard_begin(site, &guard);
        show_waiting(site, 1);
        int64_t begun = clock_now_ms();
        while (!site_status(site).fenced && clock_now_ms() - begun < 100 * ROOM_MS)
            pause_ms(5);
        assert_true(site_status(site).fenced);
        assert_true(clock_now_ms() - begun >= ROOM_MS);
        if (results[i] < 0)
            (void)err_errno(&err, EIO, "cannot mount it");
        expect_no_room(guard_end(site, &guard, results[i], &err), &err);
        show_waiting(site, 0);
    }
    end(site);
}

/* Then the writes of others wait too, and as long as disk_wait says. */
static void test_mounted_elsewhere(void **state)
{
    struct volumes_site *site = *state;
    struct room_guard guard;
    struct err err = ERR_INIT;
    attach(site);
    site_ok(volumes_mount(site->volumes, SITE_ID, site->mount, false, false, NULL, &err), &err);
    pid_t pid = site_start_namespace();
    site_ok(volumes_unmount(site->volumes, SITE_ID, site->mount, &err), &err);
    (void)guard_begin(site, &guard);
    show_waiting(site, 1);
    pause_ms(LONG_MS);
    bool fenced = site_status(site).fenced;
    int rc = guard_end(site, &guard, 0, &err);
    site_end_namespace(pid);
    assert_false(fenced);
    assert_int_equal(rc, 0);
    for (int i = 0; i < 5000 && site_status(site).device[0] != '\0'; i++)
        pause_ms(1);
    end(site);
}

struct late {
    struct volumes_site *site;
    pid_t worker;
};

/* When it was fenced; before keeper would miss it. */
static void *go_on_later(void *arg)
{
    const struct late *late = arg;
    struct volume_status status = {.fenced = false};
    for (int i = 0; i < 800 && !status.fenced; i++) {
        pause_ms(10);
        (void)volumes_status(late->site->volumes, SITE_ID, &status, NULL);
    }
    (void)kill(late->worker, SIGCONT);
    return NULL;
}

static bool is_mounted(const struct volumes_site *site)
{
    bool mounted = true;
    struct err err = ERR_INIT;
    site_ok(volumes_is_mounted(site->volumes, SITE_ID, site->mount, &mounted, &err), &err);
    return mounted;
}

/* The mount comes to its end just when it was given up: nobody gets one whose writes all fail. */
static void mount_too_late(struct volumes_site *site, bool read_only)
{
    struct err err = ERR_INIT;
    pthread_t thread;
    attach(site);
    struct late late = {site, site_pid(site, "varve-volume")};
    uint64_t life = site_status(site).life;
    /* It is as slow as it has to be, and answers everything in the end. */
    assert_int_equal(kill(late.worker, SIGSTOP), 0);
    show_waiting(site, 1);
    assert_int_equal(pthread_create(&thread, NULL, go_on_later, &late), 0);
    int rc = volumes_mount(site->volumes, SITE_ID, site->mount, read_only, false, NULL, &err);
    assert_int_equal(pthread_join(thread, NULL), 0);
    show_waiting(site, 0);
    expect_no_room(rc, &err);
    assert_true(site_status(site).fenced);
    assert_false(is_mounted(site));
    /* What was fenced is not used again, though nobody has detached it. */
    site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
    assert_false(site_status(site).fenced);
    assert_true(site_status(site).life != life);
    site_ok(volumes_mount(site->volumes, SITE_ID, site->mount, false, false, NULL, &err), &err);
    site_put(site, "a", 1, 1 << 20);
    site_unmount_and_detach(site);
    site_expect_nothing(site);
    site_fsck(site);
}

static void test_a_mount_that_is_too_late(void **state)
{
    mount_too_late(*state, true);
}

static void test_a_mount_that_writes_too_late(void **state)
{
    mount_too_late(*state, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing_waits, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_waiting_that_ends, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_no_room, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_mounted_elsewhere, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_a_mount_that_is_too_late, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_a_mount_that_writes_too_late, site_setup,
                                        site_teardown),
    };
    return cmocka_run_group_tests_name("volumes_room", tests, NULL, NULL);
}
