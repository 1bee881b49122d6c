#include "listen_socket.h"

#include "cleanup.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>

/* Opens the socket's directory and holds a lock on it until it is closed. */
static int lock_parent(const char *path, struct err *err)
{
    char parent[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    if (!slash || slash[1] == '\0')
        return err_fail(err, ERR_INVALID, "'%s' is no absolute path of a socket", path);
    slash[slash == parent ? 1 : 0] = '\0';
    cleanup_fd int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        int rc =
            err_fail(err, ERR_NOT_FOUND, "the directory %s of the socket does not exist", parent);
        err_hint(err, "make it, or choose another place with --listen");
        return rc;
    }
    if (fd < 0)
        return err_errno(err, errno, "cannot open the directory %s of the socket", parent);
    while (flock(fd, LOCK_EX) < 0)
        if (errno != EINTR)
            return err_errno(err, errno, "cannot lock the directory %s", parent);
    return steal_fd(&fd);
}

static int fail_in_use(const char *path, struct err *err)
{
    int rc = err_fail(err, ERR_CONFLICT, "another program answers on the socket %s", path);
    err_hint(err, "end it first, or choose another place with --listen");
    return rc;
}

/* 1 when nobody listens on the socket, 0 when it is gone, or a failure. */
static int check_stale(const struct sockaddr_un *address, struct err *err)
{
    cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(err, errno, "cannot make a socket");
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) == 0)
        return fail_in_use(address->sun_path, err);
    switch (errno) {
    case ECONNREFUSED:
        return 1;
    case ENOENT:
        return 0;
    case EAGAIN:     /* its queue is full */
    case EPROTOTYPE: /* of another kind, so not ours */
        return fail_in_use(address->sun_path, err);
    default:
        return err_errno(err, errno, "cannot find out who answers on the socket %s",
                         address->sun_path);
    }
}

/* Makes the name free, unless it is in use or something else than a socket. */
static int clear_name(const struct sockaddr_un *address, struct err *err)
{
    const char *path = address->sun_path;
    struct stat st;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot look at %s", path);
    if (!S_ISSOCK(st.st_mode)) {
        int rc = err_fail(err, ERR_INVALID, "%s is there and is %s, not a socket", path,
                          S_ISLNK(st.st_mode)   ? "a symbolic link"
                          : S_ISDIR(st.st_mode) ? "a directory"
                                                : "another kind of file");
        err_hint(err, "remove it, or choose another place with --listen");
        return rc;
    }
    int rc = check_stale(address, err);
    if (rc <= 0)
        return rc;
    if (unlink(path) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot remove the stale socket %s", path);
    return 0;
}

/* A bound name gets the mode of the socket's own inode, less the umask (Linux, af_unix.c), so it
 * never has a wider one. An umask that takes the owner's bits away is made good afterwards.
 * Returns a descriptor of the name. */
static int bind_private(int fd, const struct sockaddr_un *address, struct err *err)
{
    const char *path = address->sun_path;
    if (fchmod(fd, 0600) < 0 || bind(fd, (const struct sockaddr *)address, sizeof *address) < 0)
        return err_errno(err, errno, "cannot bind the socket %s", path);
    cleanup_fd int name_fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    int rc = name_fd < 0 ? -1 : fstat(name_fd, &st);
    if (rc == 0 && (st.st_mode & 0777) != 0600)
        rc = chmod(path, 0600);
    if (rc == 0)
        rc = listen(fd, SOMAXCONN);
    if (rc < 0) {
        rc = err_errno(err, errno, "cannot listen on the socket %s", path);
        (void)unlink(path);
        return rc;
    }
    return steal_fd(&name_fd);
}

int listen_socket_open(const char *path, struct listen_socket *ret, struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        int rc = err_fail(err, ERR_INVALID,
                          "the path of the socket has %zu bytes, more than the kernel's limit of "
                          "%zu: %s",
                          strlen(path), sizeof address.sun_path - 1, path);
        err_hint(err, "choose a shorter one with --listen");
        return rc;
    }
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    cleanup_fd int lock = lock_parent(path, err);
    if (lock < 0)
        return lock;
    int rc = clear_name(&address, err);
    if (rc < 0)
        return rc;
    cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(err, errno, "cannot make a socket");
    int name_fd = bind_private(fd, &address, err);
    if (name_fd < 0)
        return name_fd;
    ret->fd = steal_fd(&fd);
    ret->name_fd = name_fd;
    snprintf(ret->path, sizeof ret->path, "%s", path);
    return 0;
}

void listen_socket_unlink(struct listen_socket *socket)
{
    struct stat mine;
    struct stat there;
    if (fstat(socket->name_fd, &mine) == 0 && lstat(socket->path, &there) == 0 &&
        mine.st_dev == there.st_dev && mine.st_ino == there.st_ino)
        (void)unlink(socket->path);
    (void)close(socket->name_fd);
    socket->name_fd = -1;
}
