/* checkpoint_parts.h - what the files of checkpoint.h share.
 *
 *   checkpoint.c        the manifests and the root: opening
 *   checkpoint_packs.c  the pack lists, and which pack a place is in
 *   checkpoint_leaves.c leaves: fetched once, kept, shared
 *   checkpoint_read.c   chunks, by ranged reads
 *
 * After it is open a checkpoint does not change, but for its leaves and codecs, which `lock` is
 * for. Nothing that can wait is done under it.
 */
#pragma once

#include "checkpoint.h"
#include "pack_frame.h"

#include <pthread.h>

enum {
    CHECKPOINT_CODECS_KEPT = 4,
    CHECKPOINT_LEAF_LOOK_MS = 500, /* whether who waits for another one's fetch still wants to */
};

/* A leaf that is kept: as large as it has entries. */
struct checkpoint_leaf {
    uint16_t at[VOLUME_LEAF_CHUNKS]; /* one more than the place in `entries`; 0: zero */
    uint32_t count;
    struct volume_entry entries[];
};

enum checkpoint_slot_state {
    CHECKPOINT_SLOT_FREE,
    CHECKPOINT_SLOT_FETCHING,
    CHECKPOINT_SLOT_READY,
    CHECKPOINT_SLOT_FAILED, /* until all that waited have heard */
};

struct checkpoint_slot {
    enum checkpoint_slot_state state;
    uint32_t number;
    unsigned waiters; /* that have not looked yet at what became of the fetch */
    uint64_t used;
    struct checkpoint_leaf *leaf; /* owned; of READY */
    struct err failure;
};

struct checkpoint {
    struct remote *remote; /* borrowed */
    char *repository;
    struct digest digest;
    struct checkpoint_index index;
    struct checkpoint_config config;
    struct volume_root *root;
    struct pack *packs; /* in the order of the lists */
    size_t pack_count;
    uint32_t *list_packs;       /* of each list, how many */
    struct pack_use *pack_uses; /* of all packs; NULL: nobody has counted */
    size_t use_count;
    uint32_t *by_id; /* the same, sorted by their digests */

    pthread_mutex_t lock;   /* what follows */
    pthread_cond_t changed; /* CLOCK_MONOTONIC */
    struct checkpoint_slot slots[CHECKPOINT_LEAVES_KEPT];
    uint64_t uses;
    struct pack_frame *codecs[CHECKPOINT_CODECS_KEPT];
    size_t codec_count;
};

/* checkpoint_packs.c */
/* Reads all lists that the index names. */
int checkpoint_packs_load(struct checkpoint *checkpoint, remote_progress stop, void *arg,
                          struct err *err);

/* checkpoint_leaves.c */
/* Gets a leaf, which is not empty, and returns with the lock held, under which it may be looked at;
 * a failure without. */
int checkpoint_leaves_lock(struct checkpoint *checkpoint, uint32_t number, remote_progress stop,
                           void *arg, const struct checkpoint_leaf **ret, struct err *err);
void checkpoint_leaves_free(struct checkpoint *checkpoint);

/* checkpoint.c. Reads a whole small blob and compares its digest. `ret` has room for it. */
int checkpoint_read_blob(struct checkpoint *checkpoint, const struct checkpoint_blob *blob,
                         void *ret, const char *what, remote_progress stop, void *arg,
                         struct err *err);
/* A manifest by its digest, which has the size that it should have. */
int checkpoint_read_manifest(struct checkpoint *checkpoint, const struct checkpoint_blob *blob,
                             const char *what, remote_progress stop, void *arg,
                             struct remote_manifest *ret, struct err *err);
/* ERR_CANCELLED when `stop` says so. */
int checkpoint_ask_stop(remote_progress stop, void *arg, struct err *err);
