/* The host's disk is full or fails: what varved makes of it, and how a volume is got rid of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "volumes_site.h"

#include "cleanup.h"
#include "clock.h"
#include "deadline_child.h"
#include "volume_holders.h"
#include "volumes_internal.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)

enum {
    DETACH_MS = 5000,
    HANG_MS = 4000, /* longer than an unmount tries against nobody */
};

static void begin(struct volumes_site *site, bool mount)
{
    struct err err = ERR_INIT;
    site_ok(volumes_create(site->volumes, SITE_ID, SITE_SIZE, &err), &err);
    site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
    if (mount)
        site_ok(volumes_mount(site->volumes, SITE_ID, site->mount, false, false, NULL, &err), &err);
}

static void count_failed(void *arg, const char *id, const char *event, const char *detail)
{
    (void)id;
    (void)detail;
    *(int *)arg += strcmp(event, "volume-sync-failed") == 0;
}

static void watch(struct volumes_site *site)
{
    int ignored = 0;
    volumes_watch(site->volumes, 0, count_failed, &ignored);
}

/* --- unmount --- */

/* deadline_child_call: sits in the file system for a while. */
static int sit(void *arg, void *result, int *ret_fd, struct err *err)
{
    (void)result;
    (void)ret_fd;
    cleanup_fd int fd = open(arg, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot open it");
    const struct timespec pause = {.tv_sec = HANG_MS / 1000};
    (void)nanosleep(&pause, NULL);
    return 0;
}

static void *hang(void *arg)
{
    const struct deadline_child child = {
        .what = "sit there", .object = "something else", .wait_ms = 4 * HANG_MS};
    return (void *)(intptr_t)deadline_child_run(&child, sit, arg, NULL, 0, NULL, NULL);
}

/* As the one that was to shut down a file system whose writes were held. */
static void test_unmount_waits_for_own_calls(void **state)
{
    struct volumes_site *site = *state;
    struct volume_holders holders = {.own = 0};
    struct err err = ERR_INIT;
    struct stat st;
    pthread_t thread;
    void *result;
    begin(site, true);
    assert_int_equal(stat(site->mount, &st), 0);
    assert_int_equal(pthread_create(&thread, NULL, hang, site->mount), 0);
    for (int i = 0; i < 2000 && holders.own == 0; i++) {
        assert_int_equal(volume_holders_find(st.st_dev, &holders, NULL), 0);
        (void)usleep(1000);
    }
    assert_int_equal(holders.own, 1);
    assert_int_equal(holders.open, 0);
    assert_string_equal(holders.text, "");
    site_ok(volumes_unmount(site->volumes, SITE_ID, site->mount, &err), &err);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_null(result);
    site_ok(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err);
    site_expect_nothing(site);
}

/* --- a sync that failed --- */

static void test_a_sync_that_failed(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    int told = 0;
    begin(site, true);
    struct live_map_header *header = site_live(site);
    assert_false(site_status(site).failed);
    atomic_store(&header->failed_num, EIO);
    (void)atomic_fetch_or(&header->facts, LIVE_FACT_FAILED);
    assert_true(site_status(site).failed);
    assert_int_equal(site_status(site).failed_num, EIO);
    for (int i = 0; i < 3; i++)
        volumes_watch(site->volumes, 0, count_failed, &told);
    assert_int_equal(told, 1);
    site_ok(volumes_unmount(site->volumes, SITE_ID, site->mount, &err), &err);
    site_expect(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err, ERR_IO,
                "the host's disk failed to sync what was written to it: Input/output error");
    assert_non_null(strstr(err.hint, "--abandon"));
    err = (struct err)ERR_INIT;
    site_ok(volumes_abandon(site->volumes, SITE_ID, NULL, true, &err), &err);
    site_expect_nothing(site);
    /* It was the connection's own. */
    site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
    assert_false(site_status(site).failed);
    site_ok(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err);
}

/* What will be removed need not be closed. */
static void test_discard(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    begin(site, true);
    site_expect(volumes_discard(site->volumes, SITE_ID, &err), &err, ERR_CONFLICT, site->mount);
    err = (struct err)ERR_INIT;
    site_ok(volumes_unmount(site->volumes, SITE_ID, site->mount, &err), &err);
    (void)atomic_fetch_or(&site_live(site)->facts, LIVE_FACT_FAILED);
    site_expect(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err, ERR_IO, "sync");
    err = (struct err)ERR_INIT;
    /* Somebody holds it. */
    char device[256];
    (void)snprintf(device, sizeof device, "%s/volumes/%s/device", site->run, SITE_ID);
    int fd = open(device, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    site_expect(volumes_discard(site->volumes, SITE_ID, &err), &err, ERR_CONFLICT, "in use");
    err = (struct err)ERR_INIT;
    assert_true(site_status(site).attached && !site_status(site).detaching);
    (void)close(fd);
    site_ok(volumes_discard(site->volumes, SITE_ID, &err), &err);
    site_expect_nothing(site);
    site_ok(volumes_discard(site->volumes, SITE_ID, &err), &err);
    site_ok(volumes_remove(site->volumes, SITE_ID, &err), &err);
}

/* --- waiting --- */

static uint64_t now_ns(void)
{
    return (uint64_t)clock_now_ns();
}

/* As a worker shows it. */
static void show_waiting(struct live_map_header *header, uint64_t count, uint64_t since_ns)
{
    atomic_store(&header->held_since_ns, since_ns);
    atomic_store(&header->held, count);
}

static void kill_worker(struct volumes_site *site, struct live_map_header *header)
{
    pid_t pid = site_pid(site, "varve-volume");
    uint64_t starts = atomic_load(&header->starts);
    assert_int_equal(kill(pid, SIGKILL), 0);
    (void)site_other_pid(site, "varve-volume", pid);
    for (int i = 0; i < 15000 && atomic_load(&header->starts) == starts; i++)
        (void)usleep(1000);
    assert_true(atomic_load(&header->starts) > starts);
}

/* A worker that takes over counts anew; the time that disk_wait means goes on. */
static void test_waiting_outlives_workers(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    begin(site, false);
    struct live_map_header *header = site_live(site);
    uint64_t since = now_ns() - 100 * NS_PER_S;
    assert_int_equal(site_status(site).held_ns, 0);
    show_waiting(header, 5, since);
    watch(site);
    for (int i = 0; i < 3; i++) {
        kill_worker(site, header);
        assert_int_equal(atomic_load(&header->held), 0);
        watch(site);
        /* What waited has not come back yet. */
        assert_int_equal(site_status(site).held, 0);
        assert_in_range(site_status(site).held_ns, 100 * NS_PER_S, 200 * NS_PER_S);
        show_waiting(header, 5, now_ns());
        watch(site);
        assert_int_equal(site_status(site).held, 5);
        assert_in_range(site_status(site).held_ns, 100 * NS_PER_S, 200 * NS_PER_S);
    }
    /* There is room, and it is seen when all that waited would be back. */
    show_waiting(header, 0, 0);
    for (int i = 0; i < 100 && site_status(site).held_ns > 0; i++) {
        (void)usleep(100000);
        watch(site);
    }
    assert_int_equal(site_status(site).held_ns, 0);
    show_waiting(header, 1, now_ns());
    watch(site);
    assert_true(site_status(site).held_ns < 50 * NS_PER_S);
    show_waiting(header, 0, 0);
    watch(site);
    assert_int_equal(site_status(site).held_ns, 0); /* at once: nobody has died */
    site_ok(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err);
    site_expect_nothing(site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_unmount_waits_for_own_calls, site_setup,
                                        site_teardown),
        cmocka_unit_test_setup_teardown(test_a_sync_that_failed, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_discard, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_waiting_outlives_workers, site_setup, site_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
