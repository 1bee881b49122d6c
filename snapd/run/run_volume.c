#include "run_volume.h"

#include "deadline_child.h"
#include "fault.h"
#include "fdio.h"
#include "overlay.h"
#include "run_internal.h"
#include "run_volume_internal.h"
#include "tree.h"
#include "workspace_internal.h"
#include "workspace_run.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

enum {
    MOUNT_MS = 120000,
    UNMOUNT_MS = 1800000, /* it writes what the page cache holds, perhaps under a rate limit */
    LAZY_MS = 10000,
};

void run_volume_name(const char *id, char ret[RUN_VOLUME_NAME_MAX])
{
    (void)snprintf(ret, RUN_VOLUME_NAME_MAX, CATALOG_WORKSPACE_OF_RUN "%s", id);
}

int run_volume_claim(struct node *node, const struct catalog_run *run, convert_stop *stop,
                     void *stop_arg, struct run_volume_claim *ret, struct err *err)
{
    if (!run->volume)
        return 0;
    run_volume_name(run->id, ret->name);
    int rc = workspace_claim_wait(node->workspaces, ret->name, stop, stop_arg, err);
    if (rc == 0)
        ret->claim = (struct workspace_claim){.workspaces = node->workspaces, .name = ret->name};
    return rc;
}

int run_volume_claim_try(struct node *node, const struct catalog_run *run,
                         struct run_volume_claim *ret, struct err *err)
{
    if (!run->volume)
        return 1;
    run_volume_name(run->id, ret->name);
    int rc = workspace_claim_try(node->workspaces, ret->name, err);
    if (rc == 1)
        ret->claim = (struct workspace_claim){.workspaces = node->workspaces, .name = ret->name};
    return rc;
}

void run_volume_claim_end(struct run_volume_claim *claim)
{
    workspace_claim_end(&claim->claim);
}

int run_volume_row(struct node *node, const char *id, struct catalog_workspace *ret,
                   struct err *err)
{
    char name[RUN_VOLUME_NAME_MAX];
    run_volume_name(id, name);
    return catalog_workspace_get(node->catalog, name, ret, err);
}

/* --- the overlay --- */

/* deadline_child_call */
static int call_mount(void *arg, void *result, int *ret_fd, struct err *err)
{
    (void)result;
    (void)ret_fd;
    return overlay_mount(arg, err);
}

static int mount_overlay(const struct overlay_mount *mount, struct err *err)
{
    char what[OVERLAY_PATH_MAX + 32];
    (void)snprintf(what, sizeof what, "mount an overlay on %s", mount->target);
    const struct deadline_child child = {.what = what,
                                         .object = mount->target,
                                         .wait_ms = MOUNT_MS,
                                         .keep = &mount->lowers_dir,
                                         .keep_count = 1};
    struct overlay_mount wanted = *mount;
    return deadline_child_run(&child, call_mount, &wanted, NULL, 0, NULL, err);
}

int run_volume_mount(const struct run_place *place, const struct overlay_mount *mount,
                     struct err *err)
{
    struct statvfs space;
    if (fstatvfs(place->dir_fd, &space) == 0 && (space.f_bfree == 0 || space.f_ffree == 0))
        (void)run_place_make_room(place);
    int rc = mount_overlay(mount, err);
    if (rc == 0)
        run_place_keep_room(place);
    return rc;
}

/* deadline_child_call */
static int call_unmount(void *arg, void *result, int *ret_fd, struct err *err)
{
    (void)result;
    (void)ret_fd;
    return overlay_unmount(arg, err);
}

/* deadline_child_call */
static int call_detach(void *arg, void *result, int *ret_fd, struct err *err)
{
    (void)result;
    (void)ret_fd;
    return overlay_detach(arg, err);
}

int run_volume_unmount(struct node *node, const char *id, bool lazily, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    char what[OVERLAY_PATH_MAX + 32];
    int rc = run_paths_make(node, id, &paths, err);
    if (rc < 0)
        return rc;
    (void)snprintf(what, sizeof what, "unmount %s", paths.rootfs);
    const struct deadline_child child = {
        .what = what, .object = paths.rootfs, .wait_ms = lazily ? LAZY_MS : UNMOUNT_MS};
    return deadline_child_run(&child, lazily ? call_detach : call_unmount, paths.rootfs, NULL, 0,
                              NULL, err);
}

/* --- making it --- */

int workspace_run_prepare(struct node *node, const char *name, struct err *err)
{
    cleanup_fd int dir = fdio_open_dir(node->run_runs_fd, workspace_run_id(name), 0700, err);
    if (dir < 0)
        return dir;
    if (mkdirat(dir, "volume", 0700) < 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot make %s/runs/%s/volume", node->run_dir,
                         workspace_run_id(name));
    return 0;
}

/* No name in a path that the kernel or we look up there is a link, whatever the worker says. */
int run_volume_harden(const char *path, struct err *err)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSYMFOLLOW};
    if (syscall(SYS_mount_setattr, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &attr, sizeof attr) < 0)
        return err_errno(err, errno, "cannot forbid symbolic links on %s", path);
    return 0;
}

/* Whether there is anything of it but rows: a job may have failed before it made the volume. */
static int find_status(struct node *node, const struct catalog_run *run, struct volume_status *ret,
                       struct err *err)
{
    struct err failure = ERR_INIT;
    return err_found(err, volumes_status(node->volumes, run->volume, ret, &failure), &failure);
}

/* What an earlier attempt has attached may have died since, with varved and keeper. */
static int give_up_dead(struct node *node, const struct catalog_run *run, const char *path,
                        struct err *err)
{
    struct volume_status status = {0};
    int rc = find_status(node, run, &status, err);
    if (rc <= 0 || !status.dead)
        return rc < 0 ? rc : 0;
    rc = run_volume_unmount(node, run->id, true, err);
    return rc == 0 ? volumes_abandon(node->volumes, run->volume, path, false, err) : rc;
}

static int bring_up(struct job *job, const struct catalog_run *run, const char *path,
                    struct err *err)
{
    struct node *node = job_node(job);
    char name[RUN_VOLUME_NAME_MAX];
    run_volume_name(run->id, name);
    int rc = give_up_dead(node, run, path, err);
    if (rc == 0)
        rc = workspace_run_prepare(node, name, err);
    if (rc == 0)
        rc = workspace_bring_up(node, run->volume, path, false, job_is_repeated(job), NULL, err);
    return rc == 0 ? run_volume_harden(path, err) : rc;
}

/* Beside what would make volumes work here. */
static void tell_way_out(struct err *err)
{
    static const char way[] = "make the run with --plain-upper";
    char hint[sizeof err->hint];
    (void)snprintf(hint, sizeof hint, "%s", err->hint);
    err->hint[0] = '\0';
    if (hint[0])
        err_hint(err, "%.*s, or %s", (int)(sizeof hint - sizeof way - 8), hint, way);
    else
        err_hint(err, "%s; `varve doctor` says what volumes lack here", way);
}

int run_volume_make(struct job *job, const struct catalog_run *run, struct err *err)
{
    struct node *node = job_node(job);
    cleanup_catalog_volume struct catalog_volume volume = {0};
    cleanup_run_paths struct run_paths paths = {0};
    cleanup_workspace_waits struct workspace_waits waits;
    workspace_waits_begin(&waits, job, NULL);
    int rc = run_paths_make(node, run->id, &paths, err);
    if (rc == 0)
        rc = catalog_volume_get(node->catalog, run->volume, &volume, err);
    if (rc == 0)
        rc = volumes_create(node->volumes, run->volume, (uint64_t)volume.size, err);
    if (rc == 0)
        rc = FAULT_POINT("run.volume-made", err);
    if (rc == 0)
        rc = bring_up(job, run, paths.volume, err);
    if (rc == 0)
        return FAULT_POINT("run.volume-mounted", err);
    if (err->code == ERR_UNSUPPORTED)
        tell_way_out(err);
    return err_wrap(err, rc, "cannot make the volume of run %s", run->id);
}

int run_volume_note_ready(struct node *node, const struct catalog_run *run, struct err *err)
{
    static const enum catalog_volume_state way[] = {
        CATALOG_VOLUME_DETACHED, CATALOG_VOLUME_ATTACHING, CATALOG_VOLUME_ATTACHED};
    struct catalog *catalog = node->catalog;
    cleanup_run_paths struct run_paths paths = {0};
    int rc = run_paths_make(node, run->id, &paths, err);
    const struct catalog_mount mount = {.volume = run->volume, .path = paths.volume};
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(way); i++)
        rc = catalog_volume_set_state(catalog, run->volume, way[i], err);
    if (rc == 0)
        rc = catalog_mount_add(catalog, &mount, err);
    if (rc == 0)
        rc = catalog_mount_set_state(catalog, run->volume, CATALOG_MOUNT_MOUNTED, err);
    return rc == 0 ? catalog_volume_set_boot(catalog, run->volume, node->boot_id, err) : rc;
}

/* --- its end --- */

int run_volume_note_removing(struct node *node, const struct catalog_run *run, struct err *err)
{
    struct catalog *catalog = node->catalog;
    cleanup_catalog_volume struct catalog_volume volume = {0};
    int rc = catalog_volume_get(catalog, run->volume, &volume, err);
    if (rc < 0 ||
        (volume.state != CATALOG_VOLUME_ATTACHED && volume.state != CATALOG_VOLUME_ATTACHING &&
         volume.state != CATALOG_VOLUME_FENCED))
        return rc;
    rc = catalog_volume_set_state(catalog, run->volume, CATALOG_VOLUME_DETACHING, err);
    return rc == 0 ? catalog_mount_set_state(catalog, run->volume, CATALOG_MOUNT_UNMOUNTING, err)
                   : rc;
}

bool run_volume_is_hopeless(struct node *node, const struct catalog_run *run)
{
    struct volume_status status = {0};
    return find_status(node, run, &status, NULL) == 1 &&
           (status.dead || status.fenced || status.failed || status.held > 0);
}

/* What nobody wants any more is taken from whoever holds on, such as a mount namespace that has a
 * copy of the mount: he keeps the file system, without its device. */
static int take_down(struct node *node, const struct catalog_run *run, const char *path,
                     struct err *err)
{
    struct err why = ERR_INIT;
    int rc = -EBUSY;
    if (!run_volume_is_hopeless(node, run)) {
        rc = volumes_unmount(node->volumes, run->volume, path, &why);
        if (rc == 0)
            rc = volumes_discard(node->volumes, run->volume, &why);
    }
    return rc == 0 ? 0 : volumes_abandon(node->volumes, run->volume, path, true, err);
}

int run_volume_remove(struct node *node, const struct catalog_run *run, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    struct volume_status status = {0};
    cleanup_wait_stop struct wait_stop nobody = {.ask = NULL};
    wait_stop_begin(&nobody);
    int rc = run_paths_make(node, run->id, &paths, err);
    int found = rc < 0 ? rc : find_status(node, run, &status, err);
    rc = found < 0 ? found : 0;
    if (found == 1 && (status.attached || status.detaching || status.dead))
        rc = take_down(node, run, paths.volume, err);
    if (rc == 0)
        rc = FAULT_POINT("run.volume-detached", err);
    if (rc == 0)
        rc = volumes_remove(node->volumes, run->volume, err);
    if (rc == 0)
        rc = FAULT_POINT("run.volume-removed", err);
    return rc < 0 ? err_wrap(err, rc, "cannot remove the volume of run %s", run->id) : 0;
}

int run_volume_note_removed(struct node *node, const struct catalog_run *run, struct err *err)
{
    struct catalog *catalog = node->catalog;
    cleanup_catalog_volume struct catalog_volume volume = {0};
    int rc = catalog_volume_get(catalog, run->volume, &volume, err);
    if (rc == 0)
        rc = catalog_mount_remove(catalog, run->volume, err);
    if (rc == 0 && volume.state == CATALOG_VOLUME_DETACHING)
        rc = catalog_volume_set_state(catalog, run->volume, CATALOG_VOLUME_DETACHED, err);
    if (rc == 0 && volume.state != CATALOG_VOLUME_CREATING)
        rc = catalog_volume_set_state(catalog, run->volume, CATALOG_VOLUME_REMOVING, err);
    return rc == 0 ? catalog_volume_remove(catalog, run->volume, err) : rc;
}
