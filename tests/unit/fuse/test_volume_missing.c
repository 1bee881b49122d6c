#include "cleanup.h"
#include "fd_pass.h"
#include "page_witness.h"
#include "worker_rig.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* What a kill costs while the kernel waits for a page of the one that it copies a request to, or a
 * reply from; and that no page of a worker is ever missing. The real worker, with page_witness. */

enum {
    PAGE = 4096,
    REPORT_FD = 80, /* none of a worker's */
    ROUNDS = 20,
};

struct watched {
    struct worker_rig *rig;
    int ends[2];
    int uffd; /* of the last worker */
    struct page_witness said;
};

static void watch_begin(struct watched *watched, struct worker_rig *rig)
{
    int ends[2];
    *watched = (struct watched){.rig = rig, .uffd = -1};
    rig->program = VARVE_WITNESSED_PROGRAM;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    watched->ends[0] = ends[0];
    watched->ends[1] = fcntl(ends[1], F_DUPFD, REPORT_FD);
    assert_true(watched->ends[1] >= REPORT_FD);
    (void)close(ends[1]);
}

static void watch_end(struct watched *watched)
{
    (void)close(watched->uffd);
    (void)close(watched->ends[0]);
    (void)close(watched->ends[1]);
}

/* Starts a worker that is watched, and waits until it serves. */
static void watch_serve(struct watched *watched, const char *what)
{
    char env[64];
    size_t count = 0;
    snprintf(env, sizeof env, "VARVE_WITNESS=%d:%s", watched->ends[1], what);
    if (watched->uffd >= 0)
        (void)close(watched->uffd);
    worker_rig_serve(watched->rig, env);
    ssize_t n = fd_pass_receive(watched->ends[0], &watched->said, sizeof watched->said,
                                &watched->uffd, 1, &count, true);
    assert_int_equal(n, sizeof watched->said);
    assert_int_equal(count, 1);
}

/* Whether a page was missing that somebody touched, within `ms`. */
static bool was_missed(const struct watched *watched, int ms)
{
    struct uffd_msg message;
    struct pollfd wait = {.fd = watched->uffd, .events = POLLIN};
    return poll(&wait, 1, ms) == 1 && (wait.revents & POLLIN) != 0 &&
           read(watched->uffd, &message, sizeof message) == sizeof message &&
           message.event == UFFD_EVENT_PAGEFAULT;
}

struct application {
    const struct worker_rig *rig;
    bool write;
    size_t len;
    ssize_t result;
    int error;
    pthread_t thread;
};

static void *apply(void *arg)
{
    struct application *app = arg;
    char *bytes = worker_rig_bytes(app->len, 1);
    int fd = worker_rig_open(app->rig);
    app->result = app->write ? pwrite(fd, bytes, app->len, 0) : pread(fd, bytes, app->len, 0);
    app->error = errno;
    (void)close(fd);
    free(bytes);
    return NULL;
}

/* Kills the worker in the middle of the kernel's copy; a successor has everything sent again. */
static void kill_in_the_copy(struct worker_rig *rig, const char *what, struct application app)
{
    struct watched watched;
    watch_begin(&watched, rig);
    watch_serve(&watched, what);
    app.rig = rig;
    assert_int_equal(pthread_create(&app.thread, NULL, apply, &app), 0);
    assert_true(was_missed(&watched, 20000));
    worker_rig_kill(rig);
    watch_serve(&watched, "watch");
    assert_int_equal(pthread_join(app.thread, NULL), 0);
    assert_int_equal(app.result, -1);
    assert_int_equal(app.error, EIO);
    watch_end(&watched);
}

static void a_missing_page_of_a_request_costs_it(void **state)
{
    kill_in_the_copy(*state, "request",
                     (struct application){.write = true, .len = (size_t)4 * PAGE});
}

static void a_missing_page_of_a_reply_costs_it(void **state)
{
    kill_in_the_copy(*state, "reply", (struct application){.len = PAGE});
}

/* Somebody with all rights tries to have the worker's pages taken away. */
static void try_to_drop(const struct watched *watched)
{
    struct iovec memory = {(void *)(uintptr_t)watched->said.region, watched->said.bytes};
    cleanup_fd int pidfd = (int)syscall(SYS_pidfd_open, watched->rig->pid, 0);
    assert_true(pidfd >= 0);
    assert_int_equal(syscall(SYS_process_madvise, pidfd, &memory, 1, MADV_PAGEOUT, 0), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(syscall(SYS_process_madvise, pidfd, &memory, 1, MADV_COLD, 0), -1);
    assert_int_equal(errno, EINVAL);
}

/* A process that writes and reads as much as one request can carry, several times. */
static pid_t start_application(int fd, char *bytes, char *back)
{
    pid_t app = fork();
    assert_true(app >= 0);
    if (app != 0)
        return app;
    for (int i = 0; i < 4; i++) {
        if (pwrite(fd, bytes, VOLUME_MAX_WRITE, 0) != VOLUME_MAX_WRITE)
            _exit(1);
        if (pread(fd, back, VOLUME_MAX_WRITE, 0) != VOLUME_MAX_WRITE)
            _exit(2);
        if (memcmp(bytes, back, VOLUME_MAX_WRITE) != 0)
            _exit(3);
    }
    _exit(0);
}

/* Before its first request is read all pages are there and locked, and no copy of the kernel, nor
 * anything that the worker does on its stacks, ever meets one that is not: there is no moment in
 * which a kill costs a request. */
static void a_worker_has_no_missing_pages(void **state)
{
    struct watched watched;
    watch_begin(&watched, *state);
    watch_serve(&watched, "watch");
    cleanup_fd int fd = worker_rig_open(watched.rig);
    cleanup_free char *bytes = worker_rig_bytes(VOLUME_MAX_WRITE, 1);
    cleanup_free char *back = worker_rig_bytes(VOLUME_MAX_WRITE, 2);
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(watched.said.reads, 0);
        assert_int_equal(watched.said.missing, 0);
        assert_int_equal(watched.said.drop_num, EINVAL);
        assert_true(watched.said.bytes >= (uint64_t)8 << 20);
        try_to_drop(&watched);
        pid_t app = start_application(fd, bytes, back);
        (void)usleep((useconds_t)(i * 300));
        try_to_drop(&watched);
        worker_rig_kill(watched.rig);
        assert_false(was_missed(&watched, 0));
        watch_serve(&watched, "watch");
        int status = 0;
        assert_int_equal(waitpid(app, &status, 0), app);
        assert_int_equal(status, 0);
        assert_false(was_missed(&watched, 0));
    }
    watch_end(&watched);
}

int main(void)
{
#define RIG(f) cmocka_unit_test_setup_teardown(f, worker_rig_setup, worker_rig_teardown)
    const struct CMUnitTest tests[] = {
        RIG(a_missing_page_of_a_request_costs_it),
        RIG(a_missing_page_of_a_reply_costs_it),
        RIG(a_worker_has_no_missing_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
