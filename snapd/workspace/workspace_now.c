#include "workspace_now.h"

#include "catalog_checkpoint.h"
#include "cleanup.h"
#include "fault.h"
#include "workspace_create.h"
#include "workspace_epoch.h"
#include "workspace_view.h"

#include <string.h>

enum {
    NAME_DIGITS = 6,
};

/* What the work has; all is owned. */
struct work {
    struct job *job;
    const char *source; /* name */
    struct workspace_stillness how;
    struct catalog_workspace row; /* of the source */
    struct catalog_line line;
};

static void free_work(struct work *work)
{
    catalog_workspace_free(&work->row);
    catalog_line_free(&work->line);
}
#define cleanup_work cleanup_with(free_work)

void workspace_now_name(const char *workspace, const char *job, char ret[WORKSPACE_NAME_MAX])
{
    const char *name = strchr(workspace, ':');
    const char *digits = strchr(job, '-');
    (void)snprintf(ret, WORKSPACE_NAME_MAX, "%s@" WORKSPACE_NOW_WORD "-%.*s",
                   name ? name + 1 : workspace, (int)NAME_DIGITS, digits ? digits + 1 : job);
}

static int read_source(struct work *work, struct err *err)
{
    struct node *node = job_node(work->job);
    catalog_workspace_free(&work->row);
    int rc = catalog_workspace_get(node->catalog, work->source, &work->row, err);
    if (rc == 0)
        rc = workspace_check_whole(&work->row, err);
    if (rc < 0 || (work->row.wanted && work->row.mount.state == CATALOG_MOUNT_MOUNTED))
        return rc;
    rc = err_fail(err, ERR_CONFLICT, "workspace %s is not mounted", work->source);
    err_hint(err, "mount it first; `varve workspace history %s` names checkpoints to look at",
             work->source);
    return rc;
}

static int check_same(const struct work *work, const struct workspace_creation *creation,
                      const struct volumes_epoch *epoch, struct err *err)
{
    if (epoch->reader.chunks * VOLUME_CHUNK == creation->size)
        return 0;
    int rc = err_fail(err, ERR_CONFLICT, "workspace %s has another size now", work->source);
    err_hint(err, "try again");
    return rc;
}

/* What helps where as many are open as can be. */
static void hint_at_views(struct node *node, const char *source, struct err *err)
{
    uint64_t tokens[LIVE_MAP_SLOTS];
    if (volumes_epoch_views(node->volumes, source, tokens) >= LIVE_EPOCHS_VIEWS_MAX)
        err_hint(err, "unmount a view of it that is not needed any more");
}

static int cut(struct work *work, struct node *node, const struct workspace_creation *creation,
               struct volumes_epoch *ret, struct err *err)
{
    const char *id = creation->view_of;
    const char *path = work->how.consistency == WORKSPACE_NONE ? NULL : work->row.mount.path;
    const uint64_t token = workspace_epoch_token(creation->volume);
    int rc = work->how.consistency == WORKSPACE_FREEZE
                 ? volumes_epoch_cut_frozen(node->volumes, id, token, LIVE_USE_VIEW, path,
                                            work->how.freeze_budget_ms, ret, err)
                 : volumes_epoch_cut(node->volumes, id, token, LIVE_USE_VIEW, path, ret, err);
    if (rc < 0)
        hint_at_views(node, id, err);
    return rc == 0 ? FAULT_POINT("view.cut", err) : rc;
}

/* workspace_creation.make. With the source's claim: nobody attaches, mounts or detaches it
 * meanwhile. */
static int make(void *arg, struct node *node, const struct workspace_creation *creation,
                struct err *err)
{
    struct work *work = arg;
    struct volumes_epoch epoch = {.number = 0};
    cleanup_workspace_claim struct workspace_claim claim = {0};
    int rc = workspace_job_claim(work->job, work->source, &claim, err);
    if (rc == 0)
        rc = read_source(work, err);
    if (rc == 0 && strcmp(work->row.volume.id, creation->view_of) != 0)
        rc = err_fail(err, ERR_CONFLICT, "workspace %s is another one now", work->source);
    if (rc == 0)
        rc = job_mark(work->job, "cut", err);
    if (rc == 0)
        rc = cut(work, node, creation, &epoch, err);
    if (rc == 0)
        rc = check_same(work, creation, &epoch, err);
    if (rc == 0)
        rc = workspace_epoch_make(node, creation->volume, creation->view_of, creation->lineage,
                                  &epoch, err);
    volumes_epoch_leave(&epoch);
    return rc == 0 ? FAULT_POINT("view.made", err) : rc;
}

static int look_at_source(struct work *work, struct workspace_creation *creation, struct err *err)
{
    struct node *node = job_node(work->job);
    struct volume_status status = {0};
    int rc = read_source(work, err);
    if (rc == 0)
        rc = catalog_line_get(node->catalog, work->row.volume.id, &work->line, err);
    if (rc == 0)
        rc = volumes_status(node->volumes, work->row.volume.id, &status, err);
    creation->size = status.size;
    creation->lineage = work->line.lineage;
    creation->view_of = work->row.volume.id;
    return rc;
}

static int make_view(struct work *work, const char *name, struct err *err)
{
    cleanup_json json_t *ignored = NULL;
    struct workspace_creation creation = {.name = name, .make = make, .arg = work, .part = true};
    int rc = workspace_create_id(work->job, creation.volume, err);
    if (rc < 0)
        return rc;
    rc = look_at_source(work, &creation, err);
    if (rc < 0) {
        if (err)
            workspace_create_undo(job_node(work->job), &creation, err);
        return rc;
    }
    /* What is read again after the claim must not take these away. */
    cleanup_free char *of = strdup(creation.view_of);
    creation.view_of = of;
    return of ? workspace_create_run(work->job, &creation, &ignored, err)
              : err_errno(err, ENOMEM, "cannot make a view");
}

int workspace_now_open(struct job *job, const char *workspace, const char *path,
                       const struct workspace_stillness *how, struct workspace_now *ret,
                       struct err *err)
{
    struct node *node = job_node(job);
    struct workspace_now now;
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    cleanup_work struct work work = {.job = job, .source = workspace, .how = *how};
    workspace_now_name(workspace, job_id(job), now.name);
    int rc = 0;
    int found = workspace_find(node, now.name, &row, err);
    if (found < 0)
        return found;
    if (!found || row.volume.state == CATALOG_VOLUME_CREATING)
        rc = make_view(&work, now.name, err);
    if (rc == 0)
        rc = workspace_view_mount(job, now.name, path, !found, err);
    if (rc == 0)
        *ret = now;
    return rc;
}

int workspace_now_close(struct job *job, const struct workspace_now *now, struct err *err)
{
    struct node *node = job_node(job);
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    cleanup_workspace_claim struct workspace_claim claim = {0};
    int rc = now->name[0]
                 ? workspace_claim_wait(node->workspaces, now->name, job_stop_undo, job, err)
                 : 0;
    if (rc < 0 || !now->name[0])
        return rc;
    claim = (struct workspace_claim){.workspaces = node->workspaces, .name = now->name};
    int found = workspace_find(node, now->name, &row, err);
    if (found <= 0)
        return found;
    if (row.wanted)
        rc = volumes_unmount(node->volumes, row.volume.id, row.mount.path, err);
    if (rc == 0)
        rc = volumes_detach(node->volumes, row.volume.id, WORKSPACE_DETACH_MS, err);
    if (rc == 0)
        rc = workspace_set_detached(node, &row, "workspace-unmounted", err);
    return rc == 0 ? workspace_view_drop(node, now->name, err) : rc;
}

static int run(struct job *job, json_t **ret_result, struct err *err)
{
    static const char what[] = "the request for a view";
    const char *workspace = NULL;
    const char *path = NULL;
    struct workspace_stillness how;
    struct workspace_now now = {.name = ""};
    int rc = json_doc_get_str(job_params(job), "workspace", what, &workspace, err);
    if (rc == 0)
        rc = json_doc_get_str(job_params(job), "path", what, &path, err);
    if (rc == 0)
        rc = workspace_consistency_read(job_params(job), &how, err);
    if (rc == 0)
        rc = workspace_now_open(job, workspace, path, &how, &now, err);
    return rc == 0 ? workspace_job_result(job, now.name, ret_result, err) : rc;
}

const struct job_kind workspace_now_job = {.name = "workspace.now", .run = run, .waits = true};
