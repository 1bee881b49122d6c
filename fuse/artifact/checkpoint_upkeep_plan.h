/* checkpoint_upkeep_plan.h - which packs of a parent are to be emptied by the next checkpoint, and
 * which leaves have to be looked at for that; no I/O (docs/DESIGN.md, "Upkeep of packs").
 *
 * Emptied is, those first of which least has to be moved:
 *   - what is mostly dead: less than a quarter of it is needed, and it is not small;
 *   - what is small (less than a quarter of the size of full packs), as soon as there are
 *     UPKEEP_SMALL_PACKS of these, among them the two that the checkpoint itself adds at least;
 *   - of which less than half is needed, as long as more is dead in all packs together than alive,
 *     and more than one full pack.
 * Packs that nobody has counted are never.
 *
 * Bounds of one checkpoint: UPKEEP_PACKS_MAX packs, UPKEEP_LEAVES_MAX leaves, and the bytes that
 * the caller gives. Where more leaves would have to be looked at, some groups of them are: the rest
 * waits for later checkpoints.
 */
#pragma once

#include "pack_usage.h"
#include "pack_writer.h"

enum {
    UPKEEP_SMALL_PACKS = 64,
    UPKEEP_PACKS_MAX = 64,
    UPKEEP_LEAVES_MAX = 64,
    UPKEEP_PART = 4, /* what is mostly dead, and what is small: less than one in so many */
};

struct upkeep_plan {
    bool *emptied; /* of each pack; owned; NULL when nothing is to be done */
    uint64_t groups;
};
void upkeep_plan_free(struct upkeep_plan *plan);

struct upkeep_packs {
    const struct pack *packs;
    const struct pack_use *uses;
    unsigned shift; /* of their groups: the volume may have grown since that root */
    size_t count;
    const struct volume_root *root;
    uint64_t full; /* bytes of a pack that is full */
};
/* `bytes`: that may be moved; the last pack may have more, and is emptied in part then. */
int upkeep_plan_make(const struct upkeep_packs *packs, uint64_t bytes, struct upkeep_plan *ret,
                     struct err *err);
