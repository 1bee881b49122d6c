#include "fd_pass.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int fd_pass_send(int socket, const void *message, size_t len, const int *fds, size_t count,
                 bool wait)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(FD_PASS_MAX * sizeof(int))];
    struct iovec iov = {.iov_base = (void *)message, .iov_len = len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (count > FD_PASS_MAX)
        return -E2BIG;
    if (count > 0) {
        memset(control, 0, CMSG_SPACE(count * sizeof *fds));
        msg.msg_control = control;
        msg.msg_controllen = CMSG_SPACE(count * sizeof *fds);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(count * sizeof *fds);
        memcpy(CMSG_DATA(c), fds, count * sizeof *fds);
    }
    ssize_t n;
    do
        n = sendmsg(socket, &msg, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT));
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

/* Collects the descriptors of a message; those beyond `max` are closed. Returns how many there
 * were, also the closed ones. */
static size_t take_fds(struct msghdr *msg, int *ret_fds, size_t max)
{
    size_t count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (count < max)
                ret_fds[count] = fd;
            else
                (void)close(fd);
            count++;
        }
    }
    return count;
}

ssize_t fd_pass_receive(int socket, void *message, size_t cap, int *ret_fds, size_t max,
                        size_t *ret_count, bool wait)
{
    /* Room for all that the kernel can send: a smaller one would be rounded up by alignment, and
     * one descriptor too many would arrive without a sign. */
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(FD_PASS_MAX * sizeof(int))];
    int fds[FD_PASS_MAX];
    struct iovec iov = {.iov_base = message, .iov_len = cap};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n;
    do
        n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == ECONNRESET ? 0 : -errno;
    size_t count = take_fds(&msg, fds, FD_PASS_MAX);
    int rc = 0;
    if (msg.msg_flags & MSG_TRUNC)
        rc = -EMSGSIZE;
    else if ((msg.msg_flags & MSG_CTRUNC) || count > max)
        rc = -EMFILE;
    if (rc < 0 || n == 0) {
        for (size_t i = 0; i < count; i++)
            (void)close(fds[i]);
        return rc;
    }
    if (count > 0)
        memcpy(ret_fds, fds, count * sizeof *fds);
    *ret_count = count;
    return n;
}
