#include "keeper.h"

#include "fd_pass.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int number_of(const struct keeper *keeper, const struct keeper_connection *c)
{
    return (int)(c - keeper->connections);
}

static void end_connection(struct keeper *keeper, struct keeper_connection *c)
{
    (void)keeper_watch(keeper, EPOLL_CTL_DEL, c->fd, 0, 0);
    (void)close(c->fd);
    c->fd = -1;
}

bool keeper_socket_has_any(const struct keeper *keeper)
{
    for (int i = 0; i < KEEPER_CONNECTIONS_MAX; i++)
        if (keeper->connections[i].fd >= 0)
            return true;
    return false;
}

static bool is_root(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == 0;
}

static struct keeper_connection *find_free(struct keeper *keeper)
{
    for (int i = 0; i < KEEPER_CONNECTIONS_MAX; i++)
        if (keeper->connections[i].fd < 0)
            return &keeper->connections[i];
    return NULL;
}

void keeper_socket_accept(struct keeper *keeper)
{
    int fd = accept4(keeper->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        /* Without memory or descriptors the host is short of, the listener stays ready; not to spin
         * meanwhile is all that can be done. */
        const struct timespec pause = {.tv_nsec = 10 * KEEPER_MS};
        if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
            (void)nanosleep(&pause, NULL);
        return;
    }
    struct keeper_connection *c = find_free(keeper);
    if (!c || !is_root(fd)) {
        (void)close(fd);
        return;
    }
    *c = (struct keeper_connection){.fd = fd, .interest = EPOLLIN, .list_next = -1};
    if (keeper_watch(keeper, EPOLL_CTL_ADD, fd, EPOLLIN,
                     keeper_tag(KEEPER_CONNECTION, number_of(keeper, c))) == 0)
        return;
    (void)close(fd);
    c->fd = -1;
}

static void fill(struct keeper_wire *message, enum keeper_wire_op op, const char *id)
{
    *message =
        (struct keeper_wire){.magic = KEEPER_WIRE_MAGIC, .version = KEEPER_WIRE_VERSION, .op = op};
    memcpy(message->id, id, sizeof message->id);
}

void keeper_socket_event(struct keeper *keeper, const struct keeper_volume *volume,
                         enum keeper_event event, uint64_t value)
{
    struct keeper_wire *message = &keeper->events[keeper->event_count % KEEPER_EVENTS_KEPT];
    fill(message, KEEPER_WIRE_EVENT, volume->id);
    message->arg[0] = event;
    message->arg[1] = (uint64_t)volume->pid;
    message->arg[2] = value;
    keeper->event_count++;
}

static int send_event(struct keeper *keeper, struct keeper_connection *c)
{
    uint64_t oldest =
        keeper->event_count > KEEPER_EVENTS_KEPT ? keeper->event_count - KEEPER_EVENTS_KEPT : 0;
    uint64_t lost = oldest > c->event_next ? oldest - c->event_next : 0;
    uint64_t number = c->event_next + lost;
    struct keeper_wire *message = &keeper->events[number % KEEPER_EVENTS_KEPT];
    message->arg[3] = lost;
    int rc = fd_pass_send(c->fd, message, sizeof *message, NULL, 0, false);
    if (rc < 0)
        return rc;
    c->event_next = number + 1;
    if (keeper->event_heard < c->event_next)
        keeper->event_heard = c->event_next;
    return 0;
}

/* The next volume of LIST, or its end. */
static int send_listed(struct keeper *keeper, struct keeper_connection *c)
{
    struct keeper_wire message;
    int i = c->list_next;
    while (i < KEEPER_VOLUMES_MAX && keeper->volumes[i].id[0] == '\0')
        i++;
    if (i == KEEPER_VOLUMES_MAX) {
        fill(&message, KEEPER_WIRE_LIST, (char[16]){""});
        int rc = fd_pass_send(c->fd, &message, sizeof message, NULL, 0, false);
        if (rc == 0)
            c->list_next = -1;
        return rc;
    }
    const struct keeper_volume *volume = &keeper->volumes[i];
    fill(&message, KEEPER_WIRE_LIST, volume->id);
    memcpy(message.directory, volume->directory, sizeof message.directory);
    message.more = 1;
    message.fds = keeper_has_worker(volume) ? KEEPER_FDS_MAX : KEEPER_FD_PIDFD;
    message.arg[0] = keeper_has_worker(volume) ? (uint64_t)volume->pid : 0;
    message.arg[1] = volume->is_wanted;
    int rc = fd_pass_send(c->fd, &message, sizeof message, volume->fds, message.fds, false);
    if (rc == 0)
        c->list_next = i + 1;
    return rc;
}

static int send_next(struct keeper *keeper, struct keeper_connection *c)
{
    if (c->has_answer) {
        int rc = fd_pass_send(c->fd, &c->answer, sizeof c->answer, NULL, 0, false);
        c->has_answer = rc < 0;
        return rc;
    }
    if (c->list_next >= 0)
        return send_listed(keeper, c);
    return send_event(keeper, c);
}

/* Sends what waits. What the peer does not take now goes out when it reads; until then none of its
 * requests is looked at. */
static void send_waiting(struct keeper *keeper, struct keeper_connection *c)
{
    int rc = 0;
    while (rc == 0 && (c->has_answer || c->list_next >= 0 ||
                       (c->has_events && c->event_next < keeper->event_count)))
        rc = send_next(keeper, c);
    uint32_t interest = EPOLLIN;
    if (rc == -EAGAIN)
        interest = c->has_answer || c->list_next >= 0 ? EPOLLOUT : EPOLLIN | EPOLLOUT;
    else if (rc < 0)
        interest = 0;
    if (interest != 0 && interest != c->interest &&
        keeper_watch(keeper, EPOLL_CTL_MOD, c->fd, interest,
                     keeper_tag(KEEPER_CONNECTION, number_of(keeper, c))) < 0)
        interest = 0;
    c->interest = interest;
    if (interest == 0)
        end_connection(keeper, c);
}

void keeper_socket_send_events(struct keeper *keeper)
{
    for (int i = 0; i < KEEPER_CONNECTIONS_MAX; i++) {
        struct keeper_connection *c = &keeper->connections[i];
        if (c->fd >= 0 && c->has_events && c->event_next < keeper->event_count)
            send_waiting(keeper, c);
    }
}

static int obey(struct keeper *keeper, struct keeper_connection *c,
                const struct keeper_wire *request, int *fds, int count, const char **ret_text)
{
    switch ((enum keeper_wire_op)request->op) {
    case KEEPER_WIRE_HELLO:
        c->answer.arg[0] = (uint64_t)getpid();
        c->answer.arg[1] = (uint64_t)keeper->volume_count;
        c->answer.arg[2] = (uint64_t)keeper->volumes_max;
        return 0;
    case KEEPER_WIRE_HOLD:
        return keeper_volumes_hold(keeper, request, fds, count, ret_text);
    case KEEPER_WIRE_START:
        return keeper_volumes_start(keeper, request->id, ret_text);
    case KEEPER_WIRE_STAY:
        return keeper_volumes_stay(keeper, request->id, ret_text);
    case KEEPER_WIRE_DROP:
        return keeper_volumes_drop(keeper, request->id);
    case KEEPER_WIRE_LIST:
        c->list_next = 0;
        return 0;
    case KEEPER_WIRE_EVENTS:
        c->event_next = c->has_events ? c->event_next : keeper->event_heard;
        c->has_events = true;
        return 0;
    case KEEPER_WIRE_EVENT:
        break;
    }
    *ret_text = "keeper does not know this operation";
    return -EOPNOTSUPP;
}

/* Says 0, or what is wrong with the form of a message. */
static int check_form(const struct keeper_wire *request, ssize_t len, int count,
                      const char **ret_text)
{
    if (len == -EMFILE) {
        *ret_text = "not all descriptors have arrived: too many of them, or none left here";
        return -EMFILE;
    }
    if (len != sizeof *request || request->magic != KEEPER_WIRE_MAGIC ||
        memchr(request->id, '\0', sizeof request->id) == NULL || (uint32_t)count != request->fds) {
        *ret_text = "this is no message of keeper's protocol";
        return -EBADMSG;
    }
    if (request->version != KEEPER_WIRE_VERSION) {
        *ret_text = "keeper has another version of the protocol";
        return -EPROTONOSUPPORT;
    }
    return 0;
}

static void answer(struct keeper *keeper, struct keeper_connection *c,
                   const struct keeper_wire *request, ssize_t len, int *fds, int count)
{
    const char *text = "";
    char id[16] = "";
    int rc = check_form(request, len, count, &text);
    if (rc == 0)
        memcpy(id, request->id, sizeof id);
    fill(&c->answer, rc == 0 ? (enum keeper_wire_op)request->op : 0, id);
    if (rc == 0)
        rc = obey(keeper, c, request, fds, count, &text);
    if (rc == 0 && request->op == KEEPER_WIRE_HOLD)
        KEEPER_FAULT(keeper, "held");
    if (rc == 0 && request->op == KEEPER_WIRE_START)
        KEEPER_FAULT(keeper, "started");
    c->answer.status = rc;
    memcpy(c->answer.text, text, strnlen(text, sizeof c->answer.text - 1));
    c->has_answer = c->list_next < 0;
}

static void receive(struct keeper *keeper, struct keeper_connection *c)
{
    static struct keeper_wire request;
    int fds[KEEPER_FDS_MAX] = {-1, -1, -1, -1, -1};
    size_t count = 0;
    ssize_t len =
        fd_pass_receive(c->fd, &request, sizeof request, fds, KEEPER_FDS_MAX, &count, false);
    if (len == -EAGAIN)
        return;
    if (len == 0 || (len < 0 && len != -EMFILE && len != -EMSGSIZE)) {
        end_connection(keeper, c);
        return;
    }
    answer(keeper, c, &request, len, fds, (int)count);
    for (int i = 0; i < KEEPER_FDS_MAX; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    send_waiting(keeper, c);
}

void keeper_socket_ready(struct keeper *keeper, int number, uint32_t events)
{
    struct keeper_connection *c = &keeper->connections[number];
    if (c->fd < 0)
        return;
    if (events & EPOLLIN) /* also when the peer has gone: first what it had said */
        receive(keeper, c);
    else if (events & (EPOLLHUP | EPOLLERR))
        end_connection(keeper, c);
    else if (events & EPOLLOUT)
        send_waiting(keeper, c);
}
