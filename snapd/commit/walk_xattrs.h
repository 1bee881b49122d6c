/* walk_xattrs.h - all extended attributes of one inode.
 *
 * Every namespace that the kernel lists is read (trusted.* only shows for CAP_SYS_ADMIN). The
 * storage is made once and used again for each inode. More than WALK_XATTRS_MAX bytes of values on
 * one inode are ERR_TOO_LARGE: a pax header of at most 1 MiB (what libarchive and Go read) has to
 * hold them beside the path.
 */
#pragma once

#include "err.h"

#include <stddef.h>

enum {
    WALK_XATTRS_MAX = 384 * 1024, /* bytes of all values of one inode */
};

struct walk_xattr {
    const char *name;
    const void *value; /* any bytes */
    size_t len;
};

struct walk_xattrs {
    struct walk_xattr *list; /* owned array; names and values lie in the two areas below */
    size_t count;
    size_t cap;
    char *names;
    char *values;
};

int walk_xattrs_init(struct walk_xattrs *xattrs, struct err *err);
void walk_xattrs_free(struct walk_xattrs *xattrs);

/* Reads the attributes of the open file `fd`, sorted by name. */
int walk_xattrs_of_fd(struct walk_xattrs *xattrs, int fd, struct err *err);
/* Reads the attributes of `name` in `dir_fd` without opening or following it. */
int walk_xattrs_of_name(struct walk_xattrs *xattrs, int dir_fd, const char *name, struct err *err);
