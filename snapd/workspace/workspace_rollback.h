/* workspace_rollback.h - a workspace as it was at a checkpoint.
 *
 *   "workspace.rollback"  {"name", "checkpoint"}
 *
 * One that is mounted is unmounted, put back, and mounted again at its path; in use it is a
 * conflict that names the processes, and nothing has changed. What it is now is kept before: a
 * checkpoint with the reason "pre-rollback", from which it can be had again.
 *
 *   unmount, detach -> checkpoint -> the volume is exchanged (volumes_replace_from) -> catalog ->
 *   mount
 *
 * The volume says what it is made of, and so does the catalog, which is written second: between the
 * two nothing serves the volume (workspace_line_check()), and the job goes on after a kill. A
 * failure before the exchange mounts it as it was.
 *
 * A volume that was larger is as large as it was then. Result: the workspace's document with
 * "before": the digest of the checkpoint that keeps what it was.
 */
#pragma once

#include "engine.h"

extern const struct job_kind workspace_rollback_job;
