#include "run.h"

#include "catalog_job.h"
#include "fdio.h"
#include "id.h"
#include "layers_mount.h"
#include "log.h"
#include "run_internal.h"

#include <fcntl.h>
#include <string.h>

struct recovery {
    struct node *node;
    struct catalog_job *jobs; /* owned */
    size_t job_count;
    struct catalog_run *runs; /* owned */
    size_t run_count;
    convert_stop *stop; /* may be NULL */
    void *stop_arg;
};

static void recovery_free(struct recovery *recovery)
{
    for (size_t i = 0; i < recovery->job_count; i++)
        catalog_job_free(&recovery->jobs[i]);
    for (size_t i = 0; i < recovery->run_count; i++)
        catalog_run_free(&recovery->runs[i]);
    free(recovery->jobs);
    free(recovery->runs);
}

static bool has_job(const struct recovery *recovery, const char *id)
{
    char object[ID_LEN_MAX + 8];
    snprintf(object, sizeof object, "run:%s", id);
    for (size_t i = 0; i < recovery->job_count; i++)
        if (recovery->jobs[i].object && strcmp(recovery->jobs[i].object, object) == 0)
            return true;
    return false;
}

static int discard_idle(struct node *node, const char *id, const char *event, struct err *err)
{
    cleanup_fd int lock = run_lock_idle(node, id, err);
    return lock < 0 ? lock : run_discard(node, id, event, err);
}

/* A job of the run that goes on later finishes what it began to make or to remove; of a run that is
 * ready it may only make a snapshot, and would leave it unmounted. */
static void recover_one(struct recovery *recovery, const struct catalog_run *run)
{
    struct node *node = recovery->node;
    bool job_follows = has_job(recovery, run->id);
    struct err failure = ERR_INIT;
    int rc = id_check(run->id, "run ID", &failure);
    if (rc < 0) {
        log_event(LOG_ERROR, "run-not-recovered", "run", run->id, "error", failure.text, NULL);
        return;
    }
    if (job_follows && run->state != CATALOG_RUN_READY)
        return;
    switch (run->state) {
    case CATALOG_RUN_READY:
        rc = run_mount_again(node, run, recovery->stop, recovery->stop_arg, &failure);
        break;
    case CATALOG_RUN_REMOVING:
        rc = discard_idle(node, run->id, "run-removed", &failure);
        break;
    case CATALOG_RUN_CREATING: /* its job failed and could not undo it */
        rc = discard_idle(node, run->id, NULL, &failure);
        break;
    }
    if (rc < 0)
        log_event(LOG_WARN, "run-not-recovered", "run", run->id, "state",
                  catalog_run_state_name(run->state), "error", failure.text, NULL);
}

/* Directories of runs that the catalog does not know may be somebody's only copy (I4). */
static void report_unknown(struct node *node)
{
    cleanup_dir DIR *dir = fdio_list(node->runs_fd, ".");
    if (!dir)
        return;
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        cleanup_catalog_run struct catalog_run run = {0};
        struct err failure = ERR_INIT;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            run_find(node, entry->d_name, &run, &failure) == 0)
            log_event(LOG_WARN, "run-unknown", "directory", entry->d_name, "data", node->data_dir,
                      NULL);
    }
}

void run_recover(struct node *node, convert_stop *stop, void *stop_arg)
{
    cleanup_with(recovery_free) struct recovery recovery = {
        .node = node, .stop = stop, .stop_arg = stop_arg};
    struct err failure = ERR_INIT;
    int rc = catalog_job_list(node->catalog, true, &recovery.jobs, &recovery.job_count, &failure);
    if (rc == 0)
        rc = catalog_run_list(node->catalog, &recovery.runs, &recovery.run_count, &failure);
    if (rc < 0) {
        log_event(LOG_ERROR, "runs-not-recovered", "error", failure.text, NULL);
        return;
    }
    for (size_t i = 0; i < recovery.run_count; i++)
        recover_one(&recovery, &recovery.runs[i]);
    report_unknown(node);
    /* All references were taken. */
    if (layers_mount_sweep(node, &failure) < 0)
        log_event(LOG_WARN, "layers-not-swept", "error", failure.text, NULL);
}
