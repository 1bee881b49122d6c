#include "recover_internal.h"

#include "fdio.h"
#include "workspace_claim.h"
#include "workspace_internal.h"

/* --- Workspaces that are not what their row says --- */

/* What will be done about it; NULL: it is as it should be. */
static const struct recover_item *find_item(const struct catalog_workspace *workspace,
                                            const struct volume_status *status, bool missing)
{
    static const struct recover_item mount = {.found = "it is not mounted where it should be",
                                              .will = "mount it again",
                                              .done = "mounted again"};
    static const struct recover_item half_made = {
        .found = "it is half made", .will = "remove it", .done = "removed"};
    static const struct recover_item half_removed = {
        .found = "it is half removed", .will = "remove it", .done = "removed"};
    static const struct recover_item held = {
        .found = "it is half unmounted", .will = "finish the unmount", .done = "unmounted"};
    static const struct recover_item stray = {
        .found = "it is attached and mounted nowhere", .will = "detach it", .done = "detached"};
    switch (workspace->volume.state) {
    case CATALOG_VOLUME_CREATING:
        return &half_made;
    case CATALOG_VOLUME_REMOVING:
        return &half_removed;
    case CATALOG_VOLUME_DETACHING:
        return &held;
    case CATALOG_VOLUME_ATTACHING:
        return workspace->wanted ? &mount : &stray;
    case CATALOG_VOLUME_ATTACHED:
        return missing ? &mount : NULL;
    case CATALOG_VOLUME_DETACHED:
        return status->attached || status->detaching || status->dead ? &stray : NULL;
    case CATALOG_VOLUME_FENCED:
        break;
    }
    return NULL;
}

/* Mends what is so now that the claim is ours. */
static int settle(struct recover *recover, const char *name, struct err *err)
{
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    int rc = workspace_has_job(recover->node, name, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = workspace_find(recover->node, name, &row, err);
    return rc == 1 ? workspace_settle(recover->node, &row, err) : rc;
}

static int take_workspace(struct recover *recover, const struct catalog_workspace *workspace,
                          struct err *err)
{
    struct node *node = recover->node;
    struct volume_status status = {0};
    struct err failure = ERR_INIT;
    char object[WORKSPACE_OBJECT_MAX];
    snprintf(object, sizeof object, "workspace:%s", workspace->name);
    int rc = workspace_has_job(node, workspace->name, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    (void)volumes_status(node->volumes, workspace->volume.id, &status, NULL);
    int missing = workspace_is_missing(node, workspace, &failure);
    const struct recover_item *found = find_item(workspace, &status, missing != 0);
    if (!found)
        return 0;
    struct recover_item item = *found;
    item.object = object;
    err_clear(&failure);
    rc = recover->plan ? 1 : workspace_claim_try(node->workspaces, workspace->name, &failure);
    if (rc == 0)
        return 0; /* somebody is at it */
    if (rc == 1 && !recover->plan) {
        rc = settle(recover, workspace->name, &failure);
        workspace_claim_release(node->workspaces, workspace->name);
        if (rc == 0)
            return 0;
    }
    return recover_add(recover, &item, rc, &failure, err);
}

static int each_workspace(struct recover *recover, struct err *err)
{
    struct catalog_workspace *rows = NULL;
    size_t count = 0;
    int rc = catalog_workspace_list(recover->node->catalog, &rows, &count, err);
    for (size_t i = 0; i < count; i++) {
        if (rc == 0 && recover->job)
            rc = job_stop(recover->job, err);
        if (rc == 0)
            rc = take_workspace(recover, &rows[i], err);
        catalog_workspace_free(&rows[i]);
    }
    free(rows);
    return rc;
}

/* --- Volumes that no row speaks of --- */

/* Attached, or half of it: FUSE mount, loop device or socket. Nobody's data is lost by taking these
 * away in order; one that is used stays. */
static int take_attached(void *arg, const char *id, struct err *err)
{
    struct recover *recover = arg;
    struct node *node = recover->node;
    struct volume_status status = {0};
    struct err failure = ERR_INIT;
    char object[300];
    int rc = workspace_knows_volume(node, id, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    snprintf(object, sizeof object, "RUN/volumes/%s", id);
    const struct recover_item item = {.object = object,
                                      .found = "no workspace has this volume",
                                      .will = "detach it",
                                      .done = "detached"};
    if (!recover->plan) {
        (void)volumes_status(node->volumes, id, &status, NULL);
        rc = status.dead ? volumes_abandon(node->volumes, id, NULL, false, &failure)
                         : volumes_detach(node->volumes, id, 0, &failure);
    }
    return recover_add(recover, &item, rc, &failure, err);
}

/* May be somebody's only copy (I4). */
static int take_directory(struct recover *recover, const char *name, struct err *err)
{
    struct err failure = ERR_INIT;
    char object[300];
    int rc = name[0] == '.' ? 1 : workspace_knows_volume(recover->node, name, &failure);
    if (rc == 1)
        return 0;
    snprintf(object, sizeof object, "DATA/volumes/%s", name);
    const struct recover_item item = {.object = object,
                                      .found = "no workspace has this volume",
                                      .will = "leave it, as it may be the only copy",
                                      .done = "left, as it may be the only copy"};
    return recover_add(recover, &item, rc, &failure, err);
}

static int each_directory(struct recover *recover, struct err *err)
{
    cleanup_dir DIR *dir = fdio_list(recover->node->volumes_fd, ".");
    if (!dir)
        return err_errno(err, errno, "cannot list %s/volumes", recover->node->data_dir);
    int rc = 0;
    for (const struct dirent *entry; rc == 0 && (entry = readdir(dir)) != NULL;)
        rc = take_directory(recover, entry->d_name, err);
    return rc;
}

int recover_workspaces(struct recover *recover, struct err *err)
{
    int rc = each_workspace(recover, err);
    if (rc == 0)
        rc = volumes_each(recover->node->volumes, take_attached, recover, err);
    return rc == 0 ? each_directory(recover, err) : rc;
}
