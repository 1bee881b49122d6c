/* workspace_pool.h - work on many workspaces at once: bringing back, mending.
 *
 * A few threads, so that one volume that is slow or broken (e2fsck, a worker that is stopped, a
 * file system above the path that does not answer) keeps no other one waiting, and a node with many
 * workspaces is back soon. They are started when there is work and stay until the end.
 *
 * Work is known by the name of its workspace: none is queued twice. Claims (workspace_claim.h) are
 * the business of who queues it and of the work.
 */
#pragma once

#include "err.h"

#include <stdbool.h>

enum {
    WORKSPACE_POOL_THREADS = 8,
};
#define WORKSPACE_POOL_NAME "workspace-pool" /* of its threads, as ps shows them */

struct workspace_pool;

/* NULL without memory. */
struct workspace_pool *workspace_pool_new(void);
/* Drops what waits, waits for what is under way. NULL is fine. */
void workspace_pool_free(struct workspace_pool *pool);

/* The work. Returns 0, or -errno for a failure that workspace_pool_wait() tells. `dropped`: it is
 * not to be done any more. */
typedef int workspace_pool_work(void *arg, const char *name, bool dropped);
/* Queues work: 1; 0: some for this name waits or is under way; or -errno. `name` is copied, `arg`
 * borrowed until the work has ended. */
int workspace_pool_add(struct workspace_pool *pool, const char *name, workspace_pool_work *work,
                       void *arg, struct err *err);
/* Drops what waits. */
void workspace_pool_drop(struct workspace_pool *pool);
/* Waits until nothing is left, at most `wait_ms`. Returns how much is. `ret_failed` (may be NULL):
 * something has failed since the last time that this was asked. */
int workspace_pool_wait(struct workspace_pool *pool, int wait_ms, bool *ret_failed);
