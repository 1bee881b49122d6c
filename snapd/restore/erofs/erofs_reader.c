#include "erofs_reader.h"

#include "cleanup.h"
#include "erofs_bytes.h"

#include <inttypes.h>

static int check_incompat(uint32_t features, struct err *err)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } known[] = {
        {0x1, "compression"},
        {0x2, "compression with big clusters"},
        {0x8, "more devices, or a second compression"},
        {0x10, "compressed tails"},
        {0x20, "fragments or deduplication"},
        {0x40, "prefixes of attribute names"},
        {0x80, "48-bit block numbers"},
        {0x100, "a metadata box"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (features & known[i].bit)
            return err_fail(err, ERR_DAMAGED, "the image uses %s, which no layer image does",
                            known[i].name);
    if (features & ~(uint32_t)EROFS_INCOMPAT_CHUNKED)
        return err_fail(err, ERR_DAMAGED, "the image uses unknown features 0x%" PRIx32, features);
    return 0;
}

/* What the fields of features that are not there hold. */
static bool is_clean(const struct erofs_disk_super *super)
{
    static const struct erofs_disk_super none;
    return super->ext_slots == 0 && super->compression == 0 && super->extra_devices == 0 &&
           super->device_slot == 0 && super->dir_block_bits == 0 &&
           super->xattr_prefix_count == 0 && super->xattr_prefix_start == 0 &&
           super->packed_nid == 0 &&
           memcmp(super->reserved, none.reserved, sizeof none.reserved) == 0 &&
           memcmp(super->volume_name, none.volume_name, sizeof none.volume_name) == 0;
}

static int check_features(const struct erofs_disk_super *super, struct err *err)
{
    if (super->block_bits != EROFS_BLOCK_BITS)
        return err_fail(err, ERR_DAMAGED, "the image's blocks have 2^%u bytes, not 2^%d",
                        super->block_bits, EROFS_BLOCK_BITS);
    uint32_t known = EROFS_COMPAT_CHECKSUM | EROFS_COMPAT_MTIME;
    if (!(super->feature_compat & EROFS_COMPAT_CHECKSUM))
        return err_fail(err, ERR_DAMAGED, "the image's superblock has no checksum");
    if (super->feature_compat & ~known)
        return err_fail(err, ERR_DAMAGED, "the image uses unknown compatible features 0x%" PRIx32,
                        super->feature_compat & ~known);
    int rc = check_incompat(super->feature_incompat, err);
    if (rc < 0)
        return rc;
    if (!is_clean(super))
        return err_fail(err, ERR_DAMAGED,
                        "the image's superblock has fields of features that are not there");
    return 0;
}

static int check_places(const struct erofs_image *image, struct err *err)
{
    if (image->blocks == 0 || image->blocks > image->size / EROFS_BLOCK)
        return err_fail(err, ERR_DAMAGED,
                        "the image has %" PRIu64 " bytes, but its superblock tells of %" PRIu64
                        " blocks",
                        image->size, image->blocks);
    if (image->meta >= erofs_end(image))
        return err_fail(err, ERR_DAMAGED, "the image's inodes begin behind its end");
    if (image->xattrs > erofs_end(image))
        return err_fail(err, ERR_DAMAGED, "the image's shared attributes begin behind its end");
    return 0;
}

int erofs_image_open(const void *base, uint64_t size, struct erofs_image *ret, struct err *err)
{
    if (size < EROFS_BLOCK)
        return err_fail(err, ERR_DAMAGED, "the image ends inside its first block");
    struct erofs_disk_super super;
    memcpy(&super, (const uint8_t *)base + EROFS_SUPER_OFFSET, sizeof super);
    if (super.magic != EROFS_MAGIC)
        return err_fail(err, ERR_DAMAGED, "the image has no EROFS superblock");
    int rc = check_features(&super, err);
    if (rc < 0)
        return rc;
    if (super.checksum != erofs_format_checksum(base))
        return err_fail(err, ERR_DAMAGED, "the checksum of the image's first block is wrong");
    struct erofs_image image = {
        .base = base,
        .size = size,
        .blocks = super.blocks,
        .meta = (uint64_t)super.meta_block * EROFS_BLOCK,
        .xattrs = (uint64_t)super.xattr_block * EROFS_BLOCK,
        .root = super.root_nid,
        .inodes = super.inodes,
    };
    memcpy(image.uuid, super.uuid, sizeof image.uuid);
    rc = check_places(&image, err);
    if (rc < 0)
        return rc;
    *ret = image;
    return 0;
}
