#include "workspace.h"

#include "fault.h"
#include "log.h"
#include "volume_format.h"
#include "workspace_admission.h"
#include "workspace_internal.h"
#include "workspace_view.h"

static int read_size(struct job *job, uint64_t *ret, struct err *err)
{
    int64_t size = 0;
    int rc =
        json_doc_get_int(job_params(job), "size", "the request to resize a workspace", &size, err);
    if (rc < 0)
        return rc;
    if (size <= 0 || (uint64_t)size > VOLUME_SIZE_MAX)
        return err_fail(err, ERR_INVALID, "a workspace has at most %llu bytes, not %lld",
                        (unsigned long long)VOLUME_SIZE_MAX, (long long)size);
    *ret = volume_round_size((uint64_t)size);
    return 0;
}

static int check(const struct catalog_workspace *row, uint64_t size, struct err *err)
{
    int rc = workspace_check_whole(row, err);
    if (rc < 0)
        return rc;
    if (workspace_is_view(row->name))
        return err_fail(err, ERR_INVALID, "the view %s keeps its size", row->name);
    if (size < (uint64_t)row->volume.size)
        return err_fail(err, ERR_INVALID,
                        "workspace %s has %lld bytes and cannot shrink to %llu; sizes only grow",
                        row->name, (long long)row->volume.size, (unsigned long long)size);
    if (row->volume.state == CATALOG_VOLUME_FENCED ||
        row->volume.state == CATALOG_VOLUME_DETACHING) {
        rc = err_fail(err, ERR_CONFLICT, "workspace %s is %s", row->name,
                      catalog_volume_state_name(row->volume.state));
        err_hint(err, "unmount it first with `varve workspace unmount %s`", row->name);
    }
    return rc;
}

/* The row says what size the volume has, also when it is only half of the way there. A size that
 * nobody asked for is a worker's invention, and would stay for good. */
static int note_size(struct node *node, const struct catalog_workspace *row, uint64_t asked,
                     struct err *err)
{
    struct volume_status status = {0};
    int rc = volumes_status(node->volumes, row->volume.id, &status, err);
    uint64_t most = volume_round_size(asked);
    uint64_t size = status.size < most ? status.size : most;
    if (rc == 0 && size > (uint64_t)row->volume.size)
        rc = catalog_volume_set_size(node->catalog, row->volume.id, (int64_t)size, err);
    return rc;
}

static void let_go(struct node *node, const struct catalog_workspace *row, struct err *err)
{
    int rc = workspace_detach(node, row->volume.id, WORKSPACE_DETACH_MS, err);
    if (rc == 0)
        rc = workspace_set_detached(node, row, NULL, err);
    if (rc < 0)
        log_event(LOG_WARN, "workspace-still-attached", "workspace", row->name, "error", err->text,
                  NULL);
}

/* A volume grows while it is attached; one that nobody uses is for this moment. 1: the file system
 * in it grows at the next mount. */
static int grow_detached(struct node *node, const struct catalog_workspace *row, uint64_t size,
                         struct err *err)
{
    struct err failure = ERR_INIT;
    int rc = catalog_volume_set_state(node->catalog, row->volume.id, CATALOG_VOLUME_ATTACHING, err);
    if (rc == 0)
        rc = FAULT_POINT("workspace.resize-recorded", err);
    if (rc == 0)
        rc = volumes_attach(node->volumes, row->volume.id, err);
    if (rc == 0)
        rc = FAULT_POINT("workspace.resize-attached", err);
    if (rc == 0)
        rc = volumes_resize(node->volumes, row->volume.id, size, NULL, err);
    if (rc >= 0)
        rc = FAULT_POINT("workspace.resize-grown", err);
    if (rc < 0 && err && err->code == ERR_INTERRUPTED)
        return rc;
    let_go(node, row, &failure);
    return rc < 0 ? rc : 1;
}

/* 1: all has grown but the file system (volumes_resize()). */
static int grow_mounted(struct node *node, const struct catalog_workspace *row, uint64_t size,
                        struct err *err)
{
    int rc = workspace_is_missing(node, row, err);
    if (rc == 1) {
        rc = err_fail(err, ERR_CONFLICT, "workspace %s is not mounted at %s, where it should be",
                      row->name, row->mount.path);
        err_hint(err, "`varve recover` mounts it again");
    }
    if (rc == 0)
        rc = volumes_resize(node->volumes, row->volume.id, size, row->mount.path, err);
    int failed = rc < 0 ? rc : FAULT_POINT("workspace.resize-grown", err);
    return failed < 0 ? failed : rc;
}

/* What an earlier attempt of the job has done of it counts already. */
static int reserve(struct node *node, const struct catalog_workspace *row, uint64_t size,
                   uint64_t *ret, struct err *err)
{
    uint64_t recorded = 0;
    uint64_t stored = 0;
    const char *id = row->volume.id;
    int rc = workspace_must_be_there(
        node, id, volumes_record(node->volumes, id, &recorded, &stored, err), err);
    uint64_t now = (uint64_t)row->volume.size;
    if (recorded > now)
        now = recorded;
    uint64_t more = size > now ? size - now : 0;
    if (rc == 0 && more > 0)
        rc = workspace_admission_reserve(node, more, err);
    if (rc == 0)
        *ret = more;
    return rc;
}

/* 0; 1: all but the file system; or -errno. */
static int resize_row(struct job *job, const struct catalog_workspace *row, uint64_t size,
                      struct err *err)
{
    struct node *node = job_node(job);
    struct err failure = ERR_INIT;
    uint64_t more = 0;
    int rc = reserve(node, row, size, &more, err);
    if (rc < 0)
        return rc;
    rc = job_settle(job, "grow", err);
    if (rc == 0)
        rc = row->wanted ? grow_mounted(node, row, size, err) : grow_detached(node, row, size, err);
    int noted = note_size(node, row, size, rc >= 0 ? err : &failure);
    if (rc >= 0 && noted == 0 && more > 0)
        workspace_event(node, "workspace-resized", row->name, NULL);
    workspace_admission_release(node, more);
    return rc < 0 || noted == 0 ? rc : noted;
}

/* The document, and whether the file system has grown too or will at the next mount. */
static int report(struct job *job, const char *name, bool grown, json_t **ret_result,
                  struct err *err)
{
    int rc = workspace_job_result(job, name, ret_result, err);
    if (rc == 0 && json_object_set_new(*ret_result, "filesystem_grown", json_boolean(grown)) < 0)
        rc = err_errno(err, ENOMEM, "cannot describe workspace %s", name);
    return rc;
}

static int resize(struct job *job, json_t **ret_result, struct err *err)
{
    const char *name = NULL;
    uint64_t size = 0;
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    cleanup_workspace_claim struct workspace_claim claim = {0};
    int rc = workspace_job_name(job, &name, err);
    if (rc == 0)
        rc = read_size(job, &size, err);
    if (rc == 0)
        rc = workspace_job_claim(job, name, &claim, err);
    if (rc == 0)
        rc = catalog_workspace_get(job_node(job)->catalog, name, &row, err);
    if (rc == 0)
        rc = check(&row, size, err);
    if (rc == 0) {
        rc = resize_row(job, &row, size, err);
        if (rc < 0)
            (void)err_wrap(err, rc, "cannot resize workspace %s", name);
    }
    return rc < 0 ? workspace_job_failed(job, name, rc, err)
                  : report(job, name, rc == 0, ret_result, err);
}

const struct job_kind workspace_resize_job = {
    .name = "workspace.resize", .run = resize, .waits = true};
