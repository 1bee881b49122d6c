/* snapshot_remote.h - the end of a snapshot in the remote.
 *
 * Only its own tag goes, and the manifest with it unless another tag or an index in the remote
 * names it (remote_delete()); another snapshot of this node under the same tag keeps both. What the
 * remote refuses, or what has to stay, is part of the result; a remote that does not answer is a
 * failure, and the snapshot keeps its record, so that the removal can be asked for again.
 */
#pragma once

#include "catalog_snapshot.h"
#include "engine.h"

/* What became of a part of the snapshot, for the result. */
struct snapshot_outcome {
    const char *state;          /* removed, absent, kept, refused, not_pushed; static */
    char message[ERR_TEXT_MAX]; /* "" when there is nothing to say */
};
void snapshot_outcome_set(struct snapshot_outcome *outcome, const char *state, const char *message);

/* Removes the snapshot from the remote of this node. */
int snapshot_remote_remove(struct job *job, const struct catalog_snapshot *row,
                           struct snapshot_outcome *ret, struct err *err);
