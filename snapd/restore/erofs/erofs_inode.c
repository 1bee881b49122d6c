#include "erofs_writer_internal.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

int erofs_attr_check(const struct erofs_attr *attr, struct err *err)
{
    if (attr->uid == UINT32_MAX || attr->gid == UINT32_MAX)
        return err_fail(err, ERR_INVALID, "the owner 4294967295 is none");
    if ((attr->perm & ~07777) != 0)
        return err_fail(err, ERR_INVALID, "the permissions 0%o are none", (unsigned)attr->perm);
    if (attr->mtime_ns >= 1000000000)
        return err_fail(err, ERR_INVALID, "a time with %u nanoseconds", attr->mtime_ns);
    return 0;
}

struct erofs_owner erofs_owner_of(const struct erofs_attr *attr)
{
    return (struct erofs_owner){.uid = attr->uid,
                                .gid = attr->gid,
                                .perm = attr->perm,
                                .mtime = attr->mtime,
                                .mtime_ns = attr->mtime_ns};
}

struct erofs_disk_inode erofs_inode_encode(struct erofs_writer *writer,
                                           const struct erofs_new_inode *inode)
{
    size_t body = writer->body.len;
    size_t header = sizeof(struct erofs_disk_xattr_header);
    return (struct erofs_disk_inode){
        .format = (uint16_t)(EROFS_FORMAT_EXTENDED | inode->layout << EROFS_FORMAT_LAYOUT_SHIFT),
        .xattr_count = (uint16_t)(body > 0 ? (body - header) / 4 + 1 : 0),
        .mode = (uint16_t)(inode->type | inode->owner.perm),
        .size = inode->size,
        .u = inode->u,
        .ino = ++writer->inodes,
        .uid = inode->owner.uid,
        .gid = inode->owner.gid,
        .mtime = inode->owner.mtime,
        .mtime_ns = inode->owner.mtime_ns,
        .nlink = inode->nlink,
    };
}

int erofs_inode_write(struct erofs_writer *writer, const struct erofs_new_inode *inode,
                      uint64_t pos, struct err *err)
{
    struct erofs_disk_inode disk = erofs_inode_encode(writer, inode);
    struct erofs_meta *meta = &writer->meta;
    int rc = erofs_meta_write(meta, pos, &disk, sizeof disk, err);
    pos += sizeof disk;
    if (rc == 0)
        rc = erofs_meta_write(meta, pos, writer->body.bytes, writer->body.len, err);
    pos += writer->body.len;
    if (rc == 0)
        rc = erofs_meta_write(meta, pos, inode->rest, inode->rest_len, err);
    return rc;
}

int erofs_inode_add(struct erofs_writer *writer, const struct erofs_new_inode *inode,
                    uint64_t *ret_nid, struct err *err)
{
    uint64_t pos;
    uint64_t len = EROFS_INODE_SIZE + writer->body.len + inode->rest_len;
    int rc = erofs_meta_place(&writer->meta, len, &pos, err);
    if (rc == 0)
        rc = erofs_inode_write(writer, inode, pos, err);
    if (rc < 0)
        return rc;
    *ret_nid = pos / EROFS_SLOT;
    return 0;
}

/* The number as the kernel's new_encode_dev() makes it. */
static int encode_device(dev_t rdev, uint32_t *ret, struct err *err)
{
    if (major(rdev) > 0xFFF || minor(rdev) > 0xFFFFF)
        return err_fail(err, ERR_INVALID, "the device number %u:%u does not fit an inode",
                        major(rdev), minor(rdev));
    *ret = (minor(rdev) & 0xFF) | major(rdev) << 8 | (minor(rdev) & ~UINT32_C(0xFF)) << 12;
    return 0;
}

/* The target goes behind the inode, or to a block where they do not fit one together. */
static int put_target(struct erofs_writer *writer, const char *target,
                      struct erofs_new_inode *inode, struct err *err)
{
    size_t len = target ? strnlen(target, EROFS_SYMLINK_MAX + 1) : 0;
    if (len == 0 || len > EROFS_SYMLINK_MAX)
        return err_fail(err, ERR_INVALID, "the target of a link has 1 to %d bytes",
                        EROFS_SYMLINK_MAX);
    inode->size = len;
    if (EROFS_INODE_SIZE + writer->body.len + len <= EROFS_BLOCK) {
        inode->layout = EROFS_FLAT_INLINE;
        inode->rest = target;
        inode->rest_len = len;
        return 0;
    }
    inode->u = (uint32_t)(erofs_out_pos(&writer->out) / EROFS_BLOCK);
    int rc = erofs_out_add(&writer->out, target, len, err);
    return rc < 0 ? rc : erofs_out_align(&writer->out, err);
}

int erofs_writer_node(struct erofs_writer *writer, mode_t type, const struct erofs_attr *attr,
                      const char *target, dev_t rdev, uint64_t *ret_nid, struct err *err)
{
    struct erofs_new_inode inode = {
        .type = type, .layout = EROFS_FLAT_PLAIN, .owner = erofs_owner_of(attr), .nlink = 1};
    if (writer->file.is_open || writer->is_finished)
        return err_fail(err, ERR_INTERNAL, "a node in the middle of a file");
    int rc = erofs_attr_check(attr, err);
    if (rc == 0)
        rc = erofs_xattr_encode(&writer->xattrs, attr->xattrs, attr->xattr_count, &writer->body,
                                err);
    if (rc < 0)
        return rc;
    switch (type) {
    case S_IFLNK:
        rc = put_target(writer, target, &inode, err);
        break;
    case S_IFCHR:
    case S_IFBLK:
        rc = encode_device(rdev, &inode.u, err);
        break;
    case S_IFIFO:
    case S_IFSOCK:
        break;
    default:
        return err_fail(err, ERR_INTERNAL, "0%o is no type of a node", (unsigned)type);
    }
    return rc < 0 ? rc : erofs_inode_add(writer, &inode, ret_nid, err);
}
