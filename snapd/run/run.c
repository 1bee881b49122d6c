#include "run.h"

#include "catalog_event.h"
#include "fault.h"
#include "fdio.h"
#include "id.h"
#include "layers.h"
#include "overlay.h"
#include "run_internal.h"
#include "run_switch.h"
#include "run_volume.h"
#include "volumes.h"
#include "wait_stop.h"

#include <fcntl.h>

int run_find(struct node *node, const char *id, struct catalog_run *ret, struct err *err)
{
    struct err failure = ERR_INIT;
    return err_found(err, catalog_run_get(node->catalog, id, ret, &failure), &failure);
}

int run_has_job(struct node *node, const char *id, struct err *err)
{
    char object[ID_LEN_MAX + 8];
    snprintf(object, sizeof object, "run:%s", id);
    return catalog_job_works_on(node->catalog, object, err);
}

int run_open_upper(struct node *node, const char *id, struct err *err)
{
    char name[ID_LEN_MAX + 8];
    cleanup_run_place struct run_place place = RUN_PLACE_INIT;
    int rc = id_check(id, "run ID", err);
    if (rc == 0)
        rc = run_place_open(node, id, &place, err);
    if (rc < 0)
        return rc;
    snprintf(name, sizeof name, "%s/upper", place.name);
    int fd = fdio_open_beneath(place.dir_fd, name, O_RDONLY | O_DIRECTORY, 0);
    if (fd == -ENOENT)
        return err_fail(err, ERR_NOT_FOUND, "run %s has no writable layer in %s", id, place.dir);
    return fd < 0 ? err_errno(err, fd, "cannot open the writable layer of run %s", id) : fd;
}

static int settle_held(struct node *node, const char *id, struct err *err)
{
    struct err failure = ERR_INIT;
    int rc = run_switch_finish(node, id, &failure);
    /* Its image was removed, and with it what was published: the run is what it was. */
    if (rc < 0 && failure.code == ERR_NOT_FOUND) {
        err_clear(&failure);
        rc = run_switch_finish(node, id, &failure);
    }
    return rc < 0 ? err_pass(err, rc, &failure) : 0;
}

int run_settle(struct node *node, const char *id, bool renew, convert_stop *stop, void *stop_arg,
               struct err *err)
{
    cleanup_catalog_run struct catalog_run run = {0};
    cleanup_run_volume_claim struct run_volume_claim claim = {0};
    int rc = catalog_run_get(node->catalog, id, &run, err);
    if (rc == 0)
        rc = run_volume_claim(node, &run, stop, stop_arg, &claim, err);
    if (rc == 0 && run.volume && run.state == CATALOG_RUN_READY)
        rc = run_volume_up(node, &run, renew, err);
    return rc == 0 ? settle_held(node, id, err) : rc;
}

int run_is_up(struct node *node, const struct catalog_run *run, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    if (run->volume)
        return run_volume_is_up(node, run, err);
    int rc = run_paths_make(node, run->id, &paths, err);
    return rc < 0 ? rc : overlay_is_mounted(paths.rootfs, err);
}

int run_mount_held(struct node *node, const struct catalog_run *run, convert_stop *stop,
                   void *stop_arg, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    cleanup_catalog_image struct catalog_image image = {0};
    cleanup_catalog_run struct catalog_run current = {0};
    int rc = settle_held(node, run->id, err);
    if (rc == 0)
        rc =
            catalog_run_get(node->catalog, run->id, &current, err); /* it may be on another image */
    if (rc < 0)
        return rc;
    cleanup_fd int upper = run_open_upper(node, run->id, err); /* never made anew: it has data */
    if (upper < 0)
        return upper;
    rc = catalog_image_get(node->catalog, current.image, &image, err);
    if (rc == 0)
        rc = run_paths_make(node, run->id, &paths, err);
    if (rc == 0)
        rc = overlay_is_mounted(paths.rootfs, err);
    if (rc == 0) /* a mount that is there needs no files any more */
        rc = layers_ensure(node, &image, NULL, stop, stop_arg, err);
    if (rc >= 0)
        rc = run_dirs_mount(node, run->id, &image, err);
    return rc < 0 ? err_wrap(err, rc, "cannot mount run %s", run->id) : 0;
}

int run_mount_claimed(struct node *node, const struct catalog_run *run, convert_stop *stop,
                      void *stop_arg, struct err *err)
{
    int rc = run->volume ? run_volume_up(node, run, false, err) : 0;
    return rc == 0 ? run_mount_held(node, run, stop, stop_arg, err) : rc;
}

int run_mount_again(struct node *node, const struct catalog_run *run, convert_stop *stop,
                    void *stop_arg, struct err *err)
{
    cleanup_run_volume_claim struct run_volume_claim claim = {0};
    int rc = run_volume_claim(node, run, stop, stop_arg, &claim, err);
    return rc == 0 ? run_mount_claimed(node, run, stop, stop_arg, err) : rc;
}

static int renew(struct node *node, const struct catalog_run *run, convert_stop *stop,
                 void *stop_arg, struct err *err)
{
    cleanup_run_volume_claim struct run_volume_claim claim = {0};
    int rc = run_volume_claim(node, run, stop, stop_arg, &claim, err);
    if (rc == 0)
        rc = run_volume_up(node, run, true, err);
    return rc == 0 ? run_mount_held(node, run, stop, stop_arg, err) : rc;
}

int run_mount_idle(struct node *node, const char *id, convert_stop *stop, void *stop_arg,
                   struct err *err)
{
    cleanup_catalog_run struct catalog_run before = {0};
    cleanup_catalog_run struct catalog_run run = {0};
    int rc = catalog_run_get(node->catalog, id, &before, err);
    if (rc == 0)
        rc = run_is_up(node, &before, err);
    if (rc < 0)
        return rc;
    bool fenced = run_volume_is_fenced(node, &before);
    if (rc == 1 && !fenced)
        return 0;
    cleanup_fd int lock = run_lock_idle(node, id, err);
    if (lock < 0)
        return lock;
    rc = catalog_run_get(node->catalog, id, &run, err);
    if (rc == 0 && run.state != CATALOG_RUN_READY)
        rc = err_fail(err, ERR_CONFLICT, "run %s is %s", id, catalog_run_state_name(run.state));
    if (rc < 0)
        return rc;
    return fenced ? renew(node, &run, stop, stop_arg, err)
                  : run_mount_again(node, &run, stop, stop_arg, err);
}

static int mark_removing(struct node *node, const struct catalog_run *run, struct err *err)
{
    int rc = catalog_begin(node->catalog, err);
    if (rc < 0)
        return rc;
    rc = catalog_run_set_state(node->catalog, run->id, CATALOG_RUN_REMOVING, err);
    if (rc == 0 && run->volume)
        rc = run_volume_note_removing(node, run, err);
    return catalog_end(node->catalog, rc, err);
}

static int remove_rows(struct node *node, const struct catalog_run *run, const char *event,
                       struct err *err)
{
    char object[ID_LEN_MAX + 8];
    snprintf(object, sizeof object, "run:%s", run->id);
    int rc = catalog_begin(node->catalog, err);
    if (rc < 0)
        return rc;
    rc = catalog_run_remove(node->catalog, run->id, err);
    if (rc == 0 && run->volume)
        rc = run_volume_note_removed(node, run, err);
    if (rc == 0 && event)
        rc = catalog_event_add(node->catalog, event, object, NULL, err);
    return catalog_end(node->catalog, rc, err);
}

/* An unmount would wait for writes that wait themselves; it cannot be refused when these fail. */
static int take_away_hopeless(struct node *node, const struct catalog_run *run, struct err *err)
{
    int rc = mark_removing(node, run, err);
    if (rc < 0)
        return rc;
    volumes_cut(node->volumes, run->volume);
    return run_dirs_unmount(node, run, true, err);
}

struct unmount_wait {
    struct node *node;
    const struct catalog_run *run;
    bool hopeless;
};

/* wait_stop.ask: the mount is out of sight, so nobody can refuse it any more, and the writes that
 * it waits for wait themselves. */
static int ask_hopeless(void *arg, struct err *err)
{
    struct unmount_wait *wait = arg;
    cleanup_run_paths struct run_paths paths = {0};
    if (!wait->hopeless)
        wait->hopeless = run_volume_is_hopeless(wait->node, wait->run) &&
                         run_paths_make(wait->node, wait->run->id, &paths, NULL) == 0 &&
                         overlay_is_mounted(paths.rootfs, NULL) == 0;
    return wait->hopeless ? err_fail(err, ERR_CONFLICT, "its volume takes no writes") : 0;
}

/* 1: it was given up, as what it would write is not wanted, and finds no room. */
static int unmount_unless_hopeless(struct node *node, const struct catalog_run *run,
                                   struct err *err)
{
    struct unmount_wait wait = {.node = node, .run = run};
    struct err failure = ERR_INIT;
    cleanup_wait_stop struct wait_stop stop = {.ask = run->volume ? ask_hopeless : NULL,
                                               .arg = &wait};
    wait_stop_begin(&stop);
    int rc = run_dirs_unmount(node, run, false, &failure);
    if (rc < 0 && wait.hopeless)
        return 1;
    return rc < 0 ? err_pass(err, rc, &failure) : 0;
}

/* Unmounting first, as others can make it fail, and then the run stays as it was. */
static int take_away(struct node *node, const struct catalog_run *run, struct err *err)
{
    int rc = unmount_unless_hopeless(node, run, err);
    if (rc == 1)
        return take_away_hopeless(node, run, err);
    if (rc == 0)
        rc = FAULT_POINT("run.unmounted", err);
    return rc == 0 ? mark_removing(node, run, err) : rc;
}

int run_discard(struct node *node, const char *id, const char *event, struct err *err)
{
    cleanup_catalog_run struct catalog_run run = {0};
    cleanup_run_volume_claim struct run_volume_claim claim = {0};
    int rc = catalog_run_get(node->catalog, id, &run, err);
    if (rc == 0)
        rc = run_volume_claim(node, &run, NULL, NULL, &claim, err);
    if (rc == 0)
        rc = run.volume && run_volume_is_hopeless(node, &run) ? take_away_hopeless(node, &run, err)
                                                              : take_away(node, &run, err);
    if (rc == 0)
        rc = FAULT_POINT("run.marked-removing", err);
    if (rc == 0 && run.volume)
        rc = run_volume_remove(node, &run, err);
    if (rc == 0)
        rc = run_dirs_remove(node, id, err);
    if (rc == 0 && !run.volume)
        rc = run_switch_drop(node, id, err);
    if (rc == 0)
        rc = FAULT_POINT("run.dirs-removed", err);
    return rc == 0 ? remove_rows(node, &run, event, err) : rc;
}
