/* tree.h - removal of whole directory trees that may be hostile or deep. */
#pragma once

#include "err.h"

/* Removes `name` in `dir_fd` and everything below it. Never follows a symbolic link, stays on one
 * mount (a mount point inside is an error, so a mounted workspace is never emptied), needs memory
 * for one path only and no deep recursion. A missing name is no failure. */
int tree_remove(int dir_fd, const char *name, struct err *err);
