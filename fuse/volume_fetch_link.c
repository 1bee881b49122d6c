/* The connection of volume_fetch to its worker: made, and made again. */
#include "volume_fetch_parts.h"

#include "cleanup.h"
#include "clock.h"
#include "fd_pass.h"
#include "volume_wire.h"
#include "wire_call.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>

enum {
    LOOK_MS = 1000, /* whether anything is absent still */
    SLICE_MS = 200, /* of a send: then it is seen whether it is still wanted */
    AGAIN_MS = 10,  /* after a worker's death; doubled each time that no message comes */
    AGAIN_MAX_MS = 2000,
};

/* Waits for a message. 0, -ECANCELED (the end), -ETIMEDOUT. */
static int await(struct volume_fetch *fetch, int socket, int ms)
{
    struct pollfd fds[2] = {{.fd = fetch->wake_fd, .events = POLLIN},
                            {.fd = socket, .events = POLLIN}};
    int n = poll(fds, 2, ms);
    if (fetch_is_over(fetch))
        return -ECANCELED;
    return n > 0 ? 0 : -ETIMEDOUT;
}

/* 0, -EAGAIN (there is none), -ECONNRESET, -EBADMSG, -EPROTONOSUPPORT. */
static int receive(int socket, struct volume_wire *ret)
{
    size_t fds = 0;
    ssize_t n = fd_pass_receive(socket, ret, sizeof *ret, NULL, 0, &fds, false);
    if (n == -EAGAIN || n == -EINTR)
        return -EAGAIN;
    if (n == 0)
        return -ECONNRESET;
    if (n != (ssize_t)sizeof *ret || ret->magic != VOLUME_WIRE_MAGIC ||
        !wire_is_status(ret->status))
        return -EBADMSG;
    ret->text[sizeof ret->text - 1] = '\0';
    return ret->version == VOLUME_WIRE_VERSION ? 0 : -EPROTONOSUPPORT;
}

/* Asks for the chunks' connection; a dead worker's successor answers. Returns it, or -errno. */
static int begin(struct volume_fetch *fetch, struct volume_wire *ret_answer)
{
    const struct volume_wire ask = {.magic = VOLUME_WIRE_MAGIC,
                                    .version = VOLUME_WIRE_VERSION,
                                    .op = VOLUME_WIRE_FETCH,
                                    .arg = {fetch->live_number}};
    const int bytes = VOLUME_FETCH_SOCKET_BYTES / 2; /* the kernel doubles it */
    const int64_t deadline = wire_deadline(SLICE_MS);
    char name[32];
    (void)snprintf(name, sizeof name, "%s.sock", fetch->id);
    cleanup_fd int fd = wire_connect(fetch->workers_fd, name, deadline);
    if (fd < 0)
        return fd;
    /* Without the right to it, less is on its way at a time. */
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes);
    int rc = wire_send(fd, &ask, sizeof ask, NULL, 0, deadline);
    if (rc < 0)
        return rc;
    do {
        rc = await(fetch, fd, LOOK_MS);
        if (rc == 0)
            rc = receive(fd, ret_answer);
    } while (rc == -ETIMEDOUT || rc == -EAGAIN);
    if (rc == 0 && ret_answer->op != VOLUME_WIRE_FETCH)
        rc = -EBADMSG;
    if (rc == 0)
        rc = ret_answer->status;
    return rc < 0 ? rc : steal_fd(&fd);
}

/* Under lock. 0, or -EBADMSG for what no worker says. */
static int note_message(struct volume_fetch *fetch, const struct volume_wire *message)
{
    if (message->op == VOLUME_WIRE_WANT) {
        uint64_t first = message->arg[0], count = message->arg[1];
        if (count > FETCH_WANT_CHUNKS)
            return -EBADMSG;
        /* What the volume has grown by is not absent. */
        if (count == 0 || first >= fetch->chunks || count > fetch->chunks - first)
            return 0;
        return volume_fetch_order_want(fetch, (uint32_t)first, (uint32_t)count) ? 0 : -EBADMSG;
    }
    if (message->op != VOLUME_WIRE_FILL)
        return 0; /* a later version's */
    if (fetch->fill_count == 0 || message->arg[0] != fetch->fills[fetch->fill_first])
        return -EBADMSG;
    uint32_t chunk = fetch->fills[fetch->fill_first];
    fetch->fill_first = (fetch->fill_first + 1) % FETCH_FILLS;
    fetch->fill_count--;
    volume_fetch_outcome_answered(fetch, chunk, message->status, message->text);
    return 0;
}

/* Until the connection or the fetch ends. */
static int serve(struct volume_fetch *fetch, int socket, bool *ret_spoke)
{
    struct volume_wire message;
    for (;;) {
        int rc = await(fetch, socket, LOOK_MS);
        if (rc == 0)
            rc = receive(socket, &message);
        (void)pthread_mutex_lock(&fetch->lock);
        if (rc == 0) {
            *ret_spoke = true;
            rc = note_message(fetch, &message);
        } else if (rc == -ETIMEDOUT || rc == -EAGAIN) {
            rc = 0;
        }
        if (rc == 0 && fetch->fill_count == 0 && volume_fetch_order_is_done(fetch)) {
            fetch->ended = true;
            rc = -ECANCELED;
        }
        (void)pthread_cond_broadcast(&fetch->changed);
        (void)pthread_mutex_unlock(&fetch->lock);
        if (rc < 0)
            return rc;
    }
}

/* Publishes a connection, or takes it back: what was not answered is to be sent again. */
static void set_socket(struct volume_fetch *fetch, int socket)
{
    (void)pthread_mutex_lock(&fetch->lock);
    if (socket < 0 && fetch->socket >= 0)
        (void)shutdown(fetch->socket, SHUT_RDWR);
    while (fetch->sending)
        (void)pthread_cond_wait(&fetch->changed, &fetch->lock);
    for (; fetch->fill_count > 0; fetch->fill_count--) {
        volume_fetch_outcome_answered(fetch, fetch->fills[fetch->fill_first], -ECONNRESET, NULL);
        fetch->fill_first = (fetch->fill_first + 1) % FETCH_FILLS;
    }
    fetch->want_count = 0;
    fetch->socket = socket;
    if (socket >= 0)
        fetch->link_text[0] = '\0';
    (void)pthread_cond_broadcast(&fetch->changed);
    (void)pthread_mutex_unlock(&fetch->lock);
}

static void set_text(struct volume_fetch *fetch, int rc, const char *text)
{
    struct err err = ERR_INIT;
    (void)wire_fail(&err, rc, text, "the worker does not take chunks");
    (void)pthread_mutex_lock(&fetch->lock);
    (void)snprintf(fetch->link_text, sizeof fetch->link_text, "%.511s", err.text);
    (void)pthread_mutex_unlock(&fetch->lock);
}

/* One connection from beginning to end. *ret_spoke: the worker said something on it. */
static int run_once(struct volume_fetch *fetch, bool *ret_spoke)
{
    struct volume_wire answer = {.text = ""};
    cleanup_fd int fd = begin(fetch, &answer);
    int rc = fd;
    if (fd >= 0) {
        set_socket(fetch, fd);
        rc = serve(fetch, fd, ret_spoke);
        set_socket(fetch, -1);
    }
    /* A worker's death is nothing to tell of. */
    if (rc != -ECANCELED && rc != -ECONNRESET)
        set_text(fetch, rc, answer.text);
    return rc;
}

void *volume_fetch_link_run(void *arg)
{
    struct volume_fetch *fetch = arg;
    int again_ms = AGAIN_MS;
    for (;;) {
        bool spoke = false;
        int rc = run_once(fetch, &spoke);
        if (rc == -ECANCELED)
            return NULL;
        if (spoke)
            again_ms = AGAIN_MS;
        if (rc == -ESTALE) /* nobody will take these chunks any more */
            again_ms = AGAIN_MAX_MS;
        (void)await(fetch, -1, again_ms);
        if (fetch_is_over(fetch))
            return NULL;
        again_ms = again_ms < AGAIN_MAX_MS / 2 ? again_ms * 2 : AGAIN_MAX_MS;
    }
}

/* One message of a pair: whole, or the connection has ended. */
static int send_whole(struct volume_fetch *fetch, int socket, const void *bytes, size_t len)
{
    int rc;
    do
        rc = wire_send(socket, bytes, len, NULL, 0, wire_deadline(SLICE_MS));
    while (rc == -ETIMEDOUT && !fetch_is_over(fetch));
    return rc;
}

/* Under lock: until it is the caller's turn to send. False: the end. */
static bool await_turn(struct volume_fetch *fetch)
{
    while (!fetch_is_over(fetch) && !fetch->ended &&
           (fetch->socket < 0 || fetch->sending || fetch->fill_count == FETCH_FILLS))
        (void)pthread_cond_wait(&fetch->changed, &fetch->lock);
    return !fetch_is_over(fetch) && !fetch->ended;
}

int volume_fetch_link_fill(struct volume_fetch *fetch, uint32_t chunk, const void *bytes)
{
    const struct volume_wire fill = {.magic = VOLUME_WIRE_MAGIC,
                                     .version = VOLUME_WIRE_VERSION,
                                     .op = VOLUME_WIRE_FILL,
                                     .arg = {chunk, bytes != NULL}};
    (void)pthread_mutex_lock(&fetch->lock);
    if (!await_turn(fetch)) {
        (void)pthread_mutex_unlock(&fetch->lock);
        return -ECANCELED;
    }
    const int socket = fetch->socket;
    fetch->fills[(fetch->fill_first + fetch->fill_count++) % FETCH_FILLS] = chunk;
    fetch->sending = true;
    (void)pthread_mutex_unlock(&fetch->lock);

    int rc = send_whole(fetch, socket, &fill, sizeof fill);
    if (rc == 0 && bytes)
        rc = send_whole(fetch, socket, bytes, VOLUME_CHUNK);
    if (rc < 0) /* half a pair may be sent: the worker has to begin anew, and it is not given */
        (void)shutdown(socket, SHUT_RDWR);

    (void)pthread_mutex_lock(&fetch->lock);
    fetch->sending = false;
    (void)pthread_cond_broadcast(&fetch->changed);
    (void)pthread_mutex_unlock(&fetch->lock);
    return 0;
}
