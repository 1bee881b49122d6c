/* workspace_fetch.h - brings absent chunks to the volumes of this node that are attached
 * (volume_fetch.h), from the checkpoints that the catalog names.
 *
 * Job: a fetch for each attached volume with absent chunks, also after a restart of the daemon and
 * after a worker's death. workspace_fetch_ensure() starts one before a mount, so that nobody waits
 * for the next pass; the pass, once a second, starts what is missing and ends what is not needed
 * any more.
 *
 * A fetch is for one life of its volume, from an attach to the detach: for a later one the volume
 * may have been made of another checkpoint (a rollback). It may outlive that life until the next
 * pass or ensure, and brings nothing then, as the worker of the next one refuses it. A checkpoint
 * that the catalog has named before the life changed is not taken for the new one.
 *
 * The checkpoint is opened by the first read, on a thread of the fetch: a remote that is away holds
 * nobody up but who reads.
 *
 * Threads: any. Starting and ending are quick, but a fetch ends within a second.
 */
#pragma once

#include "node.h"
#include "volume_fetch.h"

struct workspace_fetches;

/* NULL without memory. */
struct workspace_fetches *workspace_fetches_new(void);
/* Ends all of them. NULL is fine. */
void workspace_fetches_free(struct workspace_fetches *fetches);

/* Starts one for a volume that is attached and has absent chunks, unless it has one. ERR_CONFLICT:
 * it was attached anew meanwhile, or is not made of what the catalog says. */
int workspace_fetch_ensure(struct node *node, const char *id, struct err *err);
/* Starts and ends what has to be, for all volumes in the catalog. */
void workspace_fetch_pass(struct node *node);
/* How a volume's is getting on; false: it has none. */
bool workspace_fetch_look(struct node *node, const char *id, struct volume_fetch_status *ret);
/* The chunks that were read first since the attach; see volume_fetch_touched(). */
size_t workspace_fetch_touched(struct node *node, const char *id, uint32_t *ret, size_t max);
