/* keeper_client.h - varved's side of RUN/keeper.sock, and the start of varve-keeper.
 *
 * A client has two connections to one keeper: one for requests, one for events. It is opened
 * unconnected; keeper_client_connect() connects, and starts keeper when nobody answers. When keeper
 * ends or is killed, each call says so (-ECONNRESET), keeper_client_is_connected() is false, and
 * the event descriptor becomes readable. Then connect again: the new keeper holds nothing, and the
 * caller gives it everything.
 *
 * Deadlines: every call has one, in milliseconds, for all that it does. A keeper that does not
 * answer by then (stopped, or starved) is left connected, but the connection for requests is taken
 * down, as its answers would come late; the call ends with ERR_UNREACHABLE. Whether it is to be
 * replaced is the caller's decision; keeper_client_replace() does it.
 *
 * Two programs, or threads, that start keeper at once end up with one: keeper holds a lock, and
 * whoever meets it connects to the winner.
 *
 * Threads: any function from any thread. Requests, connect and replace take turns: one waits for
 * the one before it, within its own deadline. keeper_client_event() and keeper_client_event_fd()
 * wait for nobody.
 *
 * Descriptors that are received are close-on-exec, and counted: what does not fit is closed and an
 * error.
 *
 * What it does not do: decide what is held (volumes.h), read live maps.
 */
#pragma once

#include "err.h"
#include "volume_fds.h"
#include "volume_wire.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    KEEPER_CLIENT_WAIT_MS = 10000, /* after which a keeper that does not answer may be replaced */
};

struct keeper_client_options {
    int run_fd;           /* RUN; borrowed for the life of the client */
    const char *run_path; /* absolute; copied */
    const char *program;  /* of varve-keeper; NULL: as spawn_find() finds it; copied */
};

struct keeper_client;

/* Connects to nothing yet. */
int keeper_client_open(const struct keeper_client_options *options, struct keeper_client **ret,
                       struct err *err);
/* Keeper goes on. NULL is fine. */
void keeper_client_close(struct keeper_client *client);

/* Connects to keeper, starting it when none is there and `start` is true; ERR_NOT_FOUND when it is
 * false. Does nothing when connected. Returns 1 when the keeper is another one than the client was
 * connected to before (the first one counts as another), else 0. */
int keeper_client_connect(struct keeper_client *client, bool start, int wait_ms, struct err *err);
/* Cheap, never waits. False from the moment that keeper has ended. */
bool keeper_client_is_connected(struct keeper_client *client);
/* Of the keeper that the client was connected to last; 0: none. */
pid_t keeper_client_pid(struct keeper_client *client);
/* Kills the keeper that holds RUN's lock, or whoever answers (that it does not answer is the
 * reason), waits for its end, and connects to a new one, as keeper_client_connect(). Workers go on.
 */
int keeper_client_replace(struct keeper_client *client, int wait_ms, struct err *err);

/* Requests; what they mean stands in volume_wire.h. */

/* `ret_held`, the number of volumes that it holds, may be NULL. */
int keeper_client_hello(struct keeper_client *client, uint64_t *ret_held, int wait_ms,
                        struct err *err);
/* The descriptors are borrowed. ERR_EXISTS: keeper holds another live map under this ID. */
int keeper_client_hold(struct keeper_client *client, const char *id, const char *directory,
                       const struct volume_fds *fds, int wait_ms, struct err *err);
int keeper_client_start(struct keeper_client *client, const char *id, int wait_ms, struct err *err);
int keeper_client_stay(struct keeper_client *client, const char *id, int wait_ms, struct err *err);
int keeper_client_drop(struct keeper_client *client, const char *id, int wait_ms, struct err *err);

struct keeper_held {
    const char *id;
    const char *directory;
    pid_t worker;          /* 0: none lives */
    bool wanted;           /* it is started again */
    struct volume_fds fds; /* owned by the callback's caller; take what is needed out (steal_fd) */
};
typedef int keeper_held_take(void *arg, struct keeper_held *held, struct err *err);
/* Calls `take` for each volume. When it fails the rest is read and closed, and its failure
 * returned. It must not call this client. */
int keeper_client_list(struct keeper_client *client, keeper_held_take *take, void *arg, int wait_ms,
                       struct err *err);

struct keeper_client_event {
    enum keeper_event event;
    char id[16];
    pid_t worker;
    uint64_t value; /* arg[2] of the message */
    uint64_t lost;  /* events before this one that nobody will hear of */
};
/* For poll(2): readable when an event, or keeper's end, can be taken. -1 when not connected. It
 * changes with each connect. */
int keeper_client_event_fd(struct keeper_client *client);
/* Takes the next event: 1, 0 when there is none, -ECONNRESET when keeper has ended. Never waits. */
int keeper_client_event(struct keeper_client *client, struct keeper_client_event *ret,
                        struct err *err);
