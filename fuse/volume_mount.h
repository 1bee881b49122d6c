/* volume_mount.h - the FUSE mount of a volume at RUN/volumes/ID, without the worker's part.
 *
 * varved opens /dev/fuse, mounts with that descriptor and hands it on; the kernel keeps the
 * connection while anybody holds it. Mounting asks the server nothing. The mount has the type
 * "fuse.varve", the source "varve", is nosuid, nodev and noexec, and only root may use it (no
 * allow_other).
 *
 * What may wait for the server runs in a child with a deadline (deadline_child.h). A mount is made
 * in the namespace of the process; the run directory is a shared mount, so it reaches the other
 * namespaces, and an unmount does too, but a process that made a namespace of its own in between
 * keeps its copy (experiment X17).
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define VOLUME_MOUNT_TYPE   "fuse.varve"
#define VOLUME_MOUNT_SOURCE "varve"

/* Opens /dev/fuse and mounts it at `path`, an existing directory (no symbolic link anywhere) with
 * nothing mounted on it. Returns the descriptor (the caller owns it), or -errno. ERR_UNSUPPORTED
 * with a hint: there is no /dev/fuse. ERR_DENIED. ERR_CONFLICT: something is mounted there. */
int volume_mount_make(const char *path, struct err *err);
/* Whether a mount of ours is the topmost one at `path`: 1 and its device number (its minor is the
 * number of the connection below /sys/fs/fuse/connections), 0 when nothing is mounted there (or
 * there is no such path), ERR_CONFLICT for something else. Asks the server nothing. */
int volume_mount_look(const char *path, dev_t *ret_device, struct err *err);
/* Ends a connection: every request is answered with an error from here on. One that is not there is
 * no failure. */
int volume_mount_abort(dev_t device, struct err *err);
/* The kernel's directory of all connections, for volume_mount_waiting(). Returns a descriptor, or
 * -errno. */
int volume_mount_control(struct err *err);
/* How many requests of this connection have no answer yet; -errno where that cannot be seen. */
int volume_mount_waiting(int control_fd, dev_t device);
/* Takes the mount away. ERR_CONFLICT: it is in use. Nothing mounted is no failure. `lazy`: from
 * this path at once, in truth when the last user is gone. */
int volume_mount_remove(const char *path, bool lazy, int wait_ms, struct err *err);
