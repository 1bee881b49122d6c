/* keeper.h - varve-keeper: holds the descriptors of every attached volume, and starts dead workers
 * again.
 *
 * One for a node. varved starts it when there is none, and it outlives varved. Three processes hold
 * a volume's /dev/fuse and live map (varved, keeper, worker), so that any two may die (I10). Keeper
 * has no state of its own that matters: when it is killed, varved starts another one and tells it
 * everything again (format/volume_wire.h), and workers do not notice. So it keeps nothing on disk.
 *
 * So that nothing holds it up when the host is short of memory or its disk stands still: tables are
 * static, memory is locked, and after the start its own process opens, reads and writes no file and
 * allocates nothing. One thread, one epoll, no call that waits. A worker is forked, not vforked:
 * the exec of its program may have to read from the disk. Only keeper_main.c has calls that break
 * these rules, before the loop begins; tests/lint/lint_keeper.py looks.
 *
 * Signals: SIGTERM, SIGINT and SIGHUP are ignored, as whoever ends a group of processes, or a
 * terminal, means varved; keeper ends when it has held nothing and heard of nobody for
 * KEEPER_IDLE_S. SIGPIPE is ignored: a peer that goes is no reason to die. SIGKILL is always right.
 * It writes no log; what it has to tell are events. Its standard error, RUN/keeper.log, is for the
 * workers.
 *
 * A dead worker is started again at once. When workers die within QUICK of their start again and
 * again, the second waits BACKOFF_MIN, and each next twice as long, up to BACKOFF_MAX. One whose
 * heartbeat stops is killed first. On kernels before 6.9 a dead worker that had served is left
 * dead, and a silent one alone, as a successor could not answer what was asked.
 *
 * Times are CLOCK_MONOTONIC in nanoseconds.
 */
#pragma once

#include "live_map.h"
#include "volume_wire.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    KEEPER_CONNECTIONS_MAX = 16,
    KEEPER_FDS_SPARE = 64,    /* left for connections and messages when volumes are counted */
    KEEPER_LOG_MAX = 1 << 20, /* a longer one is emptied when a worker starts */
    KEEPER_FDS_FIRST = 8, /* lower numbers are taken for good, so that a worker's own are free */
};
#define KEEPER_MS          INT64_C(1000000)
#define KEEPER_QUICK       (100 * KEEPER_MS)
#define KEEPER_BACKOFF_MIN (10 * KEEPER_MS)
#define KEEPER_BACKOFF_MAX (1000 * KEEPER_MS)

struct keeper_volume {
    char id[16]; /* "": a free place */
    char directory[KEEPER_DIRECTORY_MAX];
    int fds[KEEPER_FDS_MAX]; /* fuse, live map, listening socket, program; pidfd of the worker or -1
                              */
    struct live_map_header *live;
    pid_t pid;       /* of the worker, the last one when there is none */
    bool is_child;   /* else another keeper started it */
    bool is_watched; /* its pidfd is in the epoll; else it is looked at each round */
    bool is_silent;  /* told, and killed if that helps */
    bool is_short;   /* no process could be made; told */
    bool is_wanted;  /* START was the last word */
    unsigned quick;  /* deaths and failures within QUICK, one after the other */
    int64_t started; /* when the worker was started, or was handed over */
    int64_t due;     /* when it is to be started; 0: it is not */
};
enum {
    KEEPER_FD_PIDFD = 4, /* in `fds` */
};
static inline bool keeper_has_worker(const struct keeper_volume *volume)
{
    return volume->fds[KEEPER_FD_PIDFD] >= 0;
}

struct keeper_connection {
    int fd;              /* -1: a free place */
    uint32_t interest;   /* what the epoll waits for */
    bool has_answer;     /* waits until the peer reads */
    bool has_events;     /* asked for */
    int list_next;       /* place of the volume that LIST tells next; -1: none is under way */
    uint64_t event_next; /* number of the next event */
    struct keeper_wire answer;
};

struct keeper {
    int epoll;
    int listener;
    int volumes_max; /* KEEPER_VOLUMES_MAX, or fewer when descriptors are short */
    int volume_count;
    int64_t now; /* set once a round */
    int64_t last_round;
    int64_t awake;   /* silence is counted from here at the earliest */
    int64_t silence; /* bounds */
    int64_t begin_silence;
    int64_t idle_since; /* 0: busy */
    struct keeper_volume volumes[KEEPER_VOLUMES_MAX];
    struct keeper_connection connections[KEEPER_CONNECTIONS_MAX];
    struct keeper_wire events[KEEPER_EVENTS_KEPT]; /* event n is at n modulo the size */
    uint64_t event_count;
    uint64_t event_heard; /* events before this one were sent to somebody */
#ifdef VARVE_FAULT_POINTS
    void (*fault)(const char *point); /* of keeper_main.c */
#endif
};

/* Where a test may have keeper killed. */
#ifdef VARVE_FAULT_POINTS
#define KEEPER_FAULT(keeper, point) ((keeper)->fault(point))
#else
#define KEEPER_FAULT(keeper, point) ((void)0)
#endif

/* What an epoll event is of: kind in the upper half, number in the lower one. */
enum keeper_source {
    KEEPER_LISTENER = 1,
    KEEPER_CONNECTION,
    KEEPER_WORKER,  /* a volume's place */
    KEEPER_DROPPED, /* pidfd of a child whose volume was dropped */
};
static inline uint64_t keeper_tag(enum keeper_source source, int number)
{
    return (uint64_t)source << 32 | (uint32_t)number;
}

/* keeper_loop.c: serves until nobody needs keeper any more. */
void keeper_loop(struct keeper *keeper);
/* Adds or changes what the epoll waits for; 0 or -errno. */
int keeper_watch(const struct keeper *keeper, int op, int fd, uint32_t events, uint64_t tag);

/* keeper_socket.c: connections. */
void keeper_socket_accept(struct keeper *keeper);
void keeper_socket_ready(struct keeper *keeper, int number, uint32_t events);
void keeper_socket_send_events(struct keeper *keeper);
bool keeper_socket_has_any(const struct keeper *keeper);
/* Something happened to the worker of a volume. */
void keeper_socket_event(struct keeper *keeper, const struct keeper_volume *volume,
                         enum keeper_event event, uint64_t value);

/* keeper_volumes.c: requests about volumes; 0 or -errno with `ret_text` saying why. Descriptors
 * that HOLD takes over are set to -1. */
int keeper_volumes_hold(struct keeper *keeper, const struct keeper_wire *request,
                        int fds[KEEPER_FDS_MAX], int count, const char **ret_text);
int keeper_volumes_start(struct keeper *keeper, const char *id, const char **ret_text);
int keeper_volumes_stay(struct keeper *keeper, const char *id, const char **ret_text);
int keeper_volumes_drop(struct keeper *keeper, const char *id);

/* keeper_child.c: workers. */
/* Starts one now, or sets when it is tried again. */
void keeper_child_start(struct keeper *keeper, struct keeper_volume *volume);
/* Watches `fds[KEEPER_FD_PIDFD]` from now on. */
void keeper_child_watch(struct keeper *keeper, struct keeper_volume *volume, pid_t pid,
                        bool is_child);
/* Looks whether the worker has ended, and does what is to be done then. */
void keeper_child_reap(struct keeper *keeper, struct keeper_volume *volume);
/* Lets go of a worker that lives. */
void keeper_child_release(struct keeper *keeper, struct keeper_volume *volume);
/* A child whose volume was dropped has ended. */
void keeper_child_bury(const struct keeper *keeper, int pidfd);
/* Whether another worker could answer what a dead one was asked. */
bool keeper_child_helps(const struct keeper_volume *volume);
/* Starts that are due, silence. Returns when to look again. */
int64_t keeper_child_round(struct keeper *keeper);
