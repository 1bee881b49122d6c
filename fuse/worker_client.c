#include "worker_client.h"

#include "wire_call.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

struct socket_name {
    char s[32];
};

static int name_of(const char *id, struct socket_name *ret, struct err *err)
{
    if (strlen(id) != VOLUME_ID_LEN || strchr(id, '/'))
        return err_fail(err, ERR_INVALID, "'%.40s' is no ID of a volume", id);
    (void)snprintf(ret->s, sizeof ret->s, "%s.sock", id);
    return 0;
}

/* Makes the name free unless somebody listens. */
static int clear_name(int workers_fd, const struct socket_name *name, struct err *err)
{
    struct stat st;
    cleanup_fd int fd = wire_connect(workers_fd, name->s, wire_deadline(0));
    if (fd >= 0 || fd == -ETIMEDOUT)
        return err_fail(err, ERR_CONFLICT, "a process still holds the control socket %s", name->s);
    if (fd == -ENOENT)
        return 0;
    if (fd != -ECONNREFUSED)
        return err_errno(err, fd, "cannot find out who holds the control socket %s", name->s);
    if (fstatat(workers_fd, name->s, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISSOCK(st.st_mode))
        return err_fail(err, ERR_EXISTS, "%s is there and no socket", name->s);
    if (unlinkat(workers_fd, name->s, 0) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot remove the stale control socket %s", name->s);
    return 0;
}

int worker_client_listen(int workers_fd, const char *id, struct err *err)
{
    struct socket_name name;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int rc = name_of(id, &name, err);
    if (rc == 0)
        rc = clear_name(workers_fd, &name, err);
    if (rc < 0)
        return rc;
    (void)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", workers_fd,
                   name.s);
    cleanup_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* The name gets the mode of the socket's inode, less the umask. */
    if (fd < 0 || fchmod(fd, 0600) < 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, SOMAXCONN) < 0)
        return err_errno(err, errno, "cannot make the control socket %s", name.s);
    return steal_fd(&fd);
}

int worker_client_unlink(int workers_fd, const char *id, struct err *err)
{
    struct socket_name name;
    int rc = name_of(id, &name, err);
    if (rc == 0 && unlinkat(workers_fd, name.s, 0) < 0 && errno != ENOENT)
        rc = err_errno(err, errno, "cannot remove the control socket %s", name.s);
    return rc;
}

/* Asks on a connection of its own. Returns that, or -errno. */
static int send_ask(int workers_fd, const struct socket_name *name, const struct volume_wire *ask,
                    int64_t deadline)
{
    cleanup_fd int fd = wire_connect(workers_fd, name->s, deadline);
    if (fd < 0)
        return fd;
    int rc = wire_send(fd, ask, sizeof *ask, NULL, 0, deadline);
    return rc < 0 ? rc : steal_fd(&fd);
}

/* One attempt. -ECONNRESET: the worker died with it. `asked` (-1: nobody was) is used up. */
static int ask_once(int workers_fd, const struct socket_name *name, const struct volume_wire *ask,
                    int *asked, struct volume_wire *ret, int fds[VOLUME_WIRE_FDS_MAX],
                    size_t *ret_count, int64_t deadline)
{
    cleanup_fd int fd = *asked >= 0 ? steal_fd(asked) : send_ask(workers_fd, name, ask, deadline);
    return fd < 0
               ? fd
               : wire_receive(fd, ret, sizeof *ret, fds, VOLUME_WIRE_FDS_MAX, ret_count, deadline);
}

static int check_answer(const struct volume_wire *ask, const struct volume_wire *answer)
{
    if (answer->magic != ask->magic)
        return -EBADMSG;
    if (answer->version != ask->version)
        return -EPROTONOSUPPORT;
    if (answer->op != ask->op || !wire_is_status(answer->status))
        return -EBADMSG;
    return answer->status;
}

/* Whose volume is served without a socket, as somebody has removed that, is there all the same. */
static int fail_no_worker(const struct volume_wire *ask, const char *what, const char *id,
                          struct err *err)
{
    if (ask->op == VOLUME_WIRE_ATTACH)
        return err_fail(err, ERR_NOT_FOUND, "%s: volume %s has no worker", what, id);
    int rc = err_fail(err, ERR_UNREACHABLE,
                      "%s: nobody answers at the socket %s.sock of its worker", what, id);
    err_hint(err, "somebody may have removed it; sync in the workspace, then give it up with "
                  "--abandon and mount it again");
    return rc;
}

/* `what` begins the message of a failure: "cannot flush". `connection`: where it was asked already;
 * -1. It is taken over. */
static int ask_worker(int workers_fd, const char *id, const struct volume_wire *ask, int connection,
                      struct volume_fds *ret_fds, uint64_t *ret_arg, const char *what, int wait_ms,
                      struct err *err)
{
    const int64_t deadline = wire_deadline(wait_ms);
    cleanup_fd int asked = connection;
    struct volume_wire answer = {.text = ""};
    struct socket_name name;
    int fds[VOLUME_WIRE_FDS_MAX];
    size_t count = 0;
    int rc = name_of(id, &name, err);
    if (rc < 0)
        return rc;
    for (;;) {
        rc = ask_once(workers_fd, &name, ask, &asked, &answer, fds, &count, deadline);
        if (rc != -ECONNRESET || ask->op == VOLUME_WIRE_STOP)
            break;
        rc = wire_pause(deadline);
        if (rc < 0)
            break;
    }
    if (rc == -ECONNRESET)
        return 0; /* STOP alone: it ended */
    if (rc == -ENOENT || rc == -ECONNREFUSED)
        return fail_no_worker(ask, what, id, err);
    const int must = ask->op == VOLUME_WIRE_ATTACH && rc == 0 ? VOLUME_FDS_MUST : 0;
    if (rc == 0)
        rc = check_answer(ask, &answer);
    answer.text[sizeof answer.text - 1] = '\0';
    struct volume_fds got = volume_fds_from_array(fds, (int)count);
    if (rc == 0 && (int)count < must)
        rc = -EBADMSG;
    if (rc == 0 && ret_arg)
        *ret_arg = answer.arg[0];
    if (rc == 0 && ret_fds)
        *ret_fds = got;
    else
        for (size_t i = 0; i < count; i++)
            (void)close(fds[i]);
    return rc < 0 ? wire_fail(err, rc, answer.text, "%s: worker of volume %s", what, id) : 0;
}

static int ask_plain(int workers_fd, const char *id, enum volume_wire_op op, uint64_t arg,
                     const char *what, int wait_ms, struct err *err)
{
    const struct volume_wire ask = {
        .magic = VOLUME_WIRE_MAGIC, .version = VOLUME_WIRE_VERSION, .op = op, .arg = {arg}};
    return ask_worker(workers_fd, id, &ask, -1, NULL, NULL, what, wait_ms, err);
}

int worker_client_ping(int workers_fd, const char *id, int wait_ms, struct err *err)
{
    return ask_plain(workers_fd, id, VOLUME_WIRE_PING, 0, "cannot reach a worker", wait_ms, err);
}

static const struct volume_wire attach_ask = {
    .magic = VOLUME_WIRE_MAGIC, .version = VOLUME_WIRE_VERSION, .op = VOLUME_WIRE_ATTACH};

int worker_client_attach_ask(int workers_fd, const char *id)
{
    struct socket_name name;
    int rc = name_of(id, &name, NULL);
    return rc < 0 ? rc : send_ask(workers_fd, &name, &attach_ask, wire_deadline(0));
}

int worker_client_attach(int workers_fd, const char *id, int asked, int wait_ms,
                         struct volume_fds *ret, struct err *err)
{
    return ask_worker(workers_fd, id, &attach_ask, asked, ret, NULL, "cannot take a volume over",
                      wait_ms, err);
}

int worker_client_flush(int workers_fd, const char *id, int wait_ms, struct err *err)
{
    return ask_plain(workers_fd, id, VOLUME_WIRE_FLUSH, 0, "cannot flush", wait_ms, err);
}

int worker_client_resize(int workers_fd, const char *id, uint64_t size, int wait_ms,
                         struct err *err)
{
    return ask_plain(workers_fd, id, VOLUME_WIRE_RESIZE, size, "cannot resize", wait_ms, err);
}

int worker_client_close(int workers_fd, const char *id, bool force, int wait_ms, struct err *err)
{
    return ask_plain(workers_fd, id, VOLUME_WIRE_CLOSE, force, "cannot close", wait_ms, err);
}

int worker_client_stop(int workers_fd, const char *id, bool force, int wait_ms, struct err *err)
{
    return ask_plain(workers_fd, id, VOLUME_WIRE_STOP, force, "cannot stop", wait_ms, err);
}

int worker_client_cut(int workers_fd, const char *id, uint64_t token, uint32_t uses, int wait_ms,
                      uint64_t *ret_epoch, struct err *err)
{
    const struct volume_wire ask = {.magic = VOLUME_WIRE_MAGIC,
                                    .version = VOLUME_WIRE_VERSION,
                                    .op = VOLUME_WIRE_CUT,
                                    .arg = {token, uses}};
    return ask_worker(workers_fd, id, &ask, -1, NULL, ret_epoch, "cannot cut", wait_ms, err);
}

int worker_client_release(int workers_fd, const char *id, uint64_t epoch, int wait_ms,
                          struct err *err)
{
    return ask_plain(workers_fd, id, VOLUME_WIRE_RELEASE, epoch, "cannot release a cut", wait_ms,
                     err);
}
