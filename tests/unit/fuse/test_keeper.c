/* The real varve-keeper, with workers that do what the test wants: starts, deaths, requests. */
#include "keeper_fixture.h"

#include "cleanup.h"
#include "clock.h"
#include "fdio.h"
#include "spawn.h"

#include <fcntl.h>
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

static int64_t now_ms(void)
{
    const struct clock clock = clock_system();
    return clock_mono_ns(&clock) / 1000000;
}

static void test_a_worker_is_started_with_what_it_needs_alone(void **state)
{
    struct keeper_fixture *f = *state;
    char path[512];
    char want[512];
    assert_int_equal(keeper_fixture_connect(f), 1);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    struct keeper_client_event event = keeper_fixture_event(f, 0, KEEPER_STARTED);
    assert_int_equal(event.value, 0);
    assert_int_equal(event.lost, 0);
    pid_t worker = keeper_fixture_worker(f, 0, 0);
    assert_int_equal(event.worker, worker);
    snprintf(path, sizeof path, "%s/started", f->volumes[0].directory);
    cleanup_buf struct buf started = BUF_INIT(8192);
    assert_int_equal(fdio_read_file(AT_FDCWD, path, &started, NULL), 0);
    snprintf(want, sizeof want, "%d: 0 1 2 3 4 5 6 : %s\n", (int)worker, f->volumes[0].directory);
    assert_string_equal(buf_str(&started), want);
    assert_string_equal(keeper_fixture_proc(worker, "status", "SigIgn:\t").s, "0000000000000000");
    assert_string_equal(keeper_fixture_proc(worker, "status", "SigBlk:\t").s, "0000000000000000");
}

/* Needs CAP_SYS_RESOURCE. */
static bool may_change_oom_score(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
        _exit(write(fd, "-950", 4) == 4 ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status == 0;
}

/* Nothing of whoever started it is left in keeper. */
static void test_keeper_stands_alone(void **state)
{
    struct keeper_fixture *f = *state;
    char path[64];
    char target[4096] = "";
    keeper_fixture_connect(f);
    pid_t keeper = keeper_client_pid(f->client);
    assert_int_equal(getsid(keeper), keeper);
    assert_int_not_equal(getsid(0), keeper);
    static const char *const links[][2] = {
        {"cwd", "/"}, {"fd/0", "/dev/null"}, {"fd/1", "/dev/null"}, {"fd/2", NULL}};
    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        snprintf(path, sizeof path, "/proc/%d/%s", (int)keeper, links[i][0]);
        ssize_t n = readlink(path, target, sizeof target - 1);
        assert_true(n > 0);
        target[n] = '\0';
        assert_string_equal(target,
                            links[i][1] ? links[i][1] : scratch_path(f->scratch, KEEPER_LOG_NAME));
    }
    assert_string_equal(
        keeper_fixture_proc(keeper, "oom_score_adj", "").s,
        may_change_oom_score() ? "-950" : keeper_fixture_proc(getpid(), "oom_score_adj", "").s);
    for (int number = 1; number < 3; number++)
        kill(keeper, number); /* SIGHUP, SIGINT */
    kill(keeper, SIGTERM);
    kill(keeper, SIGPIPE);
    assert_int_equal(keeper_client_hello(f->client, NULL, FIXTURE_WAIT_MS, NULL), 0);
    struct stat st;
    assert_int_equal(fstatat(f->scratch->fd, KEEPER_SOCKET_NAME, &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(fstatat(f->scratch->fd, KEEPER_LOCK_NAME, &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
}

/* RUN is in memory, and may be full of something else. */
static void test_a_run_directory_that_is_full(void **state)
{
    struct keeper_fixture *f = *state;
    struct err err = ERR_INIT;
    static char bytes[64 * 1024];
    scratch_tmpfs(f->scratch, "run", sizeof bytes);
    scratch_write(f->scratch, "run/ballast", bytes, sizeof bytes);
    const char *path = scratch_path(f->scratch, "run");
    /* The directory, the ballast, then the lock and the socket: the log finds no room. */
    assert_int_equal(mount(NULL, path, NULL, MS_REMOUNT, "nr_inodes=4"), 0);
    cleanup_fd int run = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct keeper_client_options options = {
        .run_fd = run, .run_path = path, .program = VARVE_KEEPER};
    struct keeper_client *client;
    assert_int_equal(keeper_client_open(&options, &client, &err), 0);
    int rc = keeper_client_connect(client, true, FIXTURE_WAIT_MS, &err);
    if (rc >= 0)
        f->keepers[f->keeper_count++] = keeper_client_pid(client);
    keeper_client_close(client);
    if (rc < 0)
        fail_msg("%s", err.text);
    /* And it is the only one. */
    const char *const argv[] = {VARVE_KEEPER, path, NULL};
    struct spawn spawn = {.argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1};
    assert_int_equal(spawn_wait(spawn_start(&spawn, NULL), NULL), KEEPER_EXIT_RUNNING);
}

static void test_a_killed_worker_is_started_again(void **state)
{
    struct keeper_fixture *f = *state;
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    pid_t worker = 0;
    for (int i = 0; i < 5; i++) {
        worker = keeper_fixture_worker(f, 0, worker);
        kill(worker, SIGKILL);
        struct keeper_client_event event = keeper_fixture_event(f, 0, KEEPER_DIED);
        assert_int_equal(event.worker, worker);
        assert_int_equal(event.value, 128 + SIGKILL);
        assert_int_equal(keeper_fixture_event(f, 0, KEEPER_STARTED).value, 1);
    }
    keeper_fixture_no_event(f, 50);
}

static void test_a_worker_that_dies_at_once_is_started_ever_more_slowly(void **state)
{
    struct keeper_fixture *f = *state;
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, 0, "exit 3");
    int64_t begin = now_ms();
    keeper_fixture_serve(f, 0);
    for (int i = 0; i < 7; i++) {
        keeper_fixture_event(f, 0, KEEPER_STARTED);
        assert_int_equal(keeper_fixture_event(f, 0, KEEPER_DIED).value, 3);
    }
    /* Starts 2 to 7 waited for 0, 10, 20, 40, 80, 160 ms. */
    assert_in_range(now_ms() - begin, 310, 2000);
    keeper_fixture_behave(f, 0, FIXTURE_SERVES, "beat");
    keeper_fixture_event(f, 0, KEEPER_STARTED); /* after 320 ms */
    assert_true(now_ms() - begin >= 630);
    keeper_fixture_no_event(f, 150);
    /* It lived: from here on it is started at once again. */
    pid_t worker = keeper_fixture_worker(f, 0, 0);
    kill(worker, SIGKILL);
    begin = now_ms();
    keeper_fixture_event(f, 0, KEEPER_DIED);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    assert_true(now_ms() - begin < 300);
}

static void test_the_wait_between_starts_has_an_end(void **state)
{
    struct keeper_fixture *f = *state;
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, 0, "exit 3");
    keeper_fixture_serve(f, 0);
    for (int i = 0; i < 9; i++) { /* 1,270 ms in all */
        keeper_fixture_event(f, 0, KEEPER_STARTED);
        keeper_fixture_event(f, 0, KEEPER_DIED);
    }
    for (int i = 0; i < 2; i++) {
        int64_t begin = now_ms();
        keeper_fixture_event(f, 0, KEEPER_STARTED);
        keeper_fixture_event(f, 0, KEEPER_DIED);
        assert_in_range(now_ms() - begin, 900, 1900);
    }
    /* START begins anew. */
    int64_t begin = now_ms();
    keeper_fixture_serve(f, 0);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    assert_true(now_ms() - begin < 500);
}

static void test_a_worker_that_was_stopped_or_refuses_stays_down(void **state)
{
    struct keeper_fixture *f = *state;
    static const struct {
        const char *way;
        enum keeper_event event;
    } cases[] = {{"exit 0", KEEPER_STOPPED}, {"exit 65", KEEPER_REFUSED}};
    keeper_fixture_connect(f);
    for (int i = 0; i < 2; i++) {
        keeper_fixture_volume(f, i, 0, cases[i].way);
        keeper_fixture_serve(f, i);
        pid_t pid = keeper_fixture_event(f, i, KEEPER_STARTED).worker;
        assert_int_equal(keeper_fixture_event(f, i, cases[i].event).worker, pid);
        keeper_fixture_no_event(f, 100);
        assert_int_equal(keeper_fixture_starts(f, i), 1);
        /* An explicit order tries again. */
        keeper_fixture_behave(f, i, FIXTURE_SERVES, "beat");
        keeper_fixture_serve(f, i);
        keeper_fixture_event(f, i, KEEPER_STARTED);
        (void)keeper_fixture_worker(f, i, 0);
    }
}

static void test_a_program_that_cannot_be_executed(void **state)
{
    struct keeper_fixture *f = *state;
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, 0, "beat");
    close(f->volumes[0].fds.program);
    scratch_write(f->scratch, "no-program", "neither ELF nor script", 22);
    f->volumes[0].fds.program = openat(f->scratch->fd, "no-program", O_RDONLY | O_CLOEXEC);
    keeper_fixture_serve(f, 0);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    assert_int_equal(keeper_fixture_event(f, 0, KEEPER_DIED).value, 127);
}

static void test_stay_and_start_are_the_last_word(void **state)
{
    struct keeper_fixture *f = *state;
    const char *id = "0123456789a0";
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    pid_t worker = keeper_fixture_worker(f, 0, 0);
    keeper_fixture_serve(f, 0); /* lives already */
    keeper_fixture_no_event(f, 50);
    assert_int_equal(keeper_client_stay(f->client, id, FIXTURE_WAIT_MS, NULL), 0);
    kill(worker, SIGKILL);
    keeper_fixture_event(f, 0, KEEPER_DIED);
    keeper_fixture_no_event(f, 100);
    assert_false(keeper_fixture_is_there(worker)); /* no zombie */
    assert_int_equal(keeper_client_start(f->client, id, FIXTURE_WAIT_MS, NULL), 0);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    (void)keeper_fixture_worker(f, 0, worker);
}

static void test_stay_ends_a_wait(void **state)
{
    struct keeper_fixture *f = *state;
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, 0, "exit 3");
    keeper_fixture_serve(f, 0);
    for (int i = 0; i < 6; i++) {
        keeper_fixture_event(f, 0, KEEPER_STARTED);
        keeper_fixture_event(f, 0, KEEPER_DIED);
    }
    assert_int_equal(keeper_client_stay(f->client, f->volumes[0].id, FIXTURE_WAIT_MS, NULL), 0);
    keeper_fixture_no_event(f, 400);
}

static void test_drop_lets_the_worker_go_on(void **state)
{
    struct keeper_fixture *f = *state;
    uint64_t held = 9;
    keeper_fixture_connect(f);
    pid_t keeper = keeper_client_pid(f->client);
    int before = keeper_fixture_count_fds(keeper);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    pid_t worker = keeper_fixture_worker(f, 0, 0);
    assert_int_equal(keeper_client_hello(f->client, &held, FIXTURE_WAIT_MS, NULL), 0);
    assert_int_equal(held, 1);
    for (int i = 0; i < 2; i++) /* the second time there is nothing to do */
        assert_int_equal(keeper_client_drop(f->client, f->volumes[0].id, FIXTURE_WAIT_MS, NULL), 0);
    assert_int_equal(keeper_client_hello(f->client, &held, FIXTURE_WAIT_MS, NULL), 0);
    assert_int_equal(held, 0);
    assert_true(keeper_fixture_is_there(worker));
    kill(worker, SIGKILL);
    keeper_fixture_no_event(f, 100);
    assert_false(keeper_fixture_is_there(worker)); /* still keeper's child: no zombie */
    assert_int_equal(keeper_fixture_count_fds(keeper), before);
}

static void test_requests_about_what_is_not_held(void **state)
{
    struct keeper_fixture *f = *state;
    struct err err = ERR_INIT;
    keeper_fixture_connect(f);
    assert_int_equal(keeper_client_start(f->client, "ffffffffffff", FIXTURE_WAIT_MS, &err),
                     -ENOENT);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_string_equal(err.text, "varve-keeper cannot start a worker for volume ffffffffffff: "
                                  "keeper does not hold this volume");
    assert_int_equal(keeper_client_stay(f->client, "ffffffffffff", FIXTURE_WAIT_MS, NULL), -ENOENT);
}

static void test_before_linux_6_9_a_worker_that_served_stays_dead(void **state)
{
    struct keeper_fixture *f = *state;
    struct err err = ERR_INIT;
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, LIVE_FACT_READY, "beat");
    keeper_fixture_serve(f, 0);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    kill(keeper_fixture_worker(f, 0, 0), SIGKILL);
    keeper_fixture_event(f, 0, KEEPER_DIED);
    keeper_fixture_no_event(f, 100);
    int rc = keeper_client_start(f->client, f->volumes[0].id, FIXTURE_WAIT_MS, &err);
    assert_int_equal(rc, -EOPNOTSUPP);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    assert_int_equal(keeper_fixture_starts(f, 0), 1);
    /* One that had not served yet can be replaced. */
    keeper_fixture_volume(f, 1, LIVE_FACT_OPEN, "beat");
    keeper_fixture_serve(f, 1);
    keeper_fixture_event(f, 1, KEEPER_STARTED);
    kill(keeper_fixture_worker(f, 1, 0), SIGKILL);
    keeper_fixture_event(f, 1, KEEPER_DIED);
    keeper_fixture_event(f, 1, KEEPER_STARTED);
}

struct listed {
    int count;
    bool wanted[FIXTURE_VOLUMES];
    pid_t workers[FIXTURE_VOLUMES];
    struct keeper_fixture *f;
    int fail_at;
};

static bool is_same(int a, int b)
{
    struct stat x;
    struct stat y;
    assert_int_equal(fstat(a, &x), 0);
    assert_int_equal(fstat(b, &y), 0);
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int take_listed(void *arg, struct keeper_held *held, struct err *err)
{
    struct listed *listed = arg;
    int i = held->id[VOLUME_ID_LEN - 1] - '0';
    const struct volume_fds *fds = &listed->f->volumes[i].fds;
    if (listed->fail_at > 0 && ++listed->count == listed->fail_at)
        return err_fail(err, ERR_CANCELLED, "enough");
    if (listed->fail_at > 0)
        return 0;
    listed->count++;
    listed->wanted[i] = held->wanted;
    listed->workers[i] = held->worker;
    assert_string_equal(held->directory, listed->f->volumes[i].directory);
    assert_true(is_same(held->fds.fuse, fds->fuse));
    assert_true(is_same(held->fds.live, fds->live));
    assert_true(is_same(held->fds.listen, fds->listen));
    assert_true(is_same(held->fds.program, fds->program));
    assert_int_equal(held->fds.worker >= 0, held->worker != 0);
    assert_int_equal(fcntl(held->fds.live, F_GETFD), FD_CLOEXEC);
    return 0;
}

static void test_list_gives_everything_back(void **state)
{
    struct keeper_fixture *f = *state;
    struct listed listed = {.f = f};
    keeper_fixture_connect(f);
    for (int i = 0; i < 3; i++)
        keeper_fixture_volume(f, i, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    keeper_fixture_serve(f, 1);
    pid_t worker = keeper_fixture_worker(f, 0, 0);
    assert_int_equal(keeper_client_stay(f->client, f->volumes[1].id, FIXTURE_WAIT_MS, NULL), 0);
    assert_int_equal(keeper_client_hold(f->client, f->volumes[2].id, f->volumes[2].directory,
                                        &f->volumes[2].fds, FIXTURE_WAIT_MS, NULL),
                     0);
    int before = keeper_fixture_count_fds(getpid());
    assert_int_equal(keeper_client_list(f->client, take_listed, &listed, FIXTURE_WAIT_MS, NULL), 0);
    assert_int_equal(listed.count, 3);
    assert_true(listed.wanted[0] && !listed.wanted[1] && !listed.wanted[2]);
    assert_int_equal(listed.workers[0], worker);
    assert_true(listed.workers[1] > 0);
    assert_int_equal(listed.workers[2], 0);
    /* A caller that fails in the middle leaves nothing open, and the client usable. */
    listed = (struct listed){.f = f, .fail_at = 2};
    assert_int_equal(keeper_client_list(f->client, take_listed, &listed, FIXTURE_WAIT_MS, NULL),
                     -ECANCELED);
    assert_int_equal(listed.count, 2);
    assert_int_equal(keeper_client_hello(f->client, NULL, FIXTURE_WAIT_MS, NULL), 0);
    assert_int_equal(keeper_fixture_count_fds(getpid()), before);
}

static void test_holding_again_changes_nothing(void **state)
{
    struct keeper_fixture *f = *state;
    struct err err = ERR_INIT;
    static const uint8_t uuid[VOLUME_UUID_LEN] = {2};
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    (void)keeper_fixture_worker(f, 0, 0);
    int before = keeper_fixture_count_fds(keeper_client_pid(f->client));
    for (int i = 0; i < 3; i++)
        keeper_fixture_serve(f, 0);
    assert_int_equal(keeper_fixture_count_fds(keeper_client_pid(f->client)), before);
    assert_int_equal(keeper_fixture_starts(f, 0), 1);
    /* Another attach of the same volume. */
    struct volume_fds other = f->volumes[0].fds;
    other.live = live_map_make(f->volumes[0].id, uuid, VOLUME_SIZE_MIN, NULL);
    int rc = keeper_client_hold(f->client, f->volumes[0].id, f->volumes[0].directory, &other,
                                FIXTURE_WAIT_MS, &err);
    assert_int_equal(rc, -EEXIST);
    assert_int_equal(err.code, ERR_EXISTS);
    close(other.live);
    assert_int_equal(keeper_fixture_count_fds(keeper_client_pid(f->client)), before);
}

static void test_the_log_is_emptied_when_it_has_grown(void **state)
{
    struct keeper_fixture *f = *state;
    struct stat st;
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    pid_t worker = keeper_fixture_worker(f, 0, 0);
    assert_int_equal(truncate(scratch_path(f->scratch, KEEPER_LOG_NAME), 1 << 20), 0);
    kill(worker, SIGKILL);
    worker = keeper_fixture_worker(f, 0, worker);
    assert_int_equal(fstatat(f->scratch->fd, KEEPER_LOG_NAME, &st, 0), 0);
    assert_int_equal(st.st_size, 1 << 20); /* just not too long */
    assert_int_equal(truncate(scratch_path(f->scratch, KEEPER_LOG_NAME), (1 << 20) + 1), 0);
    kill(worker, SIGKILL);
    (void)keeper_fixture_worker(f, 0, worker);
    assert_int_equal(fstatat(f->scratch->fd, KEEPER_LOG_NAME, &st, 0), 0);
    assert_int_equal(st.st_size, 0);
}

/* The counters of /proc/PID/io hold what the process itself read and wrote through files. Children
 * add theirs when they are waited for, so none ends here; lint_keeper.py looks at the calls. */
static void test_keeper_reads_and_writes_no_file(void **state)
{
    struct keeper_fixture *f = *state;
    static const char *const counters[] = {
        "rchar: ", "wchar: ", "syscr: ", "syscw: ", "read_bytes: ", "write_bytes: "};
    struct keeper_fixture_line before[ARRAY_SIZE(counters)];
    struct listed listed = {.f = f};
    keeper_fixture_connect(f);
    pid_t keeper = keeper_client_pid(f->client);
    for (size_t i = 0; i < ARRAY_SIZE(counters); i++)
        before[i] = keeper_fixture_proc(keeper, "io", counters[i]);
    for (int i = 0; i < FIXTURE_VOLUMES; i++) {
        keeper_fixture_volume(f, i, FIXTURE_SERVES, "beat");
        keeper_fixture_serve(f, i);
        (void)keeper_fixture_worker(f, i, 0);
        keeper_fixture_event(f, i, KEEPER_STARTED);
    }
    assert_int_equal(keeper_client_list(f->client, take_listed, &listed, FIXTURE_WAIT_MS, NULL), 0);
    assert_int_equal(keeper_client_stay(f->client, f->volumes[0].id, FIXTURE_WAIT_MS, NULL), 0);
    assert_int_equal(keeper_client_drop(f->client, f->volumes[1].id, FIXTURE_WAIT_MS, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(counters); i++) {
        assert_string_not_equal(before[i].s, "");
        assert_string_equal(keeper_fixture_proc(keeper, "io", counters[i]).s, before[i].s);
    }
}

static void test_keeper_allocates_nothing(void **state)
{
    struct keeper_fixture *f = *state;
    static const char *const sizes[] = {"VmData:", "VmStk:", "VmSize:"};
    struct keeper_fixture_line before[ARRAY_SIZE(sizes)];
    keeper_fixture_connect(f);
    pid_t keeper = keeper_client_pid(f->client);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        before[i] = keeper_fixture_proc(keeper, "status", sizes[i]);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    for (int i = 0; i < 20; i++) {
        keeper_fixture_serve(f, 0);
        pid_t worker = keeper_fixture_worker(f, 0, 0);
        kill(worker, SIGKILL);
        (void)keeper_fixture_worker(f, 0, worker);
        assert_int_equal(keeper_client_drop(f->client, f->volumes[0].id, FIXTURE_WAIT_MS, NULL), 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        assert_string_not_equal(before[i].s, "");
        assert_string_equal(keeper_fixture_proc(keeper, "status", sizes[i]).s, before[i].s);
    }
}

/* With no volume and no connection. Keeper's own bound, as no switch shortens it. */
static void test_keeper_ends_when_nobody_needs_it(void **state)
{
    struct keeper_fixture *f = *state;
    keeper_fixture_connect(f);
    pid_t keeper = keeper_client_pid(f->client);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    (void)keeper_fixture_worker(f, 0, 0);
    assert_int_equal(keeper_client_drop(f->client, f->volumes[0].id, FIXTURE_WAIT_MS, NULL), 0);
    keeper_client_close(f->client);
    f->client = NULL;
    int64_t begin = now_ms();
    while (keeper_fixture_is_there(keeper) && now_ms() - begin < 3 * KEEPER_IDLE_S * 1000)
        keeper_fixture_sleep(20);
    assert_false(keeper_fixture_is_there(keeper));
    assert_true(now_ms() - begin >= KEEPER_IDLE_S * 1000 - 100);
}

int main(void)
{
#define WITH_KEEPER(test)                                                                          \
    cmocka_unit_test_setup_teardown(test, keeper_fixture_setup, keeper_fixture_teardown)
    const struct CMUnitTest tests[] = {
        WITH_KEEPER(test_a_worker_is_started_with_what_it_needs_alone),
        WITH_KEEPER(test_keeper_stands_alone),
        WITH_KEEPER(test_a_run_directory_that_is_full),
        WITH_KEEPER(test_a_killed_worker_is_started_again),
        WITH_KEEPER(test_a_worker_that_dies_at_once_is_started_ever_more_slowly),
        WITH_KEEPER(test_the_wait_between_starts_has_an_end),
        WITH_KEEPER(test_a_worker_that_was_stopped_or_refuses_stays_down),
        WITH_KEEPER(test_a_program_that_cannot_be_executed),
        WITH_KEEPER(test_stay_and_start_are_the_last_word),
        WITH_KEEPER(test_stay_ends_a_wait),
        WITH_KEEPER(test_drop_lets_the_worker_go_on),
        WITH_KEEPER(test_requests_about_what_is_not_held),
        WITH_KEEPER(test_before_linux_6_9_a_worker_that_served_stays_dead),
        WITH_KEEPER(test_list_gives_everything_back),
        WITH_KEEPER(test_holding_again_changes_nothing),
        WITH_KEEPER(test_the_log_is_emptied_when_it_has_grown),
        WITH_KEEPER(test_keeper_reads_and_writes_no_file),
        WITH_KEEPER(test_keeper_allocates_nothing),
        WITH_KEEPER(test_keeper_ends_when_nobody_needs_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
