/* Keeper against peers that are wrong, slow or many, and against a lack of descriptors. */
#include "keeper_fixture.h"

#include "cleanup.h"
#include "fd_pass.h"
#include "wire_call.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct keeper_wire message(enum keeper_wire_op op)
{
    return (struct keeper_wire){
        .magic = KEEPER_WIRE_MAGIC, .version = KEEPER_WIRE_VERSION, .op = op};
}

/* What keeper answers to these bytes with these descriptors. */
static struct keeper_wire tell(int socket, const void *bytes, size_t len, const int *fds,
                               size_t count)
{
    struct keeper_wire answer = {.text = ""};
    size_t got = 0;
    assert_int_equal(fd_pass_send(socket, bytes, len, fds, count, true), 0);
    assert_int_equal(
        wire_receive(socket, &answer, sizeof answer, NULL, 0, &got, wire_deadline(FIXTURE_WAIT_MS)),
        0);
    assert_int_equal(answer.magic, KEEPER_WIRE_MAGIC);
    return answer;
}

/* A connection that keeper has taken, so that it counts among keeper's descriptors. */
static int raw_connect(const struct keeper_fixture *f)
{
    struct keeper_wire hello = message(KEEPER_WIRE_HELLO);
    int fd = wire_connect(f->scratch->fd, KEEPER_SOCKET_NAME, wire_deadline(FIXTURE_WAIT_MS));
    assert_true(fd >= 0);
    assert_int_equal(tell(fd, &hello, sizeof hello, NULL, 0).status, 0);
    return fd;
}

static void assert_works(struct keeper_fixture *f)
{
    struct err err = ERR_INIT;
    if (keeper_client_hello(f->client, NULL, FIXTURE_WAIT_MS, &err) < 0)
        fail_msg("%s", err.text);
}

static void test_messages_that_are_none(void **state)
{
    struct keeper_fixture *f = *state;
    static char long_one[3 * sizeof(struct keeper_wire)];
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    cleanup_fd int fd = raw_connect(f);
    const int fds[] = {0, 1, 2, 0, 1, 2, 0, 1};
    int before = keeper_fixture_count_fds(keeper_client_pid(f->client));
    struct keeper_wire good = message(KEEPER_WIRE_HELLO);
    assert_int_equal(tell(fd, &good, 1, NULL, 0).status, -EBADMSG);
    assert_int_equal(tell(fd, &good, sizeof good - 1, fds, 3).status, -EBADMSG);
    assert_int_equal(tell(fd, long_one, sizeof long_one, fds, 3).status, -EBADMSG);
    assert_int_equal(tell(fd, long_one, sizeof good, NULL, 0).status, -EBADMSG);
    assert_int_equal(tell(fd, &good, sizeof good, fds, 1).status, -EBADMSG); /* says fds = 0 */
    struct keeper_wire bad = good;
    bad.fds = 1;
    assert_int_equal(tell(fd, &bad, sizeof bad, NULL, 0).status, -EBADMSG);
    bad.fds = 8;
    assert_int_equal(tell(fd, &bad, sizeof bad, fds, 8).status, -EMFILE);
    bad = good;
    memset(bad.id, 'a', sizeof bad.id);
    assert_int_equal(tell(fd, &bad, sizeof bad, NULL, 0).status, -EBADMSG);
    bad = good;
    bad.version++;
    assert_int_equal(tell(fd, &bad, sizeof bad, NULL, 0).status, -EPROTONOSUPPORT);
    for (uint32_t op = KEEPER_WIRE_EVENT; op < KEEPER_WIRE_EVENT + 3; op++) {
        bad = good;
        bad.op = op;
        assert_int_equal(tell(fd, &bad, sizeof bad, NULL, 0).status, -EOPNOTSUPP);
    }
    bad = good;
    bad.op = 0;
    assert_int_equal(tell(fd, &bad, sizeof bad, NULL, 0).status, -EOPNOTSUPP);
    /* Descriptors that belong to no request. */
    bad = good;
    bad.fds = 2;
    assert_int_equal(tell(fd, &bad, sizeof bad, fds, 2).status, 0);
    assert_int_equal(keeper_fixture_count_fds(keeper_client_pid(f->client)), before);
    assert_works(f);
}

/* A HOLD that is right but for one thing. */
static int hold(struct keeper_fixture *f, int socket, const char *id, const char *directory,
                const struct volume_fds *fds, int count)
{
    struct keeper_wire ask = message(KEEPER_WIRE_HOLD);
    int array[VOLUME_FDS_MAX];
    (void)f;
    memcpy(ask.id, id, strnlen(id, sizeof ask.id - 1));
    memcpy(ask.directory, directory, strnlen(directory, sizeof ask.directory));
    (void)volume_fds_to_array(fds, array);
    ask.fds = (uint32_t)count;
    return tell(socket, &ask, sizeof ask, array, (size_t)count).status;
}

static int unsealed_copy(int live)
{
    char page[LIVE_MAP_HEADER_BYTES];
    int fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(pread(live, page, sizeof page, 0), sizeof page);
    assert_int_equal(pwrite(fd, page, sizeof page, 0), sizeof page);
    return fd;
}

static void test_holds_that_are_wrong(void **state)
{
    struct keeper_fixture *f = *state;
    static char endless[KEEPER_DIRECTORY_MAX + 1];
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    cleanup_fd int fd = raw_connect(f);
    const char *id = f->volumes[0].id;
    const struct volume_fds good = f->volumes[0].fds;
    int before = keeper_fixture_count_fds(keeper_client_pid(f->client));
    static const char *const ids[] = {
        "", "0123456789a", "0123456789ab0", "0123456789AB", "../../../../a", "0123456789a/"};
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
        assert_int_equal(hold(f, fd, ids[i], "/d", &good, 4), -EINVAL);
    assert_int_equal(hold(f, fd, id, "", &good, 4), -EINVAL);
    assert_int_equal(hold(f, fd, id, "relative", &good, 4), -EINVAL);
    memset(endless, '/', sizeof endless - 1);
    assert_int_equal(hold(f, fd, id, endless, &good, 4), -EINVAL);
    for (int count = 0; count < 4; count++)
        assert_int_equal(hold(f, fd, id, "/d", &good, count), -EINVAL);
    assert_int_equal(hold(f, fd, "0123456789af", "/d", &good, 4), -EINVAL); /* another's map */
    struct volume_fds bad = good;
    bad.live = good.fuse;
    assert_int_equal(hold(f, fd, id, "/d", &bad, 4), -EINVAL);
    bad.live = memfd_create("short", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(hold(f, fd, id, "/d", &bad, 4), -EINVAL);
    close(bad.live);
    bad.live = unsealed_copy(good.live); /* could be cut under keeper's mapping */
    assert_int_equal(hold(f, fd, id, "/d", &bad, 4), -EINVAL);
    assert_int_equal(fcntl(bad.live, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(pwrite(bad.live, "X", 1, 0), 1); /* the magic number */
    assert_int_equal(hold(f, fd, id, "/d", &bad, 4), -EINVAL);
    close(bad.live);
    bad = good;
    bad.listen = good.fuse;
    assert_int_equal(hold(f, fd, id, "/d", &bad, 4), -EINVAL);
    bad = good;
    bad.program = good.fuse;
    assert_int_equal(hold(f, fd, id, "/d", &bad, 4), -EINVAL);
    bad = good;
    bad.worker = good.fuse;
    assert_int_equal(hold(f, fd, id, "/d", &bad, 5), -EINVAL);
    assert_int_equal(keeper_fixture_count_fds(keeper_client_pid(f->client)), before);
    assert_int_equal(hold(f, fd, id, "/d", &good, 4), 0);
    assert_works(f);
}

static void test_a_peer_that_is_not_root_is_turned_away(void **state)
{
    struct keeper_fixture *f = *state;
    keeper_fixture_connect(f);
    /* What keeps it out at first is the mode of the directory and the socket. */
    assert_int_equal(fchmod(f->scratch->fd, 0755), 0);
    assert_int_equal(fchmodat(f->scratch->fd, KEEPER_SOCKET_NAME, 0666, 0), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct keeper_wire ask = message(KEEPER_WIRE_HELLO);
        size_t count;
        if (setgid(65534) < 0 || setuid(65534) < 0)
            _exit(2);
        int fd = wire_connect(f->scratch->fd, KEEPER_SOCKET_NAME, wire_deadline(FIXTURE_WAIT_MS));
        if (fd < 0)
            _exit(3);
        (void)fd_pass_send(fd, &ask, sizeof ask, NULL, 0, true);
        _exit(wire_receive(fd, &ask, sizeof ask, NULL, 0, &count, wire_deadline(FIXTURE_WAIT_MS)) ==
                      -ECONNRESET
                  ? 0
                  : 4);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_works(f);
}

static int count_closed(const int *fds, size_t count)
{
    int closed = 0;
    for (size_t i = 0; i < count; i++) {
        struct pollfd poll_fd = {.fd = fds[i]};
        closed += poll(&poll_fd, 1, 0) > 0;
    }
    return closed;
}

/* More connections than keeper has places for: the surplus is closed, the others go on. */
static void test_many_connections(void **state)
{
    struct keeper_fixture *f = *state;
    enum {
        SURPLUS = 40 - 14, /* the client has two of 16 */
    };
    int fds[40];
    keeper_fixture_connect(f);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = wire_connect(f->scratch->fd, KEEPER_SOCKET_NAME, wire_deadline(FIXTURE_WAIT_MS));
    for (int i = 0; i < 1000 && count_closed(fds, ARRAY_SIZE(fds)) < SURPLUS; i++)
        keeper_fixture_sleep(2);
    assert_works(f);
    assert_int_equal(count_closed(fds, ARRAY_SIZE(fds)), SURPLUS);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        close(fds[i]);
    assert_works(f);
    keeper_fixture_sleep(50);
    cleanup_fd int again = raw_connect(f);
}

/* Peers that ask and never read; all of them still get everything when they do. */
static void test_slow_readers_hold_nobody_up(void **state)
{
    struct keeper_fixture *f = *state;
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    (void)keeper_fixture_worker(f, 0, 0);
    cleanup_fd int slow = raw_connect(f);
    struct keeper_wire ask = message(KEEPER_WIRE_LIST);
    int sent = 0;
    for (int idle = 0; idle < 20;) { /* until keeper takes no more of them */
        if (fd_pass_send(slow, &ask, sizeof ask, NULL, 0, false) == 0) {
            sent++;
            idle = 0;
        } else {
            keeper_fixture_sleep(5);
            idle++;
        }
    }
    assert_true(sent > 10);
    assert_works(f);
    kill(keeper_fixture_worker(f, 0, 0), SIGKILL);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    keeper_fixture_event(f, 0, KEEPER_DIED);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    for (int i = 0; i < 2 * sent; i++) { /* a volume and the end, each time */
        struct keeper_wire answer;
        int fds[VOLUME_FDS_MAX];
        size_t count = 0;
        assert_int_equal(wire_receive(slow, &answer, sizeof answer, fds, VOLUME_FDS_MAX, &count,
                                      wire_deadline(FIXTURE_WAIT_MS)),
                         0);
        assert_int_equal(answer.more, i % 2 == 0);
        for (size_t n = 0; n < count; n++)
            close(fds[n]);
    }
}

/* Makes events until `count` have been, by a worker that ends at once. */
static void make_events(struct keeper_fixture *f, int count)
{
    for (int i = 0; i < count / 2; i++) {
        assert_int_equal(keeper_client_start(f->client, f->volumes[0].id, FIXTURE_WAIT_MS, NULL),
                         0);
        for (int n = 0; keeper_fixture_starts(f, 0) <= i; n++) {
            assert_true(n < FIXTURE_WAIT_MS);
            keeper_fixture_sleep(1);
        }
        pid_t child = 1;
        while (child != 0) { /* it has been waited for */
            struct keeper_fixture_line line;
            char path[64];
            snprintf(path, sizeof path, "task/%d/children", (int)keeper_client_pid(f->client));
            line = keeper_fixture_proc(keeper_client_pid(f->client), path, "");
            child = (pid_t)strtol(line.s, NULL, 10);
        }
    }
}

static int subscribe(struct keeper_fixture *f)
{
    struct keeper_wire ask = message(KEEPER_WIRE_EVENTS);
    int fd = raw_connect(f);
    assert_int_equal(tell(fd, &ask, sizeof ask, NULL, 0).status, 0);
    return fd;
}

/* Reads all events: their number, and how many were lost according to them. */
static int count_events(int fd, uint64_t *ret_lost)
{
    struct keeper_wire event;
    size_t got;
    int count = 0;
    *ret_lost = 0;
    while (wire_receive(fd, &event, sizeof event, NULL, 0, &got, wire_deadline(100)) == 0) {
        assert_int_equal(event.op, KEEPER_WIRE_EVENT);
        *ret_lost += event.arg[3];
        count++;
    }
    return count;
}

static void test_events_that_nobody_reads_are_counted(void **state)
{
    struct keeper_fixture *f = *state;
    enum {
        EVENTS = 2 * 400, /* more than a socket and KEEPER_EVENTS_KEPT hold */
    };
    uint64_t lost;
    keeper_fixture_connect(f); /* its client reads none of its events */
    keeper_fixture_volume(f, 0, 0, "exit 0");
    cleanup_fd int slow = subscribe(f);
    assert_int_equal(keeper_client_hold(f->client, f->volumes[0].id, f->volumes[0].directory,
                                        &f->volumes[0].fds, FIXTURE_WAIT_MS, NULL),
                     0);
    make_events(f, EVENTS);
    int read = count_events(slow, &lost);
    assert_true(read >= KEEPER_EVENTS_KEPT && lost > 0);
    assert_int_equal((uint64_t)read + lost, EVENTS);
    /* Whoever comes now hears nothing of what others were sent. */
    cleanup_fd int late = subscribe(f);
    assert_int_equal(count_events(late, &lost), 0);
}

/* The events of a time without a listener wait for the first one. */
static void test_events_wait_for_the_first_listener(void **state)
{
    struct keeper_fixture *f = *state;
    uint64_t lost;
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    pid_t worker = keeper_fixture_worker(f, 0, 0);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    keeper_client_close(f->client);
    f->client = NULL;
    keeper_fixture_sleep(20);
    kill(worker, SIGKILL);
    (void)keeper_fixture_worker(f, 0, worker);
    cleanup_fd int first = subscribe(f);
    cleanup_fd int second = subscribe(f);
    assert_int_equal(count_events(first, &lost), 2);
    assert_int_equal(lost, 0);
    assert_int_equal(count_events(second, &lost), 0);
    kill(keeper_fixture_worker(f, 0, worker), SIGKILL);
    assert_int_equal(count_events(first, &lost), 2); /* from now on both */
    assert_int_equal(count_events(second, &lost), 2);
}

/* A keeper that may have few descriptors. */
static void connect_limited(struct keeper_fixture *f, int nofile)
{
    char text[512];
    int len = snprintf(text, sizeof text, "#!/bin/sh\nulimit -n %d\nexec %s \"$1\"\n", nofile,
                       VARVE_KEEPER);
    scratch_write(f->scratch, "limited-keeper", text, len);
    assert_int_equal(fchmodat(f->scratch->fd, "limited-keeper", 0700, 0), 0);
    const struct keeper_client_options options = {.run_fd = f->scratch->fd,
                                                  .run_path = f->scratch->path,
                                                  .program =
                                                      scratch_path(f->scratch, "limited-keeper")};
    keeper_client_close(f->client);
    assert_int_equal(keeper_client_open(&options, &f->client, NULL), 0);
    keeper_fixture_connect(f);
}

static void test_few_descriptors(void **state)
{
    struct keeper_fixture *f = *state;
    struct err err = ERR_INIT;
    connect_limited(f, 64 + 2 * KEEPER_FDS_MAX + 1); /* two volumes */
    int before = keeper_fixture_count_fds(keeper_client_pid(f->client));
    for (int i = 0; i < 3; i++)
        keeper_fixture_volume(f, i, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    keeper_fixture_serve(f, 1);
    int rc = keeper_client_hold(f->client, f->volumes[2].id, f->volumes[2].directory,
                                &f->volumes[2].fds, FIXTURE_WAIT_MS, &err);
    assert_int_equal(rc, -EMFILE);
    assert_non_null(strstr(err.text, "keeper holds as many volumes as it can"));
    assert_int_equal(keeper_fixture_count_fds(keeper_client_pid(f->client)), before + 10);
    for (int i = 0; i < 2; i++) { /* those that are held are served */
        pid_t worker = keeper_fixture_worker(f, i, 0);
        kill(worker, SIGKILL);
        (void)keeper_fixture_worker(f, i, worker);
    }
    assert_int_equal(keeper_client_drop(f->client, f->volumes[0].id, FIXTURE_WAIT_MS, NULL), 0);
    keeper_fixture_serve(f, 2);
    (void)keeper_fixture_worker(f, 2, 0);
}

/* So few that a message with five of them does not fit either. */
static void test_hardly_any_descriptors(void **state)
{
    struct keeper_fixture *f = *state;
    connect_limited(f, 18);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    int before = keeper_fixture_count_fds(keeper_client_pid(f->client));
    for (int i = 0; i < 3; i++)
        assert_int_equal(keeper_client_hold(f->client, f->volumes[0].id, f->volumes[0].directory,
                                            &f->volumes[0].fds, FIXTURE_WAIT_MS, NULL),
                         -EMFILE);
    assert_int_equal(keeper_fixture_count_fds(keeper_client_pid(f->client)), before);
    assert_works(f);
}

/* The kernel refuses a new process: told once, tried again until it works. */
static void test_no_process_can_be_made(void **state)
{
    struct keeper_fixture *f = *state;
    struct rlimit before;
    keeper_fixture_connect(f);
    pid_t keeper = keeper_client_pid(f->client);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    pid_t worker = keeper_fixture_worker(f, 0, 0);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    assert_int_equal(prlimit(keeper, RLIMIT_NOFILE, NULL, &before), 0);
    struct rlimit none = {.rlim_cur = KEEPER_FDS_MAX, .rlim_max = before.rlim_max};
    assert_int_equal(prlimit(keeper, RLIMIT_NOFILE, &none, NULL), 0); /* no pidfd either */
    kill(worker, SIGKILL);
    keeper_fixture_event(f, 0, KEEPER_DIED);
    assert_int_equal(keeper_fixture_event(f, 0, KEEPER_NO_START).value, EMFILE);
    keeper_fixture_no_event(f, 200);
    assert_works(f);
    assert_int_equal(prlimit(keeper, RLIMIT_NOFILE, &before, NULL), 0);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    worker = keeper_fixture_worker(f, 0, worker);
    /* And the next time it is told again. */
    assert_int_equal(prlimit(keeper, RLIMIT_NOFILE, &none, NULL), 0);
    kill(worker, SIGKILL);
    keeper_fixture_event(f, 0, KEEPER_DIED);
    keeper_fixture_event(f, 0, KEEPER_NO_START);
    assert_int_equal(prlimit(keeper, RLIMIT_NOFILE, &before, NULL), 0);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
}

int main(void)
{
#define WITH_KEEPER(test)                                                                          \
    cmocka_unit_test_setup_teardown(test, keeper_fixture_setup, keeper_fixture_teardown)
    const struct CMUnitTest tests[] = {
        WITH_KEEPER(test_messages_that_are_none),
        WITH_KEEPER(test_holds_that_are_wrong),
        WITH_KEEPER(test_a_peer_that_is_not_root_is_turned_away),
        WITH_KEEPER(test_many_connections),
        WITH_KEEPER(test_slow_readers_hold_nobody_up),
        WITH_KEEPER(test_events_that_nobody_reads_are_counted),
        WITH_KEEPER(test_events_wait_for_the_first_listener),
        WITH_KEEPER(test_few_descriptors),
        WITH_KEEPER(test_hardly_any_descriptors),
        WITH_KEEPER(test_no_process_can_be_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
