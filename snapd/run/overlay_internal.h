/* overlay_internal.h - the two ways of making the mount; for overlay*.c and their tests only. */
#pragma once

#include "mountinfo.h"
#include "overlay.h"

enum overlay_way {
    OVERLAY_ANY,     /* file system contexts, else mount(2) */
    OVERLAY_CONTEXT, /* fsopen, fsconfig, fsmount, move_mount alone */
    OVERLAY_CLASSIC, /* mount(2) alone */
};

enum {
    OVERLAY_TRY_CLASSIC = 1,  /* the kernel may not know "lowerdir+" */
    OVERLAY_STRING_MAX = 255, /* bytes of one value that fsconfig(2) takes */
};

/* An option that is fixed, see overlay.h. */
struct overlay_option {
    const char *key;
    const char *value;
};
enum {
    OVERLAY_OPTIONS = 5,
};
extern const struct overlay_option overlay_options[OVERLAY_OPTIONS];

/* A request whose directories are open, so that nothing can be exchanged under their names. */
struct overlay_plan {
    const struct overlay_mount *mount;
    int upper_fd;
    int work_fd;
    int target_fd;
};

/* As overlay_mount(), by one way. */
int overlay_mount_by(const struct overlay_mount *mount, enum overlay_way way, struct err *err);

/* 0, OVERLAY_TRY_CLASSIC with err untouched, or -errno. */
int overlay_context_mount(const struct overlay_plan *plan, struct err *err);
int overlay_classic_mount(const struct overlay_plan *plan, struct err *err);

/* Writes a path of an open directory that can stand in an option: its own path, so that people
 * and tools can read it in mountinfo, unless that is longer than `max` bytes or holds characters
 * that have a meaning in overlay options; then the descriptor's path in /proc/self/fd. */
void overlay_option_path(const char *path, int fd, size_t max, char ret[4096]);

/* Whether what mountinfo says about a mount contradicts what was asked for. */
int overlay_check_entry(const struct mountinfo_entry *entry, struct err *err);
