/* The process that serves a volume, as seen from varved. Its parent is keeper, so it is watched by
 * pidfd. It is known by the live map that it holds as descriptor VOLUME_FD_LIVE. */
#include "volumes_internal.h"

#include "cleanup.h"
#include "deadline_child.h"
#include "fdio.h"

#include <ctype.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define PROGRAM "varve-volume"

enum {
    CMDLINE_MAX = VOLUMES_PATH_MAX + 64,
    LINE_MS = 1000,   /* to read the command line of a process */
    REFUSED_MS = 300, /* that a worker may take to end after it said why */
};

bool volume_worker_runs(pid_t pid)
{
    char path[64];
    char exe[VOLUMES_POINT_MAX];
    (void)snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    ssize_t n = pid > 0 ? readlink(path, exe, sizeof exe - 1) : -1;
    if (n <= 0)
        return false; /* a zombie has none */
    exe[n] = '\0';
    const char *name = strrchr(exe, '/');
    /* " (deleted)" after an upgrade. */
    return name && strncmp(name + 1, PROGRAM, strlen(PROGRAM)) == 0 &&
           (name[1 + strlen(PROGRAM)] == '\0' || name[1 + strlen(PROGRAM)] == ' ');
}

/* What a worker of this volume is known by. */
struct mark {
    dev_t live_dev; /* of its live map; 0: we have none */
    ino_t live_ino;
    char directory[VOLUMES_PATH_MAX];
};

static struct mark mark_of(struct volumes *volumes, const struct volume *volume)
{
    struct mark mark = {.live_dev = 0};
    volume_data_path(volumes, volume->id, mark.directory);
    (void)pthread_mutex_lock(&volumes->table);
    mark.live_dev = volume->live_dev;
    mark.live_ino = volume->live_ino;
    (void)pthread_mutex_unlock(&volumes->table);
    return mark;
}

struct line_call {
    pid_t pid;
    const char *directory;
};

/* deadline_child_call. 1: the command line of the process names the directory. */
static int call_line(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct line_call *call = arg;
    char path[64];
    char line[CMDLINE_MAX];
    (void)result;
    (void)ret_fd;
    (void)err;
    (void)snprintf(path, sizeof path, "/proc/%d/cmdline", (int)call->pid);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? fdio_read_full(fd, line, sizeof line - 1) : 0;
    if (n <= 0)
        return 0;
    line[n] = '\0';
    size_t first = strlen(line) + 1;
    return first < (size_t)n && strcmp(line + first, call->directory) == 0;
}

/* By the directory in its command line, for which the kernel looks into the memory of the process:
 * that can wait, if it is stuck, and must not stop what concerns another volume. */
static bool names_directory(pid_t pid, const char *directory)
{
    static const struct deadline_child child = {.what = "look at a worker", .wait_ms = LINE_MS};
    struct line_call call = {pid, directory};
    return deadline_child_run(&child, call_line, &call, NULL, 0, NULL, NULL) == 1;
}

static bool is_marked(const struct mark *mark, pid_t pid)
{
    char path[64];
    struct stat st;
    if (!volume_worker_runs(pid))
        return false;
    if (mark->live_dev == 0)
        return names_directory(pid, mark->directory);
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, (int)VOLUME_FD_LIVE);
    return stat(path, &st) == 0 && st.st_dev == mark->live_dev && st.st_ino == mark->live_ino;
}

/* A pidfd of this process if it is a worker of the volume. */
static int open_pid(const struct mark *mark, pid_t pid)
{
    cleanup_fd int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    /* In this order: who is looked at is who the descriptor means, as long as he lives. */
    if (fd < 0 || !is_marked(mark, pid) || volume_worker_ended(fd, 0))
        return -ESRCH;
    return steal_fd(&fd);
}

bool volume_is_orphan(struct volumes *volumes, const struct volume *volume)
{
    pid_t pid = 0;
    bool served = false;
    (void)pthread_mutex_lock(&volumes->table);
    if (volume_is_held(volume)) {
        const struct live_map_header *header = volume->live.header;
        served = atomic_load(&header->starts) > 0 &&
                 (atomic_load(&header->facts) & LIVE_FACT_RESENDS) == 0;
        pid = (pid_t)atomic_load(&header->pid);
    }
    (void)pthread_mutex_unlock(&volumes->table);
    struct mark mark = mark_of(volumes, volume);
    return served && !is_marked(&mark, pid);
}

int volume_worker_pidfd(struct volumes *volumes, const struct volume *volume)
{
    struct mark mark = mark_of(volumes, volume);
    pid_t pid = 0;
    (void)pthread_mutex_lock(&volumes->table);
    if (volume_is_held(volume))
        pid = (pid_t)atomic_load(&volume->live.header->pid);
    (void)pthread_mutex_unlock(&volumes->table);
    int fd = open_pid(&mark, pid);
    if (fd >= 0)
        return fd;
    cleanup_dir DIR *proc = opendir("/proc");
    const struct dirent *entry;
    while (proc && (entry = readdir(proc)) != NULL) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        pid = (pid_t)strtol(entry->d_name, NULL, 10);
        fd = volume_worker_runs(pid) ? open_pid(&mark, pid) : -1;
        if (fd >= 0)
            return fd;
    }
    return -ESRCH;
}

int volume_worker_ended(int pidfd, int wait_ms)
{
    int64_t until = volumes_now_ms() + wait_ms;
    struct pollfd at = {.fd = pidfd, .events = POLLIN};
    for (;;) {
        int64_t left = until - volumes_now_ms();
        int n = poll(&at, 1, left > 0 ? (int)left : 0);
        if (n > 0)
            return 1;
        if (n == 0 || errno != EINTR)
            return 0;
    }
}

static int refused(const struct volume *volume, struct err *err)
{
    char text[LIVE_MAP_TEXT_MAX];
    memcpy(text, volume->live.header->text, sizeof text);
    text[sizeof text - 1] = '\0';
    return err_fail(err, ERR_UNSUPPORTED, "the worker of volume %s refuses: %s", volume->id, text);
}

int volume_worker_wait(struct volumes *volumes, const struct volume *volume, struct err *err)
{
    const struct live_map_header *header = volume->live.header;
    int64_t until = volumes_now_ms() + VOLUMES_READY_S * 1000;
    while (volumes_now_ms() < until) {
        if (atomic_load(&header->facts) & LIVE_FACT_READY)
            return 0;
        if (header->text[0] != '\0') {
            cleanup_fd int pidfd = volume_worker_pidfd(volumes, volume);
            if (pidfd < 0 || volume_worker_ended(pidfd, REFUSED_MS))
                return refused(volume, err);
        }
        volumes_sleep_ms(VOLUMES_POLL_MS);
    }
    int rc = err_fail(err, ERR_UNREACHABLE, "no worker of volume %s has begun to serve within %d s",
                      volume->id, (int)VOLUMES_READY_S);
    err_hint(err,
             "varve-volume may be missing, or may not be able to start: see the log of keeper");
    return rc;
}

int volume_worker_kill(struct volumes *volumes, const struct volume *volume, int wait_ms,
                       struct err *err)
{
    int64_t until = volumes_now_ms() + wait_ms;
    for (;;) {
        cleanup_fd int pidfd = volume_worker_pidfd(volumes, volume);
        if (pidfd < 0)
            return 0;
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
        int64_t left = until - volumes_now_ms();
        if (left <= 0 || !volume_worker_ended(pidfd, (int)left))
            return err_fail(err, ERR_UNREACHABLE,
                            "the worker of volume %s was killed and has not ended within %d ms",
                            volume->id, wait_ms);
    }
}
