/* erofs_agree.h - whether the reader and the kernel see the same in an image.
 *
 * The image is mounted from its file (Linux 6.12 and later; needs root), then every directory,
 * inode, attribute, byte and hole is asked for both ways. The first difference fails the test.
 */
#pragma once

#include "erofs_reader.h"

struct erofs_agree_count {
    unsigned inodes; /* hard links count each time */
    unsigned xattrs;
    unsigned holes; /* in files */
};

/* `path` is the image file, `target` an existing directory to mount it on; unmounted again. */
void erofs_agree(const char *path, const char *target, struct erofs_agree_count *ret);
