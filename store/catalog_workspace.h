/* catalog_workspace.h - workspaces: the names of persistent volumes.
 *
 * A workspace is a name for one volume (catalog_volume.h) and comes and goes with it: both rows are
 * added, and both are removed, in one transaction. What state it is in is the volume's.
 */
#pragma once

#include "catalog_mount.h"
#include "catalog_volume.h"

struct catalog_workspace {
    char *name;
    char *node; /* that made it */
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
/* The name of the workspace that has this volume, which the caller frees: 1, 0 when there is none,
 * or -errno. */
int catalog_workspace_name(struct catalog *catalog, const char *volume, char **ret,
                           struct err *err);
/* The name of a workspace that shows an open epoch of this volume, and is not on its way out: 1 and
 * the name, which the caller frees, 0 when there is none, or -errno. */
int catalog_workspace_view(struct catalog *catalog, const char *volume, char **ret,
                           struct err *err);
/* In the order of their names. */
int catalog_workspace_list(struct catalog *catalog, struct catalog_workspace **ret,
                           size_t *ret_count, struct err *err);
/* Removes the name, its mount and its volume, which is in state removing or creating; others are
 * ERR_CONFLICT. */
int catalog_workspace_remove(struct catalog *catalog, const char *name, struct err *err);
