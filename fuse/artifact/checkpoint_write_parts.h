/* checkpoint_write_parts.h - the steps of checkpoint_write(), and what they share; for
 * checkpoint_write*.c alone.
 *
 *   chunks     source -> frames in packs, and changes            checkpoint_write_chunks.c
 *   leaves     changes -> leaves in packs -> root                checkpoint_write_leaves.c
 *   lists      which packs there are, in which lists             checkpoint_write_lists.c
 *   manifests  root and config; root manifest, lists and index   checkpoint_write_manifests.c
 *   upkeep     packs that are hardly needed any more             checkpoint_upkeep*.c
 *   parent     what these read of the parent                     checkpoint_write_parent.c
 *
 * A leaf names the packs of its chunks, so it is made when these are sealed: of all leaves at the
 * end, or of CHECKPOINT_LEAVES_PENDING of them, so that what waits is bounded.
 */
#pragma once

#include "checkpoint_write.h"
#include "chunk_pool.h"
#include "chunk_seen.h"

/* A chunk that is not what the parent has. */
struct checkpoint_change {
    uint32_t chunk;
    bool is_set;     /* else it is zero now */
    bool is_moved;   /* its bytes are the parent's: only the upkeep of packs wants it */
    bool is_nothing; /* it is as it was: the leaf alone is to be stored anew */
    struct digest digest;
    struct pack_spot spot;
};

/* A leaf that was made. */
struct checkpoint_new_leaf {
    uint32_t number;
    uint32_t count;  /* 0: it is empty now, and nowhere */
    uint32_t before; /* chunks that the parent's has */
    struct digest digest;
    struct pack_spot spot;
};

/* The packs of the new index, as they stand in its lists. */
struct checkpoint_lists {
    struct pack *packs; /* owned, as what follows */
    struct pack_use *uses;
    size_t count;
    struct checkpoint_blob
        *kept; /* lists of the parent that stay; their packs are the first ones */
    size_t kept_count;
    size_t kept_packs;
};

struct checkpoint_making {
    const struct checkpoint_write *write;
    const struct checkpoint_source *source;
    struct pack_writer *packs;
    struct chunk_pool *pool;
    struct chunk_seen *seen;
    struct checkpoint_upkeep *upkeep; /* checkpoint_upkeep.h */
    uint64_t pack_bytes;              /* of a full pack */
    uint64_t stored_bytes;            /* frames of new chunks */

    struct checkpoint_change *changes; /* in order of chunks; whose leaves are not made yet */
    size_t change_count;
    size_t change_room;
    uint32_t changed_leaves; /* among them */

    struct checkpoint_new_leaf *leaves;
    size_t leaf_count;
    size_t leaf_room;
    bool is_made[VOLUME_LEAVES_MAX];

    struct checkpoint_lists lists;         /* after checkpoint_write_arrange() */
    struct volume_root root;               /* after checkpoint_write_root() */
    struct checkpoint_root_manifest blobs; /* after checkpoint_write_blobs() */
    struct checkpoint_written written;
};

/* Where the caller asks for the end. */
int checkpoint_write_stopped(const struct checkpoint_making *making, struct err *err);
/* Tells the caller how far it is. */
int checkpoint_write_progress(struct checkpoint_making *making, struct err *err);

/* Whether the parent has anything among the chunks of a leaf. */
bool checkpoint_write_parent_has(const struct checkpoint_making *making, uint32_t leaf);
/* A leaf of the parent, and chunks of it: as checkpoint_leaf() and checkpoint_read(). */
int checkpoint_write_parent_leaf(const struct checkpoint_making *making, uint32_t leaf,
                                 struct volume_leaf *ret, struct err *err);
int checkpoint_write_parent_read(const struct checkpoint_making *making, const uint64_t *chunks,
                                 size_t count, checkpoint_take *take, void *take_arg,
                                 struct err *err);
/* The checkpoint before this one, as index and config name it; false: there is none. */
bool checkpoint_write_before(const struct checkpoint_write *write, struct digest *ret);
/* Hands a failure on that is about the parent, with what it means to the caller. */
int checkpoint_write_parent_failed(const struct checkpoint_making *making, int rc,
                                   const struct err *failure, struct err *err);
/* Hands a failure on of a manifest that was not taken: it is the parent's when what `missing` says
 * is. */
int checkpoint_write_refused(const struct checkpoint_making *making,
                             const struct remote_missing *missing, int rc,
                             const struct err *failure, struct err *err);

/* Notes a change, in any order. */
int checkpoint_write_add_change(struct checkpoint_making *making,
                                const struct checkpoint_change *change, struct err *err);
/* Reads the whole source. */
int checkpoint_write_chunks(struct checkpoint_making *making, struct err *err);
/* Makes the leaves of all changes so far, which are all of their leaves. */
int checkpoint_write_leaves(struct checkpoint_making *making, struct err *err);
/* Makes the root of all leaves. */
int checkpoint_write_root(struct checkpoint_making *making, struct err *err);
/* Which packs the new index has, and what they are needed for. */
int checkpoint_write_arrange(struct checkpoint_making *making, struct err *err);
void checkpoint_lists_free(struct checkpoint_lists *lists);
/* Whether there is a list to be written. */
static inline bool checkpoint_lists_new(const struct checkpoint_lists *lists)
{
    return lists->count > lists->kept_packs;
}
/* Sends the lists that are new; all into index->lists. */
int checkpoint_write_lists(struct checkpoint_making *making, struct checkpoint_index *index,
                           struct err *err);
/* A manifest under the tag that its digest gives it, which begins with `prefix`. */
int checkpoint_write_manifest(struct checkpoint_making *making, char prefix, const char *text,
                              size_t len, struct checkpoint_blob *ret, struct err *err);
/* Sends root, config and what else is no manifest, and waits until all packs are sent, too. */
int checkpoint_write_blobs(struct checkpoint_making *making, struct err *err);
/* Sends the manifests; the digest of the index in making->written. */
int checkpoint_write_manifests(struct checkpoint_making *making, struct err *err);
