/* workspace_rm_remote.h - what a workspace that was removed has in the remote, and taking it away.
 *
 *   "workspace.rm-remote"  {"volume", "lineage"}   object "remote:VOLUME"; made by
 *                                                  workspace_rm_remote_begin() alone
 *
 * Deleted are the checkpoints of the volume that this node made, by their tags (kept, live,
 * diverged) and what their indexes say; then their pack lists and root manifests. Before each
 * deletion all tags of the repository are looked at (remote_delete_some()): what a hold of a fork
 * or a view, another checkpoint, or a tag of anybody names stays, and so does everything when one
 * of them cannot be read. Blobs that nothing names any more are the registry's own collection's.
 * Checkpoints of other nodes, and what only looks like one, are counted and left.
 *
 * The wish is recorded (catalog_expiry.h) in the transaction with which the volume begins to go,
 * and stays until the job has been through, so it survives kills and remotes that are away: then
 * the job fails, and another one is made at the next start and once an hour. What the remote
 * refuses was asked, is reported, and is not asked again.
 *
 * A hold that ends (workspace_fork.h) takes along what it alone had kept.
 *
 * Steps: manifests that the indexes name are recorded as leftovers (catalog_leftover.h) before the
 * indexes go, as nobody could tell afterwards; then the indexes; then, after another look, the
 * leftovers. Each can be repeated.
 *
 * Result: {"volume", "checkpoints" {"removed", "absent", "kept", "refused"}, "manifests" {the same
 * and "waits"}, "others" (checkpoints of the volume that are not this node's), "messages" (why
 * something stayed, some)}.
 */
#pragma once

#include "digest.h"
#include "engine.h"

#define WORKSPACE_RM_REMOTE_OBJECT "remote:"

enum {
    WORKSPACE_RM_REMOTE_MESSAGES = 8,
};

extern const struct job_kind workspace_rm_remote_job;

/* Lets a job do it; caller frees *ret_job, which is NULL when there is one already or it could only
 * be recorded for the next start. */
int workspace_rm_remote_begin(struct node *node, const char *volume, const char *lineage,
                              char **ret_job, struct err *err);
/* For all volumes of which something is left to do; failures are logged. False: for some there is a
 * job already, or none could be made, so that another pass is due soon. */
bool workspace_rm_remote_pass(struct node *node);

/* A checkpoint that is not needed any more, under the tag that its owner gave it. */
struct workspace_unneeded {
    char *tag; /* owned */
    struct digest digest;
};
/* How many there were of each outcome of a deletion. */
struct workspace_rm_remote_counts {
    int removed, absent, kept, refused, waits;
};
struct workspace_rm_remote_result {
    struct workspace_rm_remote_counts checkpoints;
    struct workspace_rm_remote_counts manifests;
    json_t *messages; /* array; owned */
};
void workspace_rm_remote_result_free(struct workspace_rm_remote_result *result);
#define cleanup_workspace_rm_remote_result cleanup_with(workspace_rm_remote_result_free)
/* Deletes checkpoints of a lineage whose owner the caller has checked, and the manifests that they
 * alone named; of what waits in the repository, too. The job is settled before the first deletion.
 */
int workspace_rm_remote_delete(struct job *job, const char *lineage,
                               const struct workspace_unneeded *list, size_t count,
                               struct workspace_rm_remote_result *ret, struct err *err);
