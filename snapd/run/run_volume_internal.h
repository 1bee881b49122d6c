/* run_volume_internal.h - for run_volume*.c and run_dirs.c. */
#pragma once

#include "catalog_workspace.h"
#include "overlay.h"
#include "run_place.h"
#include "run_volume.h"

enum {
    RUN_VOLUME_NAME_MAX = ID_LEN_MAX + 8,
};

/* "run:ID" */
void run_volume_name(const char *id, char ret[RUN_VOLUME_NAME_MAX]);
int run_volume_row(struct node *node, const char *id, struct catalog_workspace *ret,
                   struct err *err);
/* overlay_mount(), in a child. The kernel makes a directory for it, on a full volume too. */
int run_volume_mount(const struct run_place *place, const struct overlay_mount *mount,
                     struct err *err);
/* What is to hold of the ext4 at `path` before anything on it is used. */
int run_volume_harden(const char *path, struct err *err);
