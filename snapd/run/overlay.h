/* overlay.h - overlayfs mounts with the fixed options.
 *
 * index=off, metacopy=off, redirect_dir=off, nfs_export=off, xino=on are written out, so that the
 * kernel's build-time defaults have no say, and read back from mountinfo afterwards, as the kernel
 * falls back silently (an idmapped upper mounts read-only without an error). The mount is nodev: a
 * device node that a sandbox made is never a device of the host. It is not nosuid, as su and sudo
 * work inside; the directory above keeps other users of the host out.
 *
 * Two ways, both good for 127 layers and for any bytes in a path: fsconfig("lowerdir+") where the
 * kernel has it (6.7), whose failures carry the kernel's own words; else mount(2) in a child whose
 * working directory is /proc/self/fd, so that a layer is a short number in the one page of options.
 *
 * The upper directory's filesystem has to keep trusted.* attributes and must not be an overlay.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    OVERLAY_PATH_MAX = 4096,
};

struct overlay_mount {
    int lowers_dir;            /* parent directory of all lowers */
    const char *const *lowers; /* names in it, topmost first */
    size_t lower_count;
    const char *upper; /* absolute paths */
    const char *work;
    const char *target;
};

int overlay_mount(const struct overlay_mount *mount, struct err *err);
/* Unmounts; not mounted is no failure; ERR_CONFLICT when busy. */
int overlay_unmount(const char *target, struct err *err);
/* Takes it out of the way, whoever uses it: he keeps what he has open. Not mounted is no failure.
 */
int overlay_detach(const char *target, struct err *err);
/* 1 when an overlay is mounted at exactly this path, 0 when not, or -errno. */
int overlay_is_mounted(const char *target, struct err *err);
