/* volume_frozen.h - ext4 that somebody froze (fsfreeze(8), FIFREEZE): seen, told, given up.
 *
 * A freeze holds its file system: unmounted, or detached lazily, that lives on with its device,
 * mounted nowhere, and nobody can thaw it but by mounting the device once more. So what is frozen
 * is not unmounted, and never thawed behind the back of whoever froze it: he is told.
 *
 * The kernel says nowhere that a file system is frozen, and to try a change would wait for the thaw
 * and could not be killed. What shows it:
 *
 *   mounted for writing   needs_recovery is set in ext4's superblock, which the page cache of its
 *                         device has, as long as it is mounted. A freeze takes it out, a thaw puts
 *                         it back; a shutdown (EXT4_IOC_SHUTDOWN) takes it out too
 *     not shut down       fsync of the root directory works
 *     shut down           it fails; then a change is tried after all: the removal of a name that
 *                         cannot exist, by a process of its own, which stays until the thaw
 *   read-only             FIFREEZE says EBUSY; one that isn't frozen is thawed again at once, and
 *                         neither writes anything
 *
 * A freeze that is on its way (it waits for the device, as sync(2) does) is not seen.
 *
 * To give one up, it is shut down first: from then on ext4 writes nothing, neither by the thaw nor
 * later, so that what whoever froze it relies on stays true, and the thaw only lets go of it.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Whether the file system of this open directory, its root, is frozen: 1, 0 or -errno. For calls of
 * deadline children, as the fsync may wait. `device` is of the file system. */
int volume_frozen_look(int root_fd, dev_t device, struct err *err);
/* The same of what is mounted at `path` (volume_fs.h). */
int volume_frozen_at(const char *path, dev_t device, int wait_ms, struct err *err);
/* The same of an ext4 that lives on this device and need not be mounted in this namespace; 0 where
 * there is none. Mounts it for the look, at no path. */
int volume_frozen_hidden(dev_t device, int wait_ms, struct err *err);
/* Says that the one at `path` is, and how it is thawed. Returns -errno. */
int volume_frozen_fail(const char *path, struct err *err);

/* Shuts the ext4 on this device down, wherever it is mounted, and thaws it. Only when the device
 * answers nothing any more, or what was not written is given up. One that is not there is no
 * failure. */
int volume_frozen_end(dev_t device, int wait_ms, struct err *err);

/* The kernel's sequence number of this block device, which each setup of a loop device changes; 0:
 * it has none (before Linux 5.15), or there is no such device. */
uint64_t volume_frozen_diskseq(dev_t device);
/* Thaws, once, the ext4 on this device wherever it is mounted; for a freeze of our own whose holder
 * has died (freeze_record.h). Not frozen, not there, or another device by now (`diskseq`, not 0,
 * differs) is no failure. */
int volume_frozen_thaw(dev_t device, uint64_t diskseq, int wait_ms, struct err *err);
