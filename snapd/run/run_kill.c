#include "run_kill.h"

#include "mount_users.h"
#include "run.h"
#include "run_internal.h"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

/* Those that are ended, each once. */
struct killed {
    pid_t *pids; /* owned */
    int count;
};

static void killed_free(struct killed *killed)
{
    free(killed->pids);
}

static int note(struct killed *killed, pid_t pid, struct err *err)
{
    for (int i = 0; i < killed->count; i++)
        if (killed->pids[i] == pid)
            return 0;
    if (killed->count >= RUN_KILL_MAX)
        return err_fail(err, ERR_CONFLICT, "more than %d processes use the run", RUN_KILL_MAX);
    pid_t *pids = realloc(killed->pids, ((size_t)killed->count + 1) * sizeof *pids);
    if (!pids)
        return err_errno(err, ENOMEM, "cannot note a process");
    killed->pids = pids;
    killed->pids[killed->count++] = pid;
    return 0;
}

/* mount_users_take */
static int count_one(void *arg, pid_t pid, int pidfd, struct err *err)
{
    (void)pidfd;
    return pid == 1 ? 0 : note(arg, pid, err);
}

/* mount_users_take. A process that has gone is fine, one that may not be signalled shows up in the
 * next look. */
static int kill_one(void *arg, pid_t pid, int pidfd, struct err *err)
{
    if (pid == 1 || syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) < 0)
        return 0;
    return note(arg, pid, err);
}

int run_kill_idle(struct node *node, const char *id, int *ret_killed, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    cleanup_with(killed_free) struct killed killed = {0};
    int64_t end = clock_mono_ns(&node->clock) + RUN_KILL_WAIT_MS * (CLOCK_NS_PER_S / 1000);
    int rc = run_paths_make(node, id, &paths, err);
    /* Before the first one is sent the signal: when that is process 1 of a sandbox, the kernel ends
     * all others in it, and those have gone before a look comes to them. */
    if (rc == 0)
        rc = mount_users_each(paths.rootfs, count_one, &killed, err);
    while (rc == 0) {
        struct err failure = ERR_INIT;
        rc = mount_users_each(paths.rootfs, kill_one, &killed, err);
        int fd = rc < 0 ? rc : run_lock_idle(node, id, &failure);
        if (rc == 0 && fd >= 0) {
            *ret_killed = killed.count;
            return fd;
        }
        if (rc == 0 && (failure.code != ERR_CONFLICT || clock_mono_ns(&node->clock) >= end))
            rc = err_pass(err, fd, &failure);
        if (rc == 0)
            (void)nanosleep(&(struct timespec){.tv_nsec = RUN_KILL_PAUSE_MS * 1000000L}, NULL);
    }
    return rc;
}
