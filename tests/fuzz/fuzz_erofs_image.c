/* Any bytes as a layer image: the reader on every slot of it, then the checker, and when that is
 * content, a walk in which nothing may fail.
 *
 * Almost every change breaks the checksum of the first block, so each input runs a second time with
 * the checksum made right.
 */
#include "erofs_check.h"

#include "cleanup.h"
#include "erofs_format.h"
#include "fuzz_check.h"

#include <sys/stat.h>

enum {
    INODES_MAX = 100000,
};

struct seen {
    const struct erofs_image *image;
    const struct erofs_inode *inode;
    bool is_checked; /* the image passed: nothing may fail */
    uint64_t names;
    uint64_t end;
    uint64_t sum; /* of bytes that were touched */
};

static void touch(struct seen *seen, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    const uint8_t *base = seen->image->base;
    CHECK(at >= base && len <= seen->image->blocks * EROFS_BLOCK);
    CHECK((size_t)(at - base) <= seen->image->blocks * EROFS_BLOCK - len);
    if (len > 0)
        seen->sum += at[0] + (uint64_t)at[len - 1];
}

static void check_outcome(const struct seen *seen, int rc, const struct err *err)
{
    if (rc == 0)
        return;
    CHECK(!seen->is_checked);
    fuzz_check_failure(rc, err);
    CHECK(err->code == ERR_DAMAGED);
}

static int take_piece(void *arg, uint64_t offset, const void *bytes, size_t len, struct err *err)
{
    struct seen *seen = arg;
    (void)err;
    touch(seen, bytes, len);
    CHECK(len > 0 && offset >= seen->end && len <= seen->inode->size - offset);
    seen->end = offset + len;
    return 0;
}

static int take_xattr(void *arg, const struct erofs_found_xattr *xattr, struct err *err)
{
    (void)err;
    CHECK(memchr(xattr->name, '\0', sizeof xattr->name));
    CHECK(strchr(xattr->name, '.'));
    touch(arg, xattr->value, xattr->size);
    return 0;
}

static void read_inode(struct seen *seen, uint64_t nid, struct erofs_inode *ret);

static int take_name(void *arg, const struct erofs_dirent *entry, struct err *err)
{
    struct seen *seen = arg;
    (void)err;
    CHECK(entry->len >= 1 && entry->len <= 255);
    touch(seen, entry->name, entry->len);
    uint64_t nid;
    struct err lookup = ERR_INIT;
    int rc = erofs_dir_lookup(seen->image, seen->inode, entry->name, entry->len, &nid, &lookup);
    if (rc <= 0)
        check_outcome(seen, rc, &lookup);
    if (!seen->is_checked)
        return 0;
    CHECK(rc == 1 && nid == entry->nid);
    if (entry->name[0] == '.' && (entry->len == 1 || (entry->len == 2 && entry->name[1] == '.')))
        return 0;
    const struct erofs_inode *here = seen->inode;
    struct erofs_inode inode;
    read_inode(seen, nid, &inode);
    CHECK(erofs_format_file_type(inode.mode) == entry->type);
    seen->inode = here;
    seen->names++;
    return 0;
}

/* Everything about one inode; in a checked image also what is below. */
static void read_inode(struct seen *seen, uint64_t nid, struct erofs_inode *ret)
{
    struct err err = ERR_INIT;
    int rc = erofs_inode_read(seen->image, nid, ret, &err);
    check_outcome(seen, rc, &err);
    if (rc < 0)
        return;
    seen->inode = ret;
    seen->end = 0;
    check_outcome(seen, erofs_xattr_each(seen->image, ret, take_xattr, seen, &err), &err);
    err_clear(&err);
    if (S_ISREG(ret->mode) || S_ISLNK(ret->mode))
        check_outcome(seen, erofs_data_each(seen->image, ret, take_piece, seen, &err), &err);
    if (S_ISDIR(ret->mode))
        check_outcome(seen, erofs_dir_each(seen->image, ret, take_name, seen, &err), &err);
}

static void run(const uint8_t *bytes, size_t len)
{
    struct erofs_image image;
    struct err err = ERR_INIT;
    int rc = erofs_image_open(bytes, len, &image, &err);
    struct seen seen = {.image = &image};
    check_outcome(&seen, rc, &err);
    if (rc < 0)
        return;
    CHECK(image.blocks * EROFS_BLOCK <= len);
    struct erofs_inode inode;
    for (uint64_t nid = 0; nid <= len / EROFS_SLOT; nid++)
        read_inode(&seen, nid, &inode);
    struct erofs_check_result result;
    rc = erofs_check(&image, INODES_MAX, &result, &err);
    check_outcome(&seen, rc, &err);
    if (rc < 0)
        return;
    seen = (struct seen){.image = &image, .is_checked = true};
    read_inode(&seen, image.root, &inode);
    CHECK(seen.names == result.names && result.inodes == image.inodes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (len < EROFS_BLOCK) {
        run(bytes, len);
        return 0;
    }
    cleanup_free uint8_t *copy = malloc(len); /* nothing behind it */
    CHECK(copy);
    memcpy(copy, bytes, len);
    run(copy, len);
    uint32_t sum = erofs_format_checksum(copy);
    memcpy(copy + EROFS_SUPER_OFFSET + offsetof(struct erofs_disk_super, checksum), &sum,
           sizeof sum);
    run(copy, len);
    return 0;
}
