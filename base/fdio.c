#include "fdio.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

ssize_t fdio_read_full(int fd, void *buf, size_t len)
{
    size_t done = 0;
    while (done < len) {
        ssize_t n = read(fd, (char *)buf + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

int fdio_write_full(int fd, const void *buf, size_t len)
{
    size_t done = 0;
    while (done < len) {
        ssize_t n = write(fd, (const char *)buf + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        done += (size_t)n;
    }
    return 0;
}

int fdio_read_all(int fd, const char *what, struct buf *ret, struct err *err)
{
    char chunk[16384];
    for (;;) {
        ssize_t n = fdio_read_full(fd, chunk, sizeof chunk);
        if (n < 0)
            return err_errno(err, (int)n, "cannot read %s", what);
        int rc = buf_add(ret, chunk, (size_t)n, what, err);
        if (rc < 0)
            return rc;
        if ((size_t)n < sizeof chunk)
            return 0;
    }
}

int fdio_read_file(int dir_fd, const char *name, struct buf *ret, struct err *err)
{
    cleanup_fd int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s", name);
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot stat %s", name);
    if (!S_ISREG(st.st_mode))
        return err_fail(err, ERR_INVALID, "%s is not a regular file", name);
    return fdio_read_all(fd, name, ret, err);
}

int fdio_open_beneath(int dir_fd, const char *path, int flags, mode_t mode)
{
    struct open_how how = {
        .flags = (uint64_t)(flags | O_CLOEXEC),
        .mode = (flags & (O_CREAT | O_TMPFILE)) ? mode : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    for (int attempt = 0;; attempt++) {
        long fd = syscall(SYS_openat2, dir_fd, path, &how, sizeof how);
        if (fd >= 0)
            return (int)fd;
        /* EAGAIN: a rename elsewhere disturbed the walk (openat2(2)). */
        if (errno != EINTR && !(errno == EAGAIN && attempt < 100))
            return -errno;
    }
}

DIR *fdio_list(int dir_fd, const char *name)
{
    cleanup_fd int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir)
        (void)steal_fd(&fd);
    return dir;
}

int fdio_open_dir(int dir_fd, const char *name, mode_t mode, struct err *err)
{
    if (mkdirat(dir_fd, name, mode) < 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot make directory %s", name);
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_errno(err, errno, "cannot open directory %s", name);
    return fd;
}
