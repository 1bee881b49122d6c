#include "workspace_rollback.h"

#include "cleanup.h"
#include "fault.h"
#include "log.h"
#include "workspace_admission.h"
#include "workspace_checkpoint.h"
#include "workspace_fork.h"
#include "workspace_internal.h"
#include "workspace_kill.h"
#include "workspace_line.h"
#include "workspace_token.h"

#include <string.h>
#include <time.h>

enum {
    LOOK_NS = 200 * 1000 * 1000,
};

/* What the work has; all is owned. */
struct rollback {
    struct job *job;
    struct job_asker asker;
    const char *name;
    int64_t token; /* fencing token of who writes from then on; 0: none */
    struct workspace_source source;
    struct checkpoint *checkpoint;
    struct catalog_workspace row;
    struct catalog_line line;
    bool has_before;
    struct digest before;
    json_t *killed; /* processes; NULL: none may be killed */
    uint64_t more;  /* bytes that it may grow by, and that are reserved */
};

static void free_rollback(struct rollback *rollback)
{
    workspace_source_free(&rollback->source);
    checkpoint_free(rollback->checkpoint);
    catalog_workspace_free(&rollback->row);
    catalog_line_free(&rollback->line);
    json_decref(rollback->killed);
    if (rollback->more > 0)
        workspace_admission_release(job_node(rollback->job), rollback->more);
}
#define cleanup_rollback cleanup_with(free_rollback)

static int read_request(struct rollback *rollback, struct err *err)
{
    static const char what[] = "the request to roll a workspace back";
    const char *checkpoint = NULL;
    bool kill = false;
    cleanup_free char *text = NULL;
    const json_t *params = job_params(rollback->job);
    int rc = workspace_job_name(rollback->job, &rollback->name, err);
    if (rc == 0)
        rc = json_doc_get_str(params, "checkpoint", what, &checkpoint, err);
    if (rc == 0)
        rc = workspace_token_read(params, what, &rollback->token, err);
    if (rc == 0)
        rc = json_doc_opt_bool(params, "kill", what, &kill, err);
    if (rc == 0 && kill && !(rollback->killed = json_array()))
        rc = err_errno(err, ENOMEM, "cannot note who is killed");
    if (rc < 0)
        return rc;
    if (asprintf(&text, "%s@%s", rollback->name, checkpoint) < 0) {
        text = NULL;
        return err_errno(err, ENOMEM, "cannot find a checkpoint");
    }
    return workspace_source_find(job_node(rollback->job), text, &rollback->source, err);
}

/* Before anything is unmounted: it is there, whole and signed. */
static int open_checkpoint(struct rollback *rollback, struct err *err)
{
    int rc = job_mark(rollback->job, "open", err);
    return rc < 0 ? rc
                  : workspace_line_open(job_node(rollback->job), rollback->source.lineage,
                                        rollback->source.digest, job_asker_ask, &rollback->asker,
                                        &rollback->checkpoint, err);
}

static int read_row(struct rollback *rollback, struct err *err)
{
    struct node *node = job_node(rollback->job);
    struct catalog_workspace *row = &rollback->row;
    int rc = catalog_workspace_get(node->catalog, rollback->name, row, err);
    if (rc == 0)
        rc = catalog_line_get(node->catalog, row->volume.id, &rollback->line, err);
    if (rc == 0)
        rc = workspace_check_whole(row, err);
    if (rc == 0)
        rc = workspace_check_views(node, row->volume.id, err);
    if (rc < 0)
        return rc;
    if (row->volume.state != CATALOG_VOLUME_FENCED && row->volume.state != CATALOG_VOLUME_DETACHING)
        return 0;
    rc = err_fail(err, ERR_CONFLICT, "workspace %s is %s", row->name,
                  catalog_volume_state_name(row->volume.state));
    err_hint(err, "unmount it first");
    return rc;
}

/* A checkpoint that is being stored would become the head of what the volume is no more. After a
 * kill both go on: this one waits. */
static int wait_until_alone(struct rollback *rollback, struct err *err)
{
    char object[WORKSPACE_OBJECT_MAX];
    struct catalog *catalog = job_node(rollback->job)->catalog;
    (void)snprintf(object, sizeof object, WORKSPACE_CHECKPOINT_OBJECT "%s", rollback->name);
    int rc;
    while ((rc = catalog_job_works_on(catalog, object, err)) == 1) {
        if (!job_is_repeated(rollback->job)) {
            rc = err_fail(err, ERR_CONFLICT, "a checkpoint of it is being stored");
            err_hint(err, "wait for that, or cancel it; `varve job ls` shows it");
            return rc;
        }
        if ((rc = job_stop(rollback->job, err)) < 0)
            return rc;
        (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    return rc;
}

/* As a resize does: a checkpoint of a larger volume is admitted like that. */
static int reserve(struct rollback *rollback, struct err *err)
{
    uint64_t now = (uint64_t)rollback->row.volume.size;
    uint64_t then = checkpoint_config_of(rollback->checkpoint)->size;
    uint64_t more = then > now ? then - now : 0;
    if (more == 0)
        return 0;
    int rc = workspace_admission_reserve(job_node(rollback->job), more, err);
    rollback->more = rc == 0 ? more : 0;
    return rc;
}

static int detach(struct rollback *rollback, struct err *err)
{
    cleanup_workspace_waits struct workspace_waits waits;
    workspace_waits_begin(&waits, rollback->job, NULL);
    return workspace_detach(job_node(rollback->job), rollback->row.volume.id, WORKSPACE_DETACH_MS,
                            err);
}

/* While it is being mounted, as the row says, a start of the daemon leaves it to this job. */
static int take_away(struct rollback *rollback, struct err *err)
{
    struct node *node = job_node(rollback->job);
    const struct catalog_workspace *row = &rollback->row;
    struct err loss = ERR_INIT;
    if (row->wanted) {
        int rc =
            workspace_set_states(node, row, CATALOG_VOLUME_ATTACHING, CATALOG_MOUNT_MOUNTING, err);
        if (rc < 0)
            return rc;
    }
    int rc = row->wanted ? workspace_kill_unmount(rollback->job, row, rollback->killed, err) : 0;
    if (rc == 0 && row->wanted)
        (void)workspace_note_loss(node, row, &loss);
    if (rc == 0)
        rc = detach(rollback, err);
    return rc == 0 ? FAULT_POINT("rollback.detached", err) : rc;
}

static int bring_back(struct rollback *rollback, struct err *err)
{
    struct node *node = job_node(rollback->job);
    const struct catalog_workspace *row = &rollback->row;
    if (!row->wanted)
        return 0;
    int rc = workspace_bring_up(node, row->volume.id, row->mount.path, row->mount.read_only, false,
                                NULL, err);
    return rc == 0 ? workspace_set_mounted(node, row, "workspace-mounted", NULL, err) : rc;
}

/* As it was, also when somebody has cancelled it. A stop of the daemon leaves it to the next
 * attempt.
 */
static void undo(struct rollback *rollback, const struct err *cause)
{
    struct err failure = ERR_INIT;
    cleanup_wait_stop struct wait_stop nobody = {.ask = NULL};
    wait_stop_begin(&nobody);
    if (cause->code != ERR_INTERRUPTED && bring_back(rollback, &failure) < 0)
        log_event(LOG_WARN, "workspace-not-undone", "workspace", rollback->name, "error",
                  failure.text, NULL);
}

/* remote_progress: while the workspace is claimed, who gives it up waits for nothing. */
static int ask(void *arg, uint64_t done, uint64_t total)
{
    struct rollback *rollback = arg;
    return job_asker_ask(&rollback->asker, done, total) ||
           workspace_claim_is_awaited(job_node(rollback->job)->workspaces, rollback->name);
}

/* What the exchange will need of the remote, before anything can go wrong for good. */
static int look_through(struct rollback *rollback, struct err *err)
{
    uint64_t chunk;
    cleanup_checkpoint_walk struct checkpoint_walk walk = {.leaf = NULL};
    int rc = checkpoint_walk_begin(rollback->checkpoint, ask, rollback, &walk, err);
    while (rc == 0 && (rc = checkpoint_walk_next(&walk, &chunk)) > 0)
        rc = 0;
    return workspace_line_walked(&walk, rc, err);
}

static int exchange(struct rollback *rollback, struct err *err)
{
    const struct volume_base base = workspace_line_volume_base(rollback->checkpoint);
    cleanup_checkpoint_walk struct checkpoint_walk walk = {.leaf = NULL};
    int rc = checkpoint_walk_begin(rollback->checkpoint, ask, rollback, &walk, err);
    if (rc < 0)
        return rc;
    rc = volumes_replace_from(job_node(rollback->job)->volumes, rollback->row.volume.id,
                              checkpoint_config_of(rollback->checkpoint)->size, &base,
                              checkpoint_walk_next, &walk, err);
    rc = workspace_line_walked(&walk, rc, err);
    return rc == 0 ? FAULT_POINT("rollback.exchanged", err) : rc;
}

static int record(struct rollback *rollback, struct err *err)
{
    struct node *node = job_node(rollback->job);
    int rc = catalog_begin(node->catalog, err);
    if (rc < 0)
        return rc;
    rc = catalog_line_put_back(node->catalog, rollback->row.volume.id, rollback->source.digest,
                               (int64_t)checkpoint_config_of(rollback->checkpoint)->size, err);
    if (rc == 0)
        workspace_event(node, "workspace-rolled-back", rollback->name, rollback->source.digest);
    rc = catalog_end(node->catalog, rc, err);
    return rc == 0 ? FAULT_POINT("rollback.recorded", err) : rc;
}

/* From the mark in the catalog on it goes to its end, also when somebody cancels: what it was is
 * kept, and what the volume is made of is open. */
static int keep(struct rollback *rollback, struct err *err)
{
    struct node *node = job_node(rollback->job);
    int rc = job_mark(rollback->job, "keep", err);
    if (rc == 0)
        rc = workspace_checkpoint_take(rollback->job, rollback->name,
                                       CATALOG_CHECKPOINT_PRE_ROLLBACK, &rollback->before, err);
    rollback->has_before = rc == 0;
    if (rc == 0)
        rc = look_through(rollback, err);
    if (rc == 0) /* what it stands on is another checkpoint then */
        workspace_fork_let_go(node, rollback->row.volume.id);
    if (rc == 0)
        rc = FAULT_POINT("rollback.let-go", err);
    if (rc == 0)
        rc = catalog_begin(node->catalog, err);
    if (rc < 0)
        return rc;
    rc = job_settle(rollback->job, "exchange", err);
    if (rc == 0)
        rc = catalog_line_put_back_begin(node->catalog, rollback->row.volume.id, err);
    rc = catalog_end(node->catalog, rc, err);
    return rc == 0 ? FAULT_POINT("rollback.begun", err) : rc;
}

/* What goes wrong here leaves it open: it can be neither mounted nor stored until this was done. */
static int exchange_and_record(struct rollback *rollback, struct err *err)
{
    int rc = exchange(rollback, err);
    if (rc == 0)
        rc = record(rollback, err);
    if (rc < 0)
        err_hint(err,
                 "repeat `varve workspace rollback %s`; what it was is kept, see `varve workspace "
                 "history %s`",
                 rollback->name, rollback->name);
    return rc;
}

static int put_back(struct rollback *rollback, struct err *err)
{
    int rc = 0;
    if (!catalog_line_is_open(&rollback->line)) {
        rc = wait_until_alone(rollback, err);
        if (rc == 0)
            rc = reserve(rollback, err);
        if (rc < 0)
            return rc;
        rc = take_away(rollback, err);
        if (rc == 0)
            rc = keep(rollback, err);
        rc = job_asker_end(&rollback->asker, rc, err);
        if (rc < 0)
            undo(rollback, err);
    }
    if (rc == 0)
        rc = exchange_and_record(rollback, err);
    return rc == 0 ? bring_back(rollback, err) : rc;
}

static int finish(struct rollback *rollback, json_t **ret_result, struct err *err)
{
    struct digest_text before = digest_format(&rollback->before);
    int rc = workspace_job_result(rollback->job, rollback->name, ret_result, err);
    if (rc == 0 && rollback->has_before)
        (void)json_object_set_new(*ret_result, "before", json_string(before.s));
    if (rc == 0 && rollback->killed)
        (void)json_object_set(*ret_result, "killed", rollback->killed);
    return rc;
}

/* A job that fails before it comes to its work may have been there before it was killed, and have
 * unmounted the workspace. */
static void mend_after_kill(struct rollback *rollback, const struct err *cause)
{
    struct err ignored = ERR_INIT;
    if (!job_is_repeated(rollback->job) || !rollback->name ||
        (!rollback->row.name && read_row(rollback, &ignored) < 0))
        return;
    workspace_end_left(job_node(rollback->job), &rollback->row);
    if (!catalog_line_is_open(&rollback->line))
        undo(rollback, cause);
}

static int run(struct job *job, json_t **ret_result, struct err *err)
{
    cleanup_rollback struct rollback rollback = {.job = job, .asker = {.job = job}};
    cleanup_workspace_claim struct workspace_claim claim = {0};
    int rc = read_request(&rollback, err);
    if (rc == 0)
        rc = open_checkpoint(&rollback, err);
    if (rc == 0)
        rc = workspace_token_look(job, rollback.name, rollback.token, err);
    if (rollback.name && (rc == 0 || job_is_repeated(job))) {
        int claimed = workspace_job_claim(job, rollback.name, &claim, rc == 0 ? err : NULL);
        rc = rc == 0 ? claimed : rc;
    }
    if (rc == 0)
        rc = read_row(&rollback, err);
    if (rc == 0)
        rc = workspace_token_set(job_node(job), rollback.name, rollback.row.volume.id,
                                 rollback.token, err);
    if (rc == 0)
        rc = put_back(&rollback, err);
    if (rc == 0)
        return finish(&rollback, ret_result, err);
    rc = job_asker_end(&rollback.asker, rc, err);
    if (err && claim.workspaces)
        mend_after_kill(&rollback, err);
    rc = workspace_job_failed(job, rollback.name, rc, err);
    return err_wrap(err, rc, "cannot roll workspace %s back",
                    rollback.name ? rollback.name : "(none)");
}

const struct job_kind workspace_rollback_job = {
    .name = "workspace.rollback", .run = run, .remote = true};
