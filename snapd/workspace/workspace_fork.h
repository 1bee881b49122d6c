/* workspace_fork.h - workspaces that are made of a checkpoint.
 *
 *   "workspace.fork"  {"name", "from", "token"?}    a new, detached workspace of the checkpoint's
 * bytes, as large as that; metadata alone are fetched
 *
 * `from` is "NAME" (its newest checkpoint), "NAME@CHECKPOINT", or the reference of a checkpoint,
 * "[HOST/]...volumes/LINEAGE@sha256:...", which any node with the same remote understands.
 * CHECKPOINT is a generation ("3", "g3") or a digest ("sha256:...", or its first digits, 6 or
 * more).
 *
 * The source may be in use, or gone. What the fork stands on is kept in the remote by a hold tag
 * that bears the fork's ID; it is set before the fork is, and goes with it, or when it was put back
 * to a checkpoint of its own (I5).
 */
#pragma once

#include "catalog_checkpoint.h"
#include "engine.h"

extern const struct job_kind workspace_fork_job;
/* "workspace.release" {"volume", "lineage", "checkpoint"}: by workspace_fork_release() alone. */
extern const struct job_kind workspace_release_job;

/* Its work, as the first step of another job that has `name` and `from`, and settles later. */
int workspace_fork_part(struct job *job, struct err *err);

/* Which checkpoint is meant. */
struct workspace_source {
    char *lineage; /* owned, as the next */
    char *digest;  /* "sha256:..." */
};
void workspace_source_free(struct workspace_source *source);
#define cleanup_workspace_source cleanup_with(workspace_source_free)
/* ERR_NOT_FOUND, ERR_INVALID, ERR_CONFLICT (several begin so); asks the catalog alone. */
int workspace_source_find(const struct node *node, const char *text, struct workspace_source *ret,
                          struct err *err);

/* Lets a job of its own take the hold of a volume that is about to go from what it was made of: the
 * remote may be away. What it refuses stays, and holds too much, never too little. */
void workspace_fork_release(struct node *node, const char *volume);
/* The same of a volume that is about to be put back to a checkpoint of its own: the job waits until
 * it was, and does nothing if it was not. */
void workspace_fork_let_go(struct node *node, const char *volume);
