/* erofs_check_inode.h - what one inode must be, for erofs_check.c: fields, attributes, data.
 *
 * Also adds up the bytes that inodes claim. No two of them share any in an image of ours, so the
 * sum is at most the image; this bounds the time of a check when an image makes them overlap.
 */
#pragma once

#include "erofs_reader.h"

struct erofs_check_inode;

/* `image` is borrowed until the end. */
int erofs_check_inode_new(const struct erofs_image *image, struct erofs_check_inode **ret,
                          struct err *err);
void erofs_check_inode_free(struct erofs_check_inode *check); /* NULL is fine */

/* To be called once for each inode. Of directories the names are the caller's. */
int erofs_check_inode_all(struct erofs_check_inode *check, const struct erofs_inode *inode,
                          struct err *err);
