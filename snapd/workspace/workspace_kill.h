/* workspace_kill.h - ends whatever uses a mounted workspace, for a caller who was told to
 * (`--kill`).
 *
 * Job: unmounts the workspace. While processes use it, whatever their mount namespace, each gets
 * SIGKILL, by a descriptor that was opened before it was looked at, and the unmount is tried again:
 * new ones may come meanwhile, and dying takes a moment. After WORKSPACE_KILL_WAIT_MS, or as soon
 * as nobody is left who may be killed (the kernel's own users; a freeze), it is the ERR_CONFLICT of
 * the unmount, which names who holds on; the workspace is mounted then as before.
 *
 * Never killed: process 1, varved, its keeper, workers and helper programs, and who asked for the
 * job. If one of them uses the workspace nobody is killed at all, and the failure names it.
 *
 * Each process that got the signal is in the log and in `killed`, those beyond WORKSPACE_KILL_SHOWN
 * in the log alone.
 */
#pragma once

#include "catalog_workspace.h"
#include "engine.h"

enum {
    WORKSPACE_KILL_WAIT_MS = 10 * 1000,
    WORKSPACE_KILL_PAUSE_MS = 20,
    WORKSPACE_KILL_SHOWN = 1000,
};

/* Whether a process is a call, or a tool, of this very one (deadline_child.h): it ends by itself.
 */
bool workspace_kill_is_own_call(pid_t pid);
/* Unmounts what the row says is mounted; the caller has the claim. `killed` (an array; its owner is
 * the caller) gets {"pid", "name"} of each; NULL: nobody is killed. Whoever cancels the job ends
 * its waits. */
int workspace_kill_unmount(struct job *job, const struct catalog_workspace *row, json_t *killed,
                           struct err *err);
