/* workspace_checkpoint_work.h - the steps of a checkpoint, for workspace_checkpoint*.c alone. */
#pragma once

#include "catalog_workspace.h"
#include "checkpoint_head.h"
#include "cleanup.h"
#include "workspace_checkpoint.h"
#include "workspace_checkpoint_source.h"
#include "workspace_internal.h"
#include "workspace_line.h"

#include <stdatomic.h>

/* What the work has: everything is owned. */
struct checkpoint_work {
    struct job *job;
    struct node *node;
    const char *name;
    bool sync;
    bool claimed; /* by the caller, for all of it */
    enum catalog_checkpoint_reason reason;
    struct catalog_workspace row;
    struct catalog_line line;
    char *repository;
    struct checkpoint *parent; /* NULL: none */
    struct checkpoint_head head;
    bool has_head;
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
/* With the claim: whether that still is so. 1, 0: to be looked at again, or -errno. */
int checkpoint_work_is_current(struct checkpoint_work *work, struct err *err);
/* Attaches the volume unless it is, and cuts it. With the claim. */
int checkpoint_work_cut(struct checkpoint_work *work, struct err *err);
/* Everything into the remote, and then into the catalog. */
int checkpoint_work_store(struct checkpoint_work *work, struct err *err);
int checkpoint_work_record(struct checkpoint_work *work, struct err *err);
