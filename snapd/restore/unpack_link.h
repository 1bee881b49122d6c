/* unpack_link.h - hard links.
 *
 * The target is looked up in the layer that is being made, then, for a layer, in the layers below
 * as overlayfs would show them. A target of this layer is linked; one of a lower layer is copied
 * with its attributes, as two layers cannot share an inode. Links to directories, to nothing and to
 * the link's own name are failures that name both. A target that only a later member makes is
 * nothing.
 */
#pragma once

#include "unpack_entry.h"

/* Makes the link in the open parent directory. */
int unpack_link(struct unpack_tree *tree, const struct unpack_member *member, struct err *err);
