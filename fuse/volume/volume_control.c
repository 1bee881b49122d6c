#include "volume_control.h"

#include "cleanup.h"
#include "clock.h"
#include "fault.h"
#include "fd_pass.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

enum {
    SLOT_LISTEN,
    SLOT_END,
    SLOT_SIGNAL,
    SLOT_WAKE,
    SLOT_PEERS,
};

int volume_control_open(struct volume_control *control, struct volume *volume, int listen_fd,
                        struct err *err)
{
    sigset_t signals;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGHUP);
    memset(control, 0, sizeof *control);
    control->volume = volume;
    control->listen_fd = listen_fd;
    for (size_t i = 0; i < VOLUME_CONTROL_PEERS; i++)
        control->peers[i].fd = -1;
    control->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    control->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (control->signal_fd < 0 || control->wake_fd < 0)
        return err_errno(err, errno, "cannot make the control loop");
    int rc = pthread_mutex_init(&control->lock, NULL);
    if (rc == 0)
        rc = pthread_cond_init(&control->work, NULL);
    return rc ? err_errno(err, rc, "cannot make the control loop") : 0;
}

/* The text belongs to a status that is not 0. Whoever does not read his answer does not get it. */
static void send_answer(struct volume_control *control, struct volume_peer *peer, int status,
                        const char *text)
{
    struct volume *volume = control->volume;
    const int fds[] = {VOLUME_FD_FUSE, VOLUME_FD_LIVE, VOLUME_FD_LISTEN, VOLUME_FD_PROGRAM,
                       volume->pidfd};
    struct volume_wire answer = {.magic = VOLUME_WIRE_MAGIC,
                                 .version = VOLUME_WIRE_VERSION,
                                 .op = peer->message.op,
                                 .status = status,
                                 .arg = {peer->result}};
    (void)snprintf(answer.text, sizeof answer.text, "%.*s", VOLUME_WIRE_TEXT_MAX - 1, text);
    size_t count = peer->message.op == VOLUME_WIRE_ATTACH && status == 0 ? ARRAY_SIZE(fds) : 0;
    (void)fd_pass_send(peer->fd, &answer, sizeof answer, fds, count, false);
}

static void drop_peer(struct volume_peer *peer)
{
    if (peer->fd >= 0)
        (void)close(peer->fd);
    peer->fd = -1;
}

static int flush(struct volume *volume, struct err *err)
{
    int rc = chunk_io_flush(&volume->io);
    return rc < 0 ? err_errno(err, rc, "cannot flush") : 0;
}

static int resize(struct volume *volume, uint64_t size, struct err *err)
{
    struct live_map_header *header = volume->header;
    uint64_t old = atomic_load(&header->size);
    if (size % VOLUME_SIZE_UNIT != 0 || size > VOLUME_SIZE_MAX)
        return err_fail(err, ERR_INVALID, "%llu bytes is no size of a volume",
                        (unsigned long long)size);
    if (size < old)
        return err_fail(err, ERR_INVALID, "a volume of %llu bytes cannot become smaller",
                        (unsigned long long)old);
    int rc = chunk_io_resize(&volume->io, size, err);
    if (rc == 0)
        volume_session_forget_attr(&volume->session);
    return rc;
}

static int close_volume(struct volume *volume, bool whoever, struct err *err)
{
    if (!whoever && atomic_load(&volume->header->opens) > 0)
        return err_errno(err, EBUSY, "the device is still open");
    return chunk_io_finish(&volume->io, err);
}

static int work(struct volume *volume, struct volume_peer *peer, struct err *err)
{
    const struct volume_wire *message = &peer->message;
    switch (message->op) {
    case VOLUME_WIRE_FLUSH:
        return flush(volume, err);
    case VOLUME_WIRE_RESIZE:
        return resize(volume, message->arg[0], err);
    case VOLUME_WIRE_CLOSE:
        return close_volume(volume, message->arg[0] == 1, err);
    case VOLUME_WIRE_CUT:
        return chunk_io_cut(&volume->io, message->arg[0], (uint32_t)message->arg[1], &peer->result,
                            err);
    case VOLUME_WIRE_RELEASE:
        return chunk_io_release(&volume->io, message->arg[0], err);
    default:
        return err_fail(err, ERR_UNSUPPORTED, "an operation that this program does not know");
    }
}

/* Under lock: what came first. */
static struct volume_peer *next_busy(struct volume_control *control)
{
    struct volume_peer *first = NULL;
    for (size_t i = 0; i < VOLUME_CONTROL_PEERS; i++) {
        struct volume_peer *peer = &control->peers[i];
        if (peer->busy && (!first || peer->order < first->order))
            first = peer;
    }
    return first;
}

void volume_control_work(struct volume_control *control)
{
    const uint64_t one = 1;
    (void)pthread_mutex_lock(&control->lock);
    for (;;) {
        struct volume_peer *peer = next_busy(control);
        if (!peer) {
            (void)pthread_cond_wait(&control->work, &control->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&control->lock);
        struct err err = ERR_INIT;
        int rc = work(control->volume, peer, &err);
        (void)FAULT_POINT("volume.control-done", NULL);
        send_answer(control, peer, rc, rc < 0 ? err.text : "");
        (void)pthread_mutex_lock(&control->lock);
        peer->busy = false;
        ssize_t n = write(control->wake_fd, &one, sizeof one);
        (void)n; /* the counter is full: it is awake */
    }
}

static bool is_root(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == 0;
}

static struct volume_peer *free_peer(struct volume_control *control)
{
    for (size_t i = 0; i < VOLUME_CONTROL_PEERS; i++)
        if (control->peers[i].fd < 0)
            return &control->peers[i];
    return NULL;
}

static void accept_peer(struct volume_control *control)
{
    struct volume_peer *peer = free_peer(control);
    int fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return; /* taken by another one, or gone */
    if (!peer || !is_root(fd)) {
        (void)close(fd);
        return;
    }
    peer->fd = fd;
}

static bool is_closed(const struct volume *volume)
{
    return (atomic_load(&volume->header->facts) & LIVE_FACT_CLOSED) != 0;
}

/* True: the worker ends. */
static bool stop(struct volume_control *control, struct volume_peer *peer)
{
    struct volume *volume = control->volume;
    if (!is_closed(volume) && peer->message.arg[0] != 1) {
        send_answer(control, peer, -EBUSY, "the volume is not closed");
        return false;
    }
    send_answer(control, peer, 0, "");
    return true;
}

/* From the answer on this is a connection of another kind, and another thread's. */
static void hand_over(struct volume_control *control, struct volume_peer *peer)
{
    if (!volume_fetch_io_is_meant(&control->volume->fetch, &peer->message)) {
        send_answer(control, peer, -ESTALE, "the volume was attached anew meanwhile");
        return;
    }
    send_answer(control, peer, 0, "");
    volume_fetch_io_connect(&control->volume->fetch, peer->fd);
    peer->fd = -1;
}

static void pass_on(struct volume_control *control, struct volume_peer *peer)
{
    (void)pthread_mutex_lock(&control->lock);
    peer->busy = true;
    peer->result = 0;
    peer->order = control->orders++;
    (void)pthread_cond_signal(&control->work);
    (void)pthread_mutex_unlock(&control->lock);
}

/* True: the worker ends. */
static bool serve_peer(struct volume_control *control, struct volume_peer *peer)
{
    struct volume_wire *message = &peer->message;
    size_t fds = 0;
    ssize_t n = fd_pass_receive(peer->fd, message, sizeof *message, NULL, 0, &fds, false);
    if (n == -EAGAIN || n == -EINTR)
        return false;
    if (n != (ssize_t)sizeof *message || message->magic != VOLUME_WIRE_MAGIC ||
        message->version != VOLUME_WIRE_VERSION) {
        drop_peer(peer);
        return false;
    }
    switch (message->op) {
    case VOLUME_WIRE_PING:
    case VOLUME_WIRE_ATTACH:
        send_answer(control, peer, 0, "");
        return false;
    case VOLUME_WIRE_FLUSH:
    case VOLUME_WIRE_RESIZE:
    case VOLUME_WIRE_CLOSE:
    case VOLUME_WIRE_CUT:
    case VOLUME_WIRE_RELEASE:
        pass_on(control, peer);
        return false;
    case VOLUME_WIRE_FETCH:
        hand_over(control, peer);
        return false;
    case VOLUME_WIRE_STOP:
        return stop(control, peer);
    default:
        send_answer(control, peer, -EOPNOTSUPP, "an operation that this program does not know");
        return false;
    }
}

/* What to wait for. Peers whose message is being worked on, and new ones when there is no room, are
 * left out. */
static void gather(struct volume_control *control, struct pollfd *ret)
{
    bool room = free_peer(control) != NULL;
    ret[SLOT_LISTEN] = (struct pollfd){.fd = room ? control->listen_fd : -1, .events = POLLIN};
    ret[SLOT_END] = (struct pollfd){.fd = control->volume->end_fd, .events = POLLIN};
    ret[SLOT_SIGNAL] = (struct pollfd){.fd = control->signal_fd, .events = POLLIN};
    ret[SLOT_WAKE] = (struct pollfd){.fd = control->wake_fd, .events = POLLIN};
    (void)pthread_mutex_lock(&control->lock);
    for (size_t i = 0; i < VOLUME_CONTROL_PEERS; i++) {
        const struct volume_peer *peer = &control->peers[i];
        ret[SLOT_PEERS + i] = (struct pollfd){.fd = peer->busy ? -1 : peer->fd, .events = POLLIN};
    }
    (void)pthread_mutex_unlock(&control->lock);
}

static void drain(int fd)
{
    char bytes[sizeof(struct signalfd_siginfo)];
    while (read(fd, bytes, sizeof bytes) > 0)
        ;
}

int volume_control_run(struct volume_control *control)
{
    struct volume *volume = control->volume;
    struct pollfd fds[SLOT_PEERS + VOLUME_CONTROL_PEERS];
    uint64_t beat = (uint64_t)clock_now_ns();
    for (;;) {
        uint64_t now = (uint64_t)clock_now_ns();
        if (now >= beat) {
            atomic_store(&volume->header->heartbeat_ns, now);
            beat = now + (uint64_t)KEEPER_HEARTBEAT_MS * 1000000u;
        }
        gather(control, fds);
        int ready = poll(fds, ARRAY_SIZE(fds), (int)((beat - now) / 1000000u) + 1);
        if (ready <= 0)
            continue;
        if (fds[SLOT_END].revents)
            return atomic_load(&volume->exit_status);
        if (fds[SLOT_SIGNAL].revents) {
            drain(control->signal_fd);
            if (is_closed(volume))
                return VOLUME_EXIT_STOPPED;
        }
        if (fds[SLOT_WAKE].revents)
            drain(control->wake_fd);
        for (size_t i = 0; i < VOLUME_CONTROL_PEERS; i++)
            if (fds[SLOT_PEERS + i].revents && serve_peer(control, &control->peers[i]))
                return VOLUME_EXIT_STOPPED;
        if (fds[SLOT_LISTEN].revents)
            accept_peer(control);
    }
}
