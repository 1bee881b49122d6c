/* The process that serves a volume, as seen from varved. Its parent is keeper, so it is watched by
 * pidfd. It is known by the live map that it holds as descriptor VOLUME_FD_LIVE. */
#include "volumes_internal.h"

#include "cleanup.h"
#include "deadline_child.h"
#include "fdio.h"
#include "wait_stop.h"

#include <ctype.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

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
    uid_t users[2]; /* that it can be, besides root, which it is at its start */
};

static struct mark mark_of(struct volumes *volumes, const struct volume *volume)
{
    struct mark mark = {.live_dev = 0, .users = {volumes->uid, volumes->uid}};
    struct stat st;
    volume_data_path(volumes, volume->id, mark.directory);
    if (fstatat(volumes->data_fd, volume->id, &st, AT_SYMLINK_NOFOLLOW) == 0)
        mark.users[1] = st.st_uid;
    (void)pthread_mutex_lock(&volumes->table);
    mark.live_dev = volume->live_dev;
    mark.live_ino = volume->live_ino;
    (void)pthread_mutex_unlock(&volumes->table);
    return mark;
}

struct line_call {
    pid_t pid;
    const struct mark *mark;
};

/* The real user, as seen from here. */
static bool read_user(pid_t pid, uid_t *ret)
{
    char path[64];
    char line[256];
    unsigned user;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    cleanup_file FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Uid: %u", &user) == 1) {
            *ret = user;
            return true;
        }
    return false;
}

/* Root of a sandbox is user 0 here too, but in a user namespace of its own. */
static bool is_of_the_host(pid_t pid)
{
    char path[64];
    struct stat its;
    struct stat ours;
    (void)snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
    return stat(path, &its) == 0 && stat("/proc/self/ns/user", &ours) == 0 &&
           its.st_dev == ours.st_dev && its.st_ino == ours.st_ino;
}

static bool may_be_worker(const struct mark *mark, pid_t pid)
{
    uid_t user;
    return is_of_the_host(pid) && read_user(pid, &user) &&
           (user == 0 || user == mark->users[0] || user == mark->users[1]);
}

/* deadline_child_call. 1: the command line of the process names the directory. */
static int call_line(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct line_call *call = arg;
    char path[64];
    char line[CMDLINE_MAX];
    (void)result;
    (void)ret_fd;
    (void)err;
    if (!may_be_worker(call->mark, call->pid))
        return 0;
    (void)snprintf(path, sizeof path, "/proc/%d/cmdline", (int)call->pid);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? fdio_read_full(fd, line, sizeof line - 1) : 0;
    if (n <= 0)
        return 0;
    line[n] = '\0';
    size_t first = strlen(line) + 1;
    return first < (size_t)n && strcmp(line + first, call->mark->directory) == 0;
}

/* By the directory in its command line, for which the kernel looks into the memory of the process:
 * that can wait, if it is stuck, and must not stop what concerns another volume. Anybody can name a
 * program and its arguments so; nobody's processes are killed for it but our own. */
static bool names_directory(pid_t pid, const struct mark *mark)
{
    static const struct deadline_child child = {.what = "look at a worker", .wait_ms = LINE_MS};
    struct line_call call = {pid, mark};
    return deadline_child_run(&child, call_line, &call, NULL, 0, NULL, NULL) == 1;
}

/* Whether the root directory of a process is another volume's, as that of a worker is once it has
 * begun: then nobody has to be careful for the answer. Only the link is read. */
static bool serves_another(pid_t pid, const struct mark *mark)
{
    char path[64];
    char root[VOLUMES_PATH_MAX];
    (void)snprintf(path, sizeof path, "/proc/%d/root", (int)pid);
    ssize_t n = readlink(path, root, sizeof root - 1);
    root[n > 0 ? n : 0] = '\0';
    const char *id = strrchr(root, '/');
    return id && volume_json_check_id(id + 1, NULL) == 0 &&
           strcmp(id, strrchr(mark->directory, '/')) != 0;
}

static bool is_marked(const struct mark *mark, pid_t pid)
{
    static const char memfd[] = "/memfd:";
    char path[64];
    char target[sizeof memfd - 1];
    struct statx st;
    if (!volume_worker_runs(pid))
        return false;
    if (mark->live_dev == 0)
        return !serves_another(pid, mark) && names_directory(pid, mark);
    /* Anybody may name his program so and have any file open there, also on a file system that
     * does not answer: nothing is followed but a link to a memfd, and nobody is asked. */
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, (int)VOLUME_FD_LIVE);
    return readlink(path, target, sizeof target) == sizeof target &&
           memcmp(target, memfd, sizeof target) == 0 &&
           statx(AT_FDCWD, path, AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_INO, &st) == 0 &&
           makedev(st.stx_dev_major, st.stx_dev_minor) == mark->live_dev &&
           st.stx_ino == mark->live_ino;
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
    int64_t until = clock_now_ms() + wait_ms;
    struct pollfd at = {.fd = pidfd, .events = POLLIN};
    for (;;) {
        int64_t left = until - clock_now_ms();
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
    live_map_text(volume->live.header, text);
    return err_fail(err, ERR_UNSUPPORTED, "the worker of volume %s refuses: %s", volume->id, text);
}

int volume_worker_wait(struct volumes *volumes, const struct volume *volume, struct err *err)
{
    const struct live_map_header *header = volume->live.header;
    int64_t until = clock_now_ms() + VOLUMES_READY_S * 1000;
    while (clock_now_ms() < until) {
        if (atomic_load(&header->facts) & LIVE_FACT_READY)
            return 0;
        if (volume->dead)
            return err_fail(err, ERR_CONFLICT, "the connection of volume %s has ended", volume->id);
        int rc = wait_stop_ask(err);
        if (rc < 0)
            return rc;
        if (atomic_load(&volumes->stopping))
            return err_fail(err, ERR_INTERRUPTED, "no worker of volume %s serves yet", volume->id);
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
    int64_t until = clock_now_ms() + wait_ms;
    for (;;) {
        cleanup_fd int pidfd = volume_worker_pidfd(volumes, volume);
        if (pidfd < 0)
            return 0;
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
        int64_t left = until - clock_now_ms();
        if (left <= 0 || !volume_worker_ended(pidfd, (int)left))
            return err_fail(err, ERR_UNREACHABLE,
                            "the worker of volume %s was killed and has not ended within %d ms",
                            volume->id, wait_ms);
    }
}
