/* checkpoint_head.h - the checkpoints of a volume that a remote has: which of them is its head, and
 * which writer has the highest fencing token.
 *
 * Job: lists the tags of a lineage's repository, takes those of the volume, and asks for the
 * indexes behind them. The head is the one with the highest (token, generation, digest), of kept
 * and live ones: what diverged is never it. Two nodes that write at the same time to a remote
 * without compare and swap may both have been right when they looked; everybody who looks later
 * sees the same head, and the other one finds out at its next checkpoint (I8). The highest token is
 * that of any of them, as also a writer that diverged has been given it.
 *
 * Costs one listing and one small read for each node and kind, as within a node tokens and
 * generations only grow: the highest generation, which its tag says, is its newest. The token
 * stands in the index, so no config is read.
 *
 * What stands under a tag of the volume and cannot be read as its checkpoint (damaged, lost, of
 * another volume, not believed) is *lost*: it is told, the one before it of that node and kind is
 * looked at instead, and its generation still counts as taken, up to CHECKPOINT_HEAD_LOST_MAX: a
 * stray tag leaves room for all that a volume will have. What it means that somebody has gone
 * on and nobody can see how is the caller's to say. A tag that goes while it is looked at was
 * removed by its owner: that is none. A checkpoint of a later version of varve is a failure, where
 * all are believed; else it is lost, as nobody has signed what it says.
 */
#pragma once

#include "checkpoint_manifest.h"
#include "checkpoint_tag.h"
#include "remote.h"

enum {
    CHECKPOINT_HEAD_BACK =
        8, /* lost ones of a node and kind behind which older ones are looked at */
};

#define CHECKPOINT_HEAD_LOST_MAX ((uint64_t)INT64_MAX / 2)

struct checkpoint_head {
    struct digest digest; /* of the index */
    struct checkpoint_tag tag;
    uint64_t generation;
    uint64_t token;
    bool has_parent;
    struct digest parent;
    char node[CHECKPOINT_NODE_MAX + 1];
};

/* What there is. */
struct checkpoint_heads {
    bool has_head;
    struct checkpoint_head head;
    bool has_writer;
    struct checkpoint_head writer; /* with the highest token, and of these the newest */
    bool has_own; /* what options.own asks for is there, whether it is the head or not; then: */
    struct checkpoint_head own;
    uint64_t generation;          /* the highest that a tag or an index says; 0: there is none */
    struct checkpoint_tag newest; /* which says so, above CHECKPOINT_HEAD_LOST_MAX */
    struct checkpoint_tag *lost;  /* owned */
    size_t lost_count;
};
void checkpoint_head_free(struct checkpoint_heads *heads);
#define cleanup_checkpoint_heads cleanup_with(checkpoint_head_free)

struct checkpoint_head_options {
    struct remote *remote; /* borrowed, as all here */
    const char *repository;
    const char *volume;
    const struct digest *own; /* one that whoever looks may have stored as his newest; NULL */
    remote_progress stop;     /* NULL */
    void *stop_arg;
    /* Whether whoever looks takes it for what it says (its signature): 1, 0 it is lost, or -errno.
     * NULL: all. */
    int (*believe)(void *arg, const struct checkpoint_head *head, struct err *err);
    void *believe_arg;
};

/* Whether `a` comes before `b` in a volume's line: then `b` is nearer to the head. */
bool checkpoint_head_is_before(const struct checkpoint_head *a, const struct checkpoint_head *b);
/* Looks. The caller frees. */
int checkpoint_head_look(const struct checkpoint_head_options *options,
                         struct checkpoint_heads *ret, struct err *err);
