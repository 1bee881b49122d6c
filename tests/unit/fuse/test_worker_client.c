/* varved's side of a worker's control socket, with threads that answer as a worker, a dying worker,
 * or none. */
#include "worker_client.h"

#include "clock.h"
#include "fd_pass.h"
#include "scratch.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ID "0123456789ab"
enum {
    WAIT_MS = 10000,
};

static int64_t now_ms(void)
{
    const struct clock clock = clock_system();
    return clock_mono_ns(&clock) / 1000000;
}

/* What the next connections meet, one after the other. */
enum deed {
    DEED_ANSWER,
    DEED_DIE_BEFORE,  /* the connection breaks before the request is read */
    DEED_DIE_AFTER,   /* it was read, and not answered */
    DEED_HANG,        /* read, and nothing more until the end of the test */
    DEED_OTHER_MAGIC, /* answers that are none */
    DEED_OTHER_VERSION,
    DEED_OTHER_OP,
    DEED_SHORT,
    DEED_NO_FDS,
};

struct worker {
    int listener;
    int stop[2];
    pthread_t thread;
    const enum deed *deeds;
    size_t count;
    int32_t status;
    const char *text;
    struct volume_wire seen[8]; /* requests, in their order */
    size_t seen_count;
    int hung;
};

static void answer(const struct worker *worker, int fd, enum deed deed,
                   const struct volume_wire *request)
{
    struct volume_wire reply = {.magic = VOLUME_WIRE_MAGIC,
                                .version = VOLUME_WIRE_VERSION,
                                .op = request->op,
                                .status = worker->status};
    const int fds[VOLUME_FDS_MAX] = {0, 1, 2, worker->listener, 0};
    size_t count = request->op == VOLUME_WIRE_ATTACH && deed != DEED_NO_FDS ? VOLUME_FDS_MAX : 0;
    snprintf(reply.text, sizeof reply.text, "%s", worker->text ? worker->text : "");
    if (deed == DEED_OTHER_MAGIC)
        reply.magic++;
    if (deed == DEED_OTHER_VERSION)
        reply.version++;
    if (deed == DEED_OTHER_OP)
        reply.op++;
    (void)fd_pass_send(fd, &reply, deed == DEED_SHORT ? 20 : sizeof reply, fds, count, true);
}

static void *serve(void *arg)
{
    struct worker *worker = arg;
    for (size_t i = 0; i < worker->count; i++) {
        struct pollfd fds[2] = {{.fd = worker->listener, .events = POLLIN},
                                {.fd = worker->stop[0], .events = POLLIN}};
        struct volume_wire *request = &worker->seen[worker->seen_count];
        size_t none;
        if (poll(fds, 2, WAIT_MS) <= 0 || fds[1].revents != 0)
            break;
        int fd = accept4(worker->listener, NULL, NULL, SOCK_CLOEXEC);
        if (worker->deeds[i] != DEED_DIE_BEFORE) {
            if (fd_pass_receive(fd, request, sizeof *request, NULL, 0, &none, true) ==
                sizeof *request)
                worker->seen_count++;
            if (worker->deeds[i] == DEED_HANG) {
                worker->hung = fd;
                continue;
            }
            if (worker->deeds[i] != DEED_DIE_AFTER)
                answer(worker, fd, worker->deeds[i], request);
        }
        close(fd);
    }
    return NULL;
}

static void worker_begin(struct worker *worker, int workers_fd, const enum deed *deeds,
                         size_t count)
{
    struct err err = ERR_INIT;
    worker->listener = worker_client_listen(workers_fd, ID, &err);
    if (worker->listener < 0)
        fail_msg("%s", err.text);
    worker->deeds = deeds;
    worker->count = count;
    worker->hung = -1;
    assert_int_equal(pipe2(worker->stop, O_CLOEXEC), 0);
    assert_int_equal(pthread_create(&worker->thread, NULL, serve, worker), 0);
}

static void worker_end(struct worker *worker)
{
    cleanup_fdp(&worker->stop[1]);
    pthread_join(worker->thread, NULL);
    cleanup_fdp(&worker->stop[0]);
    cleanup_fdp(&worker->hung);
    cleanup_fdp(&worker->listener);
}

static void test_every_request_says_what_it_should(void **state)
{
    const struct scratch *scratch = *state;
    static const enum deed deeds[5] = {DEED_ANSWER};
    static const uint32_t ops[] = {VOLUME_WIRE_PING, VOLUME_WIRE_FLUSH, VOLUME_WIRE_RESIZE,
                                   VOLUME_WIRE_CLOSE, VOLUME_WIRE_STOP};
    struct worker worker = {.status = 0};
    worker_begin(&worker, scratch->fd, deeds, ARRAY_SIZE(deeds));
    assert_int_equal(worker_client_ping(scratch->fd, ID, WAIT_MS, NULL), 0);
    assert_int_equal(worker_client_flush(scratch->fd, ID, WAIT_MS, NULL), 0);
    assert_int_equal(worker_client_resize(scratch->fd, ID, 1 << 30, WAIT_MS, NULL), 0);
    assert_int_equal(worker_client_close(scratch->fd, ID, true, WAIT_MS, NULL), 0);
    assert_int_equal(worker_client_stop(scratch->fd, ID, true, WAIT_MS, NULL), 0);
    worker_end(&worker);
    assert_int_equal(worker.seen_count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(worker.seen[i].magic, VOLUME_WIRE_MAGIC);
        assert_int_equal(worker.seen[i].version, VOLUME_WIRE_VERSION);
        assert_int_equal(worker.seen[i].op, ops[i]);
    }
    assert_int_equal(worker.seen[2].arg[0], 1 << 30);
    assert_int_equal(worker.seen[3].arg[0], 1);
    assert_int_equal(worker.seen[4].arg[0], 1);
}

static void test_attach_gives_descriptors(void **state)
{
    const struct scratch *scratch = *state;
    static const enum deed deeds[] = {DEED_ANSWER, DEED_NO_FDS};
    struct volume_fds fds = VOLUME_FDS_NONE;
    struct worker worker = {.status = 0};
    worker_begin(&worker, scratch->fd, deeds, ARRAY_SIZE(deeds));
    assert_int_equal(worker_client_attach(scratch->fd, ID, -1, WAIT_MS, &fds, NULL), 0);
    assert_true(fds.fuse >= 0 && fds.live >= 0 && fds.listen >= 0 && fds.program >= 0 &&
                fds.worker >= 0);
    assert_int_equal(fcntl(fds.program, F_GETFD), FD_CLOEXEC);
    volume_fds_close(&fds);
    assert_int_equal(worker_client_attach(scratch->fd, ID, -1, WAIT_MS, &fds, NULL), -EBADMSG);
    assert_int_equal(fds.fuse, -1);
    worker_end(&worker);
}

static void test_what_the_worker_refuses_is_told(void **state)
{
    const struct scratch *scratch = *state;
    static const enum deed deeds[3] = {DEED_ANSWER};
    static const struct {
        int32_t status;
        enum err_code code;
    } cases[] = {{-EBUSY, ERR_CONFLICT}, {-EOPNOTSUPP, ERR_UNSUPPORTED}, {-ENOSPC, ERR_NO_SPACE}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        struct worker worker = {.status = cases[i].status, .text = "for a reason"};
        worker_begin(&worker, scratch->fd, deeds, 1);
        int rc = worker_client_close(scratch->fd, ID, false, WAIT_MS, &err);
        worker_end(&worker);
        assert_int_equal(rc, cases[i].status);
        assert_int_equal(err.code, cases[i].code);
        assert_non_null(strstr(err.text, "cannot close: worker of volume " ID ": for a reason"));
    }
}

static void test_a_worker_that_dies_is_asked_again(void **state)
{
    const struct scratch *scratch = *state;
    static const enum deed deeds[] = {DEED_DIE_AFTER, DEED_DIE_BEFORE, DEED_DIE_AFTER, DEED_ANSWER};
    struct worker worker = {.status = 0};
    worker_begin(&worker, scratch->fd, deeds, ARRAY_SIZE(deeds));
    assert_int_equal(worker_client_flush(scratch->fd, ID, WAIT_MS, NULL), 0);
    worker_end(&worker);
    assert_int_equal(worker.seen_count, 3);
}

/* The one request whose end is that the worker goes. */
static void test_a_worker_that_stops_need_not_answer(void **state)
{
    const struct scratch *scratch = *state;
    static const enum deed deeds[] = {DEED_DIE_AFTER, DEED_ANSWER};
    struct worker worker = {.status = 0};
    worker_begin(&worker, scratch->fd, deeds, ARRAY_SIZE(deeds));
    assert_int_equal(worker_client_stop(scratch->fd, ID, false, WAIT_MS, NULL), 0);
    worker_end(&worker);
    assert_int_equal(worker.seen_count, 1);
    assert_int_equal(worker.seen[0].arg[0], 0);
}

static void test_a_worker_that_says_nothing_costs_the_deadline(void **state)
{
    const struct scratch *scratch = *state;
    static const enum deed deeds[] = {DEED_HANG};
    struct err err = ERR_INIT;
    struct worker worker = {.status = 0};
    worker_begin(&worker, scratch->fd, deeds, ARRAY_SIZE(deeds));
    for (int i = 0; i < 2; i++) { /* the second time nobody even takes the connection */
        int64_t begin = now_ms();
        err_clear(&err);
        assert_int_equal(worker_client_ping(scratch->fd, ID, 200, &err), -EHOSTUNREACH);
        assert_int_equal(err.code, ERR_UNREACHABLE);
        assert_in_range(now_ms() - begin, 190, 1000);
    }
    worker_end(&worker);
}

static void test_answers_that_are_none(void **state)
{
    const struct scratch *scratch = *state;
    static const struct {
        enum deed deed;
        int rc;
    } cases[] = {{DEED_OTHER_MAGIC, -EBADMSG},
                 {DEED_OTHER_VERSION, -EPROTONOSUPPORT},
                 {DEED_OTHER_OP, -EBADMSG},
                 {DEED_SHORT, -EBADMSG}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct worker worker = {.status = 0};
        worker_begin(&worker, scratch->fd, &cases[i].deed, 1);
        assert_int_equal(worker_client_ping(scratch->fd, ID, WAIT_MS, NULL), cases[i].rc);
        worker_end(&worker);
    }
    /* No status that an answer may have; the first of them has no opposite. */
    static const int32_t statuses[] = {INT32_MIN, -4096, 7, INT32_MAX};
    static const enum deed deed = DEED_ANSWER;
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        struct err err = ERR_INIT;
        struct worker worker = {.status = statuses[i]};
        worker_begin(&worker, scratch->fd, &deed, 1);
        assert_int_equal(worker_client_ping(scratch->fd, ID, WAIT_MS, &err), -EBADMSG);
        assert_int_equal(err.code, ERR_DAMAGED);
        worker_end(&worker);
    }
}

static void test_nobody_there(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    struct volume_fds fds;
    /* A missing socket is no missing volume; only who looks for workers takes it for that. */
    assert_int_equal(worker_client_ping(scratch->fd, ID, WAIT_MS, &err), -EHOSTUNREACH);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    assert_string_equal(err.text, "cannot reach a worker: nobody answers at the socket " ID
                                  ".sock of its worker");
    assert_non_null(strstr(err.hint, "--abandon"));
    err_clear(&err);
    assert_int_equal(worker_client_attach(scratch->fd, ID, -1, WAIT_MS, &fds, &err), -ENOENT);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    int fd = worker_client_listen(scratch->fd, ID, NULL);
    close(fd); /* the name is left */
    assert_int_equal(worker_client_ping(scratch->fd, ID, WAIT_MS, NULL), -EHOSTUNREACH);
    assert_int_equal(worker_client_attach(scratch->fd, ID, -1, WAIT_MS, &fds, NULL), -ENOENT);
    static const char *const ids[] = {"", "0123456789a", "0123456789abc", "../../../abc"};
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        assert_int_equal(worker_client_ping(scratch->fd, ids[i], WAIT_MS, NULL), -EINVAL);
        assert_int_equal(worker_client_listen(scratch->fd, ids[i], NULL), -EINVAL);
        assert_int_equal(worker_client_unlink(scratch->fd, ids[i], NULL), -EINVAL);
    }
}

static void test_the_socket_and_its_name(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    struct stat st;
    mode_t before = umask(0);
    int fd = worker_client_listen(scratch->fd, ID, NULL);
    umask(before);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_int_equal(fstatat(scratch->fd, ID ".sock", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(worker_client_listen(scratch->fd, ID, &err), -EBUSY);
    assert_int_equal(err.code, ERR_CONFLICT);
    close(fd);
    fd = worker_client_listen(scratch->fd, ID, NULL); /* stale: replaced */
    assert_true(fd >= 0);
    close(fd);
    for (int i = 0; i < 2; i++)
        assert_int_equal(worker_client_unlink(scratch->fd, ID, NULL), 0);
    assert_int_equal(fstatat(scratch->fd, ID ".sock", &st, 0), -1);
    scratch_write(scratch, ID ".sock", "no socket", 9);
    assert_int_equal(worker_client_listen(scratch->fd, ID, NULL), -EEXIST);
    assert_int_equal(fstatat(scratch->fd, ID ".sock", &st, 0), 0);
    assert_int_equal(st.st_size, 9);
}

static void test_a_directory_with_a_long_path(void **state)
{
    const struct scratch *scratch = *state;
    static const enum deed deeds[] = {DEED_ANSWER};
    char path[4096];
    size_t len = (size_t)snprintf(path, sizeof path, "%s", scratch->path);
    for (int i = 0; i < 8; i++) {
        len +=
            (size_t)snprintf(path + len, sizeof path - len, "/a-rather-long-name-of-a-directory");
        assert_int_equal(mkdir(path, 0700), 0);
    }
    cleanup_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct worker worker = {.status = 0};
    worker_begin(&worker, dir, deeds, ARRAY_SIZE(deeds));
    assert_int_equal(worker_client_ping(dir, ID, WAIT_MS, NULL), 0);
    worker_end(&worker);
}

int main(void)
{
#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(test_every_request_says_what_it_should),
        WITH_SCRATCH(test_attach_gives_descriptors),
        WITH_SCRATCH(test_what_the_worker_refuses_is_told),
        WITH_SCRATCH(test_a_worker_that_dies_is_asked_again),
        WITH_SCRATCH(test_a_worker_that_stops_need_not_answer),
        WITH_SCRATCH(test_a_worker_that_says_nothing_costs_the_deadline),
        WITH_SCRATCH(test_answers_that_are_none),
        WITH_SCRATCH(test_nobody_there),
        WITH_SCRATCH(test_the_socket_and_its_name),
        WITH_SCRATCH(test_a_directory_with_a_long_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
