#include "workspace_mend.h"

#include "fault.h"
#include "log.h"
#include "workspace_disk.h"
#include "workspace_epoch.h"
#include "workspace_internal.h"
#include "workspace_pool.h"

enum {
    PASS_MS = 1000,
    LOOK_MS = 100,
};

static const char *how_it_died(const struct volume_status *status)
{
    if (status->starts == 0)
        return "no process served it any more";
    if (status->text[0] != '\0')
        return "the process that served it died, and no other one could serve it";
    return status->resends ? "all processes that served it had died"
                           : "the process that served it died, and this kernel (before Linux 6.9) "
                             "cannot hand what it left to another";
}

static int note_fenced(struct node *node, const struct catalog_workspace *workspace,
                       const char *incident, struct err *err)
{
    struct catalog *catalog = node->catalog;
    int rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    rc = catalog_volume_set_state(catalog, workspace->volume.id, CATALOG_VOLUME_FENCED, err);
    if (rc == 0)
        rc = catalog_volume_set_incident(catalog, workspace->volume.id, incident, err);
    if (rc == 0)
        rc = FAULT_POINT("workspace.fence-record", err);
    rc = catalog_end(catalog, rc, err);
    if (rc == 0)
        workspace_event(node, "workspace-fenced", workspace->name, incident);
    return rc;
}

/* The catalog is likely to lie on the disk that is full. */
static int note_fenced_for_sure(struct node *node, const struct catalog_workspace *workspace,
                                const char *incident, struct err *err)
{
    int rc = note_fenced(node, workspace, incident, err);
    if (rc == 0 || err->code != ERR_NO_SPACE)
        return rc;
    workspace_disk_make_room(node);
    (void)node_reserve_release(node);
    err_clear(err);
    return note_fenced(node, workspace, incident, err);
}

static bool waits_too_long(const struct node *node, const struct volume_status *status)
{
    return status->held > 0 && status->held_ns >= (uint64_t)node->volume.disk_wait_ns;
}

/* Whether it is to be fenced for what it is now. */
static bool is_given_up(const struct node *node, const struct volume_status *status)
{
    return status->failed || waits_too_long(node, status);
}

/* What was written down of a life of the volume that ended, or went on well, in the meantime. */
static void take_back(struct node *node, const struct catalog_workspace *workspace)
{
    struct err failure = ERR_INIT;
    const struct catalog_volume *volume = &workspace->volume;
    if (catalog_volume_set_incident(node->catalog, volume->id, volume->incident, &failure) < 0)
        log_event(LOG_WARN, "incident-not-taken-back", "workspace", workspace->name, "error",
                  failure.text, NULL);
}

/* Below an unmount, which waits for the very writes that are held: it goes on when these have
 * ended, and the row stays its own. */
static void fence_below(struct node *node, const struct catalog_workspace *workspace)
{
    char incident[WORKSPACE_INCIDENT_MAX];
    struct volume_status status = {0};
    struct err failure = ERR_INIT;
    const char *id = workspace->volume.id;
    if (workspace->volume.state != CATALOG_VOLUME_DETACHING ||
        volumes_status(node->volumes, id, &status, &failure) < 0 || status.fenced ||
        !is_given_up(node, &status))
        return;
    workspace_tell_fenced(node, workspace, &status, incident);
    workspace_incident(node, workspace, "workspace-fenced", incident);
    if (volumes_fence(node->volumes, id, status.life,
                      workspace->wanted ? workspace->mount.path : NULL, &failure) == 0)
        return;
    log_event(LOG_WARN, "workspace-not-mended", "workspace", workspace->name, "error", failure.text,
              NULL);
    if (failure.code == ERR_CONFLICT)
        take_back(node, workspace);
}

static bool is_unserved(const struct node *node, const struct volume_status *status)
{
    return status->attached && !status->dead &&
           status->unserved_ns >= (uint64_t)node->volume.disk_wait_ns;
}

/* Needs no claim: whoever has it may wait for just this. What has died so is brought back by the
 * next pass, or its row says why not. */
static int give_up_unserved(struct node *node, const struct catalog_workspace *workspace)
{
    struct volume_status status = {0};
    char incident[WORKSPACE_INCIDENT_MAX];
    struct err ignored = ERR_INIT;
    if (volumes_status(node->volumes, workspace->volume.id, &status, &ignored) < 0 ||
        !is_unserved(node, &status) ||
        (status.lost && volumes_answers(node->volumes, workspace->volume.id)))
        return 0;
    snprintf(incident, sizeof incident,
             "no process could serve it for %lld seconds (disk_wait): what was waiting for it got "
             "errors%s%.200s",
             (long long)(node->volume.disk_wait_ns / CLOCK_NS_PER_S), status.text[0] ? ": " : "",
             status.text);
    workspace_incident(node, workspace, "workspace-given-up", incident);
    if (!volumes_give_up(node->volumes, workspace->volume.id, status.life))
        take_back(node, workspace);
    return -EBUSY;
}

/* Written down first: one that is written down and isn't fenced is fenced by the next pass. Where
 * there is no room to write it down it is fenced all the same, and written down by a later pass. */
static int fence(struct node *node, const struct catalog_workspace *workspace,
                 const struct volume_status *status, struct err *err)
{
    char incident[WORKSPACE_INCIDENT_MAX];
    int rc = 0;
    workspace_tell_fenced(node, workspace, status, incident);
    if (workspace->volume.state != CATALOG_VOLUME_FENCED)
        rc = note_fenced_for_sure(node, workspace, incident, err);
    if (rc < 0 && err->code == ERR_NO_SPACE) {
        log_event(LOG_WARN, "workspace-fenced", "workspace", workspace->name, "unwritten",
                  err->text, NULL);
        err_clear(err);
        rc = 0;
    }
    if (rc == 0)
        rc = FAULT_POINT("workspace.fence-recorded", err);
    if (rc == 0)
        rc = volumes_fence(node->volumes, workspace->volume.id, status->life,
                           workspace->wanted ? workspace->mount.path : NULL, err);
    return rc;
}

/* One whose unmount has ended here, but not in all other mount namespaces. */
static int finish(struct node *node, const struct catalog_workspace *workspace, struct err *err)
{
    int rc = workspace_detach(node, workspace->volume.id, 0, err);
    return rc == 0 ? workspace_set_detached(node, workspace, "workspace-unmounted", err) : rc;
}

/* The same of a worker that beats and answers nothing. */
static int probe(struct node *node, const struct catalog_workspace *workspace)
{
    struct volume_status status = {0};
    char text[32];
    struct err why = ERR_INIT;
    if (volumes_status(node->volumes, workspace->volume.id, &status, &why) < 0 || !status.suspected)
        return 0;
    int rc = volumes_probe(node->volumes, workspace->volume.id, status.life, &why);
    snprintf(text, sizeof text, "%d answered no request", (int)status.worker);
    if (rc == 1)
        workspace_event(node, "worker-silent", workspace->name, text);
    else if (rc < 0)
        log_event(LOG_WARN, "worker-silent", "workspace", workspace->name, "error", why.text, NULL);
    return rc == 1 ? -EBUSY : 0;
}

enum verdict {
    WELL,
    UNSERVED,
    SUSPECTED,
    DIED,
    GIVEN_UP,       /* or fenced already, and not written down */
    GIVEN_UP_BELOW, /* an unmount waits for it */
    HELD_ELSEWHERE,
};

/* A view of what is lost stays as it is, with errors for who reads it, until it is unmounted; its
 * incident says so. */
static bool is_lost_for_good(struct node *node, const struct catalog_volume *volume)
{
    return volume->view_of && volume->incident && !workspace_epoch_lives(node, volume);
}

static enum verdict judge(struct node *node, const struct catalog_workspace *workspace,
                          const struct volume_status *status)
{
    if (is_unserved(node, status))
        return UNSERVED;
    if (status->suspected && !status->dead)
        return SUSPECTED;
    switch (workspace->volume.state) {
    case CATALOG_VOLUME_ATTACHED:
        if (status->dead)
            return workspace->wanted && !is_lost_for_good(node, &workspace->volume) ? DIED : WELL;
        return status->fenced || is_given_up(node, status) ? GIVEN_UP : WELL;
    case CATALOG_VOLUME_FENCED:
        return status->attached && !status->dead && !status->fenced ? GIVEN_UP : WELL;
    case CATALOG_VOLUME_DETACHING:
        if (is_given_up(node, status) && !status->fenced)
            return GIVEN_UP_BELOW;
        return workspace->wanted ? WELL : HELD_ELSEWHERE;
    default:
        return WELL;
    }
}

/* What may take as long as a check of the file system. */
static bool is_long(enum verdict verdict)
{
    return verdict == DIED || verdict == HELD_ELSEWHERE;
}

/* The row as it is now that the claim is ours. `quick`: what is long is for another thread. */
static int mend_claimed(struct node *node, const char *name, bool quick, struct err *err)
{
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    struct volume_status status = {0};
    struct err ignored = ERR_INIT;
    int rc = workspace_find(node, name, &row, err);
    if (rc <= 0)
        return rc;
    if (volumes_status(node->volumes, row.volume.id, &status, &ignored) < 0)
        return 0;
    enum verdict verdict = judge(node, &row, &status);
    if (quick && is_long(verdict))
        return -EBUSY; /* the next pass */
    switch (verdict) {
    case DIED:
        /* One that dies again and again, perhaps as its worker wants it, must not keep all busy. */
        if (!workspaces_may_revive(node->workspaces, row.volume.id, clock_mono_ns(&node->clock)))
            return 0; /* a later pass */
        return workspace_revive(node, &row, how_it_died(&status), err);
    case GIVEN_UP:
        return fence(node, &row, &status, err);
    case GIVEN_UP_BELOW:
        fence_below(node, &row);
        return 0;
    case HELD_ELSEWHERE:
        (void)finish(node, &row, &ignored); /* the next pass looks again */
        return 0;
    case UNSERVED:  /* give_up_unserved() */
    case SUSPECTED: /* probe() */
    case WELL:
        break;
    }
    return 0;
}

static enum verdict look(struct node *node, const struct catalog_workspace *workspace)
{
    struct volume_status status = {0};
    struct err ignored = ERR_INIT;
    return volumes_status(node->volumes, workspace->volume.id, &status, &ignored) == 0
               ? judge(node, workspace, &status)
               : WELL;
}

/* Fails when something is left for later. */
static int mend(struct node *node, const char *name, bool quick, bool dropped)
{
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    struct err failure = ERR_INIT;
    int rc = dropped ? 0 : workspace_find(node, name, &row, &failure);
    if (rc == 1 && (give_up_unserved(node, &row) < 0 || probe(node, &row) < 0))
        return -EBUSY;
    if (rc == 1)
        rc = workspace_claim_try(node->workspaces, name, &failure);
    else if (rc == 0)
        return 0;
    if (rc == 0) { /* a job works on it */
        fence_below(node, &row);
        return -EBUSY;
    }
    if (rc == 1) {
        rc = mend_claimed(node, name, quick, &failure);
        workspace_claim_release(node->workspaces, name);
    }
    if (rc < 0 && failure.code != ERR_NONE)
        log_event(LOG_WARN, "workspace-not-mended", "workspace", name, "error", failure.text, NULL);
    return rc < 0 ? rc : 0;
}

/* workspace_pool_work */
static int mend_long(void *arg, const char *name, bool dropped)
{
    return mend(arg, name, false, dropped);
}

/* workspace_pool_work */
static int mend_quick(void *arg, const char *name, bool dropped)
{
    return mend(arg, name, true, dropped);
}

/* 1: it waits, 0: so it did before, or -errno. */
static int add(struct node *node, const char *name, bool is_quick, struct err *err)
{
    return is_quick
               ? workspace_pool_add(workspaces_quick_pool(node->workspaces), name, mend_quick, node,
                                    err)
               : workspace_pool_add(workspaces_pool(node->workspaces), name, mend_long, node, err);
}

/* Waits for what was begun, for the length of a pass. Whether something is left. */
static bool wait_for_pass(struct node *node, workspace_mend_stop *stop, void *stop_arg)
{
    struct workspace_pool *pools[] = {workspaces_quick_pool(node->workspaces),
                                      workspaces_pool(node->workspaces)};
    bool failed = false;
    int left = 0;
    for (int i = 0; i < PASS_MS / LOOK_MS; i++) {
        left = 0;
        for (size_t k = 0; k < ARRAY_SIZE(pools); k++) {
            bool now;
            left += workspace_pool_wait(pools[k], left > 0 ? 0 : LOOK_MS, &now);
            failed = failed || now;
        }
        if (left == 0)
            break;
        if (stop && stop(stop_arg)) {
            workspace_pool_drop(pools[0]);
            workspace_pool_drop(pools[1]);
            break;
        }
    }
    return left > 0 || failed;
}

bool workspace_mend(struct node *node, workspace_mend_stop *stop, void *stop_arg)
{
    struct catalog_workspace *rows = NULL;
    size_t count = 0;
    struct err failure = ERR_INIT;
    bool left = volumes_thaw_left(node->volumes, 0) > 0;
    if (catalog_workspace_list_all(node->catalog, &rows, &count, &failure) < 0) {
        log_event(LOG_WARN, "workspaces-not-listed", "error", failure.text, NULL);
        return true;
    }
    for (size_t i = 0; i < count; i++) {
        enum verdict verdict = !stop || !stop(stop_arg) ? look(node, &rows[i]) : WELL;
        if (verdict != WELL)
            left = add(node, rows[i].name, !is_long(verdict), &failure) != 1 || left;
        catalog_workspace_free(&rows[i]);
    }
    free(rows);
    return wait_for_pass(node, stop, stop_arg) || left;
}
