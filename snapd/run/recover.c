#include "recover.h"

#include "recover_internal.h"

#include "catalog_job.h"
#include "id.h"
#include "layers_mount.h"
#include "run.h"
#include "run_internal.h"

int recover_add(struct recover *recover, const struct recover_item *item, int rc,
                const struct err *failure, struct err *err)
{
    cleanup_free char *text = NULL;
    const char *action = recover->plan ? item->will : item->done;
    if (rc < 0) {
        if (asprintf(&text, "not %s: %s", item->done, failure->text) < 0)
            text = NULL;
        action = text ? text : "failed";
    }
    json_t *row = json_pack("{s:s, s:s, s:s, s:b}", "object", item->object, "found", item->found,
                            "action", action, "failed", rc < 0);
    if (!row || json_array_append_new(recover->items, row) < 0)
        return err_errno(err, ENOMEM, "cannot report what was found");
    return 0;
}

/* --- Jobs --- */

static void free_jobs(struct recover *recover)
{
    for (size_t i = 0; i < recover->job_count; i++)
        catalog_job_free(&recover->jobs[i]);
    free(recover->jobs);
}

/* Whatever is older than every job that runs belongs to none of them: jobs make it after they have
 * started. A margin is for the coarse clock of file systems. */
static void find_threshold(struct recover *recover)
{
    int64_t oldest = clock_wall_ns(&recover->node->clock);
    for (size_t i = 0; i < recover->job_count; i++) {
        int64_t started = recover->jobs[i].started_ns;
        if (started > 0 && started < oldest)
            oldest = started;
    }
    recover->stale_before_ns =
        oldest - recover->node->clock.offset_ns - RECOVER_MARGIN_S * CLOCK_NS_PER_S;
}

/* --- Runs --- */

/* 1 when the run is still half made or half removed and no job will go on with it. It is marked
 * then, in the same transaction, so that a job that comes later leaves it alone too. */
static int claim(struct node *node, const char *id, struct err *err)
{
    cleanup_catalog_run struct catalog_run run = {0};
    int rc = catalog_begin(node->catalog, err);
    if (rc < 0)
        return rc;
    rc = run_find(node, id, &run, err);
    if (rc == 1)
        rc = run.state != CATALOG_RUN_READY;
    if (rc == 1) {
        rc = run_has_job(node, id, err);
        rc = rc < 0 ? rc : rc == 0;
    }
    if (rc == 1) {
        rc = catalog_run_set_state(node->catalog, id, CATALOG_RUN_REMOVING, err);
        rc = rc < 0 ? rc : catalog_commit(node->catalog, err);
        rc = rc < 0 ? rc : 1;
    }
    catalog_rollback(node->catalog);
    return rc;
}

/* 1 when the run was removed, 0 when it has become another's business. */
static int discard(struct node *node, const char *id, struct err *err)
{
    cleanup_fd int lock = run_lock_idle(node, id, err);
    int rc = lock < 0 ? lock : claim(node, id, err);
    if (rc <= 0)
        return rc;
    rc = run_discard(node, id, "run-removed", err);
    return rc < 0 ? rc : 1;
}

static int mount_again(struct recover *recover, const char *id, struct err *err)
{
    int rc = run_mount_idle(recover->node, id, recover->job ? job_stop : NULL, recover->job, err);
    return rc < 0 ? rc : 1;
}

/* A run that needs something. */
static int recover_run(struct recover *recover, const struct catalog_run *run, struct err *err)
{
    static const struct recover_item mount = {.will = "mount it again", .done = "mounted again"};
    static const struct recover_item removal = {.will = "remove it", .done = "removed"};
    struct node *node = recover->node;
    bool ready = run->state == CATALOG_RUN_READY;
    struct recover_item item = ready ? mount : removal;
    char object[ID_LEN_MAX + 8];
    char found[48];
    struct err failure = ERR_INIT;
    int rc = run_has_job(node, run->id, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    snprintf(object, sizeof object, "run:%s", run->id);
    snprintf(found, sizeof found, "%s%s", ready ? "not mounted" : "left in state ",
             ready ? "" : catalog_run_state_name(run->state));
    item.object = object;
    item.found = found;
    if (!recover->plan) {
        rc = ready ? mount_again(recover, run->id, &failure) : discard(node, run->id, &failure);
        /* A job has begun to work on it since the look; what it meets is its business. */
        if (rc == 0 || (rc < 0 && run_has_job(node, run->id, NULL) == 1))
            return 0;
    }
    return recover_add(recover, &item, rc, &failure, err);
}

/* Whether the run is as it should be; a failure to find out shows when it is mended. */
static bool is_well(struct node *node, const struct catalog_run *run)
{
    return run->state == CATALOG_RUN_READY && run_is_up(node, run, NULL) == 1;
}

int recover_runs(struct recover *recover, struct err *err)
{
    struct catalog_run *runs = NULL;
    size_t count = 0;
    int rc = catalog_run_list(recover->node->catalog, &runs, &count, err);
    for (size_t i = 0; i < count; i++) {
        if (rc == 0 && recover->job)
            rc = job_stop(recover->job, err);
        if (rc == 0 && !is_well(recover->node, &runs[i]))
            rc = recover_run(recover, &runs[i], err);
        catalog_run_free(&runs[i]);
    }
    free(runs);
    return rc;
}

/* --- Layers --- */

/* References are taken before anything is mounted, so what has none is of no use to anybody. */
static int take_layer_mount(void *arg, const char *name, struct err *err)
{
    struct recover *recover = arg;
    struct err failure = ERR_INIT;
    char object[300];
    snprintf(object, sizeof object, "RUN/layers/%s", name);
    const struct recover_item item = {.object = object,
                                      .found = "no run stands on this layer",
                                      .will = "unmount it",
                                      .done = "unmounted"};
    int rc = recover->plan ? 0 : layers_mount_clear_unused(recover->node, name, &failure);
    return recover_add(recover, &item, rc, &failure, err);
}

/* --- The job --- */

static int look(struct job *job, struct recover *recover, struct err *err)
{
    struct node *node = recover->node;
    int rc = catalog_job_list(node->catalog, true, &recover->jobs, &recover->job_count, err);
    if (rc < 0)
        return rc;
    find_threshold(recover);
    rc = job_step(job, "runs", err);
    if (rc == 0)
        rc = recover_runs(recover, err);
    if (rc == 0)
        rc = job_step(job, "workspaces", err);
    if (rc == 0)
        rc = recover_workspaces(recover, err);
    if (rc == 0)
        rc = job_step(job, "leftovers", err);
    if (rc == 0)
        rc = layers_mount_each_unused(node, take_layer_mount, recover, err);
    return rc == 0 ? recover_leftovers(recover, err) : rc;
}

static int recover_node(struct job *job, json_t **ret_result, struct err *err)
{
    struct recover recover = {.job = job, .node = job_node(job), .items = json_array()};
    int rc = json_doc_opt_bool(job_params(job), "plan", "the request", &recover.plan, err);
    if (rc == 0)
        rc = look(job, &recover, err);
    free_jobs(&recover);
    json_t *result = json_pack("{s:b, s:o}", "plan", recover.plan, "items", recover.items);
    if (rc == 0 && !result)
        rc = err_errno(err, ENOMEM, "cannot report what was found");
    if (rc < 0) {
        json_decref(result);
        return err_wrap(err, rc, "cannot recover this node");
    }
    *ret_result = result;
    return 0;
}

const struct job_kind recover_job = {
    .name = "recover", .run = recover_node, .frees_space = true, .waits = true};
