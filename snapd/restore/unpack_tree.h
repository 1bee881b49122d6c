/* unpack_tree.h - the directory that is being filled, and the way to a member's parent.
 *
 * Every name is looked up below the root with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, so neither a
 * dot-dot nor a link of the archive leads anywhere. Nothing but this program changes the directory
 * meanwhile.
 *
 * One parent directory is open at a time: members of one directory mostly come together. Its times
 * are read when it is opened and written back when it is left, as making members changes them;
 * so no list of directories is kept, whatever the size of the archive.
 *
 * Missing parents are made. In a layer they look as the layers below show them, whatever markers
 * the layer has for them; else, and where the layers below have no directory of that name, they are
 * 0755, 0:0, with the epoch as time. A parent that is there but no directory is a failure: a path
 * through a link or file of the same archive. (A layer that has only lib/b over a lower layer's
 * link lib -> usr/lib gets a real directory lib that holds only b, as stacking with overlayfs
 * gives.)
 */
#pragma once

#include "path_text.h"
#include "unpack_attr.h"
#include "unpack_lower.h"
#include "unpack_path.h"

#include <stdint.h>

struct unpack_tree {
    int roots[UNPACK_LOWER_STACK_MAX]; /* [0] is filled; lower layers, topmost first; borrowed */
    size_t root_count;
    bool is_layer;
    /* The open parent: its path, descriptor (-1: none) and the times it is to have. */
    char dir_path[UNPACK_PATH_MAX];
    int dir_fd;
    struct timespec dir_times[2];
    bool dir_sets_group;    /* its setgid bit gives its group to what is made in it */
    bool dir_has_acl;       /* its default ACL goes to what is made in it */
    bool default_acls;      /* some directory has one: look for them */
    uint64_t bytes;         /* data written, for the checks of free space */
    uint64_t bytes_checked; /* when free space was last looked at */
    uint64_t bytes_max;     /* of data copied from lower layers and written, together */
    uint64_t dropped;       /* extended attributes left out */
    char dropped_first[2 * PATH_TEXT_MAX];
};

/* Opens the tree and gives its root the look of the layers below. */
int unpack_tree_open(struct unpack_tree *tree, struct err *err);
/* Writes back the open parent's times. To be called once at the end, and before its directory
 * is looked at by path. */
int unpack_tree_leave(struct unpack_tree *tree, struct err *err);

/* Makes the parent of `path` (not the root) the open one, making it when missing. */
int unpack_tree_enter_parent(struct unpack_tree *tree, const char *path, struct err *err);
/* Makes the directory `path` itself the open one in the same way. */
int unpack_tree_enter(struct unpack_tree *tree, const char *path, struct err *err);

/* Opens an existing directory below the root by path, without making anything. Returns a
 * descriptor, -ENOENT, -ENOTDIR, -ELOOP or another -errno (no message). */
int unpack_tree_open_dir(const struct unpack_tree *tree, const char *path);

/* Marks the open directory `fd` as hiding what lower layers have in it. */
int unpack_tree_set_opaque(int fd, const char *path, struct err *err);

/* Removes what has the last component of `path` in the open parent, whole trees too. */
int unpack_tree_remove(struct unpack_tree *tree, const char *path, struct err *err);

/* Counts data that is about to be written; ERR_TOO_LARGE above the limit, ERR_NO_SPACE when the
 * last part of the disk (5 %, at most 1 GiB) would be used. */
int unpack_tree_account(struct unpack_tree *tree, uint64_t bytes, struct err *err);
