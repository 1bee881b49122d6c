/* convert_copy.h - inodes of layers below, taken over into this one. */
#pragma once

#include "convert_attr.h"
#include "convert_tree.h"
#include "erofs_reader.h"

/* Owner, mode, time and the wanted attributes (convert_attr.h) of an inode. The caller frees. */
int convert_copy_attr(const struct erofs_image *image, const struct erofs_inode *inode,
                      struct convert_attr *ret, struct err *err);

/* Makes a file, link, device or fifo like the one in `image`, with its data. */
int convert_copy(struct convert_tree *tree, const struct erofs_image *image,
                 const struct erofs_inode *inode, uint64_t *ret_nid, struct err *err);
