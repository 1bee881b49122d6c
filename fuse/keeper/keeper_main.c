/* varve-keeper - holds volumes' descriptors and restarts their workers (keeper.h). Started by
 * varved: `varve-keeper RUN`. Its first process ends when the second one answers on
 * RUN/keeper.sock, or says why it doesn't. */
#include "keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

static int say(const char *what)
{
    (void)fprintf(stderr, "varve-keeper: %s: %s\n", what, strerror(errno));
    return KEEPER_EXIT_FAILED;
}

/* Takes the numbers that workers need for good. */
static int take_numbers(void)
{
    (void)syscall(SYS_close_range, 3, ~0U, 0);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (null >= 0 && null < KEEPER_FDS_FIRST - 1)
        null = fcntl(null, F_DUPFD_CLOEXEC, 0);
    return null < 0 ? say("cannot open /dev/null") : 0;
}

/* Opens the standard streams anew: none of varved's stays, so that a pipe that nobody reads holds
 * nothing up. The last step of the start, as failures are told on the old ones. */
static int take_streams(void)
{
    const int null = KEEPER_FDS_FIRST - 1;
    int log = open(KEEPER_LOG_NAME,
                   O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (log < 0 && (errno == ENOSPC || errno == EDQUOT))
        log = null; /* RUN may be full: then nobody hears the workers, but they run */
    if (log < 0 || chdir("/") < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(log, 2) < 0)
        return say("cannot open keeper.log");
    return 0;
}

/* Never closed: the lock lasts as long as the process. */
static int take_lock(void)
{
    char text[16];
    int fd = open(KEEPER_LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return say("cannot open keeper.lock");
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
        (void)fprintf(stderr, "varve-keeper: another keeper serves this run directory\n");
        return KEEPER_EXIT_RUNNING;
    }
    int len = snprintf(text, sizeof text, "%d\n", (int)getpid());
    /* For people. The lock is what counts, and RUN may be full. */
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)len, 0) != len)
        (void)!ftruncate(fd, 0);
    return 0;
}

/* The working directory is RUN, whose path may be longer than a socket's. */
static int listen_here(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = KEEPER_SOCKET_NAME};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (unlink(KEEPER_SOCKET_NAME) < 0 && errno != ENOENT)
        return -1;
    if (fd < 0 || fchmod(fd, 0600) < 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, SOMAXCONN) < 0)
        return -1;
    return fd;
}

/* What helps and is not relied on. */
static void ask_favours(void)
{
    /* Memory for a fork is not waited for by writing to disks whose worker is to be forked. Workers
     * inherit it, also for their start. */
    (void)prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, "-950", 4);
        (void)close(fd);
    }
    (void)mlockall(MCL_CURRENT | MCL_FUTURE);
}

static void count_descriptors(struct keeper *keeper)
{
    struct rlimit limit;
    keeper->volumes_max = 0;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur <= KEEPER_FDS_SPARE)
        return;
    rlim_t fit = (limit.rlim_cur - KEEPER_FDS_SPARE) / KEEPER_FDS_MAX;
    keeper->volumes_max = fit < KEEPER_VOLUMES_MAX ? (int)fit : KEEPER_VOLUMES_MAX;
}

static void set_bounds(struct keeper *keeper)
{
    keeper->silence = KEEPER_SILENCE_S * 1000 * KEEPER_MS;
    keeper->begin_silence = KEEPER_BEGIN_SILENCE_S * 1000 * KEEPER_MS;
#ifdef VARVE_FAULT_POINTS
    const char *text = getenv("VARVE_KEEPER_SILENCE_MS");
    long ms = text ? strtol(text, NULL, 10) : 0;
    if (ms > 0) {
        keeper->silence = ms * KEEPER_MS;
        keeper->begin_silence = ms * 6 * KEEPER_MS;
    }
#endif
}

#ifdef VARVE_FAULT_POINTS
/* VARVE_KEEPER_FAULT=POINT=FILE: keeper is killed at the point if FILE is there, and once, as that
 * goes with it. */
static void end_at(const char *point)
{
    const char *armed = getenv("VARVE_KEEPER_FAULT");
    size_t len = strlen(point);
    if (armed && strncmp(armed, point, len) == 0 && armed[len] == '=' &&
        unlink(armed + len + 1) == 0)
        (void)kill(getpid(), SIGKILL);
}
#endif

/* All that may fail or take long. */
static int prepare(struct keeper *keeper)
{
    int rc = take_lock();
    if (rc != 0)
        return rc;
    for (int i = 0; i < KEEPER_CONNECTIONS_MAX; i++)
        keeper->connections[i].fd = -1;
    count_descriptors(keeper);
    set_bounds(keeper);
    keeper->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (keeper->epoll < 0)
        return say("cannot make an epoll");
    keeper->listener = listen_here();
    if (keeper->listener < 0 || keeper_watch(keeper, EPOLL_CTL_ADD, keeper->listener, EPOLLIN,
                                             keeper_tag(KEEPER_LISTENER, 0)) < 0)
        return say("cannot listen on keeper.sock");
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE};
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
        (void)signal(ignored[i], SIG_IGN);
    ask_favours();
    return take_streams();
}

static int run(int ready)
{
    static struct keeper keeper;
#ifdef VARVE_FAULT_POINTS
    keeper.fault = end_at;
#endif
    (void)setsid();
    int rc = prepare(&keeper);
    unsigned char status = (unsigned char)rc;
    (void)!write(ready, &status, 1);
    (void)close(ready);
    if (rc != 0)
        return rc;
    keeper_loop(&keeper);
    return 0; /* the socket's name is left: whoever starts next removes it under the lock */
}

int main(int argc, char **argv)
{
    int ready[2];
    if (argc != 2 || argv[1][0] != '/') {
        (void)fprintf(stderr, "usage: varve-keeper RUN-DIRECTORY (started by varved)\n");
        return KEEPER_EXIT_USAGE;
    }
    int rc = take_numbers();
    if (rc != 0)
        return rc;
    if (chdir(argv[1]) < 0)
        return say(argv[1]);
    if (pipe2(ready, O_CLOEXEC) < 0)
        return say("cannot make a pipe");
    pid_t pid = fork();
    if (pid < 0)
        return say("cannot fork");
    (void)close(ready[pid != 0]);
    if (pid == 0)
        return run(ready[1]);
    unsigned char status = KEEPER_EXIT_FAILED;
    while (read(ready[0], &status, 1) < 0 && errno == EINTR)
        ;
    return status;
}
