#include "keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static int place_of(const struct keeper *keeper, const struct keeper_volume *volume)
{
    return (int)(volume - keeper->volumes);
}

/* In the child. The numbers below KEEPER_FDS_FIRST are keeper's placeholders, so nothing that is
 * still needed is overwritten. Everything else is closed before the exec, which may take long:
 * keeper's lock and connections must end with keeper alone. */
static _Noreturn void become_worker(const struct keeper_volume *volume)
{
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE};
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
        (void)signal(ignored[i], SIG_DFL);
    for (int i = 0; i < KEEPER_FD_PIDFD; i++)
        if (dup2(volume->fds[i], VOLUME_FD_FUSE + i) < 0)
            _exit(127);
    if (syscall(SYS_close_range, VOLUME_FD_PROGRAM + 1, ~0U, 0) < 0)
        _exit(127);
    struct stat log;
    if (fstat(STDERR_FILENO, &log) == 0 && S_ISREG(log.st_mode) && log.st_size > KEEPER_LOG_MAX)
        (void)!ftruncate(STDERR_FILENO, 0); /* may wait for the disk, here in the child */
    char *const argv[] = {(char[]){"varve-volume"}, (char *)volume->directory, NULL};
    (void)execveat(VOLUME_FD_PROGRAM, "", argv, environ, AT_EMPTY_PATH);
    _exit(127);
}

/* A fork that gives a pidfd. */
static pid_t fork_worker(int *ret_pidfd)
{
    struct clone_args args = {
        .flags = CLONE_PIDFD, .pidfd = (uint64_t)(uintptr_t)ret_pidfd, .exit_signal = SIGCHLD};
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

/* When the next start may be, after `quick` deaths and failures one after the other. */
static int64_t next_start(const struct keeper *keeper, const struct keeper_volume *volume)
{
    if (volume->quick <= 1)
        return keeper->now;
    int64_t wait = KEEPER_BACKOFF_MIN;
    for (unsigned i = 2; i < volume->quick && wait < KEEPER_BACKOFF_MAX; i++)
        wait *= 2;
    return keeper->now + (wait < KEEPER_BACKOFF_MAX ? wait : KEEPER_BACKOFF_MAX);
}

void keeper_child_watch(struct keeper *keeper, struct keeper_volume *volume, pid_t pid,
                        bool is_child)
{
    volume->pid = pid;
    volume->is_child = is_child;
    volume->is_silent = false;
    volume->started = keeper->now;
    /* Without memory for it, each round looks instead. */
    volume->is_watched = keeper_watch(keeper, EPOLL_CTL_ADD, volume->fds[KEEPER_FD_PIDFD], EPOLLIN,
                                      keeper_tag(KEEPER_WORKER, place_of(keeper, volume))) == 0;
}

void keeper_child_start(struct keeper *keeper, struct keeper_volume *volume)
{
    int pidfd = -1;
    volume->due = 0;
    pid_t pid = fork_worker(&pidfd);
    if (pid == 0)
        become_worker(volume);
    if (pid < 0) {
        if (!volume->is_short)
            keeper_socket_event(keeper, volume, KEEPER_NO_START, (uint64_t)errno);
        volume->is_short = true;
        volume->quick += volume->quick == 0 ? 2 : 1; /* not at once */
        volume->due = next_start(keeper, volume);
        return;
    }
    KEEPER_FAULT(keeper, "forked"); /* nobody knows of the worker */
    volume->is_short = false;
    volume->fds[KEEPER_FD_PIDFD] = pidfd;
    keeper_child_watch(keeper, volume, pid, true);
    keeper_socket_event(keeper, volume, KEEPER_STARTED, atomic_load(&volume->live->starts) > 0);
}

bool keeper_child_helps(const struct keeper_volume *volume)
{
    uint32_t facts = atomic_load(&volume->live->facts);
    return (facts & LIVE_FACT_READY) == 0 || (facts & LIVE_FACT_RESENDS) != 0;
}

/* False while it lives. The status of a worker that is no child is not known. */
static bool has_ended(const struct keeper_volume *volume, uint64_t *ret_status)
{
    int pidfd = volume->fds[KEEPER_FD_PIDFD];
    siginfo_t info = {.si_pid = 0};
    if (!volume->is_child) {
        struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};
        *ret_status = KEEPER_STATUS_UNKNOWN;
        return poll(&poll_fd, 1, 0) > 0;
    }
    if (waitid((idtype_t)P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
        return false;
    *ret_status = (uint64_t)info.si_status + (info.si_code == CLD_EXITED ? 0 : 128);
    return true;
}

/* Not only close(): a pidfd that was handed over is open elsewhere, and stays in the epoll. */
static void forget_worker(const struct keeper *keeper, struct keeper_volume *volume)
{
    (void)keeper_watch(keeper, EPOLL_CTL_DEL, volume->fds[KEEPER_FD_PIDFD], 0, 0);
    (void)close(volume->fds[KEEPER_FD_PIDFD]);
    volume->fds[KEEPER_FD_PIDFD] = -1;
}

void keeper_child_reap(struct keeper *keeper, struct keeper_volume *volume)
{
    uint64_t status;
    if (!keeper_has_worker(volume) || !has_ended(volume, &status))
        return;
    forget_worker(keeper, volume);
    KEEPER_FAULT(keeper, "reaped");
    if (status == KEEPER_STATUS_UNKNOWN &&
        (atomic_load(&volume->live->facts) & (LIVE_FACT_CLOSED | LIVE_FACT_DESTROYED)) != 0)
        status = VOLUME_EXIT_STOPPED;
    if (status == VOLUME_EXIT_STOPPED || status == VOLUME_EXIT_REFUSED) {
        volume->is_wanted = false;
        keeper_socket_event(keeper, volume,
                            status == VOLUME_EXIT_STOPPED ? KEEPER_STOPPED : KEEPER_REFUSED, 0);
        return;
    }
    keeper_socket_event(keeper, volume, KEEPER_DIED, status);
    if (!volume->is_wanted)
        return;
    volume->is_wanted = keeper_child_helps(volume);
    if (!volume->is_wanted)
        return;
    volume->quick = keeper->now - volume->started < KEEPER_QUICK ? volume->quick + 1 : 0;
    volume->due = next_start(keeper, volume);
    if (volume->due <= keeper->now)
        keeper_child_start(keeper, volume);
}

void keeper_child_release(struct keeper *keeper, struct keeper_volume *volume)
{
    int pidfd = volume->fds[KEEPER_FD_PIDFD];
    if (pidfd < 0)
        return;
    if (volume->is_child && keeper_watch(keeper, volume->is_watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD,
                                         pidfd, EPOLLIN, keeper_tag(KEEPER_DROPPED, pidfd)) == 0)
        return; /* stays open until it has ended */
    forget_worker(keeper, volume);
}

void keeper_child_bury(const struct keeper *keeper, int pidfd)
{
    siginfo_t info = {.si_pid = 0};
    if (waitid((idtype_t)P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0)
        return;
    (void)keeper_watch(keeper, EPOLL_CTL_DEL, pidfd, 0, 0);
    (void)close(pidfd);
}

/* Whoever it is that the heartbeat is missed of. */
static bool is_silent(const struct keeper *keeper, const struct keeper_volume *volume)
{
    const struct live_map_header *live = volume->live;
    int64_t since = (int64_t)atomic_load(&live->heartbeat_ns);
    bool has_begun = (pid_t)atomic_load(&live->pid) == volume->pid;
    if (since < volume->started)
        since = volume->started;
    if (since < keeper->awake)
        since = keeper->awake;
    return keeper->now - since > (has_begun ? keeper->silence : keeper->begin_silence);
}

/* By what the kernel knows already: another file system is not asked, as it may not answer. */
static bool is_file(int fd, const char *path)
{
    struct statx ours;
    struct statx its;
    const int known = AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC;
    return statx(fd, "", AT_EMPTY_PATH | known, STATX_INO, &ours) == 0 &&
           statx(AT_FDCWD, path, known, STATX_INO, &its) == 0 &&
           ours.stx_dev_major == its.stx_dev_major && ours.stx_dev_minor == its.stx_dev_minor &&
           ours.stx_ino == its.stx_ino;
}

/* Whether this process runs the volume's program on the volume's live map. Which process it is, a
 * worker has chosen: so first it is looked, without following the link, whether there is a memfd,
 * and the program only of those that hold the live map. */
static bool serves(const struct keeper_volume *volume, pid_t pid)
{
    static const char memfd[] = "/memfd:";
    char path[48];
    char target[sizeof memfd - 1];
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, (int)VOLUME_FD_LIVE);
    if (readlink(path, target, sizeof target) != sizeof target ||
        memcmp(target, memfd, sizeof target) != 0 || !is_file(volume->fds[1], path))
        return false;
    (void)snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    return is_file(volume->fds[3], path);
}

/* A worker that a killed keeper had just forked may be unknown to everybody, and be the one that
 * serves, while the one that we know waits for its lock. It is killed too, if the process with the
 * number in the live map serves this volume: the number is a worker's word, who may mean
 * another volume's. */
static void kill_unknown(const struct keeper_volume *volume)
{
    pid_t pid = (pid_t)atomic_load(&volume->live->pid);
    if (pid <= 1 || pid == volume->pid)
        return;
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0)
        return;
    if (serves(volume, pid))
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    (void)close(pidfd);
}

static void end_silence(struct keeper *keeper, struct keeper_volume *volume)
{
    bool helps = volume->is_wanted && keeper_child_helps(volume);
    keeper_socket_event(keeper, volume, KEEPER_SILENT, helps);
    if (!helps)
        return;
    kill_unknown(volume);
    (void)syscall(SYS_pidfd_send_signal, volume->fds[KEEPER_FD_PIDFD], SIGKILL, NULL, 0);
}

/* When nothing ran for so long, the machine or keeper stood still, and the workers as well: they
 * get the whole bound again. */
static void notice_sleep(struct keeper *keeper)
{
    if (keeper->now - keeper->last_round > keeper->silence / 2 + 1000 * KEEPER_MS)
        keeper->awake = keeper->now;
    keeper->last_round = keeper->now;
}

/* Returns when to look at this volume again. */
static int64_t look_at(struct keeper *keeper, struct keeper_volume *volume)
{
    if (keeper_has_worker(volume) && !volume->is_watched)
        keeper_child_reap(keeper, volume);
    if (volume->due != 0 && volume->due <= keeper->now)
        keeper_child_start(keeper, volume);
    if (volume->due != 0)
        return volume->due;
    if (!keeper_has_worker(volume))
        return INT64_MAX;
    bool silent = is_silent(keeper, volume);
    if (silent && !volume->is_silent)
        end_silence(keeper, volume);
    volume->is_silent = silent;
    return keeper->now + keeper->silence / 10;
}

int64_t keeper_child_round(struct keeper *keeper)
{
    int64_t next = INT64_MAX;
    notice_sleep(keeper);
    for (int i = 0; i < KEEPER_VOLUMES_MAX; i++) {
        if (keeper->volumes[i].id[0] == '\0')
            continue;
        int64_t look = look_at(keeper, &keeper->volumes[i]);
        next = look < next ? look : next;
    }
    return next;
}
