/* snapshot_remote.h - the end of a snapshot in the remote.
 *
 * Only its own tag goes, and the manifest with it unless another tag or an index in the remote
 * names it (remote_delete()); another snapshot of this node under the same tag keeps both. What the
 * remote refuses, or what has to stay, is part of the result; a remote that does not answer is a
 * failure, and the snapshot keeps its record, so that the removal can be asked for again.
 *
 * A registry tells what a tag names for one tag a request. So that many snapshots of a repository
 * can be removed one by one, all tags are looked at only when that costs at most
 * SNAPSHOT_REMOTE_LOOKS requests for each manifest that goes by it, or one has waited for
 * SNAPSHOT_REMOTE_WAIT_S. Else the tag goes alone, and the manifest waits (catalog_leftover.h) for
 * the next removal in this repository that has reason to look. docs/DESIGN.md, "Registry", says why
 * nothing is remembered of earlier looks instead.
 */
#pragma once

#include "catalog_snapshot.h"
#include "engine.h"

enum {
    SNAPSHOT_REMOTE_LOOKS = 16,
    SNAPSHOT_REMOTE_WAIT_S = 3600,
    SNAPSHOT_REMOTE_WAITING_MAX = 10000, /* that go by one look */
};

/* What became of a part of the snapshot, for the result. */
struct snapshot_outcome {
    const char *state;          /* removed, absent, kept, refused, not_pushed, waits; static */
    bool waits;                 /* to be recorded with the removal of the snapshot's record */
    char message[ERR_TEXT_MAX]; /* "" when there is nothing to say */
};
void snapshot_outcome_set(struct snapshot_outcome *outcome, const char *state, const char *message);

/* Removes the snapshot from the remote of this node. */
int snapshot_remote_remove(struct job *job, const struct catalog_snapshot *row,
                           struct snapshot_outcome *ret, struct err *err);
