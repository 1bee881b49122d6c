#include "run.h"

#include "catalog_job.h"
#include "fdio.h"
#include "id.h"
#include "layers_mount.h"
#include "log.h"
#include "run_internal.h"
#include "run_volume.h"

#include <string.h>

static int discard_idle(struct node *node, const char *id, const char *event, struct err *err)
{
    cleanup_fd int lock = run_lock_idle(node, id, err);
    return lock < 0 ? lock : run_discard(node, id, event, err);
}

/* What somebody mends at this moment is mounted when that has ended. */
static int mount_again(struct node *node, const struct catalog_run *run, convert_stop *stop,
                       void *stop_arg, struct err *err)
{
    cleanup_run_volume_claim struct run_volume_claim claim = {0};
    int rc = run_volume_claim_try(node, run, &claim, err);
    return rc == 1 ? run_mount_claimed(node, run, stop, stop_arg, err) : rc;
}

/* A job of the run that goes on later finishes what it began to make or to remove; of a run that is
 * ready it may only make a snapshot, and would leave it unmounted. */
static int recover_one(struct node *node, const struct catalog_run *run, convert_stop *stop,
                       void *stop_arg, struct err *err)
{
    int rc = id_check(run->id, "run ID", err);
    if (rc == 0 && run->state != CATALOG_RUN_READY)
        rc = run_has_job(node, run->id, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    switch (run->state) {
    case CATALOG_RUN_READY:
        return mount_again(node, run, stop, stop_arg, err);
    case CATALOG_RUN_REMOVING:
        return discard_idle(node, run->id, "run-removed", err);
    case CATALOG_RUN_CREATING: /* its job failed and could not undo it */
        return discard_idle(node, run->id, NULL, err);
    }
    return 0;
}

static void try_one(struct node *node, const struct catalog_run *run, convert_stop *stop,
                    void *stop_arg)
{
    struct err failure = ERR_INIT;
    if (recover_one(node, run, stop, stop_arg, &failure) < 0)
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
    struct catalog_run *runs = NULL;
    size_t count = 0;
    struct err failure = ERR_INIT;
    if (catalog_run_list(node->catalog, &runs, &count, &failure) < 0) {
        log_event(LOG_ERROR, "runs-not-recovered", "error", failure.text, NULL);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        try_one(node, &runs[i], stop, stop_arg);
        catalog_run_free(&runs[i]);
    }
    free(runs);
    report_unknown(node);
    /* All references were taken. */
    if (layers_mount_sweep(node, &failure) < 0)
        log_event(LOG_WARN, "layers-not-swept", "error", failure.text, NULL);
}
