/* checkpoint_maker.h - a checkpoint that a test makes by hand, as it is in FORMAT.md or with parts
 * that do not fit; for what reads checkpoints.
 *
 * It shares the encoders with the product, whose own tests look at their bytes; what is put
 * together here, and how, is the test's. The bytes of a chunk follow from its number.
 */
#pragma once

#include "checkpoint.h"
#include "memory_remote.h"

#define CHECKPOINT_MAKER_REPOSITORY "p/volumes/0123456789ab"
#define CHECKPOINT_MAKER_TAG        "0123456789ab-live-n1"

/* What is changed before it is stored. All may be NULL. */
struct checkpoint_twist {
    void (*leaf)(struct volume_leaf *leaf);
    void (*root)(struct volume_root *root);
    void (*config)(struct checkpoint_config *config);
    void (*root_manifest)(struct checkpoint_root_manifest *manifest);
    /* The packs before they are shared out to lists of `*list_packs`. */
    void (*packs)(struct pack *packs, size_t *count, size_t *list_packs);
    void (*index)(struct checkpoint_index *index);
};

struct checkpoint_maker {
    struct memory_remote *memory;
    uint64_t size;
    bool (*is_set)(uint64_t chunk); /* whether a chunk is not zero */
    unsigned pack_chunks;           /* chunks of a pack */
    unsigned gap;                   /* bytes of nothing before each frame */
    const struct hmac_key *key;     /* NULL: not signed */
    struct checkpoint_twist twist;
    struct digest digest; /* of the index, when it is made */
};

/* The bytes of a chunk that is set: some compress, some do not, some are those of others. */
void checkpoint_maker_bytes(uint64_t chunk, uint8_t *ret);
/* Stores all in `memory`. */
void checkpoint_maker_make(struct checkpoint_maker *maker);
/* Opens it. */
int checkpoint_maker_open(struct checkpoint_maker *maker, const struct hmac_key *key,
                          struct checkpoint **ret, struct err *err);
/* Reads and compares chunks, all that there are when `chunks` is NULL. */
int checkpoint_maker_read(struct checkpoint_maker *maker, struct checkpoint *checkpoint,
                          const uint64_t *chunks, size_t count, struct err *err);
