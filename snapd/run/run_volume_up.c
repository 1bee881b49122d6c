/* A run that is ready on its volume, after anything that took one of its mounts away. */
#include "run_volume.h"

#include "fault.h"
#include "layers.h"
#include "log.h"
#include "overlay.h"
#include "publish.h"
#include "run.h"
#include "run_internal.h"
#include "run_volume_internal.h"
#include "workspace_internal.h"
#include "workspace_run.h"

#include <string.h>

/* --- the overlay on it --- */

/* Only of a run that is ready an overlay is wanted. */
static int find_ready(struct node *node, const char *name, struct catalog_run *ret, struct err *err)
{
    int rc = run_find(node, workspace_run_id(name), ret, err);
    return rc == 1 ? ret->state == CATALOG_RUN_READY : rc;
}

int workspace_run_stands(struct node *node, const char *name, struct err *err)
{
    cleanup_catalog_run struct catalog_run run = {0};
    cleanup_run_paths struct run_paths paths = {0};
    int rc = find_ready(node, name, &run, err);
    if (rc <= 0)
        return rc < 0 ? rc : 1;
    rc = run_paths_make(node, run.id, &paths, err);
    return rc < 0 ? rc : overlay_is_mounted(paths.rootfs, err);
}

int workspace_run_let_go(struct node *node, const char *name, struct err *err)
{
    return run_volume_unmount(node, workspace_run_id(name), true, err);
}

/* What jobs that were cut short have left beside the layer. */
static void sweep(struct node *node, const char *id)
{
    struct err failure = ERR_INIT;
    cleanup_run_place struct run_place place = RUN_PLACE_INIT;
    int rc = run_place_open(node, id, &place, &failure);
    if (rc == 0)
        rc = publish_sweep(place.temp_fd, &failure);
    if (rc < 0)
        log_event(LOG_WARN, "run-remains", "run", id, "error", failure.text, NULL);
}

int workspace_run_stand(struct node *node, const char *name, struct err *err)
{
    cleanup_catalog_run struct catalog_run run = {0};
    cleanup_run_paths struct run_paths paths = {0};
    int rc = find_ready(node, name, &run, err);
    if (rc <= 0)
        return rc;
    rc = run_paths_make(node, run.id, &paths, err);
    if (rc == 0)
        rc = run_volume_harden(paths.volume, err);
    if (rc == 0)
        rc = overlay_is_mounted(paths.rootfs, err);
    if (rc == 0) {
        sweep(node, run.id);
        rc = run_mount_held(node, &run, NULL, NULL, err);
    }
    return rc < 0 ? rc : 0;
}

/* --- the volume --- */

/* The run directory of this life of the daemon may be another one. */
static int follow_run_dir(struct node *node, const struct catalog_run *run,
                          const struct catalog_workspace *row, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    int rc = run_paths_make(node, run->id, &paths, err);
    if (rc < 0 || !row->wanted || strcmp(row->mount.path, paths.volume) == 0)
        return rc;
    const struct catalog_mount mount = {.volume = run->volume, .path = paths.volume};
    rc = catalog_begin(node->catalog, err);
    if (rc < 0)
        return rc;
    rc = catalog_mount_remove(node->catalog, run->volume, err);
    if (rc == 0)
        rc = catalog_mount_add(node->catalog, &mount, err);
    return catalog_end(node->catalog, rc, err);
}

/* It is detached, and to be attached again. */
static int note_detached(struct node *node, const struct catalog_workspace *row, struct err *err)
{
    struct catalog *catalog = node->catalog;
    const char *id = row->volume.id;
    int rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    rc = catalog_volume_set_state(catalog, id, CATALOG_VOLUME_DETACHED, err);
    if (rc == 0)
        rc = catalog_volume_set_state(catalog, id, CATALOG_VOLUME_ATTACHING, err);
    if (rc == 0)
        rc = catalog_mount_set_state(catalog, id, CATALOG_MOUNT_MOUNTING, err);
    return catalog_end(catalog, rc, err);
}

static int take_down(struct node *node, const struct catalog_workspace *row, bool failed,
                     struct err *err)
{
    const char *id = row->volume.id;
    const char *path = row->mount.path;
    if (failed) /* it cannot be closed any more */
        return volumes_abandon(node->volumes, id, path, false, err);
    int rc = volumes_unmount(node->volumes, id, path, err);
    if (rc == 0)
        (void)workspace_note_loss(node, row, NULL); /* its incident says it */
    return rc == 0 ? volumes_detach(node->volumes, id, WORKSPACE_DETACH_MS, err) : rc;
}

/* One that was fenced, or whose renewal was cut short: nothing that is written now would be kept.
 */
static int renew(struct node *node, const struct catalog_run *run,
                 const struct catalog_workspace *row, struct err *err)
{
    struct volume_status status = {0};
    int rc = workspace_status(node, row, &status, err);
    if (rc == 0)
        rc = run_volume_unmount(node, run->id, false, err);
    if (rc == 0)
        rc = workspace_set_states(node, row, CATALOG_VOLUME_DETACHING, CATALOG_MOUNT_UNMOUNTING,
                                  err);
    if (rc == 0)
        rc = FAULT_POINT("run.volume-renewing", err);
    if (rc == 0)
        rc = take_down(node, row, status.failed || status.dead, err);
    return rc == 0 ? note_detached(node, row, err) : rc;
}

int run_volume_is_up(struct node *node, const struct catalog_run *run, struct err *err)
{
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    int rc = run_volume_row(node, run->id, &row, err);
    if (rc == 0 && !row.wanted)
        return 0;
    rc = rc < 0 ? rc : workspace_is_missing(node, &row, err);
    return rc < 0 ? rc : rc == 0;
}

bool run_volume_is_fenced(struct node *node, const struct catalog_run *run)
{
    struct volume_status status = {0};
    cleanup_catalog_volume struct catalog_volume volume = {0};
    return run->volume && ((volumes_status(node->volumes, run->volume, &status, NULL) == 0 &&
                            (status.fenced || status.failed)) ||
                           (catalog_volume_get(node->catalog, run->volume, &volume, NULL) == 0 &&
                            volume.state == CATALOG_VOLUME_FENCED));
}

/* Whether the ext4 is where it shall be, and its row says so: then what is not there is the overlay
 * at most, which jobs of the run take away and mount again. */
static int is_ext4_up(struct node *node, const struct catalog_workspace *row, struct err *err)
{
    struct volume_status status = {0};
    bool mounted = false;
    if (!row->wanted || row->volume.state != CATALOG_VOLUME_ATTACHED ||
        row->mount.state != CATALOG_MOUNT_MOUNTED)
        return 0;
    int rc = workspace_status(node, row, &status, err);
    if (rc == 0 && status.attached && !status.dead && !status.detaching)
        rc = volumes_is_mounted(node->volumes, row->volume.id, row->mount.path, &mounted, err);
    return rc < 0 ? rc : mounted;
}

/* That the volume was mounted again is told only when it was. */
static int stand_up(struct node *node, const struct catalog_workspace *row, struct err *err)
{
    int up = is_ext4_up(node, row, err);
    if (up < 0)
        return up;
    return up ? workspace_run_stand(node, row->name, err) : workspace_revive(node, row, NULL, err);
}

int run_volume_up(struct node *node, const struct catalog_run *run, bool wants_renewal,
                  struct err *err)
{
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    cleanup_catalog_workspace struct catalog_workspace now = {0};
    int rc = run_volume_row(node, run->id, &row, err);
    if (rc == 0)
        rc = follow_run_dir(node, run, &row, err);
    if (rc == 0 && (row.volume.state == CATALOG_VOLUME_DETACHING ||
                    (wants_renewal && run_volume_is_fenced(node, run))))
        rc = renew(node, run, &row, err);
    if (rc == 0)
        rc = run_volume_row(node, run->id, &now, err);
    if (rc == 0 && now.volume.state != CATALOG_VOLUME_FENCED)
        rc = stand_up(node, &now, err);
    return rc < 0 ? rc : 0;
}

/* A run that is made or removed is its job's, or run_recover()'s. */
int workspace_run_settle(struct node *node, const struct catalog_workspace *workspace,
                         struct err *err)
{
    cleanup_catalog_run struct catalog_run run = {0};
    int rc = find_ready(node, workspace->name, &run, err);
    return rc == 1 ? run_volume_up(node, &run, false, err) : rc;
}
