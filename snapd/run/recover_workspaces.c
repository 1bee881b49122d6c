#include "recover_internal.h"

#include "fdio.h"
#include "workspace_claim.h"
#include "workspace_internal.h"
#include "workspace_pool.h"

#include <stdatomic.h>

enum {
    LOOK_MS = 100,
};

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

/* A workspace that needs something. Mended by threads of the pool, as one that is slow (a check of
 * the file system, a disk that is locked) must not keep the others waiting. */
struct mending {
    struct recover *recover;
    const struct recover_item *found; /* NULL: it needs nothing */
    int rc; /* 1: it was mended, 0: somebody else has done it; or -errno; when `ended` */
    struct err failure;
    atomic_bool ended;
};

/* Mends what is so now that the claim is ours. */
static int settle(struct node *node, const char *name, struct err *err)
{
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    int rc = workspace_has_job(node, name, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = workspace_find(node, name, &row, err);
    return rc == 1 ? workspace_settle(node, &row, err) : rc;
}

/* workspace_pool_work */
static int settle_claimed(void *arg, const char *name, bool dropped)
{
    struct mending *mending = arg;
    struct node *node = mending->recover->node;
    mending->rc = dropped ? 0 : settle(node, name, &mending->failure);
    workspace_claim_release(node->workspaces, name);
    atomic_store(&mending->ended, true);
    return 0;
}

static int begin(struct recover *recover, const struct catalog_workspace *workspace,
                 struct mending *ret, struct err *err)
{
    struct node *node = recover->node;
    struct volume_status status = {0};
    struct err ignored = ERR_INIT;
    int rc = workspace_has_job(node, workspace->name, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    (void)volumes_status(node->volumes, workspace->volume.id, &status, NULL);
    bool missing = workspace_is_missing(node, workspace, &ignored) != 0;
    ret->found = find_item(workspace, &status, missing);
    if (!ret->found)
        return 0;
    ret->rc =
        recover->plan ? 1 : workspace_claim_try(node->workspaces, workspace->name, &ret->failure);
    /* Not claimed: somebody is at it, or it can't be mended. */
    if (recover->plan || ret->rc != 1)
        atomic_store(&ret->ended, true);
    else if (workspace_pool_add(workspaces_pool(node->workspaces), workspace->name, settle_claimed,
                                ret, &ignored) != 1)
        (void)settle_claimed(ret, workspace->name, false); /* in this thread then */
    return 0;
}

/* Until all that was begun has ended. What only waits is dropped when somebody wants the end. */
static int wait_for(struct recover *recover, struct mending *mendings, size_t count,
                    struct err *err)
{
    struct workspace_pool *pool = workspaces_pool(recover->node->workspaces);
    int rc = 0;
    for (size_t i = 0; i < count;) {
        if (!mendings[i].found || atomic_load(&mendings[i].ended)) {
            i++;
            continue;
        }
        (void)workspace_pool_wait(pool, LOOK_MS, NULL);
        if (rc == 0 && recover->job)
            rc = job_stop(recover->job, err);
        if (rc < 0)
            workspace_pool_drop(pool);
    }
    return rc;
}

static int report(struct recover *recover, const struct catalog_workspace *rows,
                  const struct mending *mendings, size_t count, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++) {
        char object[WORKSPACE_OBJECT_MAX];
        if (!mendings[i].found || mendings[i].rc == 0)
            continue;
        struct recover_item item = *mendings[i].found;
        snprintf(object, sizeof object, "workspace:%s", rows[i].name);
        item.object = object;
        rc = recover_add(recover, &item, mendings[i].rc, &mendings[i].failure, err);
    }
    return rc;
}

static int each_workspace(struct recover *recover, struct err *err)
{
    struct catalog_workspace *rows = NULL;
    size_t count = 0;
    int rc = catalog_workspace_list(recover->node->catalog, &rows, &count, err);
    cleanup_free struct mending *mendings = calloc(count + 1, sizeof *mendings);
    if (rc == 0 && !mendings)
        rc = err_errno(err, ENOMEM, "cannot mend workspaces");
    for (size_t i = 0; i < count && rc == 0; i++) {
        mendings[i].recover = recover;
        if (recover->job)
            rc = job_stop(recover->job, err);
        if (rc == 0)
            rc = begin(recover, &rows[i], &mendings[i], err);
    }
    /* Those that were begun use this memory. */
    int ended = mendings ? wait_for(recover, mendings, count, rc == 0 ? err : NULL) : 0;
    rc = rc == 0 ? ended : rc;
    if (rc == 0)
        rc = report(recover, rows, mendings, count, err);
    for (size_t i = 0; i < count; i++)
        catalog_workspace_free(&rows[i]);
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
