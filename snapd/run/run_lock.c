#include "run.h"

#include "fdio.h"
#include "id.h"
#include "mount_users.h"
#include "run_internal.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

int run_lock_open(struct node *node, const char *id, struct err *err)
{
    cleanup_fd int dir = fdio_open_dir(node->run_runs_fd, id, 0700, err);
    cleanup_fd int rootfs = dir < 0 ? -1 : fdio_open_dir(dir, "rootfs", 0700, err);
    if (rootfs < 0)
        return err_wrap(err, dir < 0 ? dir : rootfs, "cannot prepare run %s", id);
    int fd = openat(dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot open the lock of run %s", id);
    return fd;
}

/* Whether the name still means the open file: a removal may have taken it away meanwhile. */
static bool is_current(struct node *node, const char *id, int fd)
{
    char name[ID_LEN_MAX + 8];
    struct stat by_name;
    struct stat by_fd;
    snprintf(name, sizeof name, "%s/lock", id);
    return fstatat(node->run_runs_fd, name, &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstat(fd, &by_fd) == 0 && by_name.st_dev == by_fd.st_dev &&
           by_name.st_ino == by_fd.st_ino;
}

/* A living process that the kernel lists as the holder of a lock on the file; 0 when none is
 * known. The process that took it may be gone while its children keep the descriptor. */
static pid_t find_holder(int fd)
{
    struct stat st;
    cleanup_file FILE *locks = fopen("/proc/locks", "re");
    char line[512];
    if (!locks || fstat(fd, &st) < 0)
        return 0;
    while (fgets(line, sizeof line, locks)) {
        int pid;
        unsigned dev_major;
        unsigned dev_minor;
        unsigned long long inode;
        if (sscanf(line, "%*s FLOCK %*s %*s %d %x:%x:%llu", &pid, &dev_major, &dev_minor, &inode) ==
                4 &&
            inode == st.st_ino && dev_major == major(st.st_dev) && dev_minor == minor(st.st_dev) &&
            pid > 0 && kill(pid, 0) == 0)
            return pid;
    }
    return 0;
}

static int fail_locked(int fd, const char *id, struct err *err)
{
    pid_t pid = find_holder(fd);
    int rc = pid > 0 ? err_fail(err, ERR_CONFLICT, "run %s is locked by process %d", id, pid)
                     : err_fail(err, ERR_CONFLICT, "run %s is locked by another process", id);
    err_hint(err, "a sandbox of `varve run exec`, or a snapshot, is using it; wait for its end");
    return rc;
}

/* Not for waiting: a helper that another thread starts has a copy of every descriptor until it
 * executes its program, so a lock that was just given back can be held a moment longer. */
enum {
    TRIES = 5,
    PAUSE_MS = 10,
};

static int lock_exclusive(int fd)
{
    for (int i = 1; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
        if (errno != EWOULDBLOCK || i >= TRIES)
            return -errno;
        (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    }
    return 0;
}

/* The exclusive lock. Returns the descriptor that holds it. */
static int take(struct node *node, const char *id, struct err *err)
{
    for (;;) {
        cleanup_fd int fd = run_lock_open(node, id, err);
        if (fd < 0)
            return fd;
        int rc = lock_exclusive(fd);
        if (rc < 0)
            return rc == -EWOULDBLOCK ? fail_locked(fd, id, err)
                                      : err_errno(err, rc, "cannot lock run %s", id);
        if (is_current(node, id, fd))
            return steal_fd(&fd);
    }
}

int run_lock_check(struct node *node, const char *id, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    pid_t pid = 0;
    char name[32];
    int rc = run_paths_make(node, id, &paths, err);
    int count = rc < 0 ? rc : mount_users_find(paths.rootfs, &pid, name, err);
    if (count <= 0)
        return count;
    char others[48] = "";
    if (count > 1)
        snprintf(others, sizeof others, " and %d more", count - 1);
    rc =
        err_fail(err, ERR_CONFLICT, "run %s is in use by process %d (%s)%s", id, pid, name, others);
    err_hint(err, "end the processes that use %s, then try again", paths.rootfs);
    return rc;
}

int run_lock_idle(struct node *node, const char *id, struct err *err)
{
    cleanup_catalog_run struct catalog_run run = {0};
    int rc = id_check(id, "run ID", err);
    if (rc == 0)
        rc = catalog_run_get(node->catalog, id, &run, err);
    if (rc < 0)
        return rc;
    cleanup_fd int fd = take(node, id, err);
    if (fd < 0)
        return fd;
    rc = run_lock_check(node, id, err);
    return rc < 0 ? rc : steal_fd(&fd);
}
