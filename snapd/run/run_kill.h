/* run_kill.h - ends whatever uses a run, for a caller who was told to (`--kill`).
 *
 * SIGKILL to every process that mount_users.h finds, again and again until none is left and the
 * run's lock is free, at most RUN_KILL_WAIT_MS. Sandboxes of `run exec` are ended by their process
 * 1, which has its root there; the client then lets go of the lock. Who holds the lock without a
 * process in the run is not touched: when the time is over that is ERR_CONFLICT, as is a process
 * that does not die (one that hangs in the kernel). Never process 1 of the host, nor this one.
 */
#pragma once

#include "node.h"

enum {
    RUN_KILL_WAIT_MS = 10 * 1000,
    RUN_KILL_PAUSE_MS = 20,
    RUN_KILL_MAX = 65536, /* processes that are counted */
};

/* Returns the descriptor that holds the lock, as run_lock_idle(). *ret_killed is the number of
 * processes that used the run and were ended, by the signal or with their process 1. */
int run_kill_idle(struct node *node, const char *id, int *ret_killed, struct err *err);
