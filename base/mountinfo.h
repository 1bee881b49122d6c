/* mountinfo.h - reading /proc/PID/mountinfo (proc_pid_mountinfo(5)).
 *
 * The one parser of that file. Mount IDs are unique on a host while a mount lives, so the same ID
 * in two files means the same mount, hence the same mount namespace.
 */
#pragma once

#include "cleanup.h"
#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct mountinfo {
    FILE *file;       /* owned */
    char *line;       /* owned */
    size_t line_size; /* allocated bytes of line */
    char path[64];    /* of the file, for messages */
};

#define MOUNTINFO_INIT                                                                             \
    {                                                                                              \
        .file = NULL                                                                               \
    }

/* One mount. Strings have their octal escapes resolved and are borrowed until the next call. */
struct mountinfo_entry {
    uint64_t id;
    unsigned dev_major; /* of the filesystem, as in st_dev of its files */
    unsigned dev_minor;
    const char *point;         /* as seen from the root of the process */
    const char *options;       /* of this mount: "rw,nodev,relatime" */
    bool shared;               /* a member of a peer group */
    const char *type;          /* "overlay" */
    const char *source;        /* whatever mount(2) was told */
    const char *super_options; /* of the filesystem; escapes as they are */
};

/* Opens "self" or a pid's file. */
int mountinfo_open(const char *process, struct mountinfo *ret, struct err *err);
/* 1 and the next mount, 0 at the end, or -errno. A line that cannot be understood is ERR_DAMAGED.
 */
int mountinfo_next(struct mountinfo *info, struct mountinfo_entry *ret, struct err *err);
void mountinfo_close(struct mountinfo *info); /* harmless on MOUNTINFO_INIT */
#define cleanup_mountinfo cleanup_with(mountinfo_close)

/* Resolves the escapes of a field of a file below /proc, in place: space, tab, newline and
 * backslash are written as a backslash and three octal digits. */
void mountinfo_unescape(char *text);

/* Whether a comma-separated list of options holds this word. */
bool mountinfo_has_option(const char *options, const char *word);
