/* silent_mount.h - a file system that answers nothing, over a directory: whoever looks for
 * something in it waits, and cannot be interrupted. For tests that run in a mount namespace of
 * their own (own_mounts.sh), as root.
 */
#pragma once

/* Mounts it. A descriptor for silent_mount_end(), or -1. */
int silent_mount_begin(const char *dir);
/* Lets everybody go, with an error, and takes it away. -1 is fine. */
void silent_mount_end(const char *dir, int fd);
