/* workspace_claim.h - who works on a workspace at this moment: a job, or the monitor.
 *
 * Jobs of one workspace exclude each other (engine.h); the claim is between them and the threads
 * of the monitor, which mend what has died and have no job. It lives in memory: after a restart
 * nobody works. Jobs wait for it, the monitor comes again later.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stdint.h>

struct workspaces; /* the claims of a node, and what else its workspaces share in memory */
struct workspace_pool;

/* NULL without memory. */
struct workspaces *workspaces_new(void);
/* Ends what works on workspaces in the background (workspace_pool.h), before what it works with
 * goes. NULL is fine. */
void workspaces_stop(struct workspaces *workspaces);
void workspaces_free(struct workspaces *workspaces); /* after the stop; NULL is fine */

/* Borrowed. The second one is for what takes seconds and helps those who wait (fencing, probing,
 * giving up): never behind a check of a file system, which may have all threads of the first. */
struct workspace_pool *workspaces_pool(struct workspaces *workspaces);
struct workspace_pool *workspaces_quick_pool(struct workspaces *workspaces);

/* Claims a workspace, or says that it has been: 1, 0, or -errno. */
int workspace_claim_try(struct workspaces *workspaces, const char *name, struct err *err);
/* The same, but waits until `stop` (may be NULL) fails. */
typedef int workspace_claim_stop(void *arg, struct err *err);
int workspace_claim_wait(struct workspaces *workspaces, const char *name,
                         workspace_claim_stop *stop, void *stop_arg, struct err *err);
/* The same for somebody who ends what others wait for: from here on nobody else gets the claim
 * before him, and whoever has it can know (workspace_claim_is_awaited()). */
int workspace_claim_take_over(struct workspaces *workspaces, const char *name,
                              workspace_claim_stop *stop, void *stop_arg, struct err *err);
bool workspace_claim_is_awaited(struct workspaces *workspaces, const char *name);
void workspace_claim_release(struct workspaces *workspaces, const char *name);

/* A claim that ends with its scope. */
struct workspace_claim {
    struct workspaces *workspaces; /* NULL: nothing is claimed */
    const char *name;              /* borrowed */
};
static inline void workspace_claim_end(struct workspace_claim *claim)
{
    if (claim->workspaces)
        workspace_claim_release(claim->workspaces, claim->name);
    claim->workspaces = NULL;
}
#define cleanup_workspace_claim __attribute__((cleanup(workspace_claim_end)))

/* Whether a volume that has died may be brought back now (workspace_mend.h), which counts. */
bool workspaces_may_revive(struct workspaces *workspaces, const char *id, int64_t now_ns);

/* Bytes that jobs under way will let volumes grow by, which no row speaks of yet
 * (workspace_admission.h). The caller holds the lock from the first call to the second. */
void workspaces_lock(struct workspaces *workspaces);
void workspaces_unlock(struct workspaces *workspaces);
uint64_t *workspaces_pending(struct workspaces *workspaces);
