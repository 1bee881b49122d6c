/* convert_seccomp.h - the system calls that varve-convert may make while it reads an archive.
 *
 * An allow-list: the files that it has by descriptor, its socket, memory, waiting, time, the end
 * of the process. There is no way to open anything, to new sockets, processes, threads, signals,
 * namespaces, mounts, keys, or to memory that can be executed (so no library can be loaded any
 * more). Everything else answers ENOSYS, so that a libc that tries a newer call falls back to an
 * older one.
 */
#pragma once

#include "err.h"

/* For all threads of this process and the rest of its life. Needs no_new_privs. ERR_UNSUPPORTED on
 * processors that the list is not made for. */
int convert_seccomp_apply(struct err *err);
