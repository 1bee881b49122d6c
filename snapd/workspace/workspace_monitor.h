/* workspace_monitor.h - what happens to workspaces while nobody asks for anything.
 *
 * Three threads, so that nothing slow keeps the watch from its work:
 *
 *   watch  volumes_watch() all the time: keeper and workers are mended within a second. Once
 *          a second: events, rates and limits (workspace_limits.h), the reserve (workspace_disk.h)
 *   mend   volumes that died are brought back; those whose writes have waited for the disk for
 *          longer than [volume] disk_wait, or whose disk has failed, are fenced; an unmount whose
 *          last holder has gone is finished (workspace_mend.h)
 *   trim   once an hour each mounted workspace gives the space of removed files back to the host,
 *          if anything was written since; spread over the hour (workspace_trim.h)
 *
 * A workspace that a job works on is left to the job and looked at again later
 * (workspace_claim.h).
 */
#pragma once

#include "err.h"
#include "node.h"

struct workspace_monitor;

/* After workspace_recover(). */
int workspace_monitor_start(struct node *node, struct workspace_monitor **ret, struct err *err);
/* Waits for the threads. NULL is fine. */
void workspace_monitor_stop(struct workspace_monitor *monitor);
