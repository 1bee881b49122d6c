/* local_disk.h - whether a file system can hold the data of volumes.
 *
 * What volumes build on, and what breaks without it:
 *
 *   when a process has been killed, a lock of it is free only after its last write has ended, so
 *   that no late write overtakes its successor. A network or FUSE file system goes on with the
 *   writes of the dead by itself
 *   a lock of one open file description keeps others out
 *   blocks in the middle of a file can be given back, and read as zeros afterwards
 *   fdatasync(2) works
 *
 * The first cannot be tried, so file systems that are known for it are refused by their type; the
 * others are tried, in a file without a name. An overlay may lie on any of them, and does not say.
 *
 * What it does not do: direct I/O is not needed, as volumes do without (DESIGN, "Page caches"); a
 * file system in memory is fine, only that nothing in it survives the host.
 *
 * Builds with fault points read VARVE_LOCAL_DISK: the name of a type ("nfs"), or "no-locks",
 * "no-holes", "no-sync", simulates such a file system.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stdint.h>

/* Looks at the file system of a directory, whose path is for messages. ERR_UNSUPPORTED names what
 * it is or what it cannot do. Where it is full, what needs bytes is not tried. */
int local_disk_check(int dir_fd, const char *path, struct err *err);
/* The first part of it: the name of a type (statfs(2)) that cannot be; NULL for all others. */
const char *local_disk_refused(uint32_t type);
/* Whether a file system of this type is gone when the host restarts. */
bool local_disk_is_memory(uint32_t type);
