#include "workspace_recover.h"

#include "fdio.h"
#include "log.h"
#include "workspace_internal.h"
#include "workspace_pool.h"
#include "workspace_run.h"
#include "workspace_view.h"

enum {
    LOOK_MS = 100,
};

static void settle_one(struct node *node, const char *name)
{
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    struct err failure = ERR_INIT;
    int rc = workspace_find(node, name, &row, &failure);
    if (rc == 1)
        workspace_end_left(node, &row);
    if (rc == 1)
        rc = workspace_settle(node, &row, &failure);
    if (rc < 0)
        log_event(LOG_WARN, "workspace-not-recovered", "workspace", name, "state",
                  row.name ? catalog_volume_state_name(row.volume.state) : "unknown", "error",
                  failure.text, NULL);
}

/* workspace_pool_work */
static int settle_claimed(void *arg, const char *name, bool dropped)
{
    struct node *node = arg;
    if (!dropped)
        settle_one(node, name);
    workspace_claim_release(node->workspaces, name);
    return 0;
}

/* The claim is taken here, before any job runs. What a job has left half done is left to it, but to
 * bring back what was mounted: it may need that, as a resize does. */
static void begin_one(struct node *node, const struct catalog_workspace *workspace)
{
    struct err failure = ERR_INIT;
    int rc =
        workspace_is_of_run(workspace->name) ? 0 : workspace_name_check(workspace->name, &failure);
    if (rc == 0 && workspace->volume.state != CATALOG_VOLUME_ATTACHED) {
        rc = workspace_has_job(node, workspace->name, &failure);
        if (rc == 1)
            return;
    }
    if (rc == 0)
        rc = workspace_claim_try(node->workspaces, workspace->name, &failure);
    if (rc == 1) {
        rc = workspace_pool_add(workspaces_pool(node->workspaces), workspace->name, settle_claimed,
                                node, &failure);
        if (rc < 0) /* without a thread for it, in this one */
            (void)settle_claimed(node, workspace->name, false);
    }
    if (rc < 0)
        log_event(LOG_WARN, "workspace-not-recovered", "workspace", workspace->name, "state",
                  catalog_volume_state_name(workspace->volume.state), "error", failure.text, NULL);
}

/* What no row speaks of may be somebody's only copy (I4). */
static void report_unknown(struct node *node)
{
    cleanup_dir DIR *dir = fdio_list(node->volumes_fd, ".");
    if (!dir)
        return;
    const struct dirent *entry;
    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.' && workspace_knows_volume(node, entry->d_name, NULL) == 0)
            log_event(LOG_WARN, "volume-unknown", "directory", entry->d_name, "data",
                      node->data_dir, NULL);
}

static int recover_all(struct node *node, convert_stop *stop, void *stop_arg, struct err *err)
{
    struct catalog_workspace *rows = NULL;
    size_t count = 0;
    int rc = catalog_workspace_list_all(node->catalog, &rows, &count, err);
    for (size_t i = 0; i < count; i++) {
        if (rc == 0 && stop)
            rc = stop(stop_arg, err);
        if (rc == 0)
            begin_one(node, &rows[i]);
        catalog_workspace_free(&rows[i]);
    }
    free(rows);
    return rc;
}

/* Until all are done, the time is over, or somebody wants the end. */
static int wait_for_all(struct node *node, convert_stop *stop, void *stop_arg, struct err *err)
{
    struct workspace_pool *pool = workspaces_pool(node->workspaces);
    char text[16];
    int left = 0;
    for (int i = 0; i < WORKSPACE_RECOVER_SECONDS * 1000 / LOOK_MS; i++) {
        left = workspace_pool_wait(pool, LOOK_MS, NULL);
        int rc = left > 0 && stop ? stop(stop_arg, err) : 0;
        if (rc < 0)
            return rc;
        if (left == 0)
            return 0;
    }
    (void)snprintf(text, sizeof text, "%d", left);
    log_event(LOG_WARN, "workspaces-still-recovering", "count", text, NULL);
    return 0;
}

void workspace_recover(struct node *node, convert_stop *stop, void *stop_arg)
{
    struct err failure = ERR_INIT;
    if (volumes_adopt(node->volumes, &failure) < 0)
        log_event(LOG_ERROR, "volumes-not-adopted", "error", failure.text, NULL);
    err_clear(&failure);
    int rc = recover_all(node, stop, stop_arg, &failure);
    if (rc == 0)
        rc = wait_for_all(node, stop, stop_arg, &failure);
    if (rc < 0)
        workspace_pool_drop(workspaces_pool(node->workspaces));
    if (rc < 0)
        log_event(LOG_ERROR, "workspaces-not-recovered", "error", failure.text, NULL);
    report_unknown(node);
}
