/* workspace_path.h - where a workspace may be mounted. */
#pragma once

#include "err.h"
#include "node.h"

/* Finds the directory behind `path` (absolute): its own path, without symbolic links. Caller frees.
 * ERR_NOT_FOUND when there is none; ERR_INVALID when it is no directory, or when a mount there
 * would hide, or lie in, the data or the run directory. */
int workspace_path_resolve(const struct node *node, const char *path, char **ret, struct err *err);
