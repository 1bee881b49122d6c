#include "workspace_recover.h"

#include "catalog_job.h"
#include "fdio.h"
#include "log.h"
#include "workspace_internal.h"

#include <fcntl.h>
#include <string.h>

bool workspace_recover_leaves(const struct catalog_workspace *workspace,
                              const struct catalog_job *jobs, size_t count)
{
    char object[WORKSPACE_OBJECT_MAX];
    /* A job may need it mounted, as a resize does. */
    if (workspace->volume.state == CATALOG_VOLUME_ATTACHED)
        return false;
    snprintf(object, sizeof object, "workspace:%s", workspace->name);
    for (size_t i = 0; i < count; i++)
        if (jobs[i].object && strcmp(jobs[i].object, object) == 0)
            return true;
    return false;
}

static void recover_one(struct node *node, const struct catalog_workspace *workspace,
                        const struct catalog_job *jobs, size_t count)
{
    struct err failure = ERR_INIT;
    int rc = id_check(workspace->name, "workspace name", &failure);
    if (rc == 0 && !workspace_recover_leaves(workspace, jobs, count))
        rc = workspace_settle(node, workspace, &failure);
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
    struct catalog_job *jobs = NULL;
    struct catalog_workspace *rows = NULL;
    size_t job_count = 0;
    size_t count = 0;
    int rc = catalog_job_list(node->catalog, true, &jobs, &job_count, err);
    if (rc == 0)
        rc = catalog_workspace_list(node->catalog, &rows, &count, err);
    for (size_t i = 0; i < count; i++) {
        if (rc == 0 && stop)
            rc = stop(stop_arg, err);
        if (rc == 0)
            recover_one(node, &rows[i], jobs, job_count);
        catalog_workspace_free(&rows[i]);
    }
    for (size_t i = 0; i < job_count; i++)
        catalog_job_free(&jobs[i]);
    free(rows);
    free(jobs);
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
