/* varved's side of keeper's socket, with the real keeper and with what stands in its place. */
#include "keeper_fixture.h"

#include "cleanup.h"
#include "clock.h"
#include "keeper_start.h"
#include "no_pidfd.h"
#include "spawn.h"
#include "wire_call.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

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

static void test_nobody_is_started_who_was_not_asked_for(void **state)
{
    struct keeper_fixture *f = *state;
    struct err err = ERR_INIT;
    assert_int_equal(keeper_client_connect(f->client, false, FIXTURE_WAIT_MS, &err), -ENOENT);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_false(keeper_client_is_connected(f->client));
    assert_int_equal(keeper_client_pid(f->client), 0);
    assert_int_equal(keeper_client_event_fd(f->client), -1);
    struct keeper_client_event event;
    assert_int_equal(keeper_client_event(f->client, &event, NULL), -ECONNRESET);
    assert_int_equal(keeper_client_hello(f->client, NULL, FIXTURE_WAIT_MS, NULL), -ECONNRESET);
}

static void test_connecting_again_does_nothing(void **state)
{
    struct keeper_fixture *f = *state;
    assert_int_equal(keeper_fixture_connect(f), 1);
    pid_t keeper = keeper_client_pid(f->client);
    assert_int_equal(keeper_fixture_connect(f), 0);
    assert_int_equal(keeper_client_pid(f->client), keeper);
    assert_true(keeper_client_is_connected(f->client));
}

struct racer {
    struct keeper_client *client;
    int rc;
};

static void *race(void *arg)
{
    struct racer *racer = arg;
    racer->rc = keeper_client_connect(racer->client, true, FIXTURE_WAIT_MS, NULL);
    return NULL;
}

static void test_racing_starts_end_with_one_keeper(void **state)
{
    struct keeper_fixture *f = *state;
    struct racer racers[6];
    pthread_t threads[ARRAY_SIZE(racers)];
    const struct keeper_client_options options = {
        .run_fd = f->scratch->fd, .run_path = f->scratch->path, .program = VARVE_KEEPER};
    for (size_t i = 0; i < ARRAY_SIZE(racers); i++) {
        assert_int_equal(keeper_client_open(&options, &racers[i].client, NULL), 0);
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(racers); i++)
        pthread_join(threads[i], NULL);
    keeper_fixture_connect(f);
    for (size_t i = 0; i < ARRAY_SIZE(racers); i++) {
        assert_int_equal(racers[i].rc, 1);
        assert_int_equal(keeper_client_pid(racers[i].client), keeper_client_pid(f->client));
        keeper_client_close(racers[i].client);
    }
}

static void test_the_end_of_keeper_shows(void **state)
{
    struct keeper_fixture *f = *state;
    struct err err = ERR_INIT;
    struct keeper_client_event event;
    keeper_fixture_connect(f);
    pid_t first = keeper_client_pid(f->client);
    struct pollfd fd = {.fd = keeper_client_event_fd(f->client), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 0), 0);
    keeper_fixture_kill_keeper(f);
    assert_int_equal(poll(&fd, 1, FIXTURE_WAIT_MS), 1);
    assert_false(keeper_client_is_connected(f->client));
    assert_int_equal(keeper_client_event(f->client, &event, &err), -ECONNRESET);
    err_clear(&err);
    assert_int_equal(keeper_client_hello(f->client, NULL, FIXTURE_WAIT_MS, &err), -ECONNRESET);
    assert_string_equal(err.text, "varve-keeper has ended: Connection reset by peer");
    assert_int_equal(keeper_fixture_connect(f), 1);
    assert_int_not_equal(keeper_client_pid(f->client), first);
    assert_int_equal(keeper_client_hello(f->client, NULL, FIXTURE_WAIT_MS, NULL), 0);
}

static void test_a_stopped_keeper_costs_no_more_than_the_deadline(void **state)
{
    struct keeper_fixture *f = *state;
    struct err err = ERR_INIT;
    uint64_t held = 9;
    keeper_fixture_connect(f);
    kill(keeper_client_pid(f->client), SIGSTOP);
    for (int i = 0; i < 3; i++) {
        int64_t begin = now_ms();
        err_clear(&err);
        int rc = keeper_client_hello(f->client, NULL, 200, &err);
        assert_int_equal(rc, -EHOSTUNREACH);
        assert_int_equal(err.code, ERR_UNREACHABLE);
        assert_in_range(now_ms() - begin, 190, 1000);
    }
    assert_true(keeper_client_is_connected(f->client)); /* it has not ended */
    int64_t begin = now_ms();
    err_clear(&err);
    assert_int_equal(keeper_client_connect(f->client, true, 200, &err), -EHOSTUNREACH);
    assert_in_range(now_ms() - begin, 190, 1000);
    struct keeper_client_event event;
    assert_int_equal(keeper_client_event(f->client, &event, NULL), 0); /* at once */
    /* It comes back, and no late answer is taken for another's. */
    kill(keeper_client_pid(f->client), SIGCONT);
    assert_int_equal(keeper_client_hello(f->client, &held, FIXTURE_WAIT_MS, NULL), 0);
    assert_int_equal(held, 0);
    assert_int_equal(keeper_fixture_connect(f), 0);
}

static void test_a_stopped_keeper_is_replaced(void **state)
{
    struct keeper_fixture *f = *state;
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    pid_t worker = keeper_fixture_worker(f, 0, 0);
    pid_t first = keeper_client_pid(f->client);
    kill(first, SIGSTOP);
    assert_int_equal(keeper_client_replace(f->client, FIXTURE_WAIT_MS, NULL), 1);
    keeper_fixture_connect(f); /* notes the new one for the teardown */
    assert_int_not_equal(keeper_client_pid(f->client), first);
    assert_false(keeper_fixture_is_there(first) &&
                 !strstr(keeper_fixture_proc(first, "status", "State:\t").s, "Z"));
    assert_true(keeper_fixture_is_there(worker));
    /* Also by a client that was never connected, and when there is none. */
    struct keeper_client *other;
    const struct keeper_client_options options = {
        .run_fd = f->scratch->fd, .run_path = f->scratch->path, .program = VARVE_KEEPER};
    assert_int_equal(keeper_client_open(&options, &other, NULL), 0);
    kill(keeper_client_pid(f->client), SIGSTOP);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(keeper_client_replace(other, FIXTURE_WAIT_MS, NULL), 1);
        assert_int_equal(keeper_fixture_connect(f), 1);
        assert_int_equal(keeper_client_pid(f->client), keeper_client_pid(other));
        keeper_fixture_kill_keeper(f);
    }
    keeper_client_close(other);
}

static void *ask_slowly(void *arg)
{
    return (void *)(intptr_t)keeper_client_hello(arg, NULL, 600, NULL);
}

/* A request that waits for one before it has a deadline of its own. */
static void test_requests_wait_for_each_other_within_their_deadline(void **state)
{
    struct keeper_fixture *f = *state;
    pthread_t thread;
    void *result = NULL;
    keeper_fixture_connect(f);
    kill(keeper_client_pid(f->client), SIGSTOP);
    assert_int_equal(pthread_create(&thread, NULL, ask_slowly, f->client), 0);
    keeper_fixture_sleep(50);
    int64_t begin = now_ms();
    assert_int_equal(keeper_client_hello(f->client, NULL, 100, NULL), -EHOSTUNREACH);
    assert_in_range(now_ms() - begin, 90, 450);
    assert_true(keeper_client_is_connected(f->client));
    pthread_join(thread, &result);
    assert_int_equal((intptr_t)result, -EHOSTUNREACH);
}

static void test_a_run_directory_with_a_long_path(void **state)
{
    struct keeper_fixture *f = *state;
    char path[4096];
    size_t len = (size_t)snprintf(path, sizeof path, "%s", f->scratch->path);
    for (int i = 0; i < 8; i++) { /* longer than a socket's path may be */
        len +=
            (size_t)snprintf(path + len, sizeof path - len, "/a-rather-long-name-of-a-directory");
        assert_int_equal(mkdir(path, 0700), 0);
    }
    cleanup_fd int run_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct keeper_client_options options = {
        .run_fd = run_fd, .run_path = path, .program = VARVE_KEEPER};
    keeper_client_close(f->client);
    assert_int_equal(keeper_client_open(&options, &f->client, NULL), 0);
    assert_int_equal(keeper_fixture_connect(f), 1);
    assert_int_equal(keeper_client_hello(f->client, NULL, FIXTURE_WAIT_MS, NULL), 0);
    keeper_client_close(f->client);
    f->client = NULL;
}

/* Puts a script in keeper's place. */
static void use_script(struct keeper_fixture *f, const char *text)
{
    char path[128];
    scratch_write(f->scratch, "script", text, (long)strlen(text));
    assert_int_equal(fchmodat(f->scratch->fd, "script", 0700, 0), 0);
    snprintf(path, sizeof path, "%s/script", f->scratch->path);
    const struct keeper_client_options options = {
        .run_fd = f->scratch->fd, .run_path = f->scratch->path, .program = path};
    keeper_client_close(f->client);
    assert_int_equal(keeper_client_open(&options, &f->client, NULL), 0);
}

static void test_starts_that_fail_say_why(void **state)
{
    struct keeper_fixture *f = *state;
    struct err err = ERR_INIT;
    use_script(f, "#!/bin/sh\necho 'varve-keeper: no room: a reason' >&2\nexit 1\n");
    assert_true(keeper_client_connect(f->client, true, FIXTURE_WAIT_MS, &err) < 0);
    assert_string_equal(err.text,
                        "cannot start varve-keeper: it ended with status 1: no room: a reason");
    err_clear(&err);
    use_script(f, "#!/bin/sh\nexec sleep 60\n");
    int64_t begin = now_ms();
    assert_int_equal(keeper_client_connect(f->client, true, 200, &err), -EHOSTUNREACH);
    assert_in_range(now_ms() - begin, 190, 2000);
    err_clear(&err);
    use_script(f, "#!/bin/sh\nexit 66\n"); /* another one runs, but none answers */
    assert_int_equal(keeper_client_connect(f->client, true, 200, &err), -EHOSTUNREACH);
    err_clear(&err);
    const struct keeper_client_options options = {
        .run_fd = f->scratch->fd, .run_path = f->scratch->path, .program = "/nonexistent/keeper"};
    keeper_client_close(f->client);
    assert_int_equal(keeper_client_open(&options, &f->client, NULL), 0);
    assert_int_equal(keeper_client_connect(f->client, true, FIXTURE_WAIT_MS, &err), -ENOENT);
    assert_string_equal(err.text, "cannot start /nonexistent/keeper: No such file or directory");
}

/* A run directory that is none, a wrong command line, a second keeper: status and words. */
static void test_keeper_says_what_is_wrong(void **state)
{
    struct keeper_fixture *f = *state;
    struct err err = ERR_INIT;
    const struct keeper_client_options nowhere = {
        .run_fd = f->scratch->fd, .run_path = "/nonexistent/run", .program = VARVE_KEEPER};
    keeper_client_close(f->client);
    assert_int_equal(keeper_client_open(&nowhere, &f->client, NULL), 0);
    assert_true(keeper_client_connect(f->client, true, FIXTURE_WAIT_MS, &err) < 0);
    assert_string_equal(err.text, "cannot start varve-keeper: it ended with status 1: "
                                  "/nonexistent/run: No such file or directory");
    err_clear(&err);
    /* Where the log should be is a directory. */
    assert_int_equal(mkdirat(f->scratch->fd, KEEPER_LOG_NAME, 0700), 0);
    const struct keeper_client_options options = {
        .run_fd = f->scratch->fd, .run_path = f->scratch->path, .program = VARVE_KEEPER};
    keeper_client_close(f->client);
    assert_int_equal(keeper_client_open(&options, &f->client, NULL), 0);
    assert_true(keeper_client_connect(f->client, true, FIXTURE_WAIT_MS, &err) < 0);
    assert_string_equal(err.text, "cannot start varve-keeper: it ended with status 1: "
                                  "cannot open keeper.log: Is a directory");
    assert_int_equal(unlinkat(f->scratch->fd, KEEPER_LOG_NAME, AT_REMOVEDIR), 0);
    assert_int_equal(keeper_fixture_connect(f), 1);
    char command[512];
    snprintf(command, sizeof command, "%s %s 2>/dev/null; test $? = %d && ! %s run 2>/dev/null",
             VARVE_KEEPER, f->scratch->path, KEEPER_EXIT_RUNNING, VARVE_KEEPER);
    const char *const argv[] = {"sh", "-c", command, NULL};
    assert_int_equal(spawn_tool(argv, NULL, NULL), 0);
    assert_int_equal(keeper_client_hello(f->client, NULL, FIXTURE_WAIT_MS, NULL), 0);
}

/* Somebody else on keeper's socket, who answers every message with the same bytes. */
struct impostor {
    int listener;
    struct keeper_wire answer;
    size_t len;
};

static void *answer_badly(void *arg)
{
    const struct impostor *impostor = arg;
    int fd;
    while ((fd = accept4(impostor->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        char bytes[2048];
        while (recv(fd, bytes, sizeof bytes, 0) > 0)
            if (send(fd, &impostor->answer, impostor->len, MSG_NOSIGNAL) < 0)
                break;
        close(fd);
    }
    return NULL;
}

static int connect_to_impostor(struct keeper_fixture *f, const struct keeper_wire *answer,
                               size_t len, struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct impostor impostor = {.answer = *answer, .len = len};
    pthread_t thread;
    snprintf(address.sun_path, sizeof address.sun_path, "%s/keeper.sock", f->scratch->path);
    impostor.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(impostor.listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(impostor.listener, 5), 0);
    assert_int_equal(pthread_create(&thread, NULL, answer_badly, &impostor), 0);
    err_clear(err);
    int rc = keeper_client_connect(f->client, true, 500, err);
    shutdown(impostor.listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(impostor.listener);
    assert_int_equal(unlinkat(f->scratch->fd, KEEPER_SOCKET_NAME, 0), 0);
    return rc;
}

static void test_answers_that_are_none(void **state)
{
    struct keeper_fixture *f = *state;
    struct err err = ERR_INIT;
    const struct keeper_wire good = {.magic = KEEPER_WIRE_MAGIC,
                                     .version = KEEPER_WIRE_VERSION,
                                     .op = KEEPER_WIRE_HELLO,
                                     .arg = {1}};
    struct keeper_wire bad = good;
    assert_int_equal(connect_to_impostor(f, &good, 10, &err), -EBADMSG);
    assert_int_equal(err.code, ERR_DAMAGED);
    bad.magic = 0;
    assert_int_equal(connect_to_impostor(f, &bad, sizeof bad, &err), -EBADMSG);
    bad = good;
    bad.version = 2;
    assert_int_equal(connect_to_impostor(f, &bad, sizeof bad, &err), -EPROTONOSUPPORT);
    assert_int_equal(err.code, ERR_TOO_NEW);
    bad = good;
    bad.op = KEEPER_WIRE_LIST;
    assert_int_equal(connect_to_impostor(f, &bad, sizeof bad, &err), -EBADMSG);
    bad = good;
    bad.fds = 3;
    assert_int_equal(connect_to_impostor(f, &bad, sizeof bad, &err), -EBADMSG);
    bad = good;
    bad.status = -EPERM;
    memset(bad.text, 'x', sizeof bad.text);
    assert_int_equal(connect_to_impostor(f, &bad, sizeof bad, &err), -EPERM);
    assert_false(keeper_client_is_connected(f->client));
}

static void test_requests_that_cannot_be_right(void **state)
{
    struct keeper_fixture *f = *state;
    static char endless[KEEPER_DIRECTORY_MAX + 1];
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    assert_int_equal(
        keeper_client_start(f->client, "longer than an ID can be", FIXTURE_WAIT_MS, NULL), -EINVAL);
    memset(endless, '/', sizeof endless - 1);
    assert_int_equal(keeper_client_hold(f->client, f->volumes[0].id, endless, &f->volumes[0].fds,
                                        FIXTURE_WAIT_MS, NULL),
                     -EFBIG);
    endless[sizeof endless - 2] = '\0'; /* just fits */
    assert_int_equal(keeper_client_hold(f->client, f->volumes[0].id, endless, &f->volumes[0].fds,
                                        FIXTURE_WAIT_MS, NULL),
                     0);
}

/* The start has its time also when there is no descriptor left to watch it with. */
static void test_a_start_without_descriptors_of_processes(void **state)
{
    (void)state;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        struct err err = ERR_INIT;
        alarm(20);
        if (no_pidfd() < 0)
            _exit(1);
        _exit(keeper_start("/usr/bin/yes", "x", wire_deadline(300), &err) == -EMFILE ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
#define WITH_KEEPER(test)                                                                          \
    cmocka_unit_test_setup_teardown(test, keeper_fixture_setup, keeper_fixture_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_start_without_descriptors_of_processes),
        WITH_KEEPER(test_nobody_is_started_who_was_not_asked_for),
        WITH_KEEPER(test_connecting_again_does_nothing),
        WITH_KEEPER(test_racing_starts_end_with_one_keeper),
        WITH_KEEPER(test_the_end_of_keeper_shows),
        WITH_KEEPER(test_a_stopped_keeper_costs_no_more_than_the_deadline),
        WITH_KEEPER(test_a_stopped_keeper_is_replaced),
        WITH_KEEPER(test_requests_wait_for_each_other_within_their_deadline),
        WITH_KEEPER(test_a_run_directory_with_a_long_path),
        WITH_KEEPER(test_starts_that_fail_say_why),
        WITH_KEEPER(test_keeper_says_what_is_wrong),
        WITH_KEEPER(test_answers_that_are_none),
        WITH_KEEPER(test_requests_that_cannot_be_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
