/* recover_internal.h - what the parts of recover share; for recover*.c only. */
#pragma once

#include "catalog_job.h"
#include "engine.h"
#include "json_doc.h"
#include "node.h"

enum {
    RECOVER_MARGIN_S = 60,
};

struct recover {
    struct job *job; /* that asks; NULL: nobody who could want its end */
    struct node *node;
    bool plan;
    json_t *items;            /* owned */
    struct catalog_job *jobs; /* unfinished ones at the beginning; owned */
    size_t job_count;
    int64_t stale_before_ns; /* by the kernel's wall clock; what is older belongs to no job */
};

struct recover_item {
    const char *object;
    const char *found;
    const char *will; /* what is to be done: "remove it" */
    const char *done; /* the same when it was: "removed" */
};

/* Reports one finding. `rc` < 0: it could not be mended, for the reason in `failure`. */
int recover_add(struct recover *recover, const struct recover_item *item, int rc,
                const struct err *failure, struct err *err);

/* Runs that are not what their row says, without a job that works on them. */
int recover_runs(struct recover *recover, struct err *err);
/* The same of workspaces, and volumes that no row speaks of. */
int recover_workspaces(struct recover *recover, struct err *err);
/* Directories and files that no record speaks of. */
int recover_leftovers(struct recover *recover, struct err *err);
