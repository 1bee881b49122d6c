/* unpack_seccomp.h - the system calls that varve-unpack may make while it reads an archive.
 *
 * An allow-list: files by descriptor, memory, time, the end of the process. There is no way to
 * sockets, processes, signals, namespaces, mounts, keys, or to memory that can be executed (so no
 * library can be loaded any more). Everything else answers ENOSYS, so that a libc that tries a
 * newer call falls back to an older one.
 */
#pragma once

#include "err.h"

/* For the rest of the life of this process. Needs no_new_privs. ERR_UNSUPPORTED on processors that
 * the list is not made for. */
int unpack_seccomp_apply(struct err *err);
