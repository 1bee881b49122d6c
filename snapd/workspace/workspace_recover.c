#include "workspace_recover.h"

#include "fdio.h"
#include "log.h"
#include "workspace_internal.h"

/* What a job has left half done is left to it, but to bring back what was mounted: it may need
 * that, as a resize does. */
static int recover_one(struct node *node, const struct catalog_workspace *workspace,
                       struct err *err)
{
    int rc = id_check(workspace->name, "workspace name", err);
    if (rc == 0 && workspace->volume.state != CATALOG_VOLUME_ATTACHED)
        rc = workspace_has_job(node, workspace->name, err);
    return rc == 0 ? workspace_settle(node, workspace, err) : rc;
}

static void try_one(struct node *node, const struct catalog_workspace *workspace)
{
    struct err failure = ERR_INIT;
    if (recover_one(node, workspace, &failure) < 0)
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
    int rc = catalog_workspace_list(node->catalog, &rows, &count, err);
    for (size_t i = 0; i < count; i++) {
        if (rc == 0 && stop)
            rc = stop(stop_arg, err);
        if (rc == 0)
            try_one(node, &rows[i]);
        catalog_workspace_free(&rows[i]);
    }
    free(rows);
    return rc;
}

void workspace_recover(struct node *node, convert_stop *stop, void *stop_arg)
{
    struct err failure = ERR_INIT;
    if (volumes_adopt(node->volumes, &failure) < 0)
        log_event(LOG_ERROR, "volumes-not-adopted", "error", failure.text, NULL);
    err_clear(&failure);
    if (recover_all(node, stop, stop_arg, &failure) < 0)
        log_event(LOG_ERROR, "workspaces-not-recovered", "error", failure.text, NULL);
    report_unknown(node);
}
