#include "wire_call.h"

#include "cleanup.h"
#include "clock.h"
#include "fd_pass.h"

#include <poll.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

enum {
    PAUSE_MS = 5,
    ERRNO_MAX = 4095, /* that a system call can return */
};

int64_t wire_deadline(int wait_ms)
{
    return clock_now_ns() + (int64_t)wait_ms * (CLOCK_NS_PER_S / 1000);
}

int wire_left_ms(int64_t deadline)
{
    int64_t ms = (deadline - clock_now_ns() + CLOCK_NS_PER_S / 1000 - 1) / (CLOCK_NS_PER_S / 1000);
    return ms < 0 ? 0 : ms > INT32_MAX ? INT32_MAX : (int)ms;
}

int wire_pause(int64_t deadline)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * (CLOCK_NS_PER_S / 1000)};
    if (wire_left_ms(deadline) == 0)
        return -ETIMEDOUT;
    (void)nanosleep(&pause, NULL);
    return 0;
}

int wire_connect(int dir_fd, const char *name, int64_t deadline)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int len =
        snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", dir_fd, name);
    if (len >= (int)sizeof address.sun_path)
        return -ENAMETOOLONG;
    cleanup_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    while (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        if (errno != EAGAIN && errno != EINTR) /* EAGAIN: the peer's queue is full */
            return -errno;
        int rc = wire_pause(deadline);
        if (rc < 0)
            return rc;
    }
    return steal_fd(&fd);
}

/* Waits until the socket is ready. 0, also when the peer has gone, or -ETIMEDOUT. */
static int await(int socket, short events, int64_t deadline)
{
    for (;;) {
        struct pollfd fd = {.fd = socket, .events = events};
        int left = wire_left_ms(deadline);
        int n = poll(&fd, 1, left);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return -errno;
        if (left == 0)
            return -ETIMEDOUT;
    }
}

int wire_send(int socket, const void *message, size_t len, const int *fds, size_t count,
              int64_t deadline)
{
    int rc;
    while ((rc = fd_pass_send(socket, message, len, fds, count, false)) == -EAGAIN) {
        rc = await(socket, POLLOUT, deadline);
        if (rc < 0)
            return rc;
    }
    return rc == -EPIPE || rc == -ENOTCONN ? -ECONNRESET : rc;
}

int wire_receive(int socket, void *message, size_t len, int *ret_fds, size_t max, size_t *ret_count,
                 int64_t deadline)
{
    int fds[FD_PASS_MAX];
    size_t count = 0;
    ssize_t n;
    while ((n = fd_pass_receive(socket, message, len, fds, max, &count, false)) == -EAGAIN) {
        int rc = await(socket, POLLIN, deadline);
        if (rc < 0)
            return rc;
    }
    if (n == 0)
        return -ECONNRESET;
    if (n == (ssize_t)len) {
        for (size_t i = 0; i < count; i++)
            ret_fds[i] = fds[i];
        *ret_count = count;
        return 0;
    }
    for (size_t i = 0; n > 0 && i < count; i++)
        (void)close(fds[i]);
    return n < 0 ? (int)n : -EBADMSG;
}

bool wire_is_status(int32_t status)
{
    return status <= 0 && status >= -ERRNO_MAX;
}

int wire_fail(struct err *err, int status, const char *text, const char *fmt, ...)
{
    char what[256];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    const char *colon = text && text[0] != '\0' ? ": " : "";
    text = text ? text : "";
    switch (-status) {
    case ETIMEDOUT:
        return err_fail(err, ERR_UNREACHABLE, "%s: no answer in time", what);
    case EINVAL:
        return err_fail(err, ERR_INVALID, "%s%s%s", what, colon, text);
    case EEXIST:
        return err_fail(err, ERR_EXISTS, "%s%s%s", what, colon, text);
    case ENOENT:
        return err_fail(err, ERR_NOT_FOUND, "%s%s%s", what, colon, text);
    case EBUSY:
        return err_fail(err, ERR_CONFLICT, "%s%s%s", what, colon, text);
    case EOPNOTSUPP:
        return err_fail(err, ERR_UNSUPPORTED, "%s%s%s", what, colon, text);
    case EBADMSG:
        return err_fail(err, ERR_DAMAGED, "%s: a message that is not of the protocol%s%s", what,
                        colon, text);
    case EPROTONOSUPPORT:
        return err_fail(err, ERR_TOO_NEW, "%s: another version of the protocol", what);
    default:
        return err_errno(err, status, "%s%s%s", what, colon, text);
    }
}
