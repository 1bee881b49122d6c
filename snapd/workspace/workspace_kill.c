#include "workspace_kill.h"

#include "cleanup.h"
#include "log.h"
#include "mount_users.h"
#include "volume_frozen.h"
#include "workspace_internal.h"

#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

enum {
    FROZEN_MS = 3000,
};

/* A look at those who use it, or at those that are to be killed. */
struct look {
    struct job *job;
    const char *name;
    json_t *killed;
    bool kill;
    int found; /* that were killed */
};

/* "/usr/libexec/varve/varve-volume" of a process, without what the kernel adds to one that was
 * removed since. False where that cannot be seen, as of a kernel thread. */
static bool program_of(pid_t pid, char ret[PATH_MAX])
{
    static const char removed[] = " (deleted)";
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    ssize_t len = readlink(path, ret, PATH_MAX - 1);
    if (len <= 0)
        return false;
    ret[len] = '\0';
    size_t end = (size_t)len > sizeof removed ? (size_t)len - (sizeof removed - 1) : 0;
    if (end > 0 && strcmp(ret + end, removed) == 0)
        ret[end] = '\0';
    return true;
}

/* What varved has started, or another life of it: a program from where its own is. varve-init is
 * somebody's sandbox. */
static bool is_of_varved(pid_t pid)
{
    char own[PATH_MAX];
    char its[PATH_MAX];
    if (!program_of(getpid(), own) || !program_of(pid, its))
        return false;
    const char *own_name = strrchr(own, '/');
    const char *its_name = strrchr(its, '/');
    if (!own_name || !its_name || own_name - own != its_name - its ||
        strncmp(own, its, (size_t)(own_name - own)) != 0)
        return false;
    return strcmp(its_name, "/varved") == 0 ||
           (strncmp(its_name, "/varve-", 7) == 0 && strcmp(its_name, "/varve-init") != 0);
}

bool workspace_kill_is_own_call(pid_t pid)
{
    char path[32];
    char text[256];
    int parent = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    cleanup_file FILE *file = fopen(path, "re");
    size_t len = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[len] = '\0';
    const char *rest = strrchr(text, ')');
    return rest && sscanf(rest + 1, " %*c %d", &parent) == 1 && parent == getpid();
}

static int fail_protected(const char *name, pid_t pid, bool peer, struct err *err)
{
    char process[32];
    mount_users_name(pid, process);
    int rc = err_fail(err, ERR_CONFLICT, "workspace %s is in use by %s (%d), %s", name, process,
                      (int)pid,
                      peer ? "which asked for this, and is not killed"
                           : "which is not killed, as the host or varve needs it");
    err_hint(err, peer ? "leave the workspace (cd /), then ask again"
                       : "see what it has open there; nobody was killed");
    return rc;
}

/* mount_users_take: those that must not be killed end the look. */
static int count_one(void *arg, pid_t pid, int pidfd, struct err *err)
{
    struct look *look = arg;
    (void)pidfd;
    bool peer = pid == job_peer(look->job);
    if (peer || pid == 1 || (is_of_varved(pid) && !workspace_kill_is_own_call(pid)))
        return fail_protected(look->name, pid, peer, err);
    return 0;
}

static bool is_noted(const json_t *killed, pid_t pid)
{
    size_t i;
    json_t *process;
    json_array_foreach (killed, i, process)
        if (json_integer_value(json_object_get(process, "pid")) == pid)
            return true;
    return false;
}

static void note(const struct look *look, pid_t pid, const char *process)
{
    char text[16];
    if (is_noted(look->killed, pid))
        return;
    (void)snprintf(text, sizeof text, "%d", (int)pid);
    log_event(LOG_INFO, "workspace-user-killed", "workspace", look->name, "pid", text, "process",
              process, NULL);
    if (json_array_size(look->killed) < WORKSPACE_KILL_SHOWN)
        (void)json_array_append_new(look->killed,
                                    json_pack("{s:i, s:s}", "pid", (int)pid, "name", process));
}

/* mount_users_take. One that has gone is fine; one that came since the first look and must not be
 * killed is named by the unmount. */
static int kill_one(void *arg, pid_t pid, int pidfd, struct err *err)
{
    struct look *look = arg;
    char process[32];
    (void)err;
    if (pid == 1 || pid == job_peer(look->job) || is_of_varved(pid))
        return 0;
    mount_users_name(pid, process);
    if (syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) < 0)
        return 0;
    look->found++;
    note(look, pid, process);
    return 0;
}

/* One round, by the device of the volume, as somebody may have mounted something else over its
 * path. How many there were that may be killed: 0 when there is nothing to do. */
static int kill_users(struct look *look, const struct catalog_workspace *row, struct err *err)
{
    struct volume_status status = {0};
    int rc = volumes_status(job_node(look->job)->volumes, row->volume.id, &status, err);
    const dev_t device = status.device_dev;
    if (rc < 0 || device == 0 || volume_frozen_at(row->mount.path, device, FROZEN_MS, NULL) > 0)
        return rc;
    if (!look->kill)
        rc = mount_users_each_device(device, count_one, look, err);
    look->kill = true;
    look->found = 0;
    if (rc == 0)
        rc = mount_users_each_device(device, kill_one, look, err);
    return rc < 0 ? rc : look->found;
}

/* Until something is taken away whoever cancels the job ends its waits. */
static int unmount(struct job *job, const struct catalog_workspace *row, struct err *err)
{
    cleanup_workspace_waits struct workspace_waits waits;
    workspace_waits_begin(&waits, job, NULL);
    return volumes_unmount(job_node(job)->volumes, row->volume.id, row->mount.path, err);
}

int workspace_kill_unmount(struct job *job, const struct catalog_workspace *row, json_t *killed,
                           struct err *err)
{
    struct look look = {.job = job, .name = row->name, .killed = killed};
    const int64_t until = clock_now_ms() + WORKSPACE_KILL_WAIT_MS;
    for (;;) {
        struct err busy = ERR_INIT;
        int rc = unmount(job, row, &busy);
        if (rc == 0 || !killed || busy.code != ERR_CONFLICT || clock_now_ms() >= until)
            return err_pass(err, rc, &busy);
        int found = kill_users(&look, row, err);
        if (found <= 0)
            return found < 0 ? found : err_pass(err, rc, &busy);
        rc = job_stop(job, err);
        if (rc < 0)
            return rc;
        (void)nanosleep(&(struct timespec){.tv_nsec = WORKSPACE_KILL_PAUSE_MS * 1000000L}, NULL);
    }
}
