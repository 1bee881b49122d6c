/* Things that happen to a volume at once: what was meant for one life of it, from attach to detach,
 * never meets a later one, nor anything else that has got its numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "volumes_site.h"

#include "cleanup.h"
#include "clock.h"
#include "spawn.h"
#include "volume_mount.h"
#include "volumes_internal.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    DETACH_MS = 5000,
    WAIT_MS = 15000,
};

static void pause_ms(int ms)
{
    (void)nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static void test_what_meant_an_earlier_life(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    site_attach_and_mount(site);
    uint64_t life = site_status(site).life;
    assert_int_not_equal(life, 0);
    site_unmount_and_detach(site);
    assert_int_equal(site_status(site).life, 0);
    site_attach_and_mount(site);
    assert_int_not_equal(site_status(site).life, life);
    pid_t worker = site_pid(site, "varve-volume");
    assert_int_equal(kill(worker, SIGSTOP), 0); /* so that a probe would find it silent */
    assert_int_equal(setenv("VARVE_KEEPER_SILENCE_MS", "300", 1), 0);
    int probed = volumes_probe(site->volumes, SITE_ID, life, &err);
    (void)unsetenv("VARVE_KEEPER_SILENCE_MS");
    assert_int_equal(kill(worker, SIGCONT), 0);
    assert_int_equal(probed, 0);
    assert_int_equal(volumes_give_up(site->volumes, SITE_ID, life), 0);
    site_expect(volumes_fence(site->volumes, SITE_ID, life, site->mount, &err), &err, ERR_CONFLICT,
                "detached meanwhile");
    assert_false(site_status(site).dead || site_status(site).fenced);
    site_put(site, "a", 1, 1 << 20);
    assert_int_equal(site_pid(site, "varve-volume"), worker);
    site_unmount_and_detach(site);
    site_expect_nothing(site);
    site_fsck(site);
}

static void *detach(void *arg)
{
    struct volumes_site *site = arg;
    return (void *)(intptr_t)volumes_detach(site->volumes, SITE_ID, DETACH_MS, NULL);
}

static bool is_ending(struct volumes_site *site)
{
    struct volume *volume = volume_pin(site->volumes, SITE_ID, VOLUME_ANY_LIFE);
    if (volume)
        volume_unpin(site->volumes, volume);
    return !volume;
}

/* Whoever is about to end its connection, or to fence it, finds what he meant. */
static void test_the_end_waits(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    pthread_t thread;
    void *result;
    char path[256];
    dev_t device;
    site_attach_and_mount(site);
    site_ok(volumes_unmount(site->volumes, SITE_ID, site->mount, &err), &err);
    uint64_t life = site_status(site).life;
    struct volume *volume = volume_pin(site->volumes, SITE_ID, life);
    assert_non_null(volume);
    assert_int_equal(pthread_create(&thread, NULL, detach, site), 0);
    for (int64_t until = clock_now_ms() + WAIT_MS; !is_ending(site) && clock_now_ms() < until;)
        pause_ms(1);
    pause_ms(100);
    (void)snprintf(path, sizeof path, "%s/volumes/%s", site->run, SITE_ID);
    int mounted = volume_mount_look(path, &device, &err);
    bool ending = is_ending(site);
    struct volume *late = volume_pin(site->volumes, SITE_ID, life);
    volume_unpin(site->volumes, volume);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_null(result);
    assert_int_equal(mounted, 1);
    assert_true(ending);
    assert_null(late);
    site_expect_nothing(site);
}

static void count_dead(void *arg, const char *id, const char *event, const char *detail)
{
    (void)id;
    (void)detail;
    *(int *)arg += strcmp(event, "volume-dead") == 0;
}

static void die(struct volumes_site *site)
{
    struct volume *volume = volume_pin(site->volumes, SITE_ID, VOLUME_ANY_LIFE);
    assert_non_null(volume);
    volume_cut(site->volumes, volume);
    volume_unpin(site->volumes, volume);
}

/* Somebody has the entry of the table all the time, as a look at many volumes does: what is known
 * of the life that has ended is not believed of the next one. */
static void test_an_entry_that_stays(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    int told = 0;
    site_attach_and_mount(site);
    struct volume *volume = volume_peek(site->volumes, SITE_ID);
    assert_non_null(volume);
    /* Nobody has served it for long: its first worker died, and others cannot begin. */
    (void)pthread_mutex_lock(&site->volumes->table);
    volume->unserved_ms = clock_now_ms() - WAIT_MS;
    volume->unserved_starts = atomic_load(&volume->live.header->starts);
    volume->suspected = true;
    (void)pthread_mutex_unlock(&site->volumes->table);
    assert_int_not_equal(site_status(site).unserved_ns, 0);
    die(site);
    volumes_watch(site->volumes, 0, count_dead, &told);
    assert_int_equal(told, 1);
    site_ok(volumes_abandon(site->volumes, SITE_ID, site->mount, true, &err), &err);
    site_attach_and_mount(site);
    assert_ptr_equal(volume_peek(site->volumes, SITE_ID), volume);
    volume_unpeek(site->volumes, volume);
    struct volume_status status = site_status(site);
    assert_int_equal(status.starts, 1);
    assert_int_equal(status.unserved_ns, 0);
    assert_false(status.suspected);
    assert_int_equal(volumes_give_up(site->volumes, SITE_ID, status.life), 0);
    site_put(site, "a", 1, 1 << 20);
    die(site);
    volumes_watch(site->volumes, 0, count_dead, &told);
    assert_int_equal(told, 2);
    site_ok(volumes_abandon(site->volumes, SITE_ID, site->mount, true, &err), &err);
    volume_unpeek(site->volumes, volume);
    site_expect_nothing(site);
}

/* --- the loop device --- */

static void *ask_to_abandon(void *arg)
{
    struct err err = ERR_INIT;
    return (void *)(intptr_t)site_ask(arg, SITE_ABANDON, 0, NULL, &err);
}

static bool is_stopped(pid_t pid)
{
    char path[64];
    char text[256] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    cleanup_file FILE *file = fopen(path, "re");
    const char *state = file && fgets(text, sizeof text, file) ? strrchr(text, ')') : NULL;
    return state && state[1] == ' ' && state[2] == 'T';
}

/* Between the unmount, after which nobody uses it any more, and the end of the loop device: nobody
 * else gets it, who would lose his file then. */
static void test_abandon_keeps_its_loop_device(void **state)
{
    struct volumes_site *site = *state;
    struct volume_status status;
    struct err err = ERR_INIT;
    pthread_t thread;
    void *result;
    char path[256];
    (void)snprintf(path, sizeof path, "%s/others", site->scratch->path);
    cleanup_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && ftruncate(fd, 1 << 20) == 0);
    site_start(site, "volume-abandon.unmounted=stop");
    site_ok(site_ask(site, SITE_CREATE, SITE_SIZE, NULL, &err), &err);
    site_ok(site_ask(site, SITE_ATTACH, 0, NULL, &err), &err);
    site_ok(site_ask(site, SITE_MOUNT, 0, NULL, &err), &err);
    site_ok(site_ask(site, SITE_STATUS, 0, &status, &err), &err);
    assert_int_equal(pthread_create(&thread, NULL, ask_to_abandon, site), 0);
    int64_t until = clock_now_ms() + WAIT_MS;
    while (!is_stopped(site->daemon.pid) && clock_now_ms() < until)
        pause_ms(1);
    bool stopped = is_stopped(site->daemon.pid);
    pause_ms(500); /* the unmounted file system needs some time to go */
    const char *const take[] = {"losetup", status.device, path, NULL};
    const char *const drop[] = {"losetup", "--detach", status.device, NULL};
    bool taken = spawn_tool(take, NULL, NULL) == 0;
    if (taken) /* before anything can fail */
        (void)spawn_tool(drop, NULL, NULL);
    (void)kill(site->daemon.pid, SIGCONT);
    (void)pthread_join(thread, &result);
    site_kill(site);
    assert_true(stopped);
    assert_false(taken);
    assert_null(result);
    site_expect_nothing(site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_meant_an_earlier_life, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_the_end_waits, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_an_entry_that_stays, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_abandon_keeps_its_loop_device, site_setup_bare,
                                        site_teardown),
    };
    return cmocka_run_group_tests_name("volumes_life", tests, NULL, NULL);
}
