/* workspace_checkpoint_work.h - the steps of a checkpoint, for workspace_checkpoint*.c alone. */
#pragma once

#include "catalog_workspace.h"
#include "checkpoint_head.h"
#include "cleanup.h"
#include "workspace_checkpoint.h"
#include "workspace_checkpoint_source.h"
#include "workspace_consistency.h"
#include "workspace_internal.h"
#include "workspace_line.h"

#include <stdatomic.h>

enum {
    CHECKPOINT_WORK_LOST_MAX = 2, /* the volume's head, and what it was made of */
};

/* What the work has: everything is owned. */
struct checkpoint_work {
    struct job *job;
    struct node *node;
    const char *name;
    struct workspace_stillness stillness;
    bool claimed; /* by the caller, for all of it */
    enum catalog_durability wanted;
    enum catalog_durability reached;
    enum catalog_checkpoint_reason reason;
    struct catalog_workspace row;
    struct catalog_line line;
    char *repository;
    struct checkpoint *parent; /* what its packs and leaves are shared with; NULL: none */
    bool has_before;
    struct digest before;                         /* the checkpoint before it; mostly `parent` */
    struct digest lost[CHECKPOINT_WORK_LOST_MAX]; /* what cannot be the parent any more */
    size_t lost_count;
    struct err why_lost; /* of the first of them */
    bool parent_failed;  /* while it was read */
    struct checkpoint_heads heads;
    bool diverged;
    bool attached; /* by this job, which is to detach it */
    struct volumes_epoch epoch;
    struct checkpoint_config config;
    char tag[CHECKPOINT_TAG_MAX];
    int64_t begun_ns; /* to store */
    struct checkpoint_written written;
    _Atomic bool stopped; /* somebody was told to end */
};

/* remote_progress, by several threads: whether the job is to end. */
int checkpoint_work_ask(void *work, uint64_t done, uint64_t total);
/* The row as it is now; ERR_CONFLICT for a workspace in a state that has no checkpoint. */
int checkpoint_work_read_row(struct checkpoint_work *work, struct err *err);
/* Row, line, what the remote has of the volume, the parent. Without the claim, as the remote may
 * let us wait. */
int checkpoint_work_look(struct checkpoint_work *work, struct err *err);
/* Opens what the next one stands on; of what is lost, what comes before it. */
int checkpoint_work_open_parent(struct checkpoint_work *work, struct err *err);
/* The row of a checkpoint: 1, 0 there is none, or -errno. */
int checkpoint_work_find_row(struct checkpoint_work *work, const char *digest,
                             struct catalog_checkpoint *ret, struct err *err);
/* Reads all of a checkpoint of the volume's lineage, but for the packs of `known` (NULL: none). */
int checkpoint_work_read_back(struct checkpoint_work *work, const struct digest *digest,
                              const struct checkpoint *known, struct err *err);
/* After a failed store: whether that was for the parent, which is lost then, so that a new cut can
 * be stored without it. */
bool checkpoint_work_lost_parent(struct checkpoint_work *work, const struct err *failure);
/* Attached: without a parent all of the volume has to be here. */
int checkpoint_work_check_here(struct checkpoint_work *work, struct err *err);
/* Compares with the remote as it is: ERR_CONFLICT for a token that is too low. *ret_gone_on:
 * somebody else has stored what this node does not know. */
int checkpoint_work_compare(struct checkpoint_work *work, const struct checkpoint_heads *heads,
                            bool *ret_gone_on, struct err *err);
/* With the claim: whether that still is so. 1, 0: to be looked at again, or -errno. */
int checkpoint_work_is_current(struct checkpoint_work *work, struct err *err);
/* Attaches the volume unless it is, and cuts it. With the claim. */
int checkpoint_work_cut(struct checkpoint_work *work, struct err *err);
/* Everything into the remote, and then into the catalog. */
int checkpoint_work_store(struct checkpoint_work *work, struct err *err);
int checkpoint_work_record(struct checkpoint_work *work, struct err *err);
/* Reads it back, if that is wanted, and records that. */
int checkpoint_work_verify(struct checkpoint_work *work, struct err *err);
