#include "keeper_start.h"

#include "cleanup.h"
#include "spawn.h"
#include "volume_wire.h"
#include "wire_call.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

/* 0 when the process has ended by then. */
static int await_end(int pidfd, int64_t deadline)
{
    for (;;) {
        struct pollfd fd = {.fd = pidfd, .events = POLLIN};
        int left = wire_left_ms(deadline);
        if (poll(&fd, 1, left) > 0)
            return 0;
        if (left == 0)
            return -ETIMEDOUT;
    }
}

/* What the program said, without its name and the end of the line. */
static void said(int fd, char ret[256])
{
    static const char name[] = "varve-keeper: ";
    ssize_t n = pread(fd, ret, 255, 0);
    ret[n < 0 ? 0 : n] = '\0';
    ret[strcspn(ret, "\n")] = '\0';
    if (strncmp(ret, name, sizeof name - 1) == 0)
        memmove(ret, ret + sizeof name - 1, strlen(ret) - sizeof name + 2);
}

static int check_end(pid_t pid, int words, struct err *err)
{
    char text[256];
    int status = spawn_wait(pid, err);
    if (status <= 0 || status == KEEPER_EXIT_RUNNING)
        return status < 0 ? status : 0;
    said(words, text);
    return err_fail(err, ERR_IO, "cannot start varve-keeper: it ended with status %d%s%s", status,
                    text[0] != '\0' ? ": " : "", text);
}

int keeper_start(const char *program, const char *run_path, int64_t deadline, struct err *err)
{
    char found[4096];
    int rc = program ? 0 : spawn_find("varve-keeper", found, err);
    if (rc < 0)
        return rc;
    const char *const argv[] = {program ? program : found, run_path, NULL};
    cleanup_fd int words = memfd_create("varve-keeper-says", MFD_CLOEXEC);
    if (words < 0)
        return err_errno(err, errno, "cannot start varve-keeper");
    struct spawn spawn = {.argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = words};
#ifdef VARVE_FAULT_POINTS
    spawn.envp = (const char *const *)environ; /* switches of tests reach it, and the workers */
#endif
    pid_t pid = spawn_start(&spawn, err);
    if (pid < 0)
        return pid;
    cleanup_fd int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    int num = pidfd < 0 ? errno : 0;
    if (pidfd < 0 || await_end(pidfd, deadline) < 0) {
        (void)kill(pid, SIGKILL); /* a child that was not waited for: the number is still its own */
        (void)spawn_wait(pid, NULL);
        return num ? err_errno(err, num, "cannot watch varve-keeper start")
                   : err_fail(err, ERR_UNREACHABLE, "varve-keeper did not start in time");
    }
    return check_end(pid, words, err);
}

/* Of the process that listens. Before Linux 6.5 by its number, which is its own for as long as the
 * connection is not hung up. */
static int peer_pidfd(int socket)
{
    int pidfd = -1;
    socklen_t len = sizeof pidfd;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) == 0)
        return pidfd;
    struct ucred peer;
    len = sizeof peer;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return -errno;
    cleanup_fd int fd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
    if (fd < 0)
        return -errno;
    struct pollfd poll_fd = {.fd = socket};
    if (poll(&poll_fd, 1, 0) > 0)
        return -ESRCH;
    return steal_fd(&fd);
}

int keeper_start_kill(int socket, int64_t deadline, struct err *err)
{
    cleanup_fd int pidfd = peer_pidfd(socket);
    if (pidfd == -ESRCH)
        return 0; /* it has ended */
    if (pidfd < 0)
        return err_errno(err, pidfd, "cannot find the process of varve-keeper");
    if (syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) < 0 && errno != ESRCH)
        return err_errno(err, errno, "cannot kill varve-keeper");
    if (await_end(pidfd, deadline) < 0)
        return err_fail(err, ERR_UNREACHABLE, "varve-keeper was killed and has not ended yet");
    return 0;
}
