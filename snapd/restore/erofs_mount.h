/* erofs_mount.h - mounting an EROFS image file.
 *
 * From the file itself where the kernel can: Linux 6.12 and later, and the file on a file system
 * that allows it (not on an overlay: ENOTBLK). Else through a read-only loop device with direct
 * I/O where that is possible, which goes away by itself with the mount. Always read-only, nodev and
 * nosuid, and looked at afterwards, as a mount can silently become something else.
 *
 * The image is our own and was checked (erofs_check.h); this only mounts it.
 */
#pragma once

#include "err.h"

#include <stdbool.h>

/* Mounts an image where nobody sees it: the descriptor is the mount's root directory, and the mount
 * goes with it. Returns a descriptor or -errno. */
int erofs_mount_detached(int image_fd, struct err *err);
/* Mounts an image on a directory. */
int erofs_mount_attach(int image_fd, int target_fd, struct err *err);
/* Whether what is mounted at the root directory `root_fd` is a mount such as these of exactly this
 * image: 1, 0 or -errno. Compared are what statfs(2) shows of the superblock, which holds a UUID
 * that is made from the image's content (docs/FORMAT.md). */
int erofs_mount_is_of(int root_fd, int image_fd, struct err *err);
