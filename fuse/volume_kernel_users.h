/* volume_kernel_users.h - what of the kernel itself uses files of a mounted file system.
 *
 * A swap file and a loop device on a file keep a file system busy and belong to no process, so that
 * a look at processes (mount_users.h) shows nobody. Both are known by the path of their file as it
 * is now, so they are found below the places where the file system is mounted in this namespace;
 * once it is unmounted here they have no such path.
 *
 * For messages: a moment's look. Reads /proc and sysfs alone, and opens no device, as that would
 * keep a loop device of somebody else for a moment.
 */
#pragma once

#include "err.h"

#include <stdio.h>
#include <sys/types.h>

enum {
    VOLUME_KERNEL_USERS_SHOWN = 5,
    VOLUME_KERNEL_USERS_TEXT_MAX = 256,
};

struct volume_kernel_users {
    int count;
    char text[VOLUME_KERNEL_USERS_TEXT_MAX]; /* "the loop device /dev/loop3, a swap file and 2 more"
                                              */
};

/* Users of the file system on this device, wherever in this namespace it is mounted. */
int volume_kernel_users_find(dev_t device, struct volume_kernel_users *ret, struct err *err);
/* Adds the swap files below `point` (a path without a slash at its end) that `swaps` lists, as
 * /proc/swaps does. */
void volume_kernel_users_add_swaps(FILE *swaps, const char *point, struct volume_kernel_users *ret);
