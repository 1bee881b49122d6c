/* catalog_workspace.h - workspaces: the names of persistent volumes.
 *
 * A workspace is a name for one volume (catalog_volume.h) and comes and goes with it: both rows are
 * added, and both are removed, in one transaction. What state it is in is the volume's.
 *
 * The volume that a run's writable layer lies on (catalog_run.h) has no name of its own. It is read
 * as a workspace "run:ID", which nobody can call one of his, for all who look after volumes; its
 * rows come and go with the run's.
 */
#pragma once

#include "catalog_mount.h"
#include "catalog_volume.h"

#define CATALOG_WORKSPACE_OF_RUN "run:" /* how the name of a run's volume begins */

struct catalog_workspace {
    char *name;
    char *node; /* that made it; "" for a run's */
    int64_t created_ns;
    struct catalog_volume volume;
    bool wanted;                /* there is a mount */
    struct catalog_mount mount; /* all zeros without one */
};

void catalog_workspace_free(struct catalog_workspace *workspace);
#define cleanup_catalog_workspace cleanup_with(catalog_workspace_free)

/* Adds the name and its volume in state creating. ERR_EXISTS when the name or the volume's ID is
 * taken. */
int catalog_workspace_add(struct catalog *catalog, const char *name, const char *node,
                          const struct catalog_volume *volume, struct err *err);
int catalog_workspace_get(struct catalog *catalog, const char *name, struct catalog_workspace *ret,
                          struct err *err);
/* The name of the workspace that has this volume, also "run:ID", which the caller frees: 1, 0 when
 * there is none, or -errno. */
int catalog_workspace_name(struct catalog *catalog, const char *volume, char **ret,
                           struct err *err);
/* The name of a workspace that shows an open epoch of this volume, and is not on its way out: 1 and
 * the name, which the caller frees, 0 when there is none, or -errno. */
int catalog_workspace_view(struct catalog *catalog, const char *volume, char **ret,
                           struct err *err);
/* In the order of their names; without those of runs. */
int catalog_workspace_list(struct catalog *catalog, struct catalog_workspace **ret,
                           size_t *ret_count, struct err *err);
/* With those of runs, at the end. */
int catalog_workspace_list_all(struct catalog *catalog, struct catalog_workspace **ret,
                               size_t *ret_count, struct err *err);
/* Removes the name, its mount and its volume, which is in state removing or creating; others are
 * ERR_CONFLICT. */
int catalog_workspace_remove(struct catalog *catalog, const char *name, struct err *err);
