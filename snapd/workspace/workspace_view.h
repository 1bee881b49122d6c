/* workspace_view.h - a checkpoint of a workspace, to look at.
 *
 *   "workspace.view"  {"name": "NAME@GENERATION", "from", "path"}
 *
 * What a workspace is now is another thing (workspace_now.h) and ends in the same way.
 *
 * A view is a workspace of its own, made of the checkpoint (workspace_fork.h) and mounted
 * read-only; its name has the generation behind it, and it goes with its unmount. It costs what is
 * read. The workspace itself may be in use, rolled back or gone. ext4 replays its journal in a
 * view, which writes to the view alone.
 */
#pragma once

#include "catalog_workspace.h"
#include "engine.h"

extern const struct job_kind workspace_view_job;

/* "NAME", or of a view "NAME@GENERATION" or "NAME@now-" and six hex digits. ERR_INVALID. */
int workspace_name_check(const char *name, struct err *err);
bool workspace_is_view(const char *name);
/* ERR_INVALID of a view: checkpoints are made of what it shows. */
int workspace_view_check_checkpoint(const char *name, struct err *err);
/* The name of the view of a workspace's checkpoint, and what it is made of (workspace_fork.h's
 * `from`). The caller frees both. */
int workspace_view_find(const struct node *node, const char *name, const char *checkpoint,
                        char **ret_name, char **ret_from, struct err *err);
/* Mounts one that is there, read-only, and takes it away when that fails. `fresh`: this job has
 * made it. */
int workspace_view_mount(struct job *job, const char *name, const char *path, bool fresh,
                         struct err *err);
/* Takes one away that is not attached any more. */
int workspace_view_drop(struct node *node, const char *name, struct err *err);
