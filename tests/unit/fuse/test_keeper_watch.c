/* Workers that keeper did not start, workers that fall silent, and keepers that are killed. */
#include "keeper_fixture.h"

#include "cleanup.h"
#include "clock.h"
#include "volume_mount.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The bound of silence that these tests run with; without fault points it is keeper's own. */
#ifdef VARVE_FAULT_POINTS
enum {
    SILENCE_MS = 400,
    BEGIN_SILENCE_MS = 6 * SILENCE_MS,
};
#else
enum {
    SILENCE_MS = KEEPER_SILENCE_S * 1000,
    BEGIN_SILENCE_MS = KEEPER_BEGIN_SILENCE_S * 1000,
};
#endif

static int64_t now_ms(void)
{
    const struct clock clock = clock_system();
    return clock_mono_ns(&clock) / 1000000;
}

static int setup(void **state)
{
    char text[16];
    snprintf(text, sizeof text, "%d", SILENCE_MS);
    setenv("VARVE_KEEPER_SILENCE_MS", text, 1);
    return keeper_fixture_setup(state);
}

/* As keeper_fixture_event(), for one that may take as long as silence. */
static struct keeper_client_event await_event(struct keeper_fixture *f, int i,
                                              enum keeper_event event, int ms)
{
    struct keeper_client_event got = {.value = 0};
    for (int64_t end = now_ms() + ms; now_ms() < end; keeper_fixture_sleep(2)) {
        int rc = keeper_client_event(f->client, &got, NULL);
        assert_true(rc >= 0);
        if (rc == 1)
            break;
    }
    assert_int_equal(got.event, event);
    assert_string_equal(got.id, f->volumes[i].id);
    return got;
}

static void test_a_stopped_worker_is_killed_and_replaced(void **state)
{
    struct keeper_fixture *f = *state;
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    pid_t worker = keeper_fixture_worker(f, 0, 0);
    keeper_fixture_no_event(f, SILENCE_MS * 3 / 2); /* it beats */
    int64_t begin = now_ms();
    kill(worker, SIGSTOP);
    struct keeper_client_event event = await_event(f, 0, KEEPER_SILENT, SILENCE_MS * 3);
    assert_in_range(now_ms() - begin, SILENCE_MS * 3 / 4, SILENCE_MS * 5 / 2);
    assert_int_equal(event.worker, worker);
    assert_int_equal(event.value, 1);
    assert_int_equal(keeper_fixture_event(f, 0, KEEPER_DIED).value, 128 + SIGKILL);
    assert_true(keeper_fixture_event(f, 0, KEEPER_STARTED).worker != worker);
    (void)keeper_fixture_worker(f, 0, worker);
}

static void test_a_worker_that_never_begins_has_more_time(void **state)
{
    struct keeper_fixture *f = *state;
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, 0, "wait");
    keeper_fixture_serve(f, 0);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    int64_t begin = now_ms();
    await_event(f, 0, KEEPER_SILENT, BEGIN_SILENCE_MS * 2);
    assert_in_range(now_ms() - begin, BEGIN_SILENCE_MS * 3 / 4, BEGIN_SILENCE_MS * 2);
    keeper_fixture_event(f, 0, KEEPER_DIED);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
}

/* Killing it could only harm: told, and told again only when it has beaten in between. */
static void test_before_linux_6_9_a_silent_worker_is_left_alone(void **state)
{
    struct keeper_fixture *f = *state;
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, LIVE_FACT_READY, "beat");
    keeper_fixture_serve(f, 0);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    pid_t worker = keeper_fixture_worker(f, 0, 0);
    for (int i = 0; i < 2; i++) {
        kill(worker, SIGSTOP);
        assert_int_equal(await_event(f, 0, KEEPER_SILENT, SILENCE_MS * 3).value, 0);
        keeper_fixture_no_event(f, SILENCE_MS);
        kill(worker, SIGCONT);
        keeper_fixture_no_event(f, SILENCE_MS / 2);
        assert_true(keeper_fixture_is_there(worker));
    }
}

/* Gives a new keeper what volume `i` has, with a pidfd of `worker` unless that is 0. */
static void hold_with_worker(struct keeper_fixture *f, int i, pid_t worker)
{
    struct err err = ERR_INIT;
    struct volume_fds fds = f->volumes[i].fds;
    cleanup_fd int pidfd = worker ? (int)syscall(SYS_pidfd_open, worker, 0) : -1;
    assert_true(worker == 0 || pidfd >= 0);
    fds.worker = pidfd;
    int rc = keeper_client_hold(f->client, f->volumes[i].id, f->volumes[i].directory, &fds,
                                FIXTURE_WAIT_MS, &err);
    if (rc < 0)
        fail_msg("%s", err.text);
}

/* A worker whose keeper was killed, and another keeper. */
static pid_t orphan(struct keeper_fixture *f, int facts)
{
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, facts, "beat");
    keeper_fixture_serve(f, 0);
    pid_t worker = keeper_fixture_worker(f, 0, 0);
    keeper_fixture_kill_keeper(f);
    assert_false(keeper_client_is_connected(f->client));
    assert_int_equal(keeper_fixture_connect(f), 1);
    assert_true(keeper_fixture_is_there(worker));
    return worker;
}

static void test_an_orphan_is_watched_like_a_child(void **state)
{
    struct keeper_fixture *f = *state;
    pid_t worker = orphan(f, FIXTURE_SERVES);
    hold_with_worker(f, 0, worker);
    assert_int_equal(keeper_client_start(f->client, f->volumes[0].id, FIXTURE_WAIT_MS, NULL), 0);
    keeper_fixture_no_event(f, 100);
    assert_int_equal(keeper_fixture_starts(f, 0), 1);
    kill(worker, SIGKILL);
    struct keeper_client_event event = keeper_fixture_event(f, 0, KEEPER_DIED);
    assert_int_equal(event.worker, worker);
    assert_int_equal(event.value, KEEPER_STATUS_UNKNOWN);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    pid_t next = keeper_fixture_worker(f, 0, worker);
    kill(next, SIGKILL);
    assert_int_equal(keeper_fixture_event(f, 0, KEEPER_DIED).value, 128 + SIGKILL);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
}

static void test_an_orphan_that_falls_silent_is_replaced(void **state)
{
    struct keeper_fixture *f = *state;
    pid_t worker = orphan(f, FIXTURE_SERVES);
    hold_with_worker(f, 0, worker);
    assert_int_equal(keeper_client_start(f->client, f->volumes[0].id, FIXTURE_WAIT_MS, NULL), 0);
    kill(worker, SIGSTOP);
    assert_int_equal(await_event(f, 0, KEEPER_SILENT, SILENCE_MS * 3).value, 1);
    keeper_fixture_event(f, 0, KEEPER_DIED);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    (void)keeper_fixture_worker(f, 0, worker);
}

static void test_an_orphan_that_was_closed_has_stopped(void **state)
{
    struct keeper_fixture *f = *state;
    pid_t worker = orphan(f, FIXTURE_SERVES | LIVE_FACT_CLOSED);
    hold_with_worker(f, 0, worker);
    assert_int_equal(keeper_client_start(f->client, f->volumes[0].id, FIXTURE_WAIT_MS, NULL), 0);
    kill(worker, SIGKILL);
    keeper_fixture_event(f, 0, KEEPER_STOPPED);
    keeper_fixture_no_event(f, 100);
    assert_int_equal(keeper_fixture_starts(f, 0), 1);
}

/* Of an orphan that died together with its keeper. */
static void test_a_pidfd_of_a_dead_worker_is_as_good_as_none(void **state)
{
    struct keeper_fixture *f = *state;
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    pid_t worker = keeper_fixture_worker(f, 0, 0);
    f->volumes[0].fds.worker = (int)syscall(SYS_pidfd_open, worker, 0);
    keeper_fixture_kill_keeper(f);
    kill(worker, SIGKILL);
    keeper_fixture_connect(f);
    keeper_fixture_serve(f, 0);
    (void)keeper_fixture_worker(f, 0, worker);
    assert_int_equal(keeper_fixture_starts(f, 0), 2);
    keeper_fixture_sleep(50);
    assert_int_equal(keeper_fixture_starts(f, 0), 2);
}

/* Forked by a keeper that was killed in the next instant: the new keeper starts a second one, which
 * waits for the lock of `data` and never begins. When the first one stops, it must be killed. */
static void test_a_worker_that_nobody_knows_is_found_when_it_falls_silent(void **state)
{
    struct keeper_fixture *f = *state;
    pid_t unknown = orphan(f, FIXTURE_SERVES);
    keeper_fixture_behave(f, 0, 0, "wait");
    hold_with_worker(f, 0, 0);
    assert_int_equal(keeper_client_start(f->client, f->volumes[0].id, FIXTURE_WAIT_MS, NULL), 0);
    pid_t waiting = keeper_fixture_event(f, 0, KEEPER_STARTED).worker;
    assert_int_not_equal(waiting, unknown);
    keeper_fixture_no_event(f, BEGIN_SILENCE_MS * 3 / 2); /* the heartbeat is there */
    kill(unknown, SIGSTOP);
    keeper_fixture_behave(f, 0, FIXTURE_SERVES, "beat");
    assert_int_equal(await_event(f, 0, KEEPER_SILENT, BEGIN_SILENCE_MS * 3).worker, waiting);
    keeper_fixture_event(f, 0, KEEPER_DIED);
    pid_t next = keeper_fixture_event(f, 0, KEEPER_STARTED).worker;
    assert_int_equal(keeper_fixture_worker(f, 0, unknown), next);
    for (int i = 0; i < 1000 && kill(unknown, 0) == 0; i++) {
        if (strstr(keeper_fixture_proc(unknown, "status", "State:\t").s, "Z"))
            break; /* pid 1 has not waited for it yet */
        keeper_fixture_sleep(2);
        assert_int_not_equal(i, 999);
    }
}

/* The number in the live map is a worker's word: with it, it could have the worker of another
 * volume killed, which runs the same program. */
static void test_a_silent_worker_cannot_name_another_volumes(void **state)
{
    struct keeper_fixture *f = *state;
    keeper_fixture_connect(f);
    for (int i = 0; i < 2; i++) {
        keeper_fixture_volume(f, i, FIXTURE_SERVES, "beat");
        keeper_fixture_serve(f, i);
    }
    pid_t liar = keeper_fixture_worker(f, 0, 0);
    pid_t other = keeper_fixture_worker(f, 1, 0);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    keeper_fixture_event(f, 1, KEEPER_STARTED);
    assert_int_equal(kill(liar, SIGSTOP), 0);
    atomic_store(&f->volumes[0].live.header->pid, (uint32_t)other);
    assert_int_equal(await_event(f, 0, KEEPER_SILENT, BEGIN_SILENCE_MS * 3).worker, liar);
    assert_int_equal(keeper_fixture_event(f, 0, KEEPER_DIED).worker, liar);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    keeper_fixture_no_event(f, 200);
    assert_int_equal(keeper_fixture_starts(f, 1), 1);
    assert_true(keeper_fixture_is_there(other));
}

/* Nor can it make keeper wait for a file system that does not answer, by the number of a process
 * that has something open there where a worker has its live map. */
static void test_a_silent_worker_cannot_make_keeper_wait(void **state)
{
    struct keeper_fixture *f = *state;
    struct err err = ERR_INIT;
    char stuck[128];
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    pid_t liar = keeper_fixture_worker(f, 0, 0);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    const char *path = scratch_path(f->scratch, "fuse");
    assert_int_equal(mkdir(path, 0700), 0);
    cleanup_fd int fuse = volume_mount_make(path, &err); /* which nobody reads */
    cleanup_fd int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(fuse >= 0 && root >= 0);
    /* Runs the same program, and waits for what nobody writes. */
    snprintf(stuck, sizeof stuck, "%s/stuck", f->scratch->path);
    assert_int_equal(mkdir(stuck, 0700), 0);
    assert_int_equal(mkfifo(scratch_path(f->scratch, "stuck/behave"), 0600), 0);
    pid_t bait = fork();
    if (bait == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (dup2(root, VOLUME_FD_LIVE) >= 0)
            execl(VARVE_DUMMY_WORKER, "varve-volume", stuck, NULL);
        _exit(127);
    }
    keeper_fixture_sleep(200);
    assert_int_equal(kill(liar, SIGSTOP), 0);
    atomic_store(&f->volumes[0].live.header->pid, (uint32_t)bait);
    assert_int_equal(await_event(f, 0, KEEPER_SILENT, BEGIN_SILENCE_MS * 3).worker, liar);
    assert_int_equal(keeper_fixture_event(f, 0, KEEPER_DIED).worker, liar);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    assert_true(keeper_fixture_is_there(bait));
    kill(bait, SIGKILL);
    assert_int_equal(waitpid(bait, NULL, 0), bait);
}

/* Keeper again and again: whatever it was doing, what it held comes back, and no worker is lost or
 * there twice. */
static void test_keeper_is_killed_again_and_again(void **state)
{
    struct keeper_fixture *f = *state;
    pid_t workers[3] = {0};
    for (int i = 0; i < 3; i++)
        keeper_fixture_volume(f, i, FIXTURE_SERVES, "beat");
    for (int round = 0; round < 10; round++) {
        assert_int_equal(keeper_fixture_connect(f), 1);
        for (int i = 0; i < 3; i++) {
            hold_with_worker(f, i, workers[i]);
            assert_int_equal(
                keeper_client_start(f->client, f->volumes[i].id, FIXTURE_WAIT_MS, NULL), 0);
            workers[i] = keeper_fixture_worker(f, i, 0);
        }
        int victim = round % 3;
        kill(workers[victim], SIGKILL);
        workers[victim] = keeper_fixture_worker(f, victim, workers[victim]);
        keeper_fixture_kill_keeper(f);
        for (int i = 0; i < 3; i++)
            assert_true(keeper_fixture_is_there(workers[i]));
    }
    assert_int_equal(keeper_fixture_starts(f, 0), 5);
    assert_int_equal(keeper_fixture_starts(f, 1), 4);
    assert_int_equal(keeper_fixture_starts(f, 2), 4);
}

/* The machine, or keeper, stood still: nobody is killed for that. */
static void test_a_keeper_that_was_stopped_kills_nobody(void **state)
{
    struct keeper_fixture *f = *state;
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    pid_t worker = keeper_fixture_worker(f, 0, 0);
    kill(keeper_client_pid(f->client), SIGSTOP);
    kill(worker, SIGSTOP);
    keeper_fixture_sleep(SILENCE_MS * 2 + 1500);
    kill(keeper_client_pid(f->client), SIGCONT);
    keeper_fixture_sleep(SILENCE_MS / 8);
    kill(worker, SIGCONT);
    keeper_fixture_no_event(f, SILENCE_MS * 3 / 2);
    assert_true(keeper_fixture_is_there(worker));
}

int main(void)
{
#define WITH_KEEPER(test) cmocka_unit_test_setup_teardown(test, setup, keeper_fixture_teardown)
    const struct CMUnitTest tests[] = {
        WITH_KEEPER(test_a_stopped_worker_is_killed_and_replaced),
        WITH_KEEPER(test_a_worker_that_never_begins_has_more_time),
        WITH_KEEPER(test_before_linux_6_9_a_silent_worker_is_left_alone),
        WITH_KEEPER(test_an_orphan_is_watched_like_a_child),
        WITH_KEEPER(test_an_orphan_that_falls_silent_is_replaced),
        WITH_KEEPER(test_an_orphan_that_was_closed_has_stopped),
        WITH_KEEPER(test_a_pidfd_of_a_dead_worker_is_as_good_as_none),
        WITH_KEEPER(test_a_worker_that_nobody_knows_is_found_when_it_falls_silent),
        WITH_KEEPER(test_a_silent_worker_cannot_name_another_volumes),
        WITH_KEEPER(test_a_silent_worker_cannot_make_keeper_wait),
        WITH_KEEPER(test_keeper_is_killed_again_and_again),
        WITH_KEEPER(test_a_keeper_that_was_stopped_kills_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
