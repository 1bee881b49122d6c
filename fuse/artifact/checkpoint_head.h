/* checkpoint_head.h - the checkpoints of a volume that a remote has, and which of them is its head.
 *
 * Job: lists the tags of a lineage's repository, takes those of the volume, and asks for the
 * indexes behind them. The head is the one with the highest (token, generation, digest), of kept
 * and live ones: what diverged is never it. A registry has no compare and swap, so two nodes that
 * write at the same time may both have been right when they looked; everybody who looks later sees
 * the same head, and the other one finds out at its next checkpoint (I8).
 *
 * Costs one listing and one small read for each node that has kept or live ones, as within a node
 * the highest generation is its newest. What stands under a tag and is no checkpoint of this volume
 * (somebody else's tag, or damage) is skipped and counted.
 */
#pragma once

#include "checkpoint_manifest.h"
#include "checkpoint_tag.h"
#include "remote.h"

struct checkpoint_head {
    struct digest digest; /* of the index */
    struct checkpoint_tag tag;
    uint64_t generation;
    uint64_t token;
    bool has_parent;
    struct digest parent;
};

/* Whether `a` comes before `b` in a volume's line: then `b` is nearer to the head. */
bool checkpoint_head_is_before(const struct checkpoint_head *a, const struct checkpoint_head *b);
/* The head of a volume: 1, 0 when the remote has no checkpoint of it, or -errno. *ret_skipped (may
 * be NULL): tags of it that name no checkpoint of it. */
int checkpoint_head_find(struct remote *remote, const char *repository, const char *volume,
                         remote_progress stop, void *arg, struct checkpoint_head *ret,
                         unsigned *ret_skipped, struct err *err);
