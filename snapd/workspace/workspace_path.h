/* workspace_path.h - where a workspace may be mounted. */
#pragma once

#include "err.h"
#include "node.h"

#include <stdbool.h>

enum {
    WORKSPACE_PATH_MS = 10000, /* until the file systems on the way have to answer */
};

/* Whether `inner` is `outer` or lies below it; both without symbolic links. */
bool workspace_path_is_below(const char *inner, const char *outer);

/* Finds the directory behind `path` (absolute): its own path, without symbolic links. Caller frees.
 * ERR_NOT_FOUND when there is none; ERR_INVALID when it is no directory, or one of procfs, sysfs
 * and the like, or when a mount there would hide, or lie in, the data or the run directory;
 * ERR_UNREACHABLE when a file system on the way does not answer. */
int workspace_path_resolve(const struct node *node, const char *path, char **ret, struct err *err);
