#include "workspace_create.h"

#include "catalog_checkpoint.h"
#include "fault.h"
#include "log.h"
#include "workspace.h"
#include "workspace_admission.h"
#include "workspace_internal.h"
#include "workspace_token.h"

#include <string.h>

static const char what[] = "the request for a volume";

static int check_size(uint64_t size, struct err *err)
{
    if (size >= VOLUME_SIZE_MIN && size <= VOLUME_SIZE_MAX)
        return 0;
    return err_fail(err, ERR_INVALID, "a volume has from %llu to %llu bytes, not %llu",
                    (unsigned long long)VOLUME_SIZE_MIN, (unsigned long long)VOLUME_SIZE_MAX,
                    (unsigned long long)size);
}

int workspace_create_size(const struct node *node, const json_t *params, uint64_t *ret,
                          struct err *err)
{
    int64_t size = (int64_t)node->volume.size;
    int rc = json_doc_opt_int(params, "size", what, &size, err);
    if (rc == 0)
        rc = check_size(size < 0 ? 0 : (uint64_t)size, err);
    if (rc == 0)
        *ret = volume_round_size((uint64_t)size);
    return rc;
}

/* "j-0123456789ab" makes the volume 0123456789ab, so a job that runs again makes the same. */
int workspace_create_id(struct job *job, char ret[VOLUME_ID_LEN + 1], struct err *err)
{
    const char *digits = strchr(job_id(job), '-');
    digits = digits ? digits + 1 : "";
    if (strlen(digits) != VOLUME_ID_LEN || strspn(digits, "0123456789abcdef") != VOLUME_ID_LEN)
        return err_fail(err, ERR_INTERNAL, "the job %s has no ID for a volume", job_id(job));
    memcpy(ret, digits, VOLUME_ID_LEN + 1);
    return 0;
}

/* workspace_creation.make of an empty one */
static int make_empty(void *arg, struct node *node, const struct workspace_creation *creation,
                      struct err *err)
{
    (void)arg;
    return volumes_create(node->volumes, creation->volume, creation->size, err);
}

static int read_request(struct job *job, struct workspace_creation *ret, struct err *err)
{
    struct workspace_creation request = {.make = make_empty};
    int rc = workspace_job_name(job, &request.name, err);
    if (rc == 0)
        rc = workspace_create_size(job_node(job), job_params(job), &request.size, err);
    if (rc == 0)
        rc = workspace_token_read(job_params(job), what, &request.token, err);
    if (rc == 0)
        rc = workspace_create_id(job, request.volume, err);
    if (rc == 0)
        *ret = request;
    return rc;
}

/* Admission and row: from here on the row says how much the volume may grow. */
static int record(struct job *job, const struct workspace_creation *request, struct err *err)
{
    struct node *node = job_node(job);
    const struct catalog_volume volume = {
        .id = (char *)request->volume,
        .lineage = (char *)(request->lineage ? request->lineage : request->volume),
        .size = (int64_t)request->size,
        .job_id = (char *)job_id(job),
        .view_of = (char *)request->view_of};
    const uint64_t need = workspace_admission_need(node, request->view_of, request->size);
    int rc = workspace_admission_reserve(node, need, err);
    if (rc < 0)
        return err_wrap(err, rc, "workspace %s is not made", request->name);
    rc = catalog_begin(node->catalog, err);
    if (rc == 0) {
        rc = catalog_workspace_add(node->catalog, request->name, node->id, &volume, err);
        if (rc == 0 && request->parent)
            rc = catalog_line_set_parent(node->catalog, request->volume, request->parent, err);
        if (rc == 0)
            rc = workspace_token_set(node, request->name, request->volume, request->token, err);
        rc = catalog_end(node->catalog, rc, err);
    }
    workspace_admission_release(node, need);
    return rc == 0 ? FAULT_POINT("workspace.create-recorded", err) : rc;
}

/* The end of the job is durable, and this with it. */
static int mark_detached(struct job *job, const struct workspace_creation *request, struct err *err)
{
    struct node *node = job_node(job);
    int rc = catalog_begin_lazy(node->catalog, err);
    if (rc < 0)
        return rc;
    rc = request->part ? 0 : job_settle(job, "record", err);
    if (rc == 0)
        rc = catalog_volume_set_state(node->catalog, request->volume, CATALOG_VOLUME_DETACHED, err);
    if (rc == 0)
        workspace_event(node, "workspace-created", request->name, NULL);
    return catalog_end(node->catalog, rc, err);
}

static int make_volume(struct job *job, const struct workspace_creation *request, struct err *err)
{
    cleanup_workspace_waits struct workspace_waits waits;
    workspace_waits_begin(&waits, job, NULL);
    return request->make(request->arg, job_node(job), request, err);
}

static int make(struct job *job, const struct workspace_creation *request, struct err *err)
{
    int rc = job_mark(job, "make", err);
    if (rc == 0)
        rc = make_volume(job, request, err);
    if (rc == 0)
        rc = FAULT_POINT("workspace.create-made", err);
    return rc == 0 ? mark_detached(job, request, err) : rc;
}

void workspace_create_undo(struct node *node, const struct workspace_creation *creation,
                           const struct err *cause)
{
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    struct err failure = ERR_INIT;
    if (cause->code == ERR_INTERRUPTED ||
        workspace_find(node, creation->name, &row, &failure) != 1 ||
        row.volume.state != CATALOG_VOLUME_CREATING || strcmp(row.volume.id, creation->volume) != 0)
        return;
    if (workspace_discard(node, &row, NULL, &failure) < 0)
        log_event(LOG_WARN, "workspace-not-undone", "workspace", creation->name, "error",
                  failure.text, NULL);
}

/* `fresh`: nothing is recorded yet. */
static int go_on(struct job *job, const struct workspace_creation *request, bool fresh,
                 json_t **ret_result, struct err *err)
{
    int rc = fresh ? record(job, request, err) : 0;
    if (rc == 0)
        rc = make(job, request, err);
    if (rc == 0)
        rc = workspace_job_result(job, request->name, ret_result, err);
    if (rc < 0)
        workspace_create_undo(job_node(job), request, err);
    return rc;
}

static int fail_taken(const char *name, struct err *err)
{
    int rc = err_fail(err, ERR_EXISTS, "there is a workspace %s already", name);
    err_hint(err, "choose another name, or remove that one with `varve workspace rm %s`", name);
    return rc;
}

int workspace_create_run(struct job *job, const struct workspace_creation *creation,
                         json_t **ret_result, struct err *err)
{
    struct node *node = job_node(job);
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    cleanup_workspace_claim struct workspace_claim claim = {0};
    int rc = workspace_job_claim_soon(job, creation->name, &claim, err);
    int found = rc < 0 ? rc : workspace_find(node, creation->name, &row, err);
    if (found < 0)
        return found;
    bool own = found && strcmp(row.volume.id, creation->volume) == 0;
    if (own && row.volume.state == CATALOG_VOLUME_CREATING)
        return go_on(job, creation, false, ret_result, err);
    if (own)
        return workspace_job_result(job, creation->name, ret_result, err);
    if (found && row.volume.state != CATALOG_VOLUME_CREATING)
        return fail_taken(creation->name, err);
    /* What an earlier job could not undo; it has ended, as jobs of one name exclude each other. */
    if (found)
        rc = workspace_discard(node, &row, NULL, err);
    return rc < 0 ? rc : go_on(job, creation, true, ret_result, err);
}

static int create(struct job *job, json_t **ret_result, struct err *err)
{
    struct workspace_creation request = {0};
    int rc = read_request(job, &request, err);
    return rc < 0 ? rc : workspace_create_run(job, &request, ret_result, err);
}

const struct job_kind workspace_create_job = {.name = "workspace.create", .run = create};
