#include "recover.h"

#include "recover_internal.h"

#include "catalog_job.h"
#include "id.h"
#include "overlay.h"
#include "run.h"
#include "run_internal.h"

#include <string.h>

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

static bool has_job(const struct recover *recover, const char *id)
{
    char object[ID_LEN_MAX + 8];
    snprintf(object, sizeof object, "run:%s", id);
    for (size_t i = 0; i < recover->job_count; i++)
        if (recover->jobs[i].object && strcmp(recover->jobs[i].object, object) == 0)
            return true;
    return false;
}

/* --- Runs --- */

static int discard(struct node *node, const char *id, struct err *err)
{
    cleanup_fd int lock = run_lock_idle(node, id, err);
    return lock < 0 ? lock : run_discard(node, id, "run-removed", err);
}

static int is_mounted(struct node *node, const char *id, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    int rc = run_paths_make(node, id, &paths, err);
    return rc < 0 ? rc : overlay_is_mounted(paths.rootfs, err);
}

static int recover_run(struct recover *recover, const struct catalog_run *run, struct err *err)
{
    char object[ID_LEN_MAX + 8];
    char found[48];
    struct err failure = ERR_INIT;
    snprintf(object, sizeof object, "run:%s", run->id);
    struct recover_item item = {.object = object, .found = found};
    int rc = id_check(run->id, "run ID", &failure);
    if (rc == 0 && run->state == CATALOG_RUN_READY) {
        rc = is_mounted(recover->node, run->id, &failure);
        if (rc == 1)
            return 0;
        snprintf(found, sizeof found, "not mounted");
        item.will = "mount it again";
        item.done = "mounted again";
        if (rc == 0 && !recover->plan)
            rc = run_mount_idle(recover->node, run->id, &failure);
    } else {
        snprintf(found, sizeof found, "left in state %s", catalog_run_state_name(run->state));
        item.will = "remove it";
        item.done = "removed";
        if (rc == 0 && !recover->plan)
            rc = discard(recover->node, run->id, &failure);
    }
    return recover_add(recover, &item, rc, &failure, err);
}

static int recover_runs(struct recover *recover, struct err *err)
{
    struct catalog_run *runs = NULL;
    size_t count = 0;
    int rc = catalog_run_list(recover->node->catalog, &runs, &count, err);
    for (size_t i = 0; i < count; i++) {
        if (rc == 0 && !has_job(recover, runs[i].id))
            rc = recover_run(recover, &runs[i], err);
        catalog_run_free(&runs[i]);
    }
    free(runs);
    return rc;
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
        rc = job_step(job, "leftovers", err);
    if (rc == 0)
        rc = recover_leftovers(recover, err);
    return rc;
}

static int recover_node(struct job *job, json_t **ret_result, struct err *err)
{
    struct recover recover = {.node = job_node(job), .items = json_array()};
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

const struct job_kind recover_job = {.name = "recover", .run = recover_node, .frees_space = true};
