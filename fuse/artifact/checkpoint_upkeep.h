/* checkpoint_upkeep.h - counts what packs are needed for while a checkpoint is made, and moves what
 * is needed out of packs that are mostly dead or small, so that these leave the lists
 * (docs/DESIGN.md, "Upkeep of packs"); for checkpoint_write*.c alone.
 *
 * Job: each entry that a new leaf or the root gets, or no longer has, is counted; so the use of
 * every pack follows from the parent's and from what changed. What is moved are frames, as they
 * stand in the parent's packs in the remote: their digests are checked (I6), nothing is compressed
 * again. Local bytes are not used, as they would have to be compressed, and those that did not
 * change may change while the checkpoint is made: an epoch does not keep them.
 *
 * It never makes a checkpoint fail that needs nothing of what it reads: a frame or leaf that is
 * lost or damaged stays where it is, and a remote that does not answer ends the upkeep.
 *
 * Bounds of one checkpoint, beside those of the plan (checkpoint_upkeep_plan.h): UPKEEP_BYTES and
 * half of what the checkpoint stores itself, UPKEEP_FRAMES frames, UPKEEP_READS ranged reads of
 * them, which read at most twice the bytes that may be moved. It does nothing when nothing has
 * changed.
 *
 * Memory: 16 MiB for frames that are being moved, 25 bytes for each pack, 64 for each frame.
 */
#pragma once

#include "checkpoint_upkeep_plan.h"
#include "checkpoint_write_parts.h"

enum {
    UPKEEP_READS = 128,
    UPKEEP_GAP = 16 * 1024, /* bytes between two frames that are read rather than asked for apart */
    UPKEEP_FRAMES = 32768,
};
#define UPKEEP_BYTES ((uint64_t)16 << 20)
#define UPKEEP_ROOM                                                                                \
    ((uint64_t)128 << 20) /* free bytes of the host's disk, without which it rests */

/* What came of looking at a leaf of the parent. */
enum upkeep_look {
    UPKEEP_NOT_LOOKED,
    UPKEEP_LOOKED,
    UPKEEP_LOST,
};

struct checkpoint_upkeep {
    struct pack_use *uses; /* of the parent's packs, then of new ones, in order; owned */
    size_t use_count;
    size_t use_room;
    size_t old_count; /* the parent's */
    unsigned shift;

    uint32_t *sealed; /* of each pack that was sealed, which of `uses` it is; owned */
    size_t sealed_count;
    size_t sealed_room;

    bool planned;
    bool is_over; /* nothing is moved (any more) */
    struct upkeep_plan plan;
    bool *stuck;     /* of each of the parent's packs: something that was to be moved was not */
    uint64_t missed; /* groups of which not all leaves were looked at */
    uint8_t looks[VOLUME_LEAVES_MAX]; /* enum upkeep_look */
    uint64_t bytes_left;
    struct checkpoint_budget budget; /* of reading frames */
    size_t frames_left;
};

int checkpoint_upkeep_new(const struct checkpoint_making *making, struct checkpoint_upkeep **ret,
                          struct err *err);
void checkpoint_upkeep_free(struct checkpoint_upkeep *upkeep); /* NULL is fine */

/* An entry of this leaf, or the root's for it, that is there now, in a pack that is sealed. */
int checkpoint_upkeep_count(struct checkpoint_making *making, uint32_t leaf,
                            const struct pack_spot *spot, struct err *err);
/* One of the parent's that is not there any more. */
void checkpoint_upkeep_uncount(struct checkpoint_making *making, const struct volume_place *place);
/* When all is counted, and sealed. */
int checkpoint_upkeep_end(struct checkpoint_making *making, struct err *err);

/* A leaf that only the upkeep wanted could not be made anew: it stays as it is. */
void checkpoint_upkeep_miss(struct checkpoint_making *making, uint32_t leaf);

/* Adds to the changes what is to be moved of their leaves, and with `all` of all others that the
 * plan has, of which something is to be moved. */
int checkpoint_upkeep_move(struct checkpoint_making *making, bool all, struct err *err);
