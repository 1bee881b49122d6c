/* run_procs.h - which processes use a mounted root filesystem.
 *
 * A process uses it when its root, working directory, executable, an open file or a mapping lies
 * on the mount's device, whatever its mount namespace. Merely having a copy of the mount in a
 * namespace is not use.
 */
#pragma once

#include "err.h"

#include <sys/types.h>

/* The number of processes that use the filesystem mounted at `path`; the first pid in *ret_first
 * and its name in `ret_name`. 0 when nobody does. Processes that end meanwhile are not counted. */
int run_procs_find(const char *path, pid_t *ret_first, char ret_name[32], struct err *err);
