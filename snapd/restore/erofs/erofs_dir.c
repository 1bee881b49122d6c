/* erofs_dir.c - names of a directory: all in their order, or one.
 *
 * A directory is a row of blocks. Each begins with its entries (12 bytes: nid, offset of the name,
 * type), whose names follow; the first name's offset tells how many entries there are, the next
 * entry's where a name ends. The last name ends at a NUL or with the directory's bytes in the
 * block.
 */
#include "erofs_bytes.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>

enum {
    DIRENT_SIZE = sizeof(struct erofs_disk_dirent),
    DIRENT_NAME_MAX = 255, /* bytes */
};

struct dir_block {
    const uint8_t *at;
    size_t size; /* bytes of it that belong to the directory */
    size_t count;
    bool is_whole; /* what lies behind `size` is in the image too, up to the block's end */
};

static int bad_block(const struct erofs_inode *dir, uint64_t index, const char *what,
                     struct err *err)
{
    return err_fail(err, ERR_DAMAGED, "block %" PRIu64 " of the directory inode %" PRIu64 " %s",
                    index, dir->nid, what);
}

static int check_is_dir(const struct erofs_inode *dir, struct err *err)
{
    if (!S_ISDIR(dir->mode))
        return err_errno(err, ENOTDIR, "cannot look into inode %" PRIu64, dir->nid);
    return 0;
}

static struct erofs_disk_dirent get_raw(const struct dir_block *block, size_t i)
{
    struct erofs_disk_dirent raw;
    memcpy(&raw, block->at + i * DIRENT_SIZE, sizeof raw);
    return raw;
}

static int get_block(const struct erofs_image *image, const struct erofs_inode *dir, uint64_t index,
                     struct dir_block *ret, struct err *err)
{
    uint64_t left = dir->size - index * EROFS_BLOCK;
    struct dir_block block = {
        .size = left < EROFS_BLOCK ? (size_t)left : EROFS_BLOCK,
        .is_whole = index < erofs_whole_blocks(dir),
    };
    block.at =
        image->base + (block.is_whole ? dir->data_offset + index * EROFS_BLOCK : dir->tail_offset);
    if (block.size < DIRENT_SIZE)
        return bad_block(dir, index, "is too short for an entry", err);
    size_t first = get_raw(&block, 0).name_offset;
    if (first < DIRENT_SIZE || first % DIRENT_SIZE != 0 || first >= block.size)
        return bad_block(dir, index, "has no table of entries", err);
    block.count = first / DIRENT_SIZE;
    *ret = block;
    return 0;
}

/* Length of the last name in a block, or 0. For the kernel's lookup it ends at a NUL or with the
 * block, for its listing with the directory too: both must find the same. */
static size_t last_len(const struct dir_block *block, size_t name)
{
    const char *at = (const char *)block->at + name;
    size_t len = strnlen(at, block->size - name);
    bool is_open = block->is_whole && block->size < EROFS_BLOCK && name + len == block->size &&
                   block->at[block->size] != 0;
    return is_open ? 0 : len;
}

static int get_entry(const struct erofs_inode *dir, uint64_t index, const struct dir_block *block,
                     size_t i, struct erofs_dirent *ret, struct err *err)
{
    struct erofs_disk_dirent raw = get_raw(block, i);
    size_t name = raw.name_offset;
    if (name < block->count * DIRENT_SIZE || name >= block->size)
        return bad_block(dir, index, "has a name outside of it", err);
    size_t len;
    if (i + 1 == block->count) {
        len = last_len(block, name);
    } else {
        size_t next = get_raw(block, i + 1).name_offset;
        len = next > name && next < block->size ? next - name : 0;
    }
    if (len == 0 || len > DIRENT_NAME_MAX)
        return bad_block(dir, index, "has a name of a wrong length", err);
    *ret = (struct erofs_dirent){
        .name = (const char *)block->at + name,
        .len = len,
        .nid = raw.nid,
        .type = raw.type,
    };
    return 0;
}

int erofs_dir_each(const struct erofs_image *image, const struct erofs_inode *dir,
                   erofs_dir_take *take, void *arg, struct err *err)
{
    int rc = check_is_dir(dir, err);
    uint64_t blocks = erofs_blocks_of(dir->size);
    for (uint64_t index = 0; index < blocks && rc >= 0; index++) {
        struct dir_block block = {.count = 0};
        rc = get_block(image, dir, index, &block, err);
        for (size_t i = 0; rc >= 0 && i < block.count; i++) {
            struct erofs_dirent entry = {.len = 0};
            rc = get_entry(dir, index, &block, i, &entry, err);
            if (rc >= 0)
                rc = take(arg, &entry, err);
        }
    }
    return rc < 0 ? rc : 0;
}

static int compare(const char *name, size_t len, const struct erofs_dirent *entry)
{
    int order = memcmp(name, entry->name, len < entry->len ? len : entry->len);
    return order != 0 ? order : (len > entry->len) - (len < entry->len);
}

/* The last block whose first name is not behind `name`: 1, or 0 when all are. */
static int find_block(const struct erofs_image *image, const struct erofs_inode *dir,
                      const char *name, size_t len, uint64_t *ret, struct err *err)
{
    uint64_t low = 0;
    uint64_t high = erofs_blocks_of(dir->size);
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        struct dir_block block = {.count = 0};
        struct erofs_dirent entry = {.len = 0};
        int rc = get_block(image, dir, middle, &block, err);
        if (rc >= 0)
            rc = get_entry(dir, middle, &block, 0, &entry, err);
        if (rc < 0)
            return rc;
        if (compare(name, len, &entry) < 0)
            high = middle;
        else
            low = middle + 1;
    }
    if (low == 0)
        return 0;
    *ret = low - 1;
    return 1;
}

int erofs_dir_lookup(const struct erofs_image *image, const struct erofs_inode *dir,
                     const char *name, size_t len, uint64_t *ret_nid, struct err *err)
{
    int rc = check_is_dir(dir, err);
    uint64_t index;
    if (rc >= 0)
        rc = find_block(image, dir, name, len, &index, err);
    if (rc <= 0)
        return rc;
    struct dir_block block = {.count = 0};
    rc = get_block(image, dir, index, &block, err);
    if (rc < 0)
        return rc;
    size_t low = 0;
    size_t high = block.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct erofs_dirent entry = {.len = 0};
        rc = get_entry(dir, index, &block, middle, &entry, err);
        if (rc < 0)
            return rc;
        int order = compare(name, len, &entry);
        if (order == 0) {
            *ret_nid = entry.nid;
            return 1;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return 0;
}
