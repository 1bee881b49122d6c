/* workspace_rollback.h - a workspace as it was at a checkpoint.
 *
 *   "workspace.rollback"  {"name", "checkpoint", "kill"?, "token"?}   token: workspace_token.h
 *
 * One that is mounted is unmounted, put back, and mounted again at its path; in use it is a
 * conflict that names the processes, and nothing has changed. With "kill" they are ended
 * (workspace_kill.h), once it is known that the checkpoint is whole, and that the disk bears its
 * size, which is admitted as a resize to it (workspace_admission.h). What it is now is kept before:
 * a checkpoint with the reason "pre-rollback", from which it can be had again.
 *
 *   unmount, detach -> checkpoint -> mark in the catalog -> the volume is exchanged
 *   (volumes_replace_from) -> catalog -> mount
 *
 * With the mark nothing serves the volume (workspace_line_check()), whatever it is at that moment,
 * and the job goes on after a kill, or is repeated after a failure. A failure or a cancel before
 * the mark mounts it as it was; what the exchange needs of the remote has been read before. While a
 * checkpoint of the workspace is being stored it is a conflict, as that would become the head of
 * what the volume is no more.
 *
 * A volume that was larger is as large as it was then. A fork stands on a checkpoint of its own
 * afterwards, and lets go of its source's. Result: the workspace's document with "before": the
 * digest of the checkpoint that keeps what it was, and "killed", where that was asked for: those
 * that were, {"pid", "name"} of each.
 */
#pragma once

#include "engine.h"

extern const struct job_kind workspace_rollback_job;
