/* convert_confine.h - what varve-convert gives up before it reads the first byte of an archive.
 *
 * Two steps, in this order; seccomp (convert_seccomp.h) is the third, when all threads are there:
 *
 *   convert_confine_view()    new mount, network, IPC and UTS namespaces, with an empty read-only
 *                             directory as the root and the host's mounts detached. An absolute
 *                             name, whoever looks it up (libc too), finds nothing. The standard
 *                             streams are /dev/null.
 *   convert_confine_rights()  an owner that has no files (65534, where the user namespace has one),
 *                             no groups, no capabilities, none to be had; not dumpable; limits on
 *                             memory, descriptors and the size of files; ends with its parent.
 *
 * What is left are the descriptors that the process was given. The namespaces need root, as varved
 * has it.
 */
#pragma once

#include "err.h"

#include <stdint.h>
#include <sys/types.h>

int convert_confine_view(struct err *err);

/* `file_bytes_max` bounds what the process can write to any file; 0: nothing. `parent` is the
 * process that it ends with. To be called while there is one thread. */
int convert_confine_rights(uint64_t file_bytes_max, pid_t parent, struct err *err);
