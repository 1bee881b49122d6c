/* workspace_run.h - volumes of runs among those of workspaces.
 *
 * The volume of a run (snapd/run/run_volume.h) is looked after as a workspace "run:ID" is, with its
 * mount at RUN/runs/ID/volume. What is different: an overlay stands on its file system, which goes
 * before that and comes after it; and the run's row says whether it is wanted at all. The functions
 * here are what workspace*.c need to know of that. They are in snapd/run.
 */
#pragma once

#include "catalog_workspace.h"
#include "node.h"

#include <stdbool.h>
#include <string.h>

static inline bool workspace_is_of_run(const char *name)
{
    return strncmp(name, CATALOG_WORKSPACE_OF_RUN, sizeof CATALOG_WORKSPACE_OF_RUN - 1) == 0;
}
/* The run's ID. Borrowed. */
static inline const char *workspace_run_id(const char *name)
{
    return name + sizeof CATALOG_WORKSPACE_OF_RUN - 1;
}

/* Whether what stands on the volume is there, or is not to be there now: 1, 0, or -errno. */
int workspace_run_stands(struct node *node, const char *name, struct err *err);
/* The volume is dead: who used the run has errors for good, and its path becomes free. */
int workspace_run_let_go(struct node *node, const char *name, struct err *err);
/* Makes the directory that the volume is to be mounted at, where RUN is new. */
int workspace_run_prepare(struct node *node, const char *name, struct err *err);
/* The volume is mounted: what stands on it is mounted. For who has the claim. */
int workspace_run_stand(struct node *node, const char *name, struct err *err);
/* workspace_settle() of such a volume. */
int workspace_run_settle(struct node *node, const struct catalog_workspace *workspace,
                         struct err *err);
