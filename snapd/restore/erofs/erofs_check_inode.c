#include "erofs_check_inode.h"

#include "cleanup.h"
#include "erofs_bytes.h"
#include "erofs_check_xattr.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/limits.h>
#include <sys/stat.h>

enum {
    LINK_MAX_BYTES = 4095,
    XATTR_NAMES_MAX = XATTR_LIST_MAX / 7 + 1, /* "user.x" and its NUL: the shortest */
    NANOSECONDS = 1000000000,
};

struct erofs_check_inode {
    const struct erofs_image *image;
    uint64_t claimed; /* bytes */
    const struct erofs_inode *inode;
    /* Names of its attributes, as listxattr() would give them. */
    char list[XATTR_LIST_MAX];
    size_t list_len;
    const char *names[XATTR_NAMES_MAX];
    size_t name_count;
};

int erofs_check_inode_new(const struct erofs_image *image, struct erofs_check_inode **ret,
                          struct err *err)
{
    struct erofs_check_inode *check = calloc(1, sizeof *check);
    if (!check)
        return err_errno(err, ENOMEM, "cannot check an image");
    check->image = image;
    *ret = check;
    return 0;
}

void erofs_check_inode_free(struct erofs_check_inode *check)
{
    free(check);
}

static int bad(const struct erofs_inode *inode, const char *what, struct err *err)
{
    return err_fail(err, ERR_DAMAGED, "inode %" PRIu64 " %s", inode->nid, what);
}

static int claim(struct erofs_check_inode *check, uint64_t bytes, struct err *err)
{
    if (bytes > erofs_end(check->image) - check->claimed)
        return bad(check->inode, "shares bytes of the image with others", err);
    check->claimed += bytes;
    return 0;
}

static int check_fields(const struct erofs_inode *inode, struct err *err)
{
    if (inode->uid == UINT32_MAX || inode->gid == UINT32_MAX)
        return bad(inode, "has an owner that does not exist (4294967295)", err);
    if (inode->mtime_ns >= NANOSECONDS)
        return bad(inode, "has a time of more than a second's nanoseconds", err);
    if (inode->nlink == 0)
        return bad(inode, "has a link count of 0", err);
    return 0;
}

static int take_xattr(void *arg, const struct erofs_found_xattr *xattr, struct err *err)
{
    struct erofs_check_inode *check = arg;
    int rc = erofs_check_xattr(check->inode, xattr, err);
    if (rc < 0)
        return rc;
    size_t size = strlen(xattr->name) + 1;
    if (size > sizeof check->list - check->list_len || check->name_count == XATTR_NAMES_MAX)
        return bad(check->inode, "has more attributes than can be listed", err);
    check->names[check->name_count++] = memcpy(check->list + check->list_len, xattr->name, size);
    check->list_len += size;
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_xattrs(struct erofs_check_inode *check, struct err *err)
{
    check->list_len = 0;
    check->name_count = 0;
    int rc = erofs_xattr_each(check->image, check->inode, take_xattr, check, err);
    if (rc < 0 || check->name_count < 2)
        return rc;
    qsort(check->names, check->name_count, sizeof check->names[0], compare_names);
    for (size_t i = 1; i < check->name_count; i++)
        if (strcmp(check->names[i - 1], check->names[i]) == 0)
            return err_fail(err, ERR_DAMAGED, "inode %" PRIu64 " has two attributes %s",
                            check->inode->nid, check->names[i]);
    return 0;
}

/* Kernels before 6.10 want all of an inline link in the block where the inode ends. */
static bool is_link_in_one_block(const struct erofs_inode *link)
{
    if (link->layout != EROFS_FLAT_INLINE)
        return true;
    uint64_t end = link->xattr_offset % EROFS_BLOCK;
    if (end == 0)
        end = EROFS_BLOCK;
    return end + link->xattr_len + link->size <= EROFS_BLOCK;
}

static int take_data(void *arg, uint64_t offset, const void *bytes, size_t len, struct err *err)
{
    struct erofs_check_inode *check = arg;
    (void)offset;
    if (S_ISLNK(check->inode->mode) && memchr(bytes, '\0', len))
        return bad(check->inode, "is a link with a NUL in its target", err);
    return claim(check, len, err);
}

static uint64_t map_bytes(const struct erofs_inode *file)
{
    if (file->layout != EROFS_CHUNK_BASED || file->size == 0)
        return 0;
    return (((file->size - 1) >> file->chunk_bits) + 1) * sizeof(uint32_t);
}

static int check_data(struct erofs_check_inode *check, struct err *err)
{
    const struct erofs_inode *inode = check->inode;
    if (S_ISDIR(inode->mode))
        return claim(check, inode->size, err);
    if (!S_ISREG(inode->mode) && !S_ISLNK(inode->mode))
        return 0;
    if (S_ISLNK(inode->mode)) {
        if (inode->size == 0 || inode->size > LINK_MAX_BYTES)
            return err_fail(err, ERR_DAMAGED, "inode %" PRIu64 " is a link with %" PRIu64 " bytes",
                            inode->nid, inode->size);
        if (!is_link_in_one_block(inode))
            return bad(inode, "is a link whose target does not lie in its block", err);
    }
    int rc = claim(check, map_bytes(inode), err);
    return rc < 0 ? rc : erofs_data_each(check->image, inode, take_data, check, err);
}

int erofs_check_inode_all(struct erofs_check_inode *check, const struct erofs_inode *inode,
                          struct err *err)
{
    check->inode = inode;
    int rc = claim(check, EROFS_INODE_SIZE + (uint64_t)inode->xattr_len, err);
    if (rc == 0)
        rc = check_fields(inode, err);
    if (rc == 0)
        rc = check_xattrs(check, err);
    if (rc == 0)
        rc = check_data(check, err);
    return rc;
}
