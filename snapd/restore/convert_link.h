/* convert_link.h - hard links.
 *
 * The target is looked up in the layer that is being made. One that is there is linked. For a layer
 * with layers below, one that is not there, and not hidden by what is, may lie in those: the link
 * is pending, and its name is given to a placeholder, so that later members can replace it or link
 * to it. At the end the target is looked up below as overlayfs would show it, and becomes an inode
 * of this layer, with its attributes and data, as two layers cannot share one; all links to one
 * lower file share it. Links to directories, to nothing and to the link's own name are failures
 * that name both paths. A target that only a later member makes is nothing.
 */
#pragma once

#include "convert_entry.h"
#include "convert_lower.h"

enum {
    CONVERT_LINK_BYTES_MAX = 256 << 20, /* memory of all pending links of one layer */
};

/* A target that this layer does not have. */
struct convert_link_target {
    uint64_t placeholder; /* nid of a socket, which nothing else is; ascending */
    uint32_t path;        /* in `text` */
    uint32_t first;       /* index of the first link to it */
    /* What it was resolved to. */
    const struct erofs_image *image; /* borrowed */
    uint64_t lower_nid;
    uint32_t leader; /* index of the first target that is the same lower inode */
    mode_t type;
    uint64_t nid; /* in this layer, of leaders; 0: not copied yet */
};

/* A name that stands for one. */
struct convert_link_name {
    erofs_dir dir;
    uint32_t name; /* in `text` */
    uint64_t placeholder;
};

struct convert_links {
    char *text; /* paths and names, each with a NUL byte; owned */
    size_t text_len;
    size_t text_cap;
    struct convert_link_target *targets; /* owned */
    size_t target_count;
    size_t target_cap;
    struct convert_link_name *names; /* owned */
    size_t name_count;
    size_t name_cap;
};

void convert_links_free(struct convert_links *links);

/* Makes the hard link `member`, or keeps it as pending. */
int convert_link(struct convert_links *links, struct convert_tree *tree,
                 const struct convert_member *member, struct err *err);

/* Makes what is pending. */
int convert_link_resolve(struct convert_links *links, struct convert_tree *tree,
                         struct convert_lower *lower, struct err *err);

/* Shared by the two halves of this module: the failures, and giving the name in `dir` to an inode
 * (what is at the name goes, unless it is that very inode). */
int convert_link_refuse(const char *path, const char *target, const char *why, struct err *err);
int convert_link_refuse_missing(const struct convert_tree *tree, const char *path,
                                const char *target, struct err *err);
int convert_link_give(struct convert_tree *tree, erofs_dir dir, const char *name, mode_t type,
                      uint64_t nid, struct err *err);
