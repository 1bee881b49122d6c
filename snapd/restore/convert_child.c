#include "convert_child.h"

#include "fd_pass.h"
#include "spawn.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

enum {
    TICK_MS = 100, /* between two questions whether to stop */
};

void convert_child_init(struct convert_child *child)
{
    *child = (struct convert_child){.socket = -1};
    pthread_mutex_init(&child->lock, NULL); /* cannot fail without attributes */
}

static pid_t start_program(int wire, struct err *err)
{
    char program[4096];
    int rc = spawn_find("varve-convert", program, err);
    if (rc < 0)
        return rc;
    const char *const argv[] = {program, NULL};
    const struct spawn spawn = {.argv = argv,
                                .stdin_fd = -1,
                                .stdout_fd = -1,
                                .stderr_fd = -1,
                                .extra = {wire},
                                .extra_count = 1};
    return spawn_start(&spawn, err);
}

int convert_child_start(struct convert_child *child, const struct convert_wire_request *request,
                        const int *fds, size_t fd_count, struct err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_errno(err, errno, "cannot start varve-convert");
    cleanup_fd int theirs = pair[1];
    pid_t pid = start_program(theirs, err);
    if (pid < 0) {
        close(pair[0]);
        return pid;
    }
    child->pid = pid;
    pthread_mutex_lock(&child->lock);
    child->socket = pair[0];
    child->growth_waits = false;
    pthread_mutex_unlock(&child->lock);
    int rc = convert_child_send(child, request, sizeof *request, fds, fd_count, err);
    if (rc < 0)
        convert_child_end(child);
    return rc;
}

/* The child is not there any more: waiting for it says more. */
static bool is_gone(int num)
{
    return num == EPIPE || num == ECONNRESET;
}

int convert_child_send(struct convert_child *child, const void *message, size_t len, const int *fds,
                       size_t fd_count, struct err *err)
{
    int rc = fd_pass_send(child->socket, message, len, fds, fd_count, false);
    if (rc < 0 && !is_gone(-rc))
        return err_errno(err, rc, "cannot talk to varve-convert");
    return 0;
}

/* With the lock held. */
static void send_growth(struct convert_child *child)
{
    if (!child->growth_waits || child->socket < 0)
        return;
    ssize_t n =
        send(child->socket, &child->growth, sizeof child->growth, MSG_NOSIGNAL | MSG_DONTWAIT);
    /* A full socket or a lack of memory passes; a child that has ended needs to know nothing. */
    if (n >= 0 || is_gone(errno))
        child->growth_waits = false;
}

void convert_child_grow(struct convert_child *child, uint64_t size, bool end)
{
    pthread_mutex_lock(&child->lock);
    struct convert_wire_growth *growth = &child->growth;
    const bool is_new = growth->magic == 0 || size > growth->size || end;
    if (is_new && growth->end == 0 && size >= growth->size) {
        *growth = (struct convert_wire_growth){
            .magic = CONVERT_WIRE_GROWTH_MAGIC, .end = end, .size = size};
        child->growth_waits = true;
    }
    send_growth(child);
    pthread_mutex_unlock(&child->lock);
}

static bool try_growth(struct convert_child *child)
{
    pthread_mutex_lock(&child->lock);
    send_growth(child);
    const bool waits = child->growth_waits;
    pthread_mutex_unlock(&child->lock);
    return waits;
}

static int ask_stop(convert_stop *stop, void *arg, struct err *err)
{
    int rc = stop ? stop(arg, err) : 0;
    if (rc == 0)
        return 0;
    return rc < 0 ? rc : err_fail(err, ERR_CANCELLED, "the conversion was stopped");
}

ssize_t convert_child_await(struct convert_child *child, convert_stop *stop, void *arg, void *buf,
                            size_t cap, struct err *err)
{
    for (;;) {
        int rc = ask_stop(stop, arg, err);
        if (rc < 0)
            return rc;
        struct pollfd fd = {.fd = child->socket, .events = POLLIN};
        if (try_growth(child))
            fd.events |= POLLOUT;
        if (poll(&fd, 1, TICK_MS) < 0 && errno != EINTR)
            return err_errno(err, errno, "cannot wait for varve-convert");
        /* Longer messages than the protocol has are cut, and fail where they are parsed. */
        ssize_t n = recv(child->socket, buf, cap, MSG_DONTWAIT);
        if (n >= 0)
            return n;
        if (errno == ECONNRESET)
            return 0;
        if (errno != EAGAIN && errno != EINTR)
            return err_errno(err, errno, "cannot hear varve-convert");
    }
}

int convert_child_end(struct convert_child *child)
{
    int status = 0;
    if (child->pid > 0) {
        (void)kill(child->pid, SIGKILL); /* which may have ended already */
        status = spawn_wait(child->pid, NULL);
        child->pid = 0;
    }
    pthread_mutex_lock(&child->lock);
    cleanup_fdp(&child->socket);
    child->socket = -1;
    pthread_mutex_unlock(&child->lock);
    return status;
}

void convert_child_destroy(struct convert_child *child)
{
    convert_child_end(child);
    pthread_mutex_destroy(&child->lock);
}
