#include "workspace_internal.h"

#include "fault.h"
#include "log.h"
#include "workspace_epoch.h"
#include "workspace_path.h"
#include "workspace_run.h"
#include "workspace_view.h"

#include <string.h>

static const char node_restarted[] = "the node was restarted";

int workspace_is_missing(struct node *node, const struct catalog_workspace *workspace,
                         struct err *err)
{
    struct volume_status status = {0};
    bool mounted = false;
    if (!workspace->wanted)
        return 0;
    int rc = workspace_status(node, workspace, &status, err);
    if (rc == 0 && status.attached && !status.dead)
        rc = volumes_is_mounted(node->volumes, workspace->volume.id, workspace->mount.path,
                                &mounted, err);
    if (rc == 0 && mounted && workspace_is_of_run(workspace->name)) {
        rc = workspace_run_stands(node, workspace->name, err);
        mounted = rc == 1;
    }
    return rc < 0 ? rc : !mounted;
}

/* What those who used it have noticed. Caller frees; NULL: nothing that has to be told, or no
 * memory. */
static char *tell(const struct node *node, const struct catalog_workspace *workspace,
                  const struct volume_status *before, const char *died)
{
    const char *boot = workspace->volume.boot;
    char *text = NULL;
    /* One that is served and was unmounted by somebody, or was never mounted. */
    if ((before->attached && !before->dead) || !boot || strcmp(boot, node->boot_id) != 0)
        return NULL;
    if (asprintf(&text, "%s%s%s", died ? died : "all processes that served it had died",
                 before->text[0] ? ": " : "", before->text) < 0)
        return NULL;
    return text;
}

/* It is back. A workspace whose row could not say so would be none; so without memory it says less.
 */
static int set_back(struct node *node, const struct catalog_workspace *workspace, const char *told,
                    bool restarted, const struct volumes_mended *mended, struct err *err)
{
    const char *event = told        ? "workspace-recovered"
                        : restarted ? "workspace-mounted-after-restart"
                                    : "workspace-mounted-again";
    const char *why = !told && restarted && mended->said[0] ? node_restarted : told;
    cleanup_free char *all = workspace_tell_mended(why, mended);
    return workspace_set_mounted(node, workspace, event, all ? all : told, err);
}

/* Whether somebody may use it, though it is not mounted where it should be. */
static bool may_live(const struct volume_status *before)
{
    return (before->attached || before->detaching) && !before->dead;
}

/* The place is as it was written down. That of a run's volume is in RUN, where nobody else puts
 * anything. */
static int prepare_path(struct node *node, const struct catalog_workspace *workspace,
                        struct err *err)
{
    cleanup_free char *real = NULL;
    const char *path = workspace->mount.path;
    if (workspace_is_of_run(workspace->name))
        return workspace_run_prepare(node, workspace->name, err);
    int rc = workspace_path_resolve(node, path, &real, err);
    if (rc == 0 && strcmp(real, path) != 0)
        rc = err_fail(err, ERR_CONFLICT, "%s leads to %s now", path, real);
    return rc;
}

/* Nobody's disk is taken from him unasked: only what is dead is abandoned. */
static int bring_back(struct node *node, const struct catalog_workspace *workspace,
                      const struct volume_status *before, struct volumes_mended *ret,
                      struct err *err)
{
    const char *id = workspace->volume.id;
    const char *path = workspace->mount.path;
    int rc = 0;
    if (before->dead && workspace_is_of_run(workspace->name))
        rc = workspace_run_let_go(node, workspace->name, err);
    if (rc == 0 && before->dead)
        rc = volumes_abandon(node->volumes, id, path, false, err);
    if (rc == 0)
        rc = FAULT_POINT("workspace.revive-abandoned", err);
    if (rc == 0)
        rc = prepare_path(node, workspace, err);
    return rc == 0 ? workspace_bring_up(node, id, path, workspace->mount.read_only, true, ret, err)
                   : rc;
}

/* What was mounted and attached for nothing. Whoever wanted its end does not end this. */
static int take_back(struct node *node, const struct catalog_workspace *workspace, bool lives,
                     bool mounted, struct err *err)
{
    cleanup_wait_stop struct wait_stop nobody = {.ask = NULL};
    wait_stop_begin(&nobody);
    int rc = mounted
                 ? volumes_unmount(node->volumes, workspace->volume.id, workspace->mount.path, err)
                 : 0;
    return rc == 0 && !lives ? workspace_take_back(node, workspace->volume.id, err) : rc;
}

/* The reason stands in the row, for whoever looks why his workspace is not there (I9). The wish to
 * have it mounted stays too. */
static void note_failure(struct node *node, const struct catalog_workspace *workspace,
                         const char *told, bool lives, bool mounted, const struct err *cause)
{
    struct err failure = ERR_INIT;
    cleanup_free char *text = NULL;
    if (asprintf(&text, "%s; it could not be mounted again at %s: %s%s%s",
                 told ? told : "it was not mounted", workspace->mount.path, cause->text,
                 cause->hint[0] ? "; " : "", cause->hint) < 0)
        text = NULL;
    const char *incident = text ? text : cause->text;
    workspace_incident(node, workspace, "workspace-not-recovered", incident);
    if (take_back(node, workspace, lives, mounted, &failure) < 0)
        log_event(LOG_WARN, "workspace-still-attached", "workspace", workspace->name, "error",
                  failure.text, NULL);
}

static const char view_lost[] =
    "what it showed is lost: the workspace was given up or died, its volume was taken away, or the "
    "host's disk had no room for what was overwritten. What reads it gets errors; unmount it";

/* A view whose epoch is gone cannot be brought back. Where it is mounted it stays, as whoever reads
 * it would take an empty directory for its content; else it goes. */
static int end_view(struct node *node, const struct catalog_workspace *workspace,
                    const struct volume_status *before, struct err *err)
{
    if (before->attached || before->dead) {
        volumes_cut(node->volumes, workspace->volume.id);
        if (!workspace->volume.incident)
            workspace_incident(node, workspace, "view-lost", view_lost);
        return 0;
    }
    int rc = workspace_set_detached(node, workspace, "view-lost", err);
    if (rc == 0)
        rc = workspace_view_drop(node, workspace->name, err);
    return rc < 0 ? rc : 1;
}

int workspace_revive(struct node *node, const struct catalog_workspace *workspace, const char *died,
                     struct err *err)
{
    struct volume_status before = {0};
    struct volumes_mended mended = {.replayed = false};
    int missing = workspace_is_missing(node, workspace, err);
    bool noted = workspace->volume.state == CATALOG_VOLUME_ATTACHED &&
                 workspace->mount.state == CATALOG_MOUNT_MOUNTED;
    if (missing < 0 || (missing == 0 && (noted || !workspace->wanted)))
        return missing;
    if (missing == 0) {
        int rc = wait_stop_decide(err);
        if (rc == 0)
            rc = workspace_set_mounted(node, workspace, "workspace-mounted", NULL, err);
        return rc < 0 ? rc : 1;
    }
    int rc = workspace_status(node, workspace, &before, err);
    if (rc == 0 && workspace->volume.view_of && !workspace_epoch_lives(node, &workspace->volume))
        return end_view(node, workspace, &before, err);
    bool lives = rc == 0 && may_live(&before);
    cleanup_free char *told = rc == 0 ? tell(node, workspace, &before, died) : NULL;
    /* The row of one that lives stays: it is looked after, whatever comes of this. */
    if (rc == 0 && !(lives && noted))
        rc = workspace_set_states(node, workspace, CATALOG_VOLUME_ATTACHING, CATALOG_MOUNT_MOUNTING,
                                  err);
    if (rc == 0)
        rc = FAULT_POINT("workspace.revive-recorded", err);
    if (rc == 0)
        rc = bring_back(node, workspace, &before, &mended, err);
    bool mounted = rc == 0;
    if (rc == 0)
        rc = wait_stop_decide(err);
    bool restarted = workspace->volume.boot && strcmp(workspace->volume.boot, node->boot_id) != 0;
    if (rc == 0)
        rc = set_back(node, workspace, told, restarted, &mended, err);
    if (rc < 0 && err->code != ERR_INTERRUPTED) /* else the next start goes on */
        note_failure(node, workspace,
                     told        ? told
                     : restarted ? node_restarted
                                 : NULL,
                     lives, mounted, err);
    else if (rc == 0 && workspace_is_of_run(workspace->name))
        rc = workspace_run_stand(node, workspace->name, err);
    return rc < 0 ? err_wrap(err, rc, "workspace %s", workspace->name) : 1;
}

/* --- What was left half done --- */

/* An unmount that failed in its middle, or whose last holder was in another mount namespace. */
static int finish_detach(struct node *node, const struct catalog_workspace *workspace,
                         struct err *err)
{
    const char *id = workspace->volume.id;
    struct volume_status status = {0};
    int rc = workspace_status(node, workspace, &status, err);
    /* It would wait with them, and the start of the daemon with it. */
    if (rc == 0 && workspace->wanted && !status.dead && status.held > 0) {
        rc = err_fail(err, ERR_CONFLICT, "the writes of workspace %s wait for the host's disk",
                      workspace->name);
        err_hint(err, "free space there, then unmount it once more");
    } else if (rc == 0 && status.dead)
        rc = volumes_abandon(node->volumes, id, workspace->wanted ? workspace->mount.path : NULL,
                             false, err);
    else if (rc == 0 && workspace->wanted)
        rc = volumes_unmount(node->volumes, id, workspace->mount.path, err);
    if (rc == 0)
        (void)workspace_note_loss(node, workspace, NULL); /* its incident says it */
    if (rc == 0)
        rc = workspace_detach(node, id, 0, err);
    if (rc == 0)
        rc = workspace_set_detached(node, workspace, "workspace-unmounted", err);
    return rc < 0 ? rc : 1;
}

/* Attached though the row says that it is not: a failed job could not take it back. */
static int detach_stray(struct node *node, const struct catalog_workspace *workspace,
                        struct err *err)
{
    struct volume_status status = {0};
    int rc = workspace_status(node, workspace, &status, err);
    if (rc < 0 || (!status.attached && !status.detaching && !status.dead))
        return rc;
    rc = workspace_detach(node, workspace->volume.id, 0, err);
    return rc < 0 ? rc : 1;
}

int workspace_settle(struct node *node, const struct catalog_workspace *workspace, struct err *err)
{
    int rc = 0;
    if (workspace_is_of_run(workspace->name))
        return workspace_run_settle(node, workspace, err);
    switch (workspace->volume.state) {
    case CATALOG_VOLUME_CREATING:
        rc = workspace_discard(node, workspace, NULL, err);
        return rc < 0 ? rc : 1;
    case CATALOG_VOLUME_REMOVING:
        rc = workspace_discard(node, workspace, "workspace-removed", err);
        return rc < 0 ? rc : 1;
    case CATALOG_VOLUME_DETACHING:
        return finish_detach(node, workspace, err);
    case CATALOG_VOLUME_DETACHED:
        return detach_stray(node, workspace, err);
    case CATALOG_VOLUME_ATTACHING:
        return workspace->wanted ? workspace_revive(node, workspace, NULL, err)
                                 : finish_detach(node, workspace, err);
    case CATALOG_VOLUME_ATTACHED:
        return workspace_revive(node, workspace, NULL, err);
    case CATALOG_VOLUME_FENCED:
        return 0;
    }
    return 0;
}
