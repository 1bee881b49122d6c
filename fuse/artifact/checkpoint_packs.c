/* The packs of a checkpoint. */
#include "checkpoint_parts.h"

#include "cleanup.h"

#include <inttypes.h>
#include <string.h>

static int add_list(struct checkpoint *checkpoint, size_t number, remote_progress stop, void *arg,
                    struct err *err)
{
    const struct checkpoint_blob *blob = &checkpoint->index.lists[number];
    cleanup_remote_manifest struct remote_manifest manifest = {.bytes = NULL};
    cleanup_free struct pack *packs = NULL;
    size_t count;
    int rc = checkpoint_read_manifest(checkpoint, blob, "a pack list", stop, arg, &manifest, err);
    if (rc == 0)
        rc = checkpoint_packs_decode(manifest.bytes, manifest.len, &packs, &count, err);
    if (rc < 0)
        return rc;
    struct pack *more =
        realloc(checkpoint->packs, (checkpoint->pack_count + count) * sizeof *checkpoint->packs);
    if (!more)
        return err_errno(err, ENOMEM, "cannot read the pack lists of a checkpoint");
    checkpoint->packs = more;
    memcpy(more + checkpoint->pack_count, packs, count * sizeof *packs);
    checkpoint->pack_count += count;
    checkpoint->list_packs[number] = (uint32_t)count;
    return 0;
}

static int compare_packs(const void *a, const void *b, void *packs)
{
    const struct pack *list = packs;
    return memcmp(list[*(const uint32_t *)a].digest.bytes, list[*(const uint32_t *)b].digest.bytes,
                  DIGEST_BYTES);
}

/* By their first bytes each pack is another one, or places would be ambiguous. */
static int sort_packs(struct checkpoint *checkpoint, struct err *err)
{
    const size_t count = checkpoint->pack_count;
    if (count == 0)
        return 0;
    uint32_t *by_id = malloc(count * sizeof *by_id);
    if (!by_id)
        return err_errno(err, ENOMEM, "cannot read the pack lists of a checkpoint");
    checkpoint->by_id = by_id;
    for (size_t i = 0; i < count; i++)
        by_id[i] = (uint32_t)i;
    qsort_r(by_id, count, sizeof *by_id, compare_packs, checkpoint->packs);
    for (size_t i = 1; i < count; i++) {
        const struct digest *one = &checkpoint->packs[by_id[i - 1]].digest;
        const struct digest *other = &checkpoint->packs[by_id[i]].digest;
        if (memcmp(one->bytes, other->bytes, VOLUME_PACK_ID) == 0)
            return err_fail(err, ERR_DAMAGED, "the packs %s and %s begin with the same digits",
                            digest_format(one).s, digest_format(other).s);
    }
    return 0;
}

int checkpoint_packs_load(struct checkpoint *checkpoint, remote_progress stop, void *arg,
                          struct err *err)
{
    const struct checkpoint_index *index = &checkpoint->index;
    if (index->list_count > CHECKPOINT_LISTS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "a checkpoint with %zu pack lists", index->list_count);
    checkpoint->list_packs = calloc(index->list_count + 1, sizeof *checkpoint->list_packs);
    if (!checkpoint->list_packs)
        return err_errno(err, ENOMEM, "cannot read the pack lists of a checkpoint");
    for (size_t i = 0; i < index->list_count; i++) {
        int rc = add_list(checkpoint, i, stop, arg, err);
        if (rc < 0)
            return rc;
    }
    if (checkpoint->root->has_usage && checkpoint->use_count != checkpoint->pack_count)
        return err_fail(err, ERR_DAMAGED, "the root speaks of %zu packs, the lists have %zu",
                        checkpoint->use_count, checkpoint->pack_count);
    return sort_packs(checkpoint, err);
}

int checkpoint_find_pack(const struct checkpoint *checkpoint, const struct volume_place *place,
                         uint32_t *ret, struct err *err)
{
    size_t low = 0, high = checkpoint->pack_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const uint32_t number = checkpoint->by_id[middle];
        const struct pack *pack = &checkpoint->packs[number];
        int order = memcmp(place->pack, pack->digest.bytes, VOLUME_PACK_ID);
        if (order == 0 && (uint64_t)place->offset + place->length > pack->size)
            return err_fail(err, ERR_DAMAGED,
                            "%u bytes at %u of pack %s, which has %" PRIu64 " bytes", place->length,
                            place->offset, digest_format(&pack->digest).s, pack->size);
        if (order == 0) {
            *ret = number;
            return 0;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    char digits[2 * VOLUME_PACK_ID + 1];
    for (size_t i = 0; i < VOLUME_PACK_ID; i++)
        (void)snprintf(digits + 2 * i, 3, "%02x", place->pack[i]);
    return err_fail(err, ERR_DAMAGED, "no list names the pack that begins with %s", digits);
}
