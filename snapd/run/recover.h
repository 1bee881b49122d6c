/* recover.h - job "recover": what is not as it should be on this node, and what was done about it.
 *
 * Params: {"plan"?: true}: only tell. The daemon does the same at each start (run_recover(),
 * workspace_recover()); this is for the time in between, when somebody unmounted a run or
 * a workspace, or a removal could not be finished.
 *
 * Result: {"plan": bool, "items": [{"object", "found", "action", "failed": bool}]}, empty when all
 * is well. Repeating it reports only what it leaves alone or could not mend.
 *
 *   found                                            action
 *   a run that is ready and not mounted, or its      mounted again
 *   volume isn't
 *   a run half made or half removed, without a job   removed
 *   RUN/layers/X that no run stands on               unmounted
 *   RUN/runs/X that no run has                       unmounted when idle, removed
 *   a workspace that is not mounted where it         attached, checked, mounted again
 *   should be
 *   a workspace half made or half removed, without   removed
 *   a job; half unmounted; attached for nothing      unmounted, detached
 *   a volume that is attached and no workspace's     detached when idle
 *   DATA/volumes/X that no workspace has             left: it may be the only copy of something
 *                                                    (I4)
 *   DATA/runs/X that no run has                      left: it may be the only copy of something
 *                                                    (I4)
 *   an entry of DATA/tmp older than every running    removed
 *   job, a layer image without a row
 *
 * A run that a job works on is that job's. What one object needs never keeps the others (I9).
 */
#pragma once

#include "engine.h"

extern const struct job_kind recover_job;
