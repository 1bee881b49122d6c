/* volume_control.h - the control socket and the heartbeat (volume_wire.h).
 *
 * volume_control_run() is the main thread: it accepts, receives and answers what needs no disk, and
 * writes the heartbeat each second. So the heartbeat says that this loop turns, and a disk that
 * hangs is not taken for a worker that does. What needs the disk (FLUSH, RESIZE, CLOSE) is done by
 * one more thread, in the order in which it came, and answered by it. A connection on which FETCH
 * was asked for is given away (volume_fetch_io.h).
 *
 * Peers must be root; others are hung up on. At most VOLUME_CONTROL_PEERS at once, further ones
 * wait in the socket's queue. A message that is cut, or of another magic or version, ends its
 * connection. Signals do not end a worker, as nothing may be thrown away: SIGTERM and SIGINT are
 * followed only once the volume is closed.
 */
#pragma once

#include "volume.h"
#include "volume_wire.h"

enum {
    VOLUME_CONTROL_PEERS = 16,
};

struct volume_peer {
    int fd;    /* owned; -1: free */
    bool busy; /* the work thread has its message; the main thread leaves it alone */
    uint64_t order;
    struct volume_wire message;
    uint64_t result; /* arg[0] of the answer */
};

struct volume_control {
    struct volume *volume; /* borrowed */
    int listen_fd;         /* borrowed */
    int signal_fd;         /* owned */
    int wake_fd;           /* owned: the work thread has finished something */
    pthread_mutex_t lock;  /* peers[].busy, orders */
    pthread_cond_t work;
    uint64_t orders;
    struct volume_peer peers[VOLUME_CONTROL_PEERS];
};

/* The signals SIGTERM, SIGINT, SIGHUP must be blocked in all threads. */
int volume_control_open(struct volume_control *control, struct volume *volume, int listen_fd,
                        struct err *err);
/* Runs until the worker is to end; returns the exit status (enum in volume_format.h). */
int volume_control_run(struct volume_control *control);
/* Body of the work thread; does not return. */
void volume_control_work(struct volume_control *control);
