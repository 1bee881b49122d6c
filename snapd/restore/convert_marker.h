/* convert_marker.h - OCI whiteouts become overlayfs ones (OCI image-spec, layer.md, "Whiteouts").
 *
 *   d/.wh.NAME        hides d/NAME of the layers below
 *   d/.wh..wh..opq    hides everything that the layers below have in d
 *   .wh..wh.*         other names that begin so are an old union file system's own; ignored
 *
 * Markers hide lower content only, wherever they stand in the archive. So they are collected while
 * the members are made and looked at after the last one, parents first, when it is known what the
 * layer itself has:
 *   - it has a directory there: that becomes opaque,
 *   - it has something else there, or hides what is below with a parent: nothing is left to do,
 *   - it has nothing there: a 0:0 character device is made, if the layers below show the name.
 * Only the last needs the layers below; a marker for what they do not show, or for what another
 * marker hides with its directory, does nothing, and no directory is invented for it. All whiteouts
 * are names of one inode. For the root, which overlayfs always merges, an opaque marker stands for
 * a whiteout of each name. No link of a lower layer is followed.
 *
 * A layer's own directories become opaque even where it is known that nothing lies below, so that
 * the image does not depend on that.
 */
#pragma once

#include "convert_lower.h"
#include "convert_tree.h"

enum {
    CONVERT_MARKER_BYTES_MAX = 256 << 20, /* memory of all markers of one layer */
};

enum convert_marker_kind {
    CONVERT_MARKER_NONE, /* an ordinary name */
    CONVERT_MARKER_WHITEOUT,
    CONVERT_MARKER_OPAQUE,
    CONVERT_MARKER_IGNORED,
};

/* What is hidden, or the directories that are opaque. */
struct convert_markers {
    char *text; /* for each the kind, the path and a NUL byte; owned */
    size_t text_len;
    size_t text_cap;
    uint32_t *list; /* where each begins in `text`; owned */
    size_t count;
    size_t cap;
    uint64_t whiteout; /* nid of the one inode; 0: not made yet */
};

void convert_markers_free(struct convert_markers *markers);

/* Tells markers from members by their normalised name. ERR_DAMAGED for names that can be neither.
 */
int convert_marker_parse(const char *path, enum convert_marker_kind *ret, struct err *err);

/* Keeps the marker that stands at `path`. */
int convert_marker_add(struct convert_markers *markers, enum convert_marker_kind kind,
                       const char *path, struct err *err);

/* After the last member: applies those that the layer itself decides and forgets them. The others
 * stay (`count`). */
void convert_marker_settle(struct convert_markers *markers, struct convert_tree *tree);
/* Applies the rest to a tree that is otherwise finished. */
int convert_marker_apply(struct convert_markers *markers, struct convert_tree *tree,
                         struct convert_lower *lower, struct err *err);
