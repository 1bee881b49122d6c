/* layers_mount.h - layer images, mounted.
 *
 * First part: images that are mounted where nobody sees them. The mounts under RUN/layers that runs
 * share follow.
 */
#pragma once

#include "erofs_mount.h"

/* Mounts an image file where nobody sees it: the descriptor is the mount's root directory, and the
 * mount goes with it. For archives that are only read once. */
static inline int layers_mount_detached(int image_fd, struct err *err)
{
    return erofs_mount_detached(image_fd, err);
}
