/* erofs_inode_read.c - one inode, and that its data and attributes lie inside the image. */
#include "erofs_bytes.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum {
    CHUNK_INDEXES = 0x20, /* 8 bytes per chunk, with a device */
};

static enum erofs_layout layout_of(const struct erofs_disk_inode *raw)
{
    return (enum erofs_layout)(raw->format >> EROFS_FORMAT_LAYOUT_SHIFT);
}

static int check_format(const struct erofs_disk_inode *raw, uint64_t nid, struct err *err)
{
    static const struct erofs_disk_inode none;
    if (!(raw->format & EROFS_FORMAT_EXTENDED))
        return err_fail(err, ERR_DAMAGED, "inode %" PRIu64 " is a compact one", nid);
    if (raw->format & ~EROFS_FORMAT_KNOWN_BITS)
        return err_fail(err, ERR_DAMAGED, "inode %" PRIu64 " has an unknown format 0x%x", nid,
                        raw->format);
    enum erofs_layout layout = layout_of(raw);
    if (layout != EROFS_FLAT_PLAIN && layout != EROFS_FLAT_INLINE && layout != EROFS_CHUNK_BASED)
        return err_fail(err, ERR_DAMAGED, "inode %" PRIu64 " has the %s data layout %d", nid,
                        layout < EROFS_CHUNK_BASED ? "compressed" : "unknown", (int)layout);
    if (raw->reserved != 0 || memcmp(raw->reserved2, none.reserved2, sizeof none.reserved2) != 0)
        return err_fail(err, ERR_DAMAGED, "inode %" PRIu64 " has unused fields that are not 0",
                        nid);
    return 0;
}

static int read_xattr_place(const struct erofs_image *image, uint32_t count,
                            struct erofs_inode *inode, struct err *err)
{
    /* The kernel does not know a header with nothing behind it. */
    if (count == 1)
        return err_fail(err, ERR_DAMAGED, "inode %" PRIu64 " has an empty attribute area",
                        inode->nid);
    if (count > 0)
        inode->xattr_len = (uint32_t)sizeof(struct erofs_disk_xattr_header) + (count - 1) * 4;
    if (!erofs_is_inside(image, inode->xattr_offset, inode->xattr_len))
        return err_fail(err, ERR_DAMAGED,
                        "the attributes of inode %" PRIu64 " reach over the image's end",
                        inode->nid);
    return 0;
}

static int read_flat(const struct erofs_image *image, uint64_t first, struct erofs_inode *inode,
                     struct err *err)
{
    uint64_t blocks = erofs_whole_blocks(inode);
    if (blocks > 0 && !erofs_are_data_blocks(image, first, blocks))
        return err_fail(err, ERR_DAMAGED,
                        "the data of inode %" PRIu64 " (%" PRIu64 " blocks from %" PRIu64
                        ") does not lie inside the image",
                        inode->nid, blocks, first);
    inode->data_offset = blocks > 0 ? first * EROFS_BLOCK : 0;
    if (inode->layout == EROFS_FLAT_PLAIN)
        return 0;
    inode->tail_offset = inode->xattr_offset + inode->xattr_len;
    uint64_t tail = inode->size - blocks * EROFS_BLOCK;
    if (inode->tail_offset % EROFS_BLOCK + tail > EROFS_BLOCK ||
        !erofs_is_inside(image, inode->tail_offset, tail))
        return err_fail(err, ERR_DAMAGED,
                        "the inline data of inode %" PRIu64 " reaches over its block's end",
                        inode->nid);
    return 0;
}

static int read_chunks(const struct erofs_image *image, uint32_t format, struct erofs_inode *inode,
                       struct err *err)
{
    if (format & CHUNK_INDEXES)
        return err_fail(err, ERR_DAMAGED, "inode %" PRIu64 " has a chunk index, not a map",
                        inode->nid);
    if (format & ~(uint32_t)EROFS_CHUNK_BITS_MASK)
        return err_fail(err, ERR_DAMAGED,
                        "inode %" PRIu64 " has an unknown chunk format 0x%" PRIx32, inode->nid,
                        format);
    inode->chunk_bits = (uint8_t)(EROFS_BLOCK_BITS + format);
    inode->data_offset = inode->xattr_offset + inode->xattr_len;
    uint64_t chunk = UINT64_C(1) << inode->chunk_bits;
    uint64_t chunks = inode->size / chunk + (inode->size % chunk != 0);
    /* At most 2^51, so the product is right. */
    if (!erofs_is_inside(image, inode->data_offset, chunks * sizeof(uint32_t)))
        return err_fail(err, ERR_DAMAGED,
                        "the chunk map of inode %" PRIu64 " reaches over the image's end",
                        inode->nid);
    return 0;
}

static dev_t decode_device(uint32_t raw)
{
    return makedev(raw >> 8 & 0xFFF, (raw & 0xFF) | (raw >> 12 & 0xFFF00));
}

static int read_place(const struct erofs_image *image, uint32_t place, struct erofs_inode *inode,
                      struct err *err)
{
    switch (inode->mode & S_IFMT) {
    case S_IFREG:
        return inode->layout == EROFS_CHUNK_BASED ? read_chunks(image, place, inode, err)
                                                  : read_flat(image, place, inode, err);
    case S_IFDIR:
    case S_IFLNK:
        if (inode->layout == EROFS_CHUNK_BASED)
            return err_fail(err, ERR_DAMAGED, "inode %" PRIu64 " is no file, but has chunks",
                            inode->nid);
        return read_flat(image, place, inode, err);
    case S_IFCHR:
    case S_IFBLK:
        inode->rdev = decode_device(place);
        break;
    case S_IFIFO:
    case S_IFSOCK:
        break;
    default:
        return err_fail(err, ERR_DAMAGED, "inode %" PRIu64 " has an unknown type (mode 0%o)",
                        inode->nid, inode->mode);
    }
    if (inode->size != 0 || inode->layout != EROFS_FLAT_PLAIN)
        return err_fail(err, ERR_DAMAGED,
                        "inode %" PRIu64 " is a device, fifo or socket, but has data", inode->nid);
    return 0;
}

int erofs_inode_read(const struct erofs_image *image, uint64_t nid, struct erofs_inode *ret,
                     struct err *err)
{
    if (nid >= (erofs_end(image) - image->meta) / EROFS_SLOT)
        return err_fail(err, ERR_DAMAGED, "inode %" PRIu64 " does not lie inside the image", nid);
    uint64_t offset = image->meta + nid * EROFS_SLOT;
    if (offset < EROFS_SUPER_OFFSET + sizeof(struct erofs_disk_super) ||
        !erofs_is_inside(image, offset, EROFS_INODE_SIZE))
        return err_fail(err, ERR_DAMAGED, "inode %" PRIu64 " does not lie inside the image", nid);
    struct erofs_disk_inode raw;
    memcpy(&raw, image->base + offset, sizeof raw);
    int rc = check_format(&raw, nid, err);
    if (rc < 0)
        return rc;
    struct erofs_inode inode = {
        .nid = nid,
        .mode = raw.mode,
        .uid = raw.uid,
        .gid = raw.gid,
        .nlink = raw.nlink,
        .size = raw.size,
        .mtime = raw.mtime,
        .mtime_ns = raw.mtime_ns,
        .layout = layout_of(&raw),
        .xattr_offset = offset + EROFS_INODE_SIZE,
    };
    if (inode.size > EROFS_FILE_MAX)
        return err_fail(err, ERR_DAMAGED, "inode %" PRIu64 " has %" PRIu64 " bytes", nid,
                        inode.size);
    rc = read_xattr_place(image, raw.xattr_count, &inode, err);
    if (rc == 0)
        rc = read_place(image, raw.u, &inode, err);
    if (rc < 0)
        return rc;
    *ret = inode;
    return 0;
}
