/* unpack_lower.h - looking a name up in a stack of layer directories, as overlayfs would.
 *
 * The topmost layer that has a name decides; a 0:0 character device hides the name in the layers
 * below, trusted.overlay.opaque on a directory hides that directory's content below, a file hides
 * everything below it. No symbolic link is followed: a path through one does not exist here.
 */
#pragma once

#include "cleanup.h"
#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

enum {
    UNPACK_LOWER_STACK_MAX = 128, /* 127 lower layers and the one that is being made */
};

struct unpack_found {
    int dir_fd;       /* holds the name; owned */
    const char *name; /* the last component of the path that was looked up, "." for the root */
    size_t layer;     /* index into the roots */
    struct stat st;
};

#define UNPACK_FOUND_INIT                                                                          \
    {                                                                                              \
        .dir_fd = -1                                                                               \
    }

static inline void unpack_found_close(struct unpack_found *found)
{
    cleanup_fdp(&found->dir_fd);
    found->dir_fd = -1;
}
#define cleanup_unpack_found cleanup_with(unpack_found_close)

/* Looks `path` (unpack_path.h) up in `roots`, topmost first. 1 found, 0 not, or -errno. *ret is
 * written when found; `name` points into `path`. */
int unpack_lower_find(const int *roots, size_t count, const char *path, struct unpack_found *ret,
                      struct err *err);

/* Whether it is overlayfs's mark for a name that is gone. */
bool unpack_lower_is_whiteout(const struct stat *st);
