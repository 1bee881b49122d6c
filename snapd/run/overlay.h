/* overlay.h - overlayfs mounts with the fixed options.
 *
 * index=off, metacopy=off, redirect_dir=off, nfs_export=off, xino=on are written out, so that the
 * kernel's build-time defaults have no say, and read back from mountinfo afterwards. Lower
 * directories go through fsconfig("lowerdir+") where the kernel has it (6.7), else as short paths
 * relative to their parent, so that 127 layers fit into mount(2)'s one page.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stddef.h>

struct overlay_mount {
    int lowers_dir;             /* parent directory of all lowers */
    const char *const *lowers;  /* names in it, topmost first */
    size_t lower_count;
    const char *upper; /* absolute paths */
    const char *work;
    const char *target;
};

int overlay_mount(const struct overlay_mount *mount, struct err *err);
/* Unmounts; not mounted is no failure; ERR_CONFLICT when busy. */
int overlay_unmount(const char *target, struct err *err);
/* 1 when an overlay is mounted at exactly this path, 0 when not, or -errno. */
int overlay_is_mounted(const char *target, struct err *err);
