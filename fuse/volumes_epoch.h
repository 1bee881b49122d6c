/* volumes_epoch.h - varved's side of epochs: a cut of an attached volume, and its bytes
 * (format/epochs.h, format/epoch_read.h).
 *
 *   volumes_epoch_cut -> volumes_epoch_is_whole ... -> (volumes_epoch_clean) -> volumes_epoch_end
 *   volumes_epoch_cut -> volumes_epoch_leave ... volumes_epoch_open -> volumes_epoch_leave
 *                                                              ... -> volumes_epoch_release
 *
 * The cut itself takes the volume's `busy` lock, as every change does; what is read afterwards
 * holds nothing up: neither the worker nor a detach waits for a reader. So an epoch ends when its
 * volume is detached, abandoned or dies, whoever reads it: what was read is worth something only if
 * volumes_epoch_is_whole() says so after the last read.
 */
#pragma once

#include "epoch_read.h"
#include "freeze.h"
#include "volumes.h"

struct volumes_epoch {
    struct epoch_reader reader; /* any number of reads, one thread at a time */
    uint64_t number;
    uint64_t life;     /* of the volume (volume_status) */
    int64_t synced_ns; /* how long the sync took; 0: none was asked for */
    int64_t cut_ns;    /* how long requests of the volume waited, at most */
    bool frozen;       /* it was cut frozen; then how it was: */
    struct freeze_times freeze;
    int dir_fd; /* owned, as the next */
    int live_fd;
};

/* Cuts for a checkpoint (LIVE_USE_CHECKPOINT) or a view (LIVE_USE_VIEW). `path`: the file system
 * mounted there is synced first, so that the epoch has what was written before; NULL: not. `token`,
 * not 0, is the caller's name for the cut: asked again, also after a restart, the same epoch is
 * returned as long as it is open. A cut for a checkpoint ends other epochs that are open for one:
 * they were left behind by somebody who is gone, as one checkpoint at a time is the caller's rule.
 * That for a view ends none, as a checkpoint may be storing what it has cut. ERR_CONFLICT: the
 * volume is not attached, or as many epochs are open as can be. */
int volumes_epoch_cut(struct volumes *volumes, const char *id, uint64_t token, uint32_t uses,
                      const char *path, struct volumes_epoch *ret, struct err *err);
/* The same with what is mounted at `path` frozen for the cut: synced, then frozen for at most
 * `budget_ms` (freeze.h), so nothing is in the middle of anything, and the epoch mounts without a
 * journal to replay. Fails when it did not stay frozen from before the cut until after it, and
 * nothing is cut then: ERR_UNREACHABLE for the budget; a worker that does not answer is ended for
 * that. One that somebody else has frozen is cut as it is. */
int volumes_epoch_cut_frozen(struct volumes *volumes, const char *id, uint64_t token, uint32_t uses,
                             const char *path, int budget_ms, struct volumes_epoch *ret,
                             struct err *err);
/* ERR_CONFLICT: the volume was detached or has died meanwhile, another checkpoint has ended the
 * epoch, or an aside could not be written. Of nothing that was read anybody knows whether it is of
 * the epoch then. */
int volumes_epoch_is_whole(struct volumes *volumes, const char *id,
                           const struct volumes_epoch *epoch, struct err *err);
/* When it succeeds all that the epoch has is on disk, with the map that says so: what comes back
 * from a power cut has no less than a checkpoint of the epoch. A volume that is made of a
 * checkpoint needs that before its own is stored: else a chunk that was absent when the map was
 * last written would be absent again, and the next checkpoint would take it over from one that has
 * other bytes there. Waits for the disk. ERR_CONFLICT: the volume was detached meanwhile. */
int volumes_epoch_flush(struct volumes *volumes, const char *id, const struct volumes_epoch *epoch,
                        struct err *err);
/* A checkpoint of the epoch is what the next one may build on: its chunks are clean. A volume that
 * was detached meanwhile is left as it is, as is one where another checkpoint has ended the epoch
 * and is under way: that costs the next one some hashing. */
void volumes_epoch_clean(struct volumes *volumes, const char *id,
                         const struct volumes_epoch *epoch);
/* Ends what a former life of this process has cut for a checkpoint and left open: nobody stores
 * that, as who repeats a checkpoint cuts again, and until then each first write to a chunk would
 * set it aside. Nothing to do where the volume is not attached. */
int volumes_epoch_end_left(struct volumes *volumes, const char *id, struct err *err);
/* The epoch that is open under a token, as after a restart. ERR_NOT_FOUND: there is none, and never
 * will be. ERR_UNREACHABLE: the volume is attached, and nobody has given us its descriptors
 * yet: nothing is known. Waits for nobody. */
int volumes_epoch_open(struct volumes *volumes, const char *id, uint64_t token,
                       struct volumes_epoch *ret, struct err *err);
/* Frees, and leaves the epoch open. Harmless on one that is all zeros. */
void volumes_epoch_leave(struct volumes_epoch *epoch);
/* Ends the epoch of a token. One that is not open, or of a volume that is not attached, is no
 * failure. ERR_UNREACHABLE: the worker has not answered within `wait_ms`; it may end it later. */
int volumes_epoch_release(struct volumes *volumes, const char *id, uint64_t token, int wait_ms,
                          struct err *err);
/* The tokens of all that is open for views; returns how many. */
unsigned volumes_epoch_views(struct volumes *volumes, const char *id,
                             uint64_t ret_tokens[LIVE_MAP_SLOTS]);
/* Ends it, and frees. A worker that does not answer ends it later (at the next cut). Harmless on
 * one that is all zeros. */
void volumes_epoch_end(struct volumes *volumes, const char *id, struct volumes_epoch *epoch);
