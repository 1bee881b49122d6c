#include "convert_copy.h"

#include <string.h>
#include <sys/stat.h>

static int take_xattr(void *arg, const struct erofs_found_xattr *xattr, struct err *err)
{
    if (!convert_attr_is_wanted(xattr->name))
        return 0;
    return convert_attr_add(arg, xattr->name, xattr->value, xattr->size, err);
}

int convert_copy_attr(const struct erofs_image *image, const struct erofs_inode *inode,
                      struct convert_attr *ret, struct err *err)
{
    cleanup_convert_attr struct convert_attr attr = {
        .uid = inode->uid,
        .gid = inode->gid,
        .perm = inode->mode & 07777,
        .mtime = inode->mtime,
        .mtime_ns = inode->mtime_ns,
    };
    int rc = inode->xattr_len > 0 ? erofs_xattr_each(image, inode, take_xattr, &attr, err) : 0;
    if (rc < 0)
        return rc;
    *ret = attr;
    attr = (struct convert_attr){.xattrs = NULL};
    return 0;
}

static int take_data(void *arg, uint64_t offset, const void *bytes, size_t len, struct err *err)
{
    struct convert_tree *tree = arg;
    /* A file without holes comes as one piece, however large. */
    for (size_t done = 0; done < len;) {
        size_t n = len - done < CONVERT_TREE_PIECE ? len - done : CONVERT_TREE_PIECE;
        int rc = convert_tree_account(tree, n, err);
        if (rc == 0)
            rc = erofs_writer_file_data(tree->writer, offset + done, (const char *)bytes + done, n,
                                        err);
        if (rc < 0)
            return rc;
        done += n;
    }
    return 0;
}

static int copy_file(struct convert_tree *tree, const struct erofs_image *image,
                     const struct erofs_inode *inode, const struct erofs_attr *attr,
                     uint64_t *ret_nid, struct err *err)
{
    int rc = erofs_writer_file_begin(tree->writer, attr, inode->size, err);
    if (rc == 0)
        rc = erofs_data_each(image, inode, take_data, tree, err);
    if (rc == 0)
        rc = erofs_writer_file_end(tree->writer, ret_nid, err);
    return rc < 0 ? rc : convert_tree_account(tree, 0, err);
}

struct link_text {
    char text[EROFS_SYMLINK_MAX + 1];
};

static int take_link(void *arg, uint64_t offset, const void *bytes, size_t len, struct err *err)
{
    struct link_text *link = arg;
    if (offset > EROFS_SYMLINK_MAX || len > EROFS_SYMLINK_MAX - offset)
        return err_fail(err, ERR_DAMAGED, "the link in a lower layer is too long");
    memcpy(link->text + offset, bytes, len);
    return 0;
}

int convert_copy(struct convert_tree *tree, const struct erofs_image *image,
                 const struct erofs_inode *inode, uint64_t *ret_nid, struct err *err)
{
    struct link_text link = {.text = ""};
    cleanup_convert_attr struct convert_attr attr = {.xattrs = NULL};
    int rc = convert_copy_attr(image, inode, &attr, err);
    if (rc < 0)
        return rc;
    const struct erofs_attr out = convert_attr_erofs(&attr);
    if (S_ISREG(inode->mode))
        return copy_file(tree, image, inode, &out, ret_nid, err);
    if (S_ISLNK(inode->mode))
        rc = erofs_data_each(image, inode, take_link, &link, err);
    if (rc < 0)
        return rc;
    bool is_device = S_ISCHR(inode->mode) || S_ISBLK(inode->mode);
    return erofs_writer_node(tree->writer, inode->mode & S_IFMT, &out,
                             S_ISLNK(inode->mode) ? link.text : NULL, is_device ? inode->rdev : 0,
                             ret_nid, err);
}
