/* convert_tree.h - the tree of names that is being filled, and the way to a member's parent.
 *
 * A name is looked up in the writer's own tree, so neither a dot-dot nor a link of the archive
 * leads anywhere. Missing parents are made as implied directories: 0755, 0:0, the epoch as time;
 * what the layers below know about them is filled in at the end (convert_implied.h). A parent that
 * is there but no directory is a failure: a path through a link or file of the same archive. (A
 * layer that has only lib/b over a lower layer's link lib -> usr/lib gets a real directory lib that
 * holds only b, as stacking with overlayfs gives.)
 *
 * The last parent is remembered, as members of one directory mostly come together.
 */
#pragma once

#include "convert_path.h"
#include "erofs_writer.h"

enum {
    CONVERT_TREE_PIECE = 1 << 20, /* bytes that may be written without looking at the disk */
};

/* What is known about a directory (erofs_writer_dir_note). */
enum {
    CONVERT_DIR_IMPLIED = 1, /* no member lists it */
    CONVERT_DIR_OPAQUE = 2,  /* hides what lower layers have in it */
};

struct convert_tree {
    struct erofs_writer *writer; /* borrowed */
    int fd;                      /* of the image; borrowed */
    bool is_layer;
    bool is_lowest;
    uint64_t bytes;         /* data written */
    uint64_t bytes_max;     /* of data from the archive and from lower layers, together */
    uint64_t bytes_checked; /* image size when free space was last looked at */
    /* The last parent. Nothing but names in it has changed since, so it is still in the tree. */
    bool has_dir;
    erofs_dir dir;
    size_t dir_len;
    char dir_path[CONVERT_PATH_MAX];
};

/* The directory that holds `path` (not the root), made when missing. */
int convert_tree_parent(struct convert_tree *tree, const char *path, erofs_dir *ret,
                        struct err *err);
/* The directory `path` itself in the same way. */
int convert_tree_dir(struct convert_tree *tree, const char *path, erofs_dir *ret, struct err *err);

enum convert_tree_sight {
    CONVERT_TREE_HERE,   /* this layer has the path */
    CONVERT_TREE_ABSENT, /* it has not, and what layers below have there is seen */
    CONVERT_TREE_HIDDEN, /* it has not, and hides what is there below */
};
/* Looks a path up without making anything; *ret is written when it is here. The root is a
 * directory that is always here. */
enum convert_tree_sight convert_tree_find(const struct convert_tree *tree, const char *path,
                                          struct erofs_entry *ret);

/* Whole path of `name` (NULL: of the directory itself) for messages; also for directories that
 * were replaced. Cut at the far end when it is too long. */
void convert_tree_path(const struct convert_tree *tree, erofs_dir dir, const char *name,
                       char ret[CONVERT_PATH_MAX]);

/* Counts data that is written; ERR_TOO_LARGE above the limit, also when the image file takes more
 * than twice the limit, ERR_NO_SPACE when the last part of the disk is used (convert_space.h). To
 * be called for each member, with 0 bytes too, and for each CONVERT_TREE_PIECE bytes of its data.
 */
int convert_tree_account(struct convert_tree *tree, uint64_t bytes, struct err *err);
