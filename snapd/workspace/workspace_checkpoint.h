/* workspace_checkpoint.h - jobs that store a workspace's volume in the remote.
 *
 *   "workspace.checkpoint"  {"name", "consistency"?, "freeze_budget_ms"?, "durability"?}
 *                                                       consistency: workspace_consistency.h;
 *                                                       "sync" is the default.
 *                                                       durability "pushed" (the default) or
 *                                                       "verified": it is read back
 *
 * Its object is "checkpoint:NAME", so one checkpoint of a workspace is made at a time, and jobs
 * that mount, grow or remove it go on meanwhile.
 *
 * Steps: the remote is asked for the volume's head; the volume is cut, for which the job has the
 * workspace's claim; what changed since the parent is stored (checkpoint_write.h); the catalog gets
 * the row, and the volume its new head. A workspace that is not attached is attached for it and
 * detached again.
 *
 * The parent is the volume's head, or the checkpoint that it was made of. When the remote has
 * another head than that, somebody else has gone on with the volume: then the new one is stored
 * beside it, as diverged, and the result and an event say so (I8). So it is when a tag that comes
 * after the head names nothing that can be read. This is looked at once more when the index is
 * stored, in one step with it where the remote can. Who has a lower fencing token than the remote
 * shows is refused (workspace_token.h).
 *
 * When the remote has lost or damaged the parent, which is found out when it is opened or while it
 * is read, the volume is cut again and stored without it: on what it was made of, if that can be
 * opened, else as a whole, if all of it is here. The parent stays its parent in name.
 *
 * At "verified" everything that it stands on is read back after the record says "pushed", but for
 * packs of the nearest checkpoint before it that was verified. A failure there fails the job, and
 * the checkpoint stays what it was recorded as.
 *
 * Failure: nothing of the workspace has changed; its chunks go into the next checkpoint. An unmount
 * in the middle ends the job with ERR_CONFLICT. Killed at any point, the job runs again and
 * cuts anew (of the old epoch chunks may be gone that had been read); what had been recorded before
 * is its parent then, so it stores what was written since.
 *
 * Result: {"name", "id", "checkpoint" (digest of the index), "reference", "generation", "parent",
 * "unchanged" (nothing was to be stored: it is the parent), "diverged", "parent_lost" (the remote
 * has lost what it would have been built on), "durability", "token" (0: none), "tag",
 * "consistency", "frozen_by" ("varve", "other", or null), "bytes_new", "bytes_total", "chunks"
 * {"read", "stored", "all"}, "ms" {"sync", "freeze", "frozen", "cut", "store"}}. ms.cut is how long
 * requests of the volume waited, at most; writers inside waited for "freeze" (the call that
 * freezes) and "frozen" (from its return to the thaw) at most, in which the cut lies.
 */
#pragma once

#include "catalog_checkpoint.h"
#include "digest.h"
#include "engine.h"

#define WORKSPACE_CHECKPOINT_OBJECT "checkpoint:"

extern const struct job_kind workspace_checkpoint_job;

/* The same as a step of another job, for a workspace that it has claimed and whose volume is not
 * mounted (what the row says of a mount does not count): the digest of the checkpoint, which may be
 * the one before when nothing has changed. */
int workspace_checkpoint_take(struct job *job, const char *name,
                              enum catalog_checkpoint_reason reason, struct digest *ret,
                              struct err *err);

/* The document of a checkpoint for the API: checkpoint, reference, generation, node,
 * token, parent, diverged, head, reason, tag, durability, verified (when, or null), bytes_new,
 * bytes_total, created. Caller owns it; NULL without memory. */
json_t *workspace_checkpoint_json(const struct node *node,
                                  const struct catalog_checkpoint *checkpoint, bool is_head);
