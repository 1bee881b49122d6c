/* erofs_data.c - the bytes of a file or link, without its holes. */
#include "erofs_bytes.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>

static int take_flat(const struct erofs_image *image, const struct erofs_inode *inode,
                     erofs_data_take *take, void *arg, struct err *err)
{
    uint64_t whole = erofs_whole_blocks(inode) * EROFS_BLOCK;
    if (whole > inode->size)
        whole = inode->size;
    int rc = 0;
    if (whole > 0)
        rc = take(arg, 0, image->base + inode->data_offset, whole, err);
    if (rc >= 0 && inode->size > whole)
        rc = take(arg, whole, image->base + inode->tail_offset, inode->size - whole, err);
    return rc < 0 ? rc : 0;
}

/* erofs_inode_read() has seen that the map lies inside the image, so its length is bounded. */
static int take_chunks(const struct erofs_image *image, const struct erofs_inode *inode,
                       erofs_data_take *take, void *arg, struct err *err)
{
    uint64_t chunk = UINT64_C(1) << inode->chunk_bits;
    const uint8_t *map = image->base + inode->data_offset;
    int rc = 0;
    for (uint64_t at = 0; at < inode->size && rc >= 0; at += chunk, map += sizeof(uint32_t)) {
        uint32_t first = erofs_u32(map);
        if (first == EROFS_HOLE)
            continue;
        uint64_t len = inode->size - at < chunk ? inode->size - at : chunk;
        if (!erofs_are_data_blocks(image, first, erofs_blocks_of(len)))
            return err_fail(err, ERR_DAMAGED,
                            "the chunk of inode %" PRIu64 " at byte %" PRIu64 " (block %" PRIu32
                            ") does not lie inside the image",
                            inode->nid, at, first);
        rc = take(arg, at, image->base + (uint64_t)first * EROFS_BLOCK, len, err);
    }
    return rc < 0 ? rc : 0;
}

int erofs_data_each(const struct erofs_image *image, const struct erofs_inode *inode,
                    erofs_data_take *take, void *arg, struct err *err)
{
    if (!S_ISREG(inode->mode) && !S_ISLNK(inode->mode))
        return err_errno(err, EINVAL, "cannot read the data of inode %" PRIu64, inode->nid);
    return inode->layout == EROFS_CHUNK_BASED ? take_chunks(image, inode, take, arg, err)
                                              : take_flat(image, inode, take, arg, err);
}
