/* unpack_confine.h - what varve-unpack gives up before it reads the first byte of an archive.
 *
 * Two steps, in this order:
 *
 *   unpack_confine_view()    target and lower directories become detached mounts of their own,
 *                            reachable by descriptor only, from which no ".." leads out; the lower
 *                            ones are read-only. Then new mount, network, IPC and UTS namespaces,
 *                            with an empty read-only directory as the root and the host's mounts
 *                            detached. An absolute name, whoever looks it up (libc too), finds
 *                            nothing.
 *   unpack_confine_rights()  capabilities for owners, modes, devices and attributes only; resource
 *                            limits; no new privileges; a list of allowed system calls
 *                            (unpack_seccomp.h).
 *
 * CAP_SYS_ADMIN stays, as trusted.* attributes need it; what else it allows goes through system
 * calls that are not on the list. Mounting itself needs root, as varved has it.
 */
#pragma once

#include "err.h"

#include <stddef.h>

/* Replaces the descriptors by those of the detached mounts; the target's is open for reading. */
int unpack_confine_view(int *target_fd, int *lower_fds, size_t lower_count, struct err *err);

int unpack_confine_rights(struct err *err);
