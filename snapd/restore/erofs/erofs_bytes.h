/* erofs_bytes.h - what the reader's files share: whether a range lies inside the image.
 *
 * Ranges are checked against the blocks that the superblock tells of, which erofs_image_open() has
 * checked against the size of the mapping. Nothing in an image is believed to be aligned:
 * structures (erofs_format.h) are copied out.
 */
#pragma once

#include "erofs_format.h"
#include "erofs_reader.h"

#include <stdbool.h>
#include <string.h>

/* The largest size of an inode; its blocks can still be counted in the kernel's signed numbers. */
#define EROFS_FILE_MAX (INT64_MAX - (EROFS_BLOCK - 1))

static inline uint32_t erofs_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Bytes of the image: at most 2^44. */
static inline uint64_t erofs_end(const struct erofs_image *image)
{
    return image->blocks * EROFS_BLOCK;
}

static inline bool erofs_is_inside(const struct erofs_image *image, uint64_t offset, uint64_t len)
{
    uint64_t end = erofs_end(image);
    return len <= end && offset <= end - len;
}

/* Whether blocks lie inside the image and behind the superblock. */
static inline bool erofs_are_data_blocks(const struct erofs_image *image, uint64_t first,
                                         uint64_t count)
{
    return first >= 1 && count <= image->blocks && first <= image->blocks - count;
}

/* Blocks that hold `size` bytes; sizes of inodes are at most EROFS_FILE_MAX. */
static inline uint64_t erofs_blocks_of(uint64_t size)
{
    return size / EROFS_BLOCK + (size % EROFS_BLOCK != 0);
}

/* Blocks of a flat inode that do not lie behind the inode itself. */
static inline uint64_t erofs_whole_blocks(const struct erofs_inode *inode)
{
    uint64_t blocks = erofs_blocks_of(inode->size);
    return inode->layout == EROFS_FLAT_INLINE && blocks > 0 ? blocks - 1 : blocks;
}
