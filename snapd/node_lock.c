#include "node_internal.h"

#include "cleanup.h"
#include "clock.h"
#include "fdio.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

static const char prefix[] = "varved ";

/* Who holds it: "varved <pid>". "" when the file says nothing. */
static void read_holder(int fd, char ret[64])
{
    ssize_t n = pread(fd, ret, 63, 0);
    ret[n > 0 ? n : 0] = '\0';
    ret[strcspn(ret, "\n")] = '\0';
}

/* 0: not known. */
static long holder_pid(int fd)
{
    char holder[64];
    read_holder(fd, holder);
    bool is_named = strncmp(holder, prefix, sizeof prefix - 1) == 0;
    return is_named ? strtol(holder + sizeof prefix - 1, NULL, 10) : 0;
}

/* A child that a varved was starting when it was killed has a copy of the descriptor until it
 * closes its copies, which it does first. So a lock without a holder is waited for. 0 or -errno. */
static int lock_exclusively(int fd)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    const int64_t end_ms = clock_now_ms() + NODE_LOCK_WAIT_MS;
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        long pid = holder_pid(fd);
        bool is_gone = pid > 0 && pid <= INT_MAX && kill((pid_t)pid, 0) < 0 && errno == ESRCH;
        if (!is_gone || clock_now_ms() > end_ms)
            return -EWOULDBLOCK;
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

static int fail_taken(int fd, const char *path, const char *what, struct err *err)
{
    long pid = holder_pid(fd);
    int rc =
        pid > 0
            ? err_fail(err, ERR_CONFLICT, "another varved (process %ld) uses the %s directory %s",
                       pid, what, path)
            : err_fail(err, ERR_CONFLICT, "another varved uses the %s directory %s", what, path);
    err_hint(err, "stop it, or give this one another %s directory", what);
    return rc;
}

/* A file that is there and was not written by a varved is left alone. */
static int check_content(int fd, const char *path, struct err *err)
{
    struct stat st;
    char holder[64];
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot stat %s/lock", path);
    read_holder(fd, holder);
    if (S_ISREG(st.st_mode) && (st.st_size == 0 || strncmp(holder, prefix, sizeof prefix - 1) == 0))
        return 0;
    return err_fail(err, ERR_INVALID, "%s/lock is not the lock file of a varved", path);
}

int node_lock_take(int dir_fd, const char *path, const char *what, struct err *err)
{
    cleanup_fd int fd = openat(
        dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s/lock", path);
    int rc = check_content(fd, path, err);
    if (rc < 0)
        return rc;
    rc = lock_exclusively(fd);
    if (rc < 0)
        return rc == -EWOULDBLOCK ? fail_taken(fd, path, what, err)
                                  : err_errno(err, rc, "cannot lock %s/lock", path);
    char text[64];
    int len = snprintf(text, sizeof text, "%s%d\n", prefix, getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)len, 0) != len)
        return err_errno(err, errno, "cannot write %s/lock", path);
    return steal_fd(&fd);
}
