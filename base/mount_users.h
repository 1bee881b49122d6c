/* mount_users.h - which processes use a mounted filesystem.
 *
 * A process uses it when the root, the working directory or an open file of one of its threads,
 * its executable, or a mapping lies on the mount's device, whatever its mount namespace. Merely
 * having a copy of the mount in a namespace is not use.
 *
 * The answer is of the moment: it says nothing about what starts a moment later, and a descriptor
 * in flight in a socket is nobody's. The files of processes with more rights than the caller (pid
 * 1 of some hosts) cannot be read; those count when the mount is their root. The calling process
 * itself is not counted.
 *
 * Nothing here waits for a process that is stuck in the kernel (a few seconds in all): when its
 * mappings cannot be looked at, the rest decides, and the log says so.
 */
#pragma once

#include "err.h"

#include <sys/types.h>

/* The number of processes that use the filesystem mounted at `path` (absolute, no symbolic link);
 * the first pid in *ret_first and its name in `ret_name`. 0 when nobody does, or nothing is mounted
 * there. Processes that end meanwhile are not counted. */
int mount_users_find(const char *path, pid_t *ret_first, char ret_name[32], struct err *err);

/* Calls `take` with every such process: its pid, and a descriptor of the process (pidfd_open(2))
 * that was opened before it was looked at, so it means no other one that came to the same number.
 * Ends with the first failure of it. 0 when nothing is mounted there. */
typedef int mount_users_take(void *arg, pid_t pid, int pidfd, struct err *err);
int mount_users_each(const char *path, mount_users_take *take, void *arg, struct err *err);

/* The same for a device number, wherever the filesystem is mounted: of a block device, whose users
 * are also those that have its node open, or of a filesystem without one. */
int mount_users_each_device(dev_t device, mount_users_take *take, void *arg, struct err *err);

/* The name of a process, one line of printable ASCII; "?" when it is not known. */
void mount_users_name(pid_t pid, char ret[32]);
