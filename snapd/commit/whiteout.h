/* whiteout.h - from the marks of overlayfs to those of OCI layers.
 *
 * Job: looks at one entry of an overlay's upper directory and says what the layer gets for it.
 *
 *   0:0 character device NAME               -> an empty file ".wh.NAME" (a deletion)
 *   trusted.overlay.opaque = "y"            -> ".wh..wh..opq" right behind the directory's entry
 *   other trusted.overlay.* attributes      -> left out: bookkeeping of this one mount
 *   trusted.overlay.overlay.X               -> trusted.overlay.X: overlayfs stores attributes that
 *                                              a process inside set with one more "overlay."
 *
 * Refused by name (ERR_UNSUPPORTED), because the upper directory alone does not hold what the
 * merged view shows: trusted.overlay.redirect (a directory renamed with redirect_dir=on),
 * trusted.overlay.metacopy (a file whose content is still below) and trusted.overlay.whiteout
 * (whiteouts by attribute, which overlayfs itself never makes). An entry called ".wh.*" is refused
 * as well, as every reader of the layer would take it for a deletion.
 *
 * user.overlay.* is ordinary data: runs are mounted without userxattr.
 * (Linux, Documentation/filesystems/overlayfs.rst; OCI image-spec, layer.md, "Whiteouts".)
 */
#pragma once

#include "buf.h"
#include "err.h"
#include "walk.h"

#include <stdbool.h>
#include <stddef.h>

#define WHITEOUT_PREFIX ".wh."
#define WHITEOUT_OPAQUE ".wh..wh..opq"

/* Storage for one entry at a time. */
struct whiteout {
    struct walk_xattr *xattrs; /* owned */
    size_t cap;
    char *names; /* owned; of attributes that are called differently in the layer */
    size_t names_len;
};

/* What the layer gets; borrowed from the entry and the storage. */
struct whiteout_view {
    bool deleted; /* nothing but a deletion of this name */
    bool opaque;  /* a directory that hides everything below it in lower layers */
    const struct walk_xattr *xattrs; /* what is left of the entry's attributes, sorted */
    size_t xattr_count;
};

int whiteout_init(struct whiteout *whiteout, struct err *err);
void whiteout_free(struct whiteout *whiteout);
#define cleanup_whiteout cleanup_with(whiteout_free)

int whiteout_translate(struct whiteout *whiteout, const struct walk_entry *entry,
                       struct whiteout_view *ret, struct err *err);

/* Refuses a name that a layer would take for a mark. */
int whiteout_check_name(const struct walk_entry *entry, struct err *err);

/* Writes the path of the mark for an entry into `ret`: the deletion of its name, or the opaque mark
 * in it. */
int whiteout_deletion_path(const struct walk_entry *entry, struct buf *ret, struct err *err);
int whiteout_opaque_path(const struct walk_entry *entry, struct buf *ret, struct err *err);
