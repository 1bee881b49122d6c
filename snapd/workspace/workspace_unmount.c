#include "workspace.h"

#include "fault.h"
#include "log.h"
#include "workspace_disk.h"
#include "workspace_internal.h"
#include "workspace_view.h"

/* Back to what it was, as somebody uses it or as it hangs: nothing has been taken away. */
static void step_back(struct node *node, const struct catalog_workspace *row)
{
    struct volume_status status = {0};
    struct err failure = ERR_INIT;
    int rc = volumes_status(node->volumes, row->volume.id, &status, &failure);
    if (rc == 0)
        rc = workspace_set_states(node, row,
                                  status.fenced ? CATALOG_VOLUME_FENCED : CATALOG_VOLUME_ATTACHED,
                                  CATALOG_MOUNT_MOUNTED, &failure);
    if (rc < 0)
        log_event(LOG_WARN, "workspace-not-undone", "workspace", row->name, "error", failure.text,
                  NULL);
}

/* The failure of a step before anything is taken away: who is cancelled there leaves the workspace
 * as it was. What he has recorded may be of an attempt that was killed. */
static int put_back(struct job *job, const struct catalog_workspace *row, int rc,
                    const struct err *err)
{
    if (rc < 0 && job_is_cancelled(job) && err->code != ERR_INTERRUPTED && row->wanted)
        step_back(job_node(job), row);
    return rc;
}

/* Until it is taken away the job can be cancelled. */
static int take_away(struct job *job, const struct catalog_workspace *row, struct err *err)
{
    cleanup_workspace_waits struct workspace_waits waits;
    workspace_waits_begin(&waits, job, "detach");
    int rc = row->wanted
                 ? volumes_unmount(job_node(job)->volumes, row->volume.id, row->mount.path, err)
                 : 0;
    return rc < 0 ? rc : wait_stop_decide(err); /* where nothing was mounted */
}

static int unmount_path(struct job *job, const struct catalog_workspace *row, struct err *err)
{
    int rc = take_away(job, row, err);
    if (rc == 0)
        return row->wanted ? FAULT_POINT("workspace.unmounted", err) : 0;
    if (err->code == ERR_INTERRUPTED || !row->wanted)
        return rc;
    step_back(job_node(job), row);
    if (job_is_cancelled(job))
        return err_wrap(err, rc, "workspace %s stays mounted", row->name);
    err_hint(err,
             "end what uses it, or give up what was not written with `varve workspace unmount "
             "%s --abandon`",
             row->name);
    return err_wrap(err, rc, "workspace %s stays mounted", row->name);
}

/* It is gone from its path; who holds on now is in another mount namespace. */
static int forget_path(struct node *node, const struct catalog_workspace *row, struct err *err)
{
    return row->wanted ? catalog_mount_remove(node->catalog, row->volume.id, err) : 0;
}

/* By its cause: somebody who holds on, a full disk, and one that has failed want different things.
 */
static int fail_detach(const struct node *node, const struct catalog_workspace *row,
                       const struct err *why, struct err *err)
{
    int rc;
    switch (why->code) {
    case ERR_CONFLICT:
        rc = err_fail(err, ERR_CONFLICT, "workspace %s is unmounted, but still held: %s", row->name,
                      why->text);
        err_hint(err,
                 "repeat `varve workspace unmount %s` when they have let go, or give up what "
                 "was not written with --abandon",
                 row->name);
        return rc;
    case ERR_NO_SPACE:
        rc = err_fail(err, ERR_NO_SPACE,
                      "workspace %s is unmounted, but the disk has no room for what is to be "
                      "written last: %s",
                      row->name, why->text);
        err_hint(err,
                 "free space on the file system of %s, then repeat `varve workspace unmount %s`; "
                 "or give up what was not synced with --abandon",
                 node->data_dir, row->name);
        return rc;
    default:
        rc = err_fail(err, why->code, "workspace %s is unmounted, but cannot be closed: %s",
                      row->name, why->text);
        if (why->code != ERR_IO && why->code != ERR_DENIED)
            err_hint(err,
                     "repeat `varve workspace unmount %s`, or give up what was not synced with "
                     "--abandon",
                     row->name);
        err_hint(err,
                 "look at the disk of %s, then give up what was not synced with `varve workspace "
                 "unmount %s --abandon`; what was synced inside is kept",
                 node->data_dir, row->name);
        return rc;
    }
}

/* `ret_loss`: what the unmount could not save; it goes on. */
static int let_go(struct job *job, const struct catalog_workspace *row, struct err *ret_loss,
                  struct err *err)
{
    struct node *node = job_node(job);
    struct err why = ERR_INIT;
    int rc = unmount_path(job, row, err);
    if (rc == 0)
        (void)workspace_note_loss(node, row, ret_loss);
    if (rc == 0)
        rc = forget_path(node, row, err);
    if (rc < 0)
        return rc;
    rc = workspace_detach(node, row->volume.id, WORKSPACE_DETACH_MS, &why);
    return rc < 0 ? fail_detach(node, row, &why, err) : FAULT_POINT("workspace.detached", err);
}

/* Whether nothing waits for being written any more, as the connection is gone. */
static bool is_dead(struct node *node, const struct catalog_workspace *row)
{
    struct volume_status status = {0};
    struct err failure = ERR_INIT;
    return volumes_status(node->volumes, row->volume.id, &status, &failure) == 0 && status.dead;
}

/* Whoever gives it up gives up a freeze, too; else a frozen one is left as it is. */
static int abandon(struct job *job, const struct catalog_workspace *row, bool give_up,
                   struct err *err)
{
    struct node *node = job_node(job);
    int rc = give_up ? 0 : put_back(job, row, job_settle(job, "abandon", err), err);
    if (rc < 0)
        return rc;
    rc = volumes_abandon(node->volumes, row->volume.id, row->wanted ? row->mount.path : NULL,
                         give_up, err);
    if (rc == -EBUSY && !give_up && row->wanted)
        step_back(node, row);
    return rc == 0 ? FAULT_POINT("workspace.abandoned", err) : rc;
}

/* A volume that is attached, as far as anybody knows, is on its way out from here on. */
static int record(struct node *node, const struct catalog_workspace *row, struct err *err)
{
    if (row->volume.state == CATALOG_VOLUME_DETACHED)
        return 0;
    int rc =
        workspace_set_states(node, row, CATALOG_VOLUME_DETACHING, CATALOG_MOUNT_UNMOUNTING, err);
    return rc == 0 ? FAULT_POINT("workspace.unmount-recorded", err) : rc;
}

static int unmount_row(struct job *job, const struct catalog_workspace *row, bool give_up,
                       struct err *err)
{
    struct node *node = job_node(job);
    struct err loss = ERR_INIT;
    bool known = row->wanted || row->volume.state != CATALOG_VOLUME_DETACHED;
    int rc = workspace_check_whole(row, err);
    if (rc == 0)
        workspace_disk_make_room(node); /* for the rows too */
    if (rc == 0)
        rc = record(node, row, err);
    if (rc == 0 && !give_up)
        rc = put_back(job, row, job_mark(job, "unmount", err), err);
    if (rc < 0)
        return rc;
    rc = give_up || is_dead(node, row) ? abandon(job, row, give_up, err)
                                       : let_go(job, row, &loss, err);
    if (rc == 0 && known)
        rc = workspace_set_detached(node, row,
                                    give_up ? "workspace-abandoned" : "workspace-unmounted", err);
    return rc == 0 && loss.code != ERR_NONE ? err_pass(err, -EIO, &loss) : rc;
}

struct giving_up {
    struct job *job;
    const char *name;
};

/* workspace_claim_stop. Whoever works on it may wait for what does not answer, and comes back. */
static int cut(void *arg, struct err *err)
{
    const struct giving_up *giving = arg;
    struct node *node = job_node(giving->job);
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    if (workspace_find(node, giving->name, &row, NULL) == 1)
        volumes_cut(node->volumes, row.volume.id);
    return job_stop(giving->job, err);
}

static int take_claim(struct job *job, const char *name, bool give_up, struct workspace_claim *ret,
                      struct err *err)
{
    struct giving_up giving = {job, name};
    struct workspaces *workspaces = job_node(job)->workspaces;
    if (!give_up)
        return workspace_job_claim(job, name, ret, err);
    int rc = job_settle(job, "abandon", err); /* what it waits for, it ends */
    if (rc < 0)
        return rc;
    rc = workspace_claim_take_over(workspaces, name, cut, &giving, err);
    if (rc == 0)
        *ret = (struct workspace_claim){.workspaces = workspaces, .name = name};
    return rc;
}

static int unmount(struct job *job, json_t **ret_result, struct err *err)
{
    const char *name = NULL;
    bool give_up = false;
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    cleanup_workspace_claim struct workspace_claim claim = {0};
    int rc = workspace_job_name(job, &name, err);
    if (rc == 0)
        rc = json_doc_opt_bool(job_params(job), "abandon", "the request to unmount a workspace",
                               &give_up, err);
    if (rc == 0)
        rc = take_claim(job, name, give_up, &claim, err);
    if (rc == 0)
        rc = catalog_workspace_get(job_node(job)->catalog, name, &row, err);
    if (rc == 0)
        rc = unmount_row(job, &row, give_up, err);
    if (rc == 0)
        rc = workspace_job_result(job, name, ret_result, err);
    if (rc == 0 && workspace_is_view(name))
        rc = workspace_view_drop(job_node(job), name, err);
    return rc < 0 ? workspace_job_failed(job, name, rc, err) : 0;
}

/* Writes back what is in memory, which may need the node's last bytes. */
const struct job_kind workspace_unmount_job = {
    .name = "workspace.unmount", .run = unmount, .frees_space = true, .waits = true};
/* The same job with "abandon": it gets past those that wait, and ends what they wait for. */
const struct job_kind workspace_abandon_job = {
    .name = "workspace.abandon", .run = unmount, .frees_space = true, .urgent = true};
