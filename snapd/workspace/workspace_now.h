/* workspace_now.h - what a mounted workspace is at this moment, to look at.
 *
 *   "workspace.now"  {"workspace": "NAME", "path", "consistency"?, "freeze_budget_ms"?}
 *
 * A view of an open epoch: a workspace of its own, "NAME@now-" and six hex digits of its job's ID,
 * mounted read-only. It needs no remote and no checkpoint: the source is cut (workspace_epoch.h),
 * and the view's volume, made in milliseconds, brings what is read from there. ext4 replays its
 * journal in the view, which writes to the view alone. `consistency` is that of the cut
 * (workspace_consistency.h).
 *
 * Limits: LIVE_EPOCHS_VIEWS_MAX views of one workspace at a time, one more is ERR_CONFLICT. While
 * one is open, whatever is written to the source for the first time since its cut is set aside
 * before.
 *
 * Its end: it goes with its unmount. The source stays attached for it: an unmount of the source
 * takes its path away and leaves it detaching, as for others who hold on, until the last view has
 * gone; removing it and putting it back are ERR_CONFLICT and name the view. Who gives the source up
 * (`--abandon`) gives its views up: what reads them gets errors, as when the source dies for good,
 * when what it was cannot be set aside (the host's disk is full), and when the host was restarted.
 *
 * What reads a run or a workspace for a while, as a capture does, uses workspace_now_open().
 */
#pragma once

#include "engine.h"
#include "workspace_consistency.h"
#include "workspace_internal.h"

extern const struct job_kind workspace_now_job;

#define WORKSPACE_NOW_WORD "now"

/* The name of the view that a job makes. `workspace` may be a run's ("run:ID"): without that word.
 */
void workspace_now_name(const char *workspace, const char *job, char ret[WORKSPACE_NAME_MAX]);
struct workspace_now {
    char name[WORKSPACE_NAME_MAX]; /* of the view; "": there is none */
};
/* Mounts a view of a workspace (or of "run:ID") at `path`, for the work of a job: at most one a
 * job, and the same one when the job runs again. The caller closes it, also when an earlier attempt
 * of the job has opened it; a failure leaves none. ERR_CONFLICT: it is not mounted, or as many are
 * open as can be. */
int workspace_now_open(struct job *job, const char *workspace, const char *path,
                       const struct workspace_stillness *how, struct workspace_now *ret,
                       struct err *err);
/* Unmounts and removes it. ERR_CONFLICT names who uses it. */
int workspace_now_close(struct job *job, const struct workspace_now *now, struct err *err);
