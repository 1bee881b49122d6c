#include "keeper_client.h"

#include "clock.h"
#include "keeper_start.h"
#include "wire_call.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct keeper_client {
    int run_fd; /* borrowed */
    char *run_path;
    char *program; /* or NULL */
    /* One request or connect at a time. A flag, as waits for it have a deadline, and thread
     * sanitizers do not know pthread_mutex_clocklock(). */
    pthread_mutex_t lock;
    pthread_cond_t freed; /* `busy` became false */
    bool busy;            /* under lock */
    int requests;         /* of whoever set busy; -1: none */
    pthread_mutex_t event_lock;
    int events;         /* under event_lock; -1: not connected */
    _Atomic pid_t pid;  /* of the keeper that was connected to last */
    _Atomic bool ended; /* its end was seen */
};

void keeper_client_close(struct keeper_client *client)
{
    if (!client)
        return;
    cleanup_fdp(&client->requests);
    cleanup_fdp(&client->events);
    pthread_cond_destroy(&client->freed);
    pthread_mutex_destroy(&client->lock);
    pthread_mutex_destroy(&client->event_lock);
    free(client->run_path);
    free(client->program);
    free(client);
}

int keeper_client_open(const struct keeper_client_options *options, struct keeper_client **ret,
                       struct err *err)
{
    struct keeper_client *client = calloc(1, sizeof *client);
    if (!client)
        return err_errno(err, ENOMEM, "cannot prepare for varve-keeper");
    client->requests = client->events = -1;
    pthread_mutex_init(&client->lock, NULL); /* cannot fail without attributes */
    pthread_mutex_init(&client->event_lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&client->freed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    client->run_fd = options->run_fd;
    client->run_path = strdup(options->run_path);
    client->program = options->program ? strdup(options->program) : NULL;
    if (!client->run_path || (options->program && !client->program)) {
        keeper_client_close(client);
        return err_errno(err, ENOMEM, "cannot prepare for varve-keeper");
    }
    *ret = client;
    return 0;
}

static int begin(struct keeper_client *client, int64_t deadline, struct err *err)
{
    const struct timespec until = {.tv_sec = deadline / CLOCK_NS_PER_S,
                                   .tv_nsec = deadline % CLOCK_NS_PER_S};
    int num = 0;
    pthread_mutex_lock(&client->lock);
    while (client->busy && num == 0)
        num = pthread_cond_timedwait(&client->freed, &client->lock, &until);
    bool taken = !client->busy;
    client->busy = true;
    pthread_mutex_unlock(&client->lock);
    if (taken)
        return 0;
    return err_fail(err, ERR_UNREACHABLE, "varve-keeper is busy with another request");
}

static void end(struct keeper_client *client)
{
    pthread_mutex_lock(&client->lock);
    client->busy = false;
    pthread_cond_signal(&client->freed);
    pthread_mutex_unlock(&client->lock);
}

static int fail_gone(struct err *err)
{
    return err_errno(err, ECONNRESET, "varve-keeper has ended");
}

/* One answer to `ask`, which need not say success. 0 or -errno. */
static int receive_answer(int socket, const struct keeper_wire *ask, struct keeper_wire *ret,
                          int fds[KEEPER_FDS_MAX], size_t *ret_count, int64_t deadline)
{
    *ret_count = 0;
    int rc = wire_receive(socket, ret, sizeof *ret, fds, KEEPER_FDS_MAX, ret_count, deadline);
    ret->id[sizeof ret->id - 1] = '\0';
    ret->directory[sizeof ret->directory - 1] = '\0';
    ret->text[sizeof ret->text - 1] = '\0';
    if (rc < 0)
        return rc;
    if (ret->magic == ask->magic && ret->version == ask->version && ret->fds == *ret_count &&
        wire_is_status(ret->status) && (ret->op == ask->op || ret->status < 0))
        return 0;
    for (size_t i = 0; i < *ret_count; i++)
        (void)close(fds[i]);
    *ret_count = 0;
    return ret->magic == ask->magic && ret->version != ask->version ? -EPROTONOSUPPORT : -EBADMSG;
}

/* A request whose answer has no descriptors. `ask` is filled in but for magic and version. Returns
 * what the answer says; `ret_failed` is true when the connection is of no more use. */
static int exchange(int socket, struct keeper_wire *ask, const int *fds, size_t count,
                    struct keeper_wire *ret, int64_t deadline, bool *ret_failed)
{
    int got[KEEPER_FDS_MAX];
    size_t got_count = 0;
    ask->magic = KEEPER_WIRE_MAGIC;
    ask->version = KEEPER_WIRE_VERSION;
    ask->fds = (uint32_t)count;
    int rc = wire_send(socket, ask, sizeof *ask, fds, count, deadline);
    if (rc == 0)
        rc = receive_answer(socket, ask, ret, got, &got_count, deadline);
    for (size_t i = 0; i < got_count; i++)
        (void)close(got[i]);
    *ret_failed = rc < 0;
    return rc < 0 ? rc : ret->status;
}

/* Connects and says `op`; the pid from a HELLO. Returns a socket or -errno. */
static int connect_for(const struct keeper_client *client, enum keeper_wire_op op, pid_t *ret_pid,
                       int64_t deadline)
{
    struct keeper_wire ask = {.op = op};
    struct keeper_wire answer = {.text = ""};
    bool failed;
    cleanup_fd int fd = wire_connect(client->run_fd, KEEPER_SOCKET_NAME, deadline);
    if (fd < 0)
        return fd;
    int rc = exchange(fd, &ask, NULL, 0, &answer, deadline, &failed);
    if (rc < 0)
        return rc;
    if (ret_pid)
        *ret_pid = (pid_t)answer.arg[0];
    return steal_fd(&fd);
}

static void set_events(struct keeper_client *client, int fd)
{
    pthread_mutex_lock(&client->event_lock);
    cleanup_fdp(&client->events);
    client->events = fd;
    client->ended = false;
    pthread_mutex_unlock(&client->event_lock);
}

static bool is_hung_up(int fd)
{
    struct pollfd poll_fd = {.fd = fd};
    return poll(&poll_fd, 1, 0) > 0;
}

bool keeper_client_is_connected(struct keeper_client *client)
{
    pthread_mutex_lock(&client->event_lock);
    bool yes = client->events >= 0 && !client->ended && !is_hung_up(client->events);
    pthread_mutex_unlock(&client->event_lock);
    return yes;
}

/* Both connections to whoever answers. 1: another keeper than before, 0, or -errno. */
static int connect_both(struct keeper_client *client, int64_t deadline)
{
    pid_t pid = 0;
    cleanup_fd int requests = connect_for(client, KEEPER_WIRE_HELLO, &pid, deadline);
    if (requests < 0)
        return requests;
    bool same = keeper_client_is_connected(client) && pid == client->pid;
    int events = same ? -1 : connect_for(client, KEEPER_WIRE_EVENTS, NULL, deadline);
    /* Between the two keeper may have been replaced. */
    if (!same && (events < 0 || is_hung_up(requests))) {
        cleanup_fdp(&events);
        return events < 0 ? events : -ECONNRESET;
    }
    if (!same)
        set_events(client, events);
    cleanup_fdp(&client->requests);
    client->requests = steal_fd(&requests);
    client->pid = pid;
    return !same;
}

/* Between begin() and end(). */
static int connect_or_start(struct keeper_client *client, bool start, int64_t deadline,
                            struct err *err)
{
    for (;;) {
        int rc = connect_both(client, deadline);
        if (rc >= 0)
            return rc;
        bool absent = rc == -ENOENT || rc == -ECONNREFUSED;
        if (absent && !start)
            return err_fail(err, ERR_NOT_FOUND, "no varve-keeper runs for %s", client->run_path);
        if (!absent && rc != -ECONNRESET)
            return wire_fail(err, rc, NULL, "cannot connect to varve-keeper");
        rc = absent ? keeper_start(client->program, client->run_path, deadline, err) : 0;
        if (rc == 0)
            rc = wire_pause(deadline); /* also when one is about to end */
        if (rc < 0)
            return wire_fail(err, rc, NULL, "cannot start varve-keeper");
    }
}

int keeper_client_connect(struct keeper_client *client, bool start, int wait_ms, struct err *err)
{
    const int64_t deadline = wire_deadline(wait_ms);
    int rc = begin(client, deadline, err);
    if (rc < 0)
        return rc;
    if (client->requests < 0 || !keeper_client_is_connected(client))
        rc = connect_or_start(client, start, deadline, err);
    end(client);
    return rc;
}

pid_t keeper_client_pid(struct keeper_client *client)
{
    return client->pid;
}

static int kill_keeper(struct keeper_client *client, int64_t deadline, struct err *err)
{
    cleanup_fd int fd = wire_connect(client->run_fd, KEEPER_SOCKET_NAME, deadline);
    if (fd == -ENOENT || fd == -ECONNREFUSED)
        return 0;
    if (fd < 0)
        return wire_fail(err, fd, NULL, "cannot connect to varve-keeper");
    return keeper_start_kill(fd, deadline, err);
}

int keeper_client_replace(struct keeper_client *client, int wait_ms, struct err *err)
{
    const int64_t deadline = wire_deadline(wait_ms);
    int rc = begin(client, deadline, err);
    if (rc < 0)
        return rc;
    rc = kill_keeper(client, deadline, err);
    if (rc == 0)
        rc = connect_or_start(client, true, deadline, err);
    end(client);
    return rc;
}

/* Between begin() and end(): a connection for requests to the keeper whose events we get. */
static int ensure_requests(struct keeper_client *client, int64_t deadline)
{
    pid_t pid = 0;
    if (!keeper_client_is_connected(client))
        return -ECONNRESET;
    if (client->requests >= 0)
        return 0;
    cleanup_fd int fd = connect_for(client, KEEPER_WIRE_HELLO, &pid, deadline);
    if (fd < 0)
        return fd == -ENOENT || fd == -ECONNREFUSED ? -ECONNRESET : fd;
    if (pid != client->pid)
        return -ECONNRESET;
    client->requests = steal_fd(&fd);
    return 0;
}

/* Between begin() and end(). Answers of a connection that failed may come late. */
static void give_up(struct keeper_client *client, int rc)
{
    cleanup_fdp(&client->requests);
    client->requests = -1;
    if (rc == -ECONNRESET)
        client->ended = true;
}

static int request(struct keeper_client *client, struct keeper_wire *ask, const int *fds,
                   size_t count, struct keeper_wire *ret, const char *what, int wait_ms,
                   struct err *err)
{
    const int64_t deadline = wire_deadline(wait_ms);
    bool failed = true;
    int rc = begin(client, deadline, err);
    if (rc < 0)
        return rc;
    ret->text[0] = '\0';
    rc = ensure_requests(client, deadline);
    if (rc == 0)
        rc = exchange(client->requests, ask, fds, count, ret, deadline, &failed);
    if (rc < 0 && failed)
        give_up(client, rc);
    end(client);
    if (rc == -ECONNRESET)
        return fail_gone(err);
    return rc < 0 ? wire_fail(err, rc, ret->text, "varve-keeper cannot %s%s", what, ask->id) : rc;
}

int keeper_client_hello(struct keeper_client *client, uint64_t *ret_held, int wait_ms,
                        struct err *err)
{
    struct keeper_wire ask = {.op = KEEPER_WIRE_HELLO};
    struct keeper_wire answer;
    int rc = request(client, &ask, NULL, 0, &answer, "answer", wait_ms, err);
    if (rc == 0 && ret_held)
        *ret_held = answer.arg[1];
    return rc;
}

static int set_id(struct keeper_wire *ask, const char *id, struct err *err)
{
    if (strlen(id) >= sizeof ask->id)
        return err_fail(err, ERR_INVALID, "'%.40s' is no ID of a volume", id);
    (void)snprintf(ask->id, sizeof ask->id, "%s", id);
    return 0;
}

int keeper_client_hold(struct keeper_client *client, const char *id, const char *directory,
                       const struct volume_fds *fds, int wait_ms, struct err *err)
{
    struct keeper_wire ask = {.op = KEEPER_WIRE_HOLD};
    struct keeper_wire answer;
    int array[VOLUME_FDS_MAX];
    int count = volume_fds_to_array(fds, array);
    int rc = set_id(&ask, id, err);
    if (rc < 0)
        return rc;
    if (strlen(directory) >= sizeof ask.directory)
        return err_fail(err, ERR_TOO_LARGE, "the path of volume %s has more than %zu bytes", id,
                        sizeof ask.directory - 1);
    (void)snprintf(ask.directory, sizeof ask.directory, "%s", directory);
    return request(client, &ask, array, (size_t)count, &answer, "hold volume ", wait_ms, err);
}

static int plain(struct keeper_client *client, enum keeper_wire_op op, const char *id,
                 const char *what, int wait_ms, struct err *err)
{
    struct keeper_wire ask = {.op = op};
    struct keeper_wire answer;
    int rc = set_id(&ask, id, err);
    return rc < 0 ? rc : request(client, &ask, NULL, 0, &answer, what, wait_ms, err);
}

int keeper_client_start(struct keeper_client *client, const char *id, int wait_ms, struct err *err)
{
    return plain(client, KEEPER_WIRE_START, id, "start a worker for volume ", wait_ms, err);
}

int keeper_client_stay(struct keeper_client *client, const char *id, int wait_ms, struct err *err)
{
    return plain(client, KEEPER_WIRE_STAY, id, "let rest volume ", wait_ms, err);
}

int keeper_client_drop(struct keeper_client *client, const char *id, int wait_ms, struct err *err)
{
    return plain(client, KEEPER_WIRE_DROP, id, "let go of volume ", wait_ms, err);
}

/* One volume of a list. What `take` leaves of the descriptors is closed. */
static int give(const struct keeper_wire *answer, const int *fds, size_t count,
                keeper_held_take *take, void *arg, struct err *err)
{
    struct keeper_held held = {.id = answer->id,
                               .directory = answer->directory,
                               .worker = (pid_t)answer->arg[0],
                               .wanted = answer->arg[1] != 0,
                               .fds = volume_fds_from_array(fds, (int)count)};
    int rc = take(arg, &held, err);
    volume_fds_close(&held.fds);
    return rc;
}

/* Between begin() and end(). 0 or -errno of the connection; what `take` returned is in `ret_taken`.
 */
static int read_list(struct keeper_client *client, keeper_held_take *take, void *arg,
                     int64_t deadline, int *ret_taken, struct err *err)
{
    struct keeper_wire answer = {.text = ""};
    struct keeper_wire ask = {
        .magic = KEEPER_WIRE_MAGIC, .version = KEEPER_WIRE_VERSION, .op = KEEPER_WIRE_LIST};
    int fds[KEEPER_FDS_MAX];
    size_t count;
    int rc = wire_send(client->requests, &ask, sizeof ask, NULL, 0, deadline);
    while (rc == 0) {
        rc = receive_answer(client->requests, &ask, &answer, fds, &count, deadline);
        if (rc == 0 && answer.status < 0)
            rc = answer.status;
        if (rc == 0 && answer.more == 0)
            return 0;
        if (rc == 0 && count < VOLUME_FDS_MUST)
            rc = -EBADMSG;
        if (rc == 0 && *ret_taken >= 0)
            *ret_taken = give(&answer, fds, count, take, arg, err);
        else
            for (size_t i = 0; i < count; i++)
                (void)close(fds[i]);
    }
    return rc;
}

int keeper_client_list(struct keeper_client *client, keeper_held_take *take, void *arg, int wait_ms,
                       struct err *err)
{
    const int64_t deadline = wire_deadline(wait_ms);
    int taken = 0;
    int rc = begin(client, deadline, err);
    if (rc < 0)
        return rc;
    rc = ensure_requests(client, deadline);
    if (rc == 0)
        rc = read_list(client, take, arg, deadline, &taken, err);
    if (rc < 0)
        give_up(client, rc);
    end(client);
    if (taken < 0)
        return taken;
    if (rc == -ECONNRESET)
        return fail_gone(err);
    return rc < 0 ? wire_fail(err, rc, NULL, "varve-keeper cannot list its volumes") : 0;
}

int keeper_client_event_fd(struct keeper_client *client)
{
    pthread_mutex_lock(&client->event_lock);
    int fd = client->events;
    pthread_mutex_unlock(&client->event_lock);
    return fd;
}

int keeper_client_event(struct keeper_client *client, struct keeper_client_event *ret,
                        struct err *err)
{
    struct keeper_wire message;
    size_t count = 0;
    pthread_mutex_lock(&client->event_lock);
    int rc = client->events < 0 ? -ECONNRESET
                                : wire_receive(client->events, &message, sizeof message, NULL, 0,
                                               &count, wire_deadline(0));
    if (rc == -ECONNRESET)
        client->ended = true;
    pthread_mutex_unlock(&client->event_lock);
    if (rc == -ETIMEDOUT)
        return 0;
    if (rc == 0 && (message.magic != KEEPER_WIRE_MAGIC || message.op != KEEPER_WIRE_EVENT))
        rc = -EBADMSG;
    if (rc == -ECONNRESET)
        return fail_gone(err);
    if (rc < 0)
        return wire_fail(err, rc, NULL, "cannot hear varve-keeper");
    *ret = (struct keeper_client_event){.event = (enum keeper_event)message.arg[0],
                                        .worker = (pid_t)message.arg[1],
                                        .value = message.arg[2],
                                        .lost = message.arg[3]};
    memcpy(ret->id, message.id, sizeof ret->id - 1);
    return 1;
}
