/* run_volume.h - the volume that a run's writable layer lies on.
 *
 *   RUN/runs/ID/volume   its ext4, mounted nosuid, nodev, nosymfollow
 *     run                the writable layer: upper, work (run_place.h, docs/FORMAT.md)
 *   RUN/runs/ID/rootfs   the overlay on it
 *
 * The rows of run and volume come together and go together. While the run is "creating" the volume
 * is, too; when it becomes "ready" the volume becomes "attached", mounted, in the same transaction.
 * From then on it is looked after as workspaces are (workspace_run.h): after a restart of the node
 * it is attached and mounted again and then the overlay, and one that has died is brought back.
 * A run that is removed marks both rows, then takes the volume down and removes its bytes, then the
 * rows.
 *
 * Order: the overlay is mounted after the ext4, and unmounted before it. Whoever does one of both
 * has the claim of the volume, as the monitor's threads may bring it back at any time.
 *
 * Calls on the volume's file system wait as long as nobody serves it, or the disk of the host is
 * full. Mounts and unmounts of the overlay are made by a child with a deadline; the few small files
 * are read and written in the job's thread.
 */
#pragma once

#include "catalog_run.h"
#include "convert.h"
#include "engine.h"
#include "id.h"
#include "workspace_claim.h"

struct run_volume_claim {
    struct workspace_claim claim;
    char name[ID_LEN_MAX + 8];
};
/* Waits for the claim of the run's volume until `stop` (may be NULL) fails. Of a run without a
 * volume it is nothing. `ret` must not move. */
int run_volume_claim(struct node *node, const struct catalog_run *run, convert_stop *stop,
                     void *stop_arg, struct run_volume_claim *ret, struct err *err);
/* The same without waiting: 1, 0 when somebody else has it, or -errno. */
int run_volume_claim_try(struct node *node, const struct catalog_run *run,
                         struct run_volume_claim *ret, struct err *err);
void run_volume_claim_end(struct run_volume_claim *claim);
#define cleanup_run_volume_claim cleanup_with(run_volume_claim_end)

/* What follows is for runs that have a volume. */

/* Makes the volume that is in the catalog, attaches and mounts it. Can be repeated. */
int run_volume_make(struct job *job, const struct catalog_run *run, struct err *err);
/* In the transaction that makes the run ready: the volume is attached and mounted. */
int run_volume_note_ready(struct node *node, const struct catalog_run *run, struct err *err);

/* Mounts what is not mounted of a run that is ready: its volume, and the overlay. `renew`: also one
 * that was fenced is taken down, and mounted again; nobody uses the run. For who has the claim. */
int run_volume_up(struct node *node, const struct catalog_run *run, bool renew, struct err *err);
/* Whether volume and overlay are mounted: 1, 0, or -errno. */
int run_volume_is_up(struct node *node, const struct catalog_run *run, struct err *err);
/* Whether the volume was fenced, so that the run takes no writes until it was mounted anew. */
bool run_volume_is_fenced(struct node *node, const struct catalog_run *run);

/* In the transaction that marks the run as going. */
int run_volume_note_removing(struct node *node, const struct catalog_run *run, struct err *err);
/* Takes the volume of a run that is going down, and removes its bytes. The overlay is unmounted.
 * One that answers is unmounted in order, which writes what is left; one of which nothing is to be
 * expected (run_volume_is_hopeless()) is given up. Can be repeated. */
int run_volume_remove(struct node *node, const struct catalog_run *run, struct err *err);
/* In the transaction that removes the run's row, after that. */
int run_volume_note_removed(struct node *node, const struct catalog_run *run, struct err *err);

/* The documents of the volumes of these runs, NULL for those without one; the caller owns them. Of
 * one whose row cannot be read the reason is in ret_errs[i]. -errno: of none. */
int run_volume_json_each(struct node *node, const struct catalog_run *runs, size_t count,
                         json_t **ret, struct err *ret_errs, struct err *err);

/* Mounts and unmounts the overlay, in a child. `lazily`: the path is free at once, whoever still
 * uses it. */
int run_volume_unmount(struct node *node, const char *id, bool lazily, struct err *err);
/* Whether nothing is to be expected of the volume any more: it is dead, was fenced, or its writes
 * wait. */
bool run_volume_is_hopeless(struct node *node, const struct catalog_run *run);
