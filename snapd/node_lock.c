#include "node_internal.h"

#include "cleanup.h"
#include "fdio.h"

#include <fcntl.h>
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

static int fail_taken(int fd, const char *path, const char *what, struct err *err)
{
    char holder[64];
    read_holder(fd, holder);
    long pid = strncmp(holder, prefix, sizeof prefix - 1) == 0
                   ? strtol(holder + sizeof prefix - 1, NULL, 10)
                   : 0;
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
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? fail_taken(fd, path, what, err)
                                    : err_errno(err, errno, "cannot lock %s/lock", path);
    char text[64];
    int len = snprintf(text, sizeof text, "%s%d\n", prefix, getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)len, 0) != len)
        return err_errno(err, errno, "cannot write %s/lock", path);
    return steal_fd(&fd);
}
