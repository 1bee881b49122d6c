#include "erofs_writer_internal.h"

#include "cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int compare_nids(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Puts link counts into inodes, a block at a time. */
struct patcher {
    struct erofs_out *out;
    uint64_t pos; /* of the block at hand; 0: none, as no file's inode is there */
    uint8_t block[EROFS_BLOCK];
};

static int patch_flush(struct patcher *patcher, struct err *err)
{
    if (patcher->pos == 0)
        return 0;
    return erofs_out_patch(patcher->out, patcher->pos, patcher->block, EROFS_BLOCK, err);
}

static int patch(struct patcher *patcher, uint64_t nid, uint32_t nlink, struct err *err)
{
    uint64_t pos = nid * EROFS_SLOT + offsetof(struct erofs_disk_inode, nlink);
    uint64_t block = pos - pos % EROFS_BLOCK;
    if (block != patcher->pos) {
        int rc = patch_flush(patcher, err);
        if (rc == 0)
            rc = erofs_out_read(patcher->out, block, patcher->block, EROFS_BLOCK, err);
        if (rc < 0)
            return rc;
        patcher->pos = block;
    }
    memcpy(patcher->block + pos % EROFS_BLOCK, &nlink, sizeof nlink);
    return 0;
}

/* The nids of all names in the tree that are not directories', ascending. */
static uint64_t *sorted_nids(const struct erofs_names *names, const uint32_t *order,
                             uint32_t order_count, size_t *ret_count)
{
    uint64_t *nids = malloc((size_t)(order_count + UINT64_C(1)) * sizeof *nids);
    size_t count = 0;
    bool ascending = true;
    if (!nids)
        return NULL;
    for (uint32_t i = 0; i < order_count; i++) {
        const struct erofs_name *name = &names->names[order[i]];
        if (name->type == EROFS_FT_DIR)
            continue;
        nids[count++] = erofs_name_nid(name);
        ascending = ascending && (count < 2 || nids[count - 2] <= nids[count - 1]);
    }
    if (!ascending)
        qsort(nids, count, sizeof *nids, compare_nids);
    *ret_count = count;
    return nids;
}

int erofs_nlink_write(struct erofs_writer *writer, const uint32_t *order, uint32_t order_count,
                      uint64_t *ret_inodes, struct err *err)
{
    size_t count;
    cleanup_free uint64_t *nids = sorted_nids(&writer->names, order, order_count, &count);
    if (!nids)
        return err_errno(err, ENOMEM, "cannot count the links of a layer");
    struct patcher patcher = {.out = &writer->out};
    int rc = erofs_meta_flush(&writer->meta, err);
    if (rc == 0) /* patches read what is in the file */
        rc = erofs_out_flush(&writer->out, err);
    *ret_inodes = 0;
    for (size_t i = 0; rc == 0 && i < count;) {
        size_t from = i;
        while (i < count && nids[i] == nids[from])
            i++;
        if (i - from != 1) /* inodes are written with one */
            rc = patch(&patcher, nids[from], (uint32_t)(i - from), err);
        ++*ret_inodes;
    }
    return rc < 0 ? rc : patch_flush(&patcher, err);
}
