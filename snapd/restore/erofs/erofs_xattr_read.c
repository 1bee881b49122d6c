/* erofs_xattr_read.c - the extended attributes of an inode.
 *
 * Behind the inode: a header with the number of shared attributes, their places (in units of 4
 * bytes from the shared area's beginning), then the attributes that are this inode's alone, up to
 * the end of the area. An attribute is its lengths, the number of its prefix, name and value.
 */
#include "cleanup.h"
#include "erofs_bytes.h"

#include <inttypes.h>

static const struct {
    const char *text;
    bool is_whole; /* nothing follows it */
} prefixes[] = {
    [EROFS_XATTR_USER] = {"user.", false},
    [EROFS_XATTR_ACL_ACCESS] = {"system.posix_acl_access", true},
    [EROFS_XATTR_ACL_DEFAULT] = {"system.posix_acl_default", true},
    [EROFS_XATTR_TRUSTED] = {"trusted.", false},
    [EROFS_XATTR_SECURITY] = {"security.", false},
};

struct area {
    const struct erofs_image *image;
    const struct erofs_inode *inode;
    erofs_xattr_take *take;
    void *arg;
};

static int bad(const struct area *area, const char *what, struct err *err)
{
    return err_fail(err, ERR_DAMAGED, "an attribute of inode %" PRIu64 " %s", area->inode->nid,
                    what);
}

static int set_name(const struct area *area, size_t prefix, const void *name, size_t len,
                    struct erofs_found_xattr *xattr, struct err *err)
{
    if (prefix >= ARRAY_SIZE(prefixes) || !prefixes[prefix].text)
        return bad(area, "has an unknown prefix", err);
    if (prefixes[prefix].is_whole != (len == 0))
        return bad(area, "has a name of a wrong length", err);
    size_t before = strlen(prefixes[prefix].text);
    if (before + len >= sizeof xattr->name)
        return bad(area, "has a name that is too long", err);
    if (memchr(name, '\0', len))
        return bad(area, "has a NUL in its name", err);
    memcpy(xattr->name, prefixes[prefix].text, before);
    memcpy(xattr->name + before, name, len);
    xattr->name[before + len] = '\0';
    return 0;
}

/* Hands out the attribute at `offset`, which must end before `end`. `ret_next` is the next one's
 * place. */
static int take_one(const struct area *area, uint64_t offset, uint64_t end, uint64_t *ret_next,
                    struct err *err)
{
    struct erofs_disk_xattr raw;
    if (offset > end || end - offset < sizeof raw)
        return bad(area, "lies outside of its area", err);
    memcpy(&raw, area->image->base + offset, sizeof raw);
    const uint8_t *name = area->image->base + offset + sizeof raw;
    uint64_t size = (sizeof raw + raw.name_len + raw.value_size + 3) & ~UINT64_C(3);
    if (size > end - offset)
        return bad(area, "reaches over the end of its area", err);
    struct erofs_found_xattr xattr = {
        .value = name + raw.name_len,
        .size = raw.value_size,
    };
    int rc = set_name(area, raw.name_index, name, raw.name_len, &xattr, err);
    if (rc >= 0)
        rc = area->take(area->arg, &xattr, err);
    if (rc < 0)
        return rc;
    *ret_next = offset + size;
    return 0;
}

int erofs_xattr_each(const struct erofs_image *image, const struct erofs_inode *inode,
                     erofs_xattr_take *take, void *arg, struct err *err)
{
    if (inode->xattr_len == 0)
        return 0;
    struct area area = {image, inode, take, arg};
    struct erofs_disk_xattr_header header;
    memcpy(&header, image->base + inode->xattr_offset, sizeof header);
    uint64_t refs = inode->xattr_offset + sizeof header;
    uint64_t end = inode->xattr_offset + inode->xattr_len;
    uint64_t next = refs + header.shared_count * sizeof(uint32_t);
    if (next > end)
        return err_fail(err, ERR_DAMAGED,
                        "inode %" PRIu64 " has more shared attributes than there is room for",
                        inode->nid);
    int rc = 0;
    for (; refs < next && rc >= 0; refs += sizeof(uint32_t)) {
        uint64_t ignored;
        uint64_t place = erofs_u32(image->base + refs);
        rc = take_one(&area, image->xattrs + place * 4, erofs_end(image), &ignored, err);
    }
    while (rc >= 0 && next < end)
        rc = take_one(&area, next, end, &next, err);
    return rc < 0 ? rc : 0;
}
