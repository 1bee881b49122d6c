#include "sandbox_cgroup.h"

#include "cgroup.h"
#include "cleanup.h"
#include "fdio.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    REMOVE_TRIES = 100, /* of 10 ms each: the last process may still be on its way out */
};

/* Removes the empty cgroups of clients that no longer exist. One that holds processes stays: the
 * kernel refuses. */
static void sweep(int dir_fd)
{
    cleanup_dir DIR *dir = fdio_list(dir_fd, ".");
    if (!dir)
        return;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *dash = strrchr(entry->d_name, '-');
        if (strncmp(entry->d_name, "run-", 4) != 0 || !dash)
            continue;
        long pid = strtol(dash + 1, NULL, 10);
        if (pid > 0 && kill((pid_t)pid, 0) < 0 && errno == ESRCH)
            (void)unlinkat(dir_fd, entry->d_name, AT_REMOVEDIR);
    }
}

struct sandbox_cgroup sandbox_cgroup_make(const char *id)
{
    struct sandbox_cgroup none = {""};
    struct sandbox_cgroup cgroup = none;
    struct cgroup_tree tree;
    char parent[300];
    if (cgroup_tree_find(2, &tree, NULL) < 0)
        return none;
    snprintf(parent, sizeof parent, "%s/varve", tree.path);
    if (mkdir(parent, 0755) < 0 && errno != EEXIST)
        return none;
    cleanup_fd int dir_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return none;
    sweep(dir_fd);
    int len = snprintf(cgroup.path, sizeof cgroup.path, "%s/run-%s-%d", parent, id, (int)getpid());
    if (len >= (int)sizeof cgroup.path || (mkdir(cgroup.path, 0755) < 0 && errno != EEXIST))
        return none;
    return cgroup;
}

/* Returns as fork() does; -1 with errno when there is no such call or it is forbidden. */
static pid_t fork_into(int cgroup_fd)
{
    struct clone_args args = {
        .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)cgroup_fd};
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

/* Moves a process that runs already. The child waits for its client's word before it starts
 * anything. */
static void move_in(struct sandbox_cgroup *cgroup, int cgroup_fd, pid_t pid)
{
    char text[32];
    int len = snprintf(text, sizeof text, "%d\n", (int)pid);
    cleanup_fd int fd = openat(cgroup_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || fdio_write_full(fd, text, (size_t)len) < 0)
        sandbox_cgroup_remove(cgroup);
}

pid_t sandbox_cgroup_fork(struct sandbox_cgroup *cgroup)
{
    if (cgroup->path[0] == '\0')
        return fork();
    cleanup_fd int fd = open(cgroup->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pid_t pid = fd < 0 ? -1 : fork_into(fd);
    if (pid >= 0)
        return pid;
    pid = fork();
    if (pid > 0)
        move_in(cgroup, fd, pid);
    return pid;
}

void sandbox_cgroup_remove(struct sandbox_cgroup *cgroup)
{
    if (cgroup->path[0] == '\0')
        return;
    for (int i = 0; i < REMOVE_TRIES && rmdir(cgroup->path) < 0 && errno == EBUSY; i++) {
        struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
        nanosleep(&pause, NULL);
    }
    cgroup->path[0] = '\0';
}
