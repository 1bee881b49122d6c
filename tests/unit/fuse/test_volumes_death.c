/* Any two of varved, keeper and worker are killed while somebody writes: no error inside, a clean
 * file system afterwards (I10). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "volumes_site.h"

#include "cleanup.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    ROUNDS = 4, /* of each kill */
};

static void ask(struct volumes_site *site, enum site_op op)
{
    struct err err = ERR_INIT;
    site_ok(site_ask(site, op, SITE_SIZE, NULL, &err), &err);
}

static void begin(struct volumes_site *site)
{
    site_start(site, NULL);
    ask(site, SITE_CREATE);
    ask(site, SITE_ATTACH);
    ask(site, SITE_MOUNT);
    site_writer_start(site);
    site_writer_wait(site, 3);
}

static void end(struct volumes_site *site)
{
    site_writer_wait(site, 5);
    site_writer_stop(site);
    ask(site, SITE_UNMOUNT);
    ask(site, SITE_DETACH);
    site_expect_nothing(site);
    site_fsck(site);
}

/* The event is told by the watching thread, within a second. */
static void expect_event(const _Atomic unsigned *count, unsigned wanted)
{
    for (int i = 0; i < 3000 && atomic_load(count) < wanted; i++)
        (void)usleep(1000);
    assert_true(atomic_load(count) >= wanted);
}

static void test_worker(void **state)
{
    struct volumes_site *site = *state;
    begin(site);
    for (unsigned i = 1; i <= 3 * ROUNDS; i++) {
        pid_t pid = site_pid(site, "varve-volume");
        assert_int_equal(kill(pid, SIGKILL), 0);
        (void)site_other_pid(site, "varve-volume", pid);
        site_writer_wait(site, 3);
    }
    expect_event(&site->shared->restarted, 1);
    end(site);
}

static void test_keeper(void **state)
{
    struct volumes_site *site = *state;
    begin(site);
    pid_t worker = site_pid(site, "varve-volume");
    for (unsigned i = 1; i <= ROUNDS; i++) {
        pid_t pid = site_pid(site, "varve-keeper");
        assert_int_equal(kill(pid, SIGKILL), 0);
        (void)site_other_pid(site, "varve-keeper", pid);
        expect_event(&site->shared->keeper_restarted, i);
        assert_int_equal(site_pid(site, "varve-volume"), worker);
        /* The new one watches a worker that is not its child. */
        assert_int_equal(kill(worker, SIGKILL), 0);
        worker = site_other_pid(site, "varve-volume", worker);
        site_writer_wait(site, 3);
    }
    end(site);
}

static void test_varved(void **state)
{
    struct volumes_site *site = *state;
    begin(site);
    pid_t keeper = site_pid(site, "varve-keeper");
    pid_t worker = site_pid(site, "varve-volume");
    for (unsigned i = 1; i <= ROUNDS; i++) {
        site_kill(site);
        site_writer_wait(site, 3);
        site_start(site, NULL);
        struct volume_status status;
        struct err err = ERR_INIT;
        site_ok(site_ask(site, SITE_STATUS, 0, &status, &err), &err);
        assert_true(status.attached && !status.dead && !status.detaching);
        assert_int_equal(status.worker, worker);
        assert_memory_equal(status.device, "/dev/loop", 9);
        assert_int_equal(site_pid(site, "varve-keeper"), keeper);
    }
    end(site);
}

static void test_worker_and_keeper(void **state)
{
    struct volumes_site *site = *state;
    begin(site);
    for (unsigned i = 1; i <= ROUNDS; i++) {
        pid_t worker = site_pid(site, "varve-volume");
        pid_t keeper = site_pid(site, "varve-keeper");
        assert_int_equal(kill(i % 2 ? worker : keeper, SIGKILL), 0);
        assert_int_equal(kill(i % 2 ? keeper : worker, SIGKILL), 0);
        (void)site_other_pid(site, "varve-keeper", keeper);
        (void)site_other_pid(site, "varve-volume", worker);
        site_writer_wait(site, 3);
    }
    end(site);
}

static void test_varved_and_worker(void **state)
{
    struct volumes_site *site = *state;
    begin(site);
    for (unsigned i = 1; i <= ROUNDS; i++) {
        pid_t worker = site_pid(site, "varve-volume");
        if (i % 2)
            site_kill(site);
        assert_int_equal(kill(worker, SIGKILL), 0);
        if (i % 2 == 0)
            site_kill(site);
        (void)site_other_pid(site, "varve-volume", worker);
        site_writer_wait(site, 3);
        site_start(site, NULL);
    }
    end(site);
}

static void test_varved_and_keeper(void **state)
{
    struct volumes_site *site = *state;
    begin(site);
    for (unsigned i = 1; i <= ROUNDS; i++) {
        pid_t worker = site_pid(site, "varve-volume");
        pid_t keeper = site_pid(site, "varve-keeper");
        site_kill(site);
        assert_int_equal(kill(keeper, SIGKILL), 0);
        /* The worker alone holds everything. */
        site_writer_wait(site, 3);
        site_start(site, NULL);
        (void)site_other_pid(site, "varve-keeper", keeper);
        assert_int_equal(site_pid(site, "varve-volume"), worker);
        assert_int_equal(kill(worker, SIGKILL), 0);
        (void)site_other_pid(site, "varve-volume", worker);
        site_writer_wait(site, 3);
    }
    end(site);
}

/* All three: the sandbox sees it, what was synced stays, and it is told. */
static void test_all(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    struct volume_status status;
    begin(site);
    site_put(site, "synced", 1, 3 << 20);
    site_writer_stop(site);
    pid_t worker = site_pid(site, "varve-volume");
    pid_t keeper = site_pid(site, "varve-keeper");
    assert_int_equal(kill(site->daemon.pid, SIGSTOP), 0);
    assert_int_equal(kill(keeper, SIGKILL), 0);
    assert_int_equal(kill(worker, SIGKILL), 0);
    site_kill(site);
    site_start(site, NULL);
    site_ok(site_ask(site, SITE_STATUS, 0, &status, &err), &err);
    assert_true(status.dead && !status.attached);
    site_expect(site_ask(site, SITE_ATTACH, 0, NULL, &err), &err, ERR_CONFLICT, "has ended");
    site_expect(site_ask(site, SITE_DETACH, 0, NULL, &err), &err, ERR_CONFLICT, "has ended");
    ask(site, SITE_ABANDON);
    site_expect_nothing(site);
    ask(site, SITE_ATTACH);
    ask(site, SITE_MOUNT_CHECKED);
    site_check(site, "synced", 1, 3 << 20);
    ask(site, SITE_UNMOUNT);
    ask(site, SITE_DETACH);
    site_expect_nothing(site);
    site_fsck(site);
}

/* --- processes that are stopped --- */

static void test_stopped_worker(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    struct volume_status status;
    assert_int_equal(setenv("VARVE_KEEPER_SILENCE_MS", "2500", 1), 0);
    begin(site);
    pid_t worker = site_pid(site, "varve-volume");
    assert_int_equal(kill(worker, SIGSTOP), 0);
    /* Nothing that only looks waits for it. */
    struct timespec before;
    struct timespec after;
    (void)clock_gettime(CLOCK_MONOTONIC, &before);
    site_ok(site_ask(site, SITE_STATUS, 0, &status, &err), &err);
    (void)clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true(after.tv_sec - before.tv_sec <= 1);
    assert_int_equal(status.worker, worker);
    (void)site_other_pid(site, "varve-volume", worker);
    site_writer_wait(site, 3);
    expect_event(&site->shared->silent, 1);
    end(site);
    (void)unsetenv("VARVE_KEEPER_SILENCE_MS");
}

static void test_stopped_keeper(void **state)
{
    struct volumes_site *site = *state;
    assert_int_equal(setenv("VARVE_KEEPER_SILENCE_MS", "2500", 1), 0);
    begin(site);
    pid_t keeper = site_pid(site, "varve-keeper");
    assert_int_equal(kill(keeper, SIGSTOP), 0);
    site_writer_wait(site, 3);
    (void)site_other_pid(site, "varve-keeper", keeper);
    expect_event(&site->shared->keeper_silent, 1);
    pid_t worker = site_pid(site, "varve-volume");
    assert_int_equal(kill(worker, SIGKILL), 0);
    (void)site_other_pid(site, "varve-volume", worker);
    end(site);
    (void)unsetenv("VARVE_KEEPER_SILENCE_MS");
}

/* A detach with a worker that is stopped in the middle of it. */
static void test_stopped_in_detach(void **state)
{
    struct volumes_site *site = *state;
    assert_int_equal(setenv("VARVE_KEEPER_SILENCE_MS", "2500", 1), 0);
    begin(site);
    site_writer_stop(site);
    ask(site, SITE_UNMOUNT);
    assert_int_equal(kill(site_pid(site, "varve-volume"), SIGSTOP), 0);
    ask(site, SITE_DETACH);
    site_expect_nothing(site);
    site_fsck(site);
    (void)unsetenv("VARVE_KEEPER_SILENCE_MS");
}

/* Keeper is dead, varved new, and the worker stopped: it has everything and says nothing. When it
 * goes on it is found. */
static void test_lost(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    struct volume_status status;
    begin(site);
    pid_t worker = site_pid(site, "varve-volume");
    site_kill(site);
    assert_int_equal(kill(site_pid(site, "varve-keeper"), SIGKILL), 0);
    assert_int_equal(kill(worker, SIGSTOP), 0);
    site_start(site, NULL);
    site_ok(site_ask(site, SITE_STATUS, 0, &status, &err), &err);
    assert_true(status.attached && !status.dead);
    site_expect(site_ask(site, SITE_ATTACH, 0, NULL, &err), &err, ERR_UNREACHABLE, "not answer");
    site_expect(site_ask(site, SITE_DETACH, 0, NULL, &err), &err, ERR_UNREACHABLE, "not answer");
    assert_int_equal(kill(worker, SIGCONT), 0);
    (void)site_other_pid(site, "varve-keeper", 0);
    site_writer_wait(site, 3);
    assert_int_equal(site_pid(site, "varve-volume"), worker);
    end(site);
}

/* Given up while the worker is stopped: nobody waits for it. */
static void test_abandon_stopped(void **state)
{
    struct volumes_site *site = *state;
    struct timespec before;
    struct timespec after;
    begin(site);
    site_writer_stop(site);
    site_put(site, "synced", 1, 1 << 20);
    assert_int_equal(kill(site_pid(site, "varve-volume"), SIGSTOP), 0);
    (void)clock_gettime(CLOCK_MONOTONIC, &before);
    ask(site, SITE_ABANDON);
    (void)clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true(after.tv_sec - before.tv_sec < 8);
    site_expect_nothing(site);
    assert_int_equal(atomic_load(&site->shared->dead), 0);
    ask(site, SITE_ATTACH);
    ask(site, SITE_MOUNT_CHECKED);
    site_check(site, "synced", 1, 1 << 20);
    ask(site, SITE_UNMOUNT);
    ask(site, SITE_DETACH);
    site_fsck(site);
}

/* Linux before 6.9: told, and mended by whoever watches. */
static void test_no_resend(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    struct volume_status status;
    assert_int_equal(setenv("VARVE_VOLUME_RESEND", "off", 1), 0);
    begin(site);
    site_put(site, "synced", 1, 1 << 20);
    site_ok(site_ask(site, SITE_STATUS, 0, &status, &err), &err);
    assert_false(status.resends);
    site_writer_stop(site);
    assert_int_equal(kill(site_pid(site, "varve-volume"), SIGKILL), 0);
    expect_event(&site->shared->dead, 1);
    site_ok(site_ask(site, SITE_STATUS, 0, &status, &err), &err);
    assert_true(status.dead);
    ask(site, SITE_ABANDON);
    site_expect_nothing(site);
    ask(site, SITE_ATTACH);
    ask(site, SITE_MOUNT_CHECKED);
    site_check(site, "synced", 1, 1 << 20);
    ask(site, SITE_UNMOUNT);
    ask(site, SITE_DETACH);
    site_expect_nothing(site);
    site_fsck(site);
    (void)unsetenv("VARVE_VOLUME_RESEND");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_worker, site_setup_bare, site_teardown),
        cmocka_unit_test_setup_teardown(test_keeper, site_setup_bare, site_teardown),
        cmocka_unit_test_setup_teardown(test_varved, site_setup_bare, site_teardown),
        cmocka_unit_test_setup_teardown(test_worker_and_keeper, site_setup_bare, site_teardown),
        cmocka_unit_test_setup_teardown(test_varved_and_worker, site_setup_bare, site_teardown),
        cmocka_unit_test_setup_teardown(test_varved_and_keeper, site_setup_bare, site_teardown),
        cmocka_unit_test_setup_teardown(test_all, site_setup_bare, site_teardown),
        cmocka_unit_test_setup_teardown(test_stopped_worker, site_setup_bare, site_teardown),
        cmocka_unit_test_setup_teardown(test_stopped_keeper, site_setup_bare, site_teardown),
        cmocka_unit_test_setup_teardown(test_stopped_in_detach, site_setup_bare, site_teardown),
        cmocka_unit_test_setup_teardown(test_lost, site_setup_bare, site_teardown),
        cmocka_unit_test_setup_teardown(test_abandon_stopped, site_setup_bare, site_teardown),
        cmocka_unit_test_setup_teardown(test_no_resend, site_setup_bare, site_teardown),
    };
    return cmocka_run_group_tests_name("volumes_death", tests, NULL, NULL);
}
