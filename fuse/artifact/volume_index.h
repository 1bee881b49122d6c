/* volume_index.h - the index tree of a checkpoint: which bytes each chunk of a volume has, and
 * where they lie (docs/FORMAT.md, "Checkpoints").
 *
 * Job: leaves and roots, between memory and their bytes. A leaf describes VOLUME_LEAF_CHUNKS
 * chunks, the root names the leaves. Nothing here does any I/O.
 *
 * What is decoded comes from a registry: its digest says that it is what was stored, not that
 * whoever stored it was right. So every field is checked, and what is accepted is encoded again to
 * the same bytes. Where a place points to is checked by whoever reads there, by the digest.
 */
#pragma once

#include "digest.h"
#include "volume_format.h"

#include <stdbool.h>

enum {
    VOLUME_LEAF_CHUNKS = 4096,
    VOLUME_LEAF_HEAD = 32,
    VOLUME_ENTRY_BYTES = 48,
    VOLUME_LEAF_BYTES_MIN = VOLUME_LEAF_HEAD + VOLUME_LEAF_CHUNKS / 8,
    VOLUME_LEAF_BYTES_MAX = VOLUME_LEAF_BYTES_MIN + VOLUME_LEAF_CHUNKS * VOLUME_ENTRY_BYTES,
    VOLUME_ROOT_HEAD = 32,
    VOLUME_LEAVES_MAX = 4096, /* of VOLUME_SIZE_MAX */
    VOLUME_ROOT_BYTES_MAX = VOLUME_ROOT_HEAD + VOLUME_LEAVES_MAX * VOLUME_ENTRY_BYTES,
    VOLUME_PACK_ID = 8,
};
_Static_assert(VOLUME_SIZE_MAX / VOLUME_CHUNK / VOLUME_LEAF_CHUNKS == VOLUME_LEAVES_MAX, "all");

/* Where something lies: in the pack whose digest begins so. */
struct volume_place {
    uint8_t pack[VOLUME_PACK_ID];
    uint32_t offset;
    uint32_t length; /* bytes; of a chunk's frame 1 to VOLUME_CHUNK */
};

struct volume_entry {
    struct digest digest; /* of the chunk's bytes, or of the leaf */
    struct volume_place place;
};

struct volume_leaf {
    uint32_t number;
    uint32_t count; /* chunks that are set */
    bool set[VOLUME_LEAF_CHUNKS];
    struct volume_entry entries[VOLUME_LEAF_CHUNKS]; /* of those that are set */
};

struct volume_root {
    uint64_t size;   /* of the volume, bytes */
    uint64_t chunks; /* that are not zero */
    uint32_t leaf_count;
    bool has_usage;              /* version 2: what packs are needed for follows (pack_usage.h) */
    bool set[VOLUME_LEAVES_MAX]; /* a chunk of the leaf is */
    struct volume_entry leaves[VOLUME_LEAVES_MAX];
};

static inline uint32_t volume_leaves_of(uint64_t size)
{
    const uint64_t bytes = (uint64_t)VOLUME_LEAF_CHUNKS * VOLUME_CHUNK;
    return (uint32_t)((size + bytes - 1) / bytes);
}

/* Both are large: the caller has them in memory of his own. */
void volume_leaf_init(struct volume_leaf *leaf, uint32_t number);
/* `chunk` counts from the leaf's first. NULL: it is zero. */
void volume_leaf_set(struct volume_leaf *leaf, uint32_t chunk, const struct volume_entry *entry);
/* Writes at most VOLUME_LEAF_BYTES_MAX bytes; returns how many. */
size_t volume_leaf_encode(const struct volume_leaf *leaf, uint8_t *ret);
/* ERR_DAMAGED, ERR_TOO_NEW; also when it is another leaf than `number`. */
int volume_leaf_decode(const uint8_t *bytes, size_t len, uint32_t number, struct volume_leaf *ret,
                       struct err *err);

/* For a volume of this size, which volume_json.h allows: nothing is set. */
void volume_root_init(struct volume_root *root, uint64_t size);
/* The entry of a leaf with `count` chunks, in place of one that had `before`; count 0: `entry` is
 * not used. */
void volume_root_set(struct volume_root *root, uint32_t leaf, const struct volume_entry *entry,
                     uint32_t count, uint32_t before);
/* The bytes of a root, without what may follow. */
static inline size_t volume_root_bytes(const struct volume_root *root)
{
    return VOLUME_ROOT_HEAD + (size_t)root->leaf_count * VOLUME_ENTRY_BYTES;
}
/* Writes volume_root_bytes(), at most VOLUME_ROOT_BYTES_MAX; returns how many. */
size_t volume_root_encode(const struct volume_root *root, uint8_t *ret);
/* `len` may be more when it has usage. */
int volume_root_decode(const uint8_t *bytes, size_t len, struct volume_root *ret, struct err *err);
