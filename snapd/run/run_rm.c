#include "run.h"

#include "id.h"
#include "log.h"
#include "pull.h"
#include "run_internal.h"
#include "workspace_disk.h"

/* The run is gone either way; a failure here only leaves bytes for the next time. */
static void run_deletions(struct node *node)
{
    struct err failure = ERR_INIT;
    if (pull_run_deletions(node, &failure) < 0)
        log_event(LOG_WARN, "deletions-failed", "error", failure.text, NULL);
}

/* A removal that fails before the run is marked leaves it as it was, so mounted. */
static void restore_mount(struct job *job, const char *id)
{
    struct node *node = job_node(job);
    struct err failure = ERR_INIT;
    cleanup_catalog_run struct catalog_run run = {0};
    int rc = run_find(node, id, &run, &failure);
    if (rc == 1 && run.state == CATALOG_RUN_READY)
        rc = run_mount_again(node, &run, job_stop, job, &failure);
    if (rc < 0)
        log_event(LOG_WARN, "run-not-mounted-again", "run", id, "error", failure.text, NULL);
}

static int remove_run(struct job *job, const char *id, struct err *err)
{
    struct node *node = job_node(job);
    workspace_disk_make_room(node); /* the rows need some before bytes are gone */
    int rc = job_step(job, "check", err);
    if (rc < 0)
        return rc;
    cleanup_fd int lock = run_lock_idle(node, id, err);
    if (lock < 0)
        return lock;
    rc = job_settle(job, "remove", err);
    if (rc < 0)
        return rc;
    rc = run_discard(node, id, "run-removed", err);
    if (rc < 0)
        restore_mount(job, id);
    return rc;
}

static int rm(struct job *job, json_t **ret_result, struct err *err)
{
    struct node *node = job_node(job);
    const char *id = NULL;
    int rc = json_doc_get_str(job_params(job), "id", "the request to remove a run", &id, err);
    if (rc == 0)
        rc = id_check(id, "run ID", err);
    if (rc < 0)
        return rc;
    cleanup_catalog_run struct catalog_run run = {0};
    int found = run_find(node, id, &run, err);
    if (found < 0)
        return found;
    if (!found && !job_is_repeated(job))
        return catalog_run_get(node->catalog, id, &run, err);
    if (found) {
        rc = remove_run(job, id, err);
        if (rc < 0)
            return rc;
    }
    run_deletions(node);
    *ret_result = json_pack("{s:s}", "id", id);
    return 0;
}

const struct job_kind run_rm_job = {
    .name = "run.rm", .run = rm, .frees_space = true, .waits = true};
