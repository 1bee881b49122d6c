#include "workspace.h"

#include "catalog_checkpoint.h"
#include "catalog_expiry.h"
#include "fault.h"
#include "log.h"
#include "workspace_disk.h"
#include "workspace_internal.h"
#include "workspace_rm_remote.h"

static int check_unused(struct node *node, const struct catalog_workspace *row, struct err *err)
{
    if (row->wanted) {
        int rc = err_fail(err, ERR_CONFLICT, "workspace %s is mounted at %s", row->name,
                          row->mount.path);
        err_hint(err, "unmount it first with `varve workspace unmount %s`", row->name);
        return rc;
    }
    int shown = workspace_check_views(node, row->volume.id, err);
    if (shown < 0)
        return err_wrap(err, shown, "workspace %s is still attached", row->name);
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

static int mark(struct catalog *catalog, const struct catalog_volume *volume, struct err *err)
{
    int rc = 0;
    if (volume->state != CATALOG_VOLUME_CREATING && volume->state != CATALOG_VOLUME_REMOVING)
        rc = catalog_volume_set_state(catalog, volume->id, CATALOG_VOLUME_DETACHED, err);
    return rc == 0 ? catalog_volume_set_state(catalog, volume->id, CATALOG_VOLUME_REMOVING, err)
                   : rc;
}

/* With `expired`: so are its checkpoints, and *expired is how many there are. */
static int mark_removing(struct node *node, const struct catalog_workspace *row, int *expired,
                         struct err *err)
{
    struct catalog *catalog = node->catalog;
    int rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    rc = mark(catalog, &row->volume, err);
    if (rc == 0 && expired) {
        rc = catalog_expiry_set(catalog, row->volume.id, err);
        *expired = rc > 0 ? rc : 0;
    } else if (rc == 0) {
        rc = catalog_expiry_clear(catalog, row->volume.id, err);
    }
    rc = catalog_end(catalog, rc < 0 ? rc : 0, err);
    return rc == 0 ? FAULT_POINT("workspace.rm-recorded", err) : rc;
}

int workspace_mark_removing(struct node *node, const struct catalog_workspace *row, struct err *err)
{
    return mark_removing(node, row, NULL, err);
}

static int remove_one(struct job *job, const struct catalog_workspace *row, int *expired,
                      struct err *err)
{
    struct node *node = job_node(job);
    workspace_disk_make_room(node); /* the rows need some before bytes are gone */
    int rc = job_step(job, "check", err);
    if (rc == 0)
        rc = check_unused(node, row, err);
    if (rc == 0)
        rc = job_settle(job, "remove", err);
    if (rc == 0)
        rc = mark_removing(node, row, expired, err);
    return rc == 0 ? workspace_discard(node, row, "workspace-removed", err) : rc;
}

/* What it has in the remote is another job's, as that may be away. Without a job it is one of the
 * next hour or of the next start. */
static json_t *begin_remote(struct node *node, const struct catalog_workspace *row, int expired)
{
    cleanup_free char *job = NULL;
    struct err why = ERR_INIT;
    if (workspace_rm_remote_begin(node, row->volume.id, row->volume.lineage, &job, &why) < 0)
        log_event(LOG_WARN, "checkpoints-not-removed", "workspace", row->name, "error", why.text,
                  NULL);
    return json_pack("{s:s, s:i, s:s?}", "state", "removing", "checkpoints", expired, "job", job);
}

static int remove_named(struct job *job, const char *name, bool keep, json_t **ret_remote,
                        struct err *err)
{
    struct node *node = job_node(job);
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    int expired = 0;
    int rc = workspace_find(node, name, &row, err);
    if (rc < 0)
        return rc;
    if (rc == 0) /* an attempt before this one has removed it */
        return job_is_repeated(job) ? 0 : catalog_workspace_get(node->catalog, name, &row, err);
    rc = remove_one(job, &row, keep ? NULL : &expired, err);
    if (rc == 0 && expired > 0)
        *ret_remote = begin_remote(node, &row, expired);
    return rc;
}

static int rm(struct job *job, json_t **ret_result, struct err *err)
{
    const char *name = NULL;
    bool keep = false;
    json_t *remote = NULL;
    cleanup_workspace_claim struct workspace_claim claim = {0};
    int rc = workspace_job_name(job, &name, err);
    if (rc == 0)
        rc = json_doc_opt_bool(job_params(job), "keep_remote", "the request", &keep, err);
    if (rc == 0)
        rc = workspace_job_claim_soon(job, name, &claim, err);
    if (rc == 0)
        rc = remove_named(job, name, keep, &remote, err);
    if (rc < 0)
        return rc;
    *ret_result = json_pack("{s:s, s:o*}", "name", name, "remote", remote);
    return 0;
}

const struct job_kind workspace_rm_job = {.name = "workspace.rm", .run = rm, .frees_space = true};
