/* volume_holders.h - who holds on to a block device or to the file system on it.
 *
 * Three kinds: processes that have it open (a file, directory or mapping on the file system, or the
 * device node itself), the kernel's own users of files on it (volume_kernel_users.h), and other
 * mount namespaces in which the file system is still mounted: an unmount here does not reach those
 * that are private (X17). Of a namespace one process stands for all. The calling process does not
 * count, nor does its namespace.
 *
 * For messages: a moment's look, at most VOLUME_HOLDERS_SHOWN by name. Reads /proc and sysfs alone,
 * and waits for no process that is stuck (mount_users.h).
 */
#pragma once

#include "err.h"

#include <sys/types.h>

enum {
    VOLUME_HOLDERS_SHOWN = 5,
    VOLUME_HOLDERS_TEXT_MAX = 512,
};

struct volume_holders {
    int open;       /* processes that have something open on it */
    int kernel;     /* loop devices and swap files on its files */
    int namespaces; /* other mount namespaces that have it mounted */
    int own;        /* calls of this process itself that hang (deadline_child.h); in neither of the
                       others, nor in `text` */
    pid_t pids[2 * VOLUME_HOLDERS_SHOWN];
    int shown;                          /* of pids */
    char text[VOLUME_HOLDERS_TEXT_MAX]; /* "bash (812), vim (813) and 4 more; the loop device
                                           /dev/loop3; mounted in the mount namespaces of runc
                                           (901)"; "" when there is none */
};

/* Holders of the device number: of a block device, with the file system on it, or of a file system
 * that has no device (a FUSE mount). */
int volume_holders_find(dev_t device, struct volume_holders *ret, struct err *err);
