#include "run.h"

#include "catalog_event.h"
#include "fault.h"
#include "fdio.h"
#include "id.h"
#include "layers.h"
#include "overlay.h"
#include "run_internal.h"
#include "run_switch.h"

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
    int rc = id_check(id, "run ID", err);
    if (rc < 0)
        return rc;
    snprintf(name, sizeof name, "%s/upper", id);
    int fd = fdio_open_beneath(node->runs_fd, name, O_RDONLY | O_DIRECTORY, 0);
    if (fd == -ENOENT)
        return err_fail(err, ERR_NOT_FOUND, "run %s has no writable layer in %s/runs", id,
                        node->data_dir);
    return fd < 0 ? err_errno(err, fd, "cannot open the writable layer of run %s", id) : fd;
}

int run_settle(struct node *node, const char *id, struct err *err)
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

int run_mount_again(struct node *node, const struct catalog_run *run, convert_stop *stop,
                    void *stop_arg, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    cleanup_catalog_image struct catalog_image image = {0};
    cleanup_catalog_run struct catalog_run current = {0};
    int rc = run_settle(node, run->id, err);
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

int run_mount_idle(struct node *node, const char *id, convert_stop *stop, void *stop_arg,
                   struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    cleanup_catalog_run struct catalog_run run = {0};
    int rc = run_paths_make(node, id, &paths, err);
    if (rc == 0)
        rc = overlay_is_mounted(paths.rootfs, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_fd int lock = run_lock_idle(node, id, err);
    if (lock < 0)
        return lock;
    rc = catalog_run_get(node->catalog, id, &run, err);
    if (rc == 0 && run.state != CATALOG_RUN_READY)
        rc = err_fail(err, ERR_CONFLICT, "run %s is %s", id, catalog_run_state_name(run.state));
    return rc == 0 ? run_mount_again(node, &run, stop, stop_arg, err) : rc;
}

static int remove_row(struct node *node, const char *id, const char *event, struct err *err)
{
    char object[ID_LEN_MAX + 8];
    snprintf(object, sizeof object, "run:%s", id);
    int rc = catalog_begin(node->catalog, err);
    if (rc < 0)
        return rc;
    rc = catalog_run_remove(node->catalog, id, err);
    if (rc == 0 && event)
        rc = catalog_event_add(node->catalog, event, object, NULL, err);
    return catalog_end(node->catalog, rc, err);
}

int run_discard(struct node *node, const char *id, const char *event, struct err *err)
{
    int rc = run_dirs_unmount(node, id, err);
    if (rc == 0)
        rc = FAULT_POINT("run.unmounted", err);
    if (rc == 0)
        rc = catalog_run_set_state(node->catalog, id, CATALOG_RUN_REMOVING, err);
    if (rc == 0)
        rc = FAULT_POINT("run.marked-removing", err);
    if (rc == 0)
        rc = run_dirs_remove(node, id, err);
    if (rc == 0)
        rc = run_switch_drop(node, id, err);
    if (rc == 0)
        rc = FAULT_POINT("run.dirs-removed", err);
    return rc == 0 ? remove_row(node, id, event, err) : rc;
}
