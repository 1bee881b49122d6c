#include "workspace.h"

#include "fault.h"
#include "log.h"
#include "workspace_disk.h"
#include "workspace_internal.h"
#include "workspace_path.h"
#include "workspace_token.h"
#include "workspace_view.h"

#include <string.h>

struct request {
    const char *name;
    const char *path;
    bool read_only;
    int64_t token; /* 0: none */
};

static int read_request(struct job *job, struct request *ret, struct err *err)
{
    static const char what[] = "the request to mount a workspace";
    struct request request = {0};
    int rc = workspace_job_name(job, &request.name, err);
    if (rc == 0)
        rc = json_doc_get_str(job_params(job), "path", what, &request.path, err);
    if (rc == 0)
        rc = json_doc_opt_bool(job_params(job), "read_only", what, &request.read_only, err);
    if (rc == 0)
        rc = workspace_token_read(job_params(job), what, &request.token, err);
    if (rc == 0)
        *ret = request;
    return rc;
}

/* What the workspace's state has against it. */
static int check_state(const struct catalog_workspace *row, struct err *err)
{
    int rc = workspace_check_whole(row, err);
    if (rc < 0)
        return rc;
    bool fenced = row->volume.state == CATALOG_VOLUME_FENCED;
    if (!fenced && (!row->wanted || row->mount.state != CATALOG_MOUNT_UNMOUNTING))
        return 0;
    rc = err_fail(err, ERR_CONFLICT, "workspace %s is %s", row->name,
                  fenced ? "fenced" : "half unmounted");
    err_hint(err, "unmount it first with `varve workspace unmount %s`", row->name);
    return rc;
}

/* The wish that is there has to be the same one. */
static int check_wish(const struct catalog_workspace *row, const char *path, bool read_only,
                      struct err *err)
{
    if (!row->wanted || (strcmp(row->mount.path, path) == 0 && row->mount.read_only == read_only))
        return 0;
    bool elsewhere = strcmp(row->mount.path, path) != 0;
    int rc = err_fail(err, ERR_CONFLICT, "workspace %s is mounted %s%s", row->name,
                      elsewhere              ? "at "
                      : row->mount.read_only ? "read-only"
                                             : "for writing",
                      elsewhere ? row->mount.path : "");
    err_hint(err, "unmount it first with `varve workspace unmount %s`", row->name);
    return rc;
}

static int write_wish(struct node *node, const struct catalog_workspace *row,
                      const struct catalog_mount *mount, int64_t token, struct err *err)
{
    int rc = catalog_begin(node->catalog, err);
    if (rc < 0)
        return rc;
    rc = workspace_token_set(node, row->name, row->volume.id, token, err);
    if (rc == 0)
        rc = catalog_mount_add(node->catalog, mount, err);
    /* One that was half unmounted has let go of its last holder by now. */
    if (rc == 0 && row->volume.state == CATALOG_VOLUME_DETACHING)
        rc = catalog_volume_set_state(node->catalog, row->volume.id, CATALOG_VOLUME_DETACHED, err);
    if (rc == 0)
        rc = catalog_volume_set_state(node->catalog, row->volume.id, CATALOG_VOLUME_ATTACHING, err);
    return catalog_end(node->catalog, rc, err);
}

/* One that is unmounted and that a view needs is mounted as it is. */
static int let_holders_go(struct node *node, const char *id, struct err *err)
{
    cleanup_free char *view = NULL;
    int rc = catalog_workspace_view(node->catalog, id, &view, err);
    return rc == 0 ? volumes_detach(node->volumes, id, 0, err) : rc < 0 ? rc : 0;
}

/* From here on the row says where it is to be mounted. */
static int record(struct job *job, const struct catalog_workspace *row, const char *path,
                  const struct request *request, struct err *err)
{
    struct node *node = job_node(job);
    const struct catalog_mount mount = {
        .volume = row->volume.id, .path = (char *)path, .read_only = request->read_only};
    int rc = 0;
    if (row->volume.state == CATALOG_VOLUME_DETACHING)
        rc = let_holders_go(node, row->volume.id, err);
    if (rc == 0)
        rc = write_wish(node, row, &mount, request->token, err);
    return rc < 0 ? err_wrap(err, rc, "cannot mount workspace %s", row->name) : 0;
}

/* Back to what it was before: unmounted, and attached for a view. */
static int set_detaching(struct node *node, const struct catalog_workspace *row, struct err *err)
{
    int rc = catalog_begin(node->catalog, err);
    if (rc < 0)
        return rc;
    rc = catalog_volume_set_state(node->catalog, row->volume.id, CATALOG_VOLUME_DETACHING, err);
    if (rc == 0)
        rc = catalog_mount_remove(node->catalog, row->volume.id, err);
    return catalog_end(node->catalog, rc, err);
}

static int take_back(struct node *node, const struct catalog_workspace *row, struct err *err)
{
    cleanup_free char *view = NULL;
    int rc = catalog_workspace_view(node->catalog, row->volume.id, &view, err);
    if (rc != 0)
        return rc < 0 ? rc : set_detaching(node, row, err);
    rc = workspace_take_back(node, row->volume.id, err);
    return rc == 0 ? workspace_set_detached(node, row, NULL, err) : rc;
}

/* Takes back what was made and the wish itself. What somebody uses already, or what hangs, stays,
 * and so does the row, so that an unmount finds both. */
static void undo(struct node *node, const struct catalog_workspace *row, const struct err *cause)
{
    struct err failure = ERR_INIT;
    if (cause->code == ERR_INTERRUPTED)
        return;
    const char *id = row->volume.id;
    workspace_disk_make_room(node);
    int rc = volumes_unmount(node->volumes, id, row->mount.path, &failure);
    if (rc == 0)
        rc = take_back(node, row, &failure);
    if (rc < 0)
        log_event(LOG_WARN, "workspace-not-undone", "workspace", row->name, "error", failure.text,
                  NULL);
}

static int bring_up(struct job *job, const struct catalog_workspace *row, bool check,
                    struct volumes_mended *ret, struct err *err)
{
    cleanup_workspace_waits struct workspace_waits waits;
    workspace_waits_begin(&waits, job, NULL);
    return workspace_bring_up(job_node(job), row->volume.id, row->mount.path, row->mount.read_only,
                              check, ret, err);
}

/* From a recorded wish to a mount. */
static int fulfil(struct job *job, const char *name, bool fresh, struct err *err)
{
    struct node *node = job_node(job);
    struct volumes_mended mended = {.replayed = false};
    cleanup_free char *told = NULL;
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    int rc = catalog_workspace_get(node->catalog, name, &row, err);
    if (rc < 0)
        return rc;
    if (fresh)
        rc = FAULT_POINT("workspace.mount-recorded", err);
    if (rc == 0)
        rc = job_mark(job, "attach", err);
    if (rc == 0)
        rc = bring_up(job, &row, !fresh, &mended, err);
    if (rc == 0)
        rc = job_settle(job, "record", err);
    if (rc == 0)
        told = workspace_tell_mended(NULL, &mended);
    if (rc == 0)
        rc = workspace_set_mounted(node, &row, "workspace-mounted", told, err);
    if (rc < 0)
        undo(node, &row, err);
    return rc < 0 ? err_wrap(err, rc, "cannot mount workspace %s", name) : 0;
}

static int revive(struct job *job, const struct catalog_workspace *row, struct err *err)
{
    cleanup_workspace_waits struct workspace_waits waits;
    workspace_waits_begin(&waits, job, "record");
    return workspace_revive(job_node(job), row, NULL, err);
}

/* Whether somebody may use it, though it is not mounted where it should be: nobody takes it from
 * him for a job that was cancelled. */
static bool lives(struct node *node, const struct catalog_workspace *row)
{
    struct volume_status status = {0};
    struct err ignored = ERR_INIT;
    return workspace_status(node, row, &status, &ignored) < 0 ||
           ((status.attached || status.detaching) && !status.dead);
}

/* The wish was there before: this job's own, cut short by a kill, or one that is fulfilled, or was
 * until something died. Whoever cancels the job does not want what is dead any more; what lives is
 * as it was. */
static int repeat(struct job *job, const struct catalog_workspace *row, struct err *err)
{
    if (row->mount.state == CATALOG_MOUNT_MOUNTING && job_is_repeated(job))
        return fulfil(job, row->name, false, err);
    bool lived = lives(job_node(job), row);
    int rc = revive(job, row, err);
    if (rc < 0 && err->code == ERR_CANCELLED && !lived)
        undo(job_node(job), row, err);
    return rc < 0 ? rc : 0;
}

static int mount_row(struct job *job, const struct request *request,
                     const struct catalog_workspace *row, struct err *err)
{
    cleanup_free char *path = NULL;
    int rc = check_state(row, err);
    if (rc == 0 && request->read_only && request->token)
        rc = err_fail(err, ERR_INVALID,
                      "a fencing token is for who writes, not for a read-only mount");
    if (rc == 0 && workspace_is_view(row->name) && !request->read_only)
        rc = err_fail(err, ERR_INVALID, "the view %s can be mounted read-only alone", row->name);
    if (rc == 0)
        rc = workspace_path_resolve(job_node(job), request->path, &path, err);
    if (rc == 0)
        rc = check_wish(row, path, request->read_only, err);
    if (rc < 0)
        return rc;
    if (row->wanted)
        rc = workspace_token_set(job_node(job), row->name, row->volume.id, request->token, err);
    if (rc < 0)
        return rc;
    if (row->wanted)
        return repeat(job, row, err);
    rc = record(job, row, path, request, err);
    return rc < 0 ? rc : fulfil(job, row->name, true, err);
}

static int mount_as(struct job *job, const struct request *request, struct err *err)
{
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    int rc = catalog_workspace_get(job_node(job)->catalog, request->name, &row, err);
    return rc == 0 ? mount_row(job, request, &row, err) : rc;
}

int workspace_mount_at(struct job *job, const char *name, const char *path, bool read_only,
                       struct err *err)
{
    const struct request request = {name, path, read_only, 0};
    return mount_as(job, &request, err);
}

static int mount(struct job *job, json_t **ret_result, struct err *err)
{
    struct request request = {0};
    cleanup_workspace_claim struct workspace_claim claim = {0};
    int rc = read_request(job, &request, err);
    if (rc == 0)
        rc = workspace_token_look(job, request.name, request.token, err);
    if (rc == 0)
        rc = workspace_job_claim(job, request.name, &claim, err);
    if (rc == 0)
        rc = mount_as(job, &request, err);
    return rc < 0 ? workspace_job_failed(job, request.name, rc, err)
                  : workspace_job_result(job, request.name, ret_result, err);
}

const struct job_kind workspace_mount_job = {
    .name = "workspace.mount", .run = mount, .waits = true};
