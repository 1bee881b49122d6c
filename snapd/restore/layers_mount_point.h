/* layers_mount_point.h - one mount point of RUN/layers; for layers_mount.c and its tests only.
 *
 * The directory is there while something is mounted on it. Calls for one key are made by one thread
 * at a time.
 */
#pragma once

#include "node.h"

/* Mounts the image of this key unless it is mounted already. What else is mounted there is taken
 * away. */
int layers_mount_point_make(struct node *node, const char *key, struct err *err);
/* Unmounts and removes the directory; nothing there is no failure. ERR_CONFLICT when somebody has a
 * file in it open. */
int layers_mount_point_clear(struct node *node, const char *key, struct err *err);
/* Opens the root directory of what is mounted. ERR_NOT_FOUND when no image is. */
int layers_mount_point_open(struct node *node, const char *key, struct err *err);
