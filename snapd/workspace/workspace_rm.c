#include "workspace.h"

#include "fault.h"
#include "workspace_disk.h"
#include "workspace_internal.h"

static int check_unused(struct node *node, const struct catalog_workspace *row, struct err *err)
{
    if (row->wanted) {
        int rc = err_fail(err, ERR_CONFLICT, "workspace %s is mounted at %s", row->name,
                          row->mount.path);
        err_hint(err, "unmount it first with `varve workspace unmount %s`", row->name);
        return rc;
    }
    /* Not detach: what is not written yet need not be, and the disk may be full or broken. */
    int rc = volumes_discard(node->volumes, row->volume.id, err);
    if (rc < 0) {
        err_hint(err,
                 "end them, or give up what was not written with `varve workspace unmount "
                 "%s --abandon`",
                 row->name);
        return err_wrap(err, rc, "workspace %s is still attached", row->name);
    }
    return 0;
}

int workspace_mark_removing(struct node *node, const struct catalog_workspace *row, struct err *err)
{
    struct catalog *catalog = node->catalog;
    const char *id = row->volume.id;
    int rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    if (row->volume.state != CATALOG_VOLUME_CREATING &&
        row->volume.state != CATALOG_VOLUME_REMOVING)
        rc = catalog_volume_set_state(catalog, id, CATALOG_VOLUME_DETACHED, err);
    if (rc == 0)
        rc = catalog_volume_set_state(catalog, id, CATALOG_VOLUME_REMOVING, err);
    rc = catalog_end(catalog, rc, err);
    return rc == 0 ? FAULT_POINT("workspace.rm-recorded", err) : rc;
}

static int remove_one(struct job *job, const struct catalog_workspace *row, struct err *err)
{
    struct node *node = job_node(job);
    workspace_disk_make_room(node); /* the rows need some before bytes are gone */
    int rc = job_step(job, "check", err);
    if (rc == 0)
        rc = check_unused(node, row, err);
    if (rc == 0)
        rc = job_settle(job, "remove", err);
    if (rc == 0)
        rc = workspace_mark_removing(node, row, err);
    return rc == 0 ? workspace_discard(node, row, "workspace-removed", err) : rc;
}

static int rm(struct job *job, json_t **ret_result, struct err *err)
{
    struct node *node = job_node(job);
    const char *name = NULL;
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    cleanup_workspace_claim struct workspace_claim claim = {0};
    int rc = workspace_job_name(job, &name, err);
    if (rc == 0)
        rc = workspace_job_claim_soon(job, name, &claim, err);
    int found = rc < 0 ? rc : workspace_find(node, name, &row, err);
    if (found < 0)
        return found;
    if (!found && !job_is_repeated(job))
        return catalog_workspace_get(node->catalog, name, &row, err);
    if (found)
        rc = remove_one(job, &row, err);
    if (rc < 0)
        return rc;
    *ret_result = json_pack("{s:s}", "name", name);
    return 0;
}

const struct job_kind workspace_rm_job = {.name = "workspace.rm", .run = rm, .frees_space = true};
