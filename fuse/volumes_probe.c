/* Whether a worker still answers. Its heartbeat comes from a thread of its own, so one that beats
 * may be stuck all the same. When the kernel has requests of a volume, none is answered, and none
 * has been for a while, one is asked that nothing can hold up: how large the file system is that
 * the worker serves. A worker that is slow, as its limit or the host's disk is, answers that. */
#include "volumes_internal.h"

#include "cleanup.h"
#include "deadline_child.h"
#include "fdio.h"
#include "log.h"
#include "volume_mount.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

static const char hint[] = "its worker is started again when it has ended";

static int silence_ms(void)
{
#ifdef VARVE_FAULT_POINTS
    const char *text = getenv("VARVE_KEEPER_SILENCE_MS");
    long ms = text ? strtol(text, NULL, 10) : 0;
    if (ms > 0 && ms < KEEPER_SILENCE_S * 1000)
        return (int)ms;
#endif
    return KEEPER_SILENCE_S * 1000;
}

/* What only changes when something was done. */
static uint64_t progress_of(const struct live_map_header *header)
{
    return atomic_load(&header->starts) + atomic_load(&header->reads) +
           atomic_load(&header->writes) + atomic_load(&header->flushes) +
           atomic_load(&header->discards) + atomic_load(&header->errors);
}

void volume_probe_note(struct volumes *volumes, struct volume *volume)
{
    if (volumes->control_fd < 0)
        volumes->control_fd = volume_mount_control(NULL);
    (void)pthread_mutex_lock(&volumes->table);
    dev_t device = volume->fuse_dev;
    bool served = volume_is_held(volume) && volume->wanted && !volume->dead && device != 0 &&
                  atomic_load(&volume->live.header->starts) > 0;
    uint64_t progress = served ? progress_of(volume->live.header) : 0;
    (void)pthread_mutex_unlock(&volumes->table);
    bool waits = served && volume_mount_waiting(volumes->control_fd, device) > 0;
    int64_t now = clock_now_ms();
    (void)pthread_mutex_lock(&volumes->table);
    if (!waits || progress != volume->progress || volume->progress_ms == 0)
        volume->progress_ms = now;
    volume->progress = progress;
    volume->suspected = now - volume->progress_ms >= silence_ms();
    (void)pthread_mutex_unlock(&volumes->table);
}

/* deadline_child_call */
static int call_statfs(void *arg, void *result, int *ret_fd, struct err *err)
{
    struct statfs fs;
    (void)result;
    (void)ret_fd;
    (void)err;
    /* A connection that has ended answers too, and is somebody else's business. */
    (void)statfs(arg, &fs);
    return 0;
}

/* deadline_child_call */
static int call_answers(void *arg, void *result, int *ret_fd, struct err *err)
{
    struct statfs fs;
    (void)result;
    (void)ret_fd;
    return statfs(arg, &fs) < 0 ? err_errno(err, errno, "no answer") : 0;
}

bool volumes_answers(struct volumes *volumes, const char *id)
{
    char path[VOLUMES_PATH_MAX];
    volume_mount_path(volumes, id, path);
    const struct deadline_child child = {
        .what = "ask a worker", .object = path, .wait_ms = silence_ms(), .hint = hint};
    bool answers = deadline_child_run(&child, call_answers, path, NULL, 0, NULL, NULL) == 0;
    struct volume *volume = answers ? volume_pin(volumes, id, VOLUME_ANY_LIFE) : NULL;
    if (volume) {
        (void)pthread_mutex_lock(&volumes->table);
        if (volume->lost && volume->unserved_ms > 0)
            volume->unserved_ms = clock_now_ms();
        (void)pthread_mutex_unlock(&volumes->table);
        volume_unpin(volumes, volume);
    }
    return answers;
}

/* Whether any thread waits for a disk: killed, it would end no sooner, nor its successor begin. */
static bool waits_for_disk(pid_t pid)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    cleanup_dir DIR *dir = fdio_list(AT_FDCWD, path);
    for (const struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        char text[128];
        (void)snprintf(text, sizeof text, "%.32s/stat", entry->d_name);
        cleanup_fd int fd =
            entry->d_name[0] == '.' ? -1 : openat(dirfd(dir), text, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? fdio_read_full(fd, text, sizeof text - 1) : 0;
        text[n > 0 ? n : 0] = '\0';
        const char *name_end = strrchr(text, ')');
        if (name_end && name_end[1] == ' ' && name_end[2] == 'D')
            return true;
    }
    return false;
}

/* It has been found not to answer. The caller has pinned the volume. */
static int end_worker(struct volumes *volumes, const struct volume *volume, struct err *err)
{
    (void)pthread_mutex_lock(&volumes->table);
    pid_t pid = volume_is_held(volume) ? (pid_t)atomic_load(&volume->live.header->pid) : 0;
    bool resends = volume_is_held(volume) &&
                   (atomic_load(&volume->live.header->facts) & LIVE_FACT_RESENDS) != 0;
    (void)pthread_mutex_unlock(&volumes->table);
    cleanup_fd int pidfd = volume_worker_pidfd(volumes, volume);
    if (pidfd < 0)
        return 0; /* it has ended meanwhile */
    if (!resends)
        return err_fail(err, ERR_UNSUPPORTED,
                        "its worker (%d) answers no request, and this kernel (before Linux 6.9) "
                        "could not hand them to another one",
                        (int)pid);
    if (waits_for_disk(pid))
        return err_fail(err, ERR_CONFLICT,
                        "its worker (%d) answers no request, as the host's disk does not answer it",
                        (int)pid);
    return syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) < 0 ? 0 : 1;
}

int volume_probe(struct volumes *volumes, const char *id, uint64_t life, int wait_ms,
                 struct err *err)
{
    char path[VOLUMES_PATH_MAX];
    struct err why = ERR_INIT;
    volume_mount_path(volumes, id, path);
    const struct deadline_child child = {
        .what = "ask a worker", .object = path, .wait_ms = wait_ms, .hint = hint};
    int rc = deadline_child_run(&child, call_statfs, path, NULL, 0, NULL, &why);
    /* One that was not asked, as too many calls hang, is silent if it has answered none of them. */
    bool silent = rc < 0 && (why.code == ERR_UNREACHABLE ||
                             (why.code == ERR_CONFLICT && deadline_child_hangs(path)));
    /* Only now, as the end of this life would have waited for the answer. */
    struct volume *volume = volume_pin(volumes, id, life);
    if (!volume)
        return 0;
    rc = silent ? end_worker(volumes, volume, err) : 0;
    (void)pthread_mutex_lock(&volumes->table);
    volume->progress_ms = clock_now_ms(); /* the next look is not at once */
    volume->suspected = false;
    (void)pthread_mutex_unlock(&volumes->table);
    volume_unpin(volumes, volume);
    return rc;
}

int volumes_probe(struct volumes *volumes, const char *id, uint64_t life, struct err *err)
{
    return volume_probe(volumes, id, life, silence_ms(), err);
}
