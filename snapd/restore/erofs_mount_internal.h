/* erofs_mount_internal.h - the two ways of mounting an image; for erofs_mount*.c and their tests
 * only.
 *
 * Test builds take the way from VARVE_EROFS_WAY ("file" or "loop"), so that a whole daemon can be
 * tested as on an older kernel.
 */
#pragma once

#include "erofs_mount.h"

enum erofs_mount_way {
    EROFS_MOUNT_ANY, /* the file, else a loop device */
    EROFS_MOUNT_FILE,
    EROFS_MOUNT_LOOP,
};

/* The mount, detached. Returns the descriptor of fsmount(2) (O_PATH) or -errno. */
int erofs_mount_by(int image_fd, enum erofs_mount_way way, struct err *err);
/* A read-only loop device of the image, open; it goes away with the last user. Returns a
 * descriptor, its path in `ret_path`, or -errno. */
int erofs_mount_loop(int image_fd, char ret_path[32], struct err *err);
