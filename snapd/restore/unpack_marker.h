/* unpack_marker.h - OCI whiteouts become overlayfs ones (OCI image-spec, layer.md, "Whiteouts").
 *
 *   d/.wh.NAME        hides d/NAME of the layers below
 *   d/.wh..wh..opq    hides everything that the layers below have in d
 *   .wh..wh.*         other names that begin so are an old union file system's own; ignored
 *
 * Markers hide lower content only, wherever they stand in the archive. So they are collected while
 * the members are made and applied at the end, parents first, when it is known what the layer
 * itself has:
 *   - the layer has nothing at d/NAME: a 0:0 character device is made there,
 *   - it has a directory there: that becomes opaque,
 *   - it has something else there: that hides the lower content already.
 * A marker for what no lower layer shows, or for what another marker hides with its directory, does
 * nothing; no directory is invented for it. For the root, which overlayfs always merges, an opaque
 * marker stands for a whiteout of each name.
 */
#pragma once

#include "unpack_tree.h"

enum {
    UNPACK_MARKER_BYTES_MAX = 256 << 20, /* memory of all markers of one layer */
};

enum unpack_marker_kind {
    UNPACK_MARKER_NONE, /* an ordinary name */
    UNPACK_MARKER_WHITEOUT,
    UNPACK_MARKER_OPAQUE,
    UNPACK_MARKER_IGNORED,
};

struct unpack_marker {
    char *path; /* what is hidden, or the directory that is opaque; owned */
    bool is_opaque;
};

struct unpack_markers {
    struct unpack_marker *list; /* owned */
    size_t count;
    size_t cap;
    size_t bytes;
};

void unpack_markers_free(struct unpack_markers *markers);
#define cleanup_unpack_markers cleanup_with(unpack_markers_free)

/* Tells markers from members by their normalised name. ERR_DAMAGED for names that can be neither.
 */
int unpack_marker_parse(const char *path, enum unpack_marker_kind *ret, struct err *err);

/* Keeps the marker that stands at `path`. */
int unpack_marker_add(struct unpack_markers *markers, enum unpack_marker_kind kind,
                      const char *path, struct err *err);

/* Applies all of them to a tree that is otherwise finished. */
int unpack_marker_apply(struct unpack_markers *markers, struct unpack_tree *tree, struct err *err);
