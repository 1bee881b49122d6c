#include "workspace_internal.h"

#include "catalog_event.h"
#include "fault.h"
#include "log.h"
#include "volume_holders.h"
#include "volumes_epoch.h"
#include "workspace.h"
#include "workspace_epoch.h"
#include "workspace_fetch.h"
#include "workspace_fork.h"
#include "workspace_kill.h"
#include "workspace_run.h"
#include "workspace_view.h"

#include <string.h>

enum {
    HELD_DETACH_MS = 500,
};

int workspace_job_name(struct job *job, const char **ret, struct err *err)
{
    const char *name = NULL;
    int rc = json_doc_get_str(job_params(job), "name", "the request for a workspace", &name, err);
    if (rc == 0)
        rc = workspace_name_check(name, err);
    if (rc == 0)
        *ret = name;
    return rc;
}

static int ask(void *arg, struct err *err)
{
    const struct workspace_waits *waits = arg;
    struct err why = ERR_INIT;
    int rc = job_stop(waits->job, &why);
    return rc < 0 && why.code == ERR_CANCELLED ? err_pass(err, rc, &why) : 0;
}

static int decide(void *arg, struct err *err)
{
    const struct workspace_waits *waits = arg;
    return waits->step ? job_settle(waits->job, waits->step, err) : 0;
}

void workspace_waits_begin(struct workspace_waits *waits, struct job *job, const char *step)
{
    *waits = (struct workspace_waits){
        .stop = {.ask = ask, .decide = decide, .arg = waits}, .job = job, .step = step};
    wait_stop_begin(&waits->stop);
}

void workspace_waits_end(struct workspace_waits *waits)
{
    wait_stop_end(&waits->stop);
}

int workspace_job_claim(struct job *job, const char *name, struct workspace_claim *ret,
                        struct err *err)
{
    struct workspaces *workspaces = job_node(job)->workspaces;
    int rc = workspace_claim_wait(workspaces, name, job_is_repeated(job) ? job_stop_undo : job_stop,
                                  job, err);
    if (rc == 0)
        *ret = (struct workspace_claim){.workspaces = workspaces, .name = name};
    return rc;
}

struct patience {
    struct job *job;
    const char *name;
    bool repeated;
    int64_t until_ms;
};

/* workspace_claim_stop */
static int is_over(void *arg, struct err *err)
{
    const struct patience *patience = arg;
    int rc = patience->repeated ? job_stop_undo(patience->job, err) : job_stop(patience->job, err);
    if (rc < 0 || clock_now_ms() < patience->until_ms)
        return rc;
    rc = err_fail(err, ERR_CONFLICT, "workspace %s is being mended, or its file system is checked",
                  patience->name);
    err_hint(err, "try again later");
    return rc;
}

int workspace_job_claim_soon(struct job *job, const char *name, struct workspace_claim *ret,
                             struct err *err)
{
    struct workspaces *workspaces = job_node(job)->workspaces;
    struct patience patience = {job, name, job_is_repeated(job),
                                clock_now_ms() + WORKSPACE_CLAIM_MS};
    int rc = workspace_claim_wait(workspaces, name, is_over, &patience, err);
    if (rc == 0)
        *ret = (struct workspace_claim){.workspaces = workspaces, .name = name};
    return rc;
}

int workspace_job_result(struct job *job, const char *name, json_t **ret, struct err *err)
{
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    int rc = catalog_workspace_get(job_node(job)->catalog, name, &row, err);
    if (rc < 0)
        return rc;
    json_t *json = workspace_json(job_node(job), &row, err);
    if (!json)
        return err_wrap(err, err->num ? -err->num : -ENOMEM, "cannot describe it");
    *ret = json;
    return 0;
}

int workspace_job_failed(struct job *job, const char *name, int rc, struct err *err)
{
    if (!err || err->code == ERR_INTERRUPTED || !name ||
        !workspace_claim_is_awaited(job_node(job)->workspaces, name))
        return rc;
    const struct err why = *err;
    err_clear(err);
    rc = err_fail(err, ERR_CONFLICT, "somebody gives workspace %s up (unmount --abandon): %s", name,
                  why.text);
    err_hint(err, "what was not synced inside is lost; it can be mounted again afterwards");
    return rc;
}

int workspace_find(struct node *node, const char *name, struct catalog_workspace *ret,
                   struct err *err)
{
    struct err failure = ERR_INIT;
    return err_found(err, catalog_workspace_get(node->catalog, name, ret, &failure), &failure);
}

int workspace_has_job(struct node *node, const char *name, struct err *err)
{
    static const char *const objects[] = {"workspace:", WORKSPACE_ABANDON_OBJECT};
    int rc = 0;
    if (workspace_is_of_run(name)) /* the run's own jobs */
        return catalog_job_works_on(node->catalog, name, err);
    for (size_t i = 0; i < ARRAY_SIZE(objects) && rc == 0; i++) {
        char object[WORKSPACE_OBJECT_MAX];
        snprintf(object, sizeof object, "%s%s", objects[i], name);
        rc = catalog_job_works_on(node->catalog, object, err);
    }
    return rc;
}

int workspace_knows_volume(struct node *node, const char *id, struct err *err)
{
    cleanup_catalog_volume struct catalog_volume volume = {0};
    struct err failure = ERR_INIT;
    return err_found(err, catalog_volume_get(node->catalog, id, &volume, &failure), &failure);
}

int workspace_check_whole(const struct catalog_workspace *workspace, struct err *err)
{
    enum catalog_volume_state state = workspace->volume.state;
    if (state != CATALOG_VOLUME_CREATING && state != CATALOG_VOLUME_REMOVING)
        return 0;
    int rc = err_fail(err, ERR_CONFLICT, "workspace %s is half %s", workspace->name,
                      state == CATALOG_VOLUME_CREATING ? "made" : "removed");
    err_hint(err, "remove it with `varve workspace rm %s`", workspace->name);
    return rc;
}

void workspace_event_add(struct node *node, const char *event, const char *object,
                         const char *detail)
{
    struct err failure = ERR_INIT;
    cleanup_json json_t *json = detail ? json_pack("{s:s}", "detail", detail) : NULL;
    cleanup_free char *text = json ? json_doc_dump(json) : NULL;
    if (catalog_event_add(node->catalog, event, object, text, &failure) < 0)
        log_event(LOG_WARN, "event-lost", "event", event, "object", object, "error", failure.text,
                  NULL);
}

void workspace_event(struct node *node, const char *event, const char *name, const char *detail)
{
    static const char workspace[] = "workspace-";
    char object[WORKSPACE_OBJECT_MAX];
    char of_run[WORKSPACE_EVENT_MAX];
    bool is_of_run = workspace_is_of_run(name);
    snprintf(object, sizeof object, "%s%s", is_of_run ? "" : "workspace:", name);
    if (is_of_run && strncmp(event, workspace, sizeof workspace - 1) == 0) {
        snprintf(of_run, sizeof of_run, "run-volume-%s", event + sizeof workspace - 1);
        event = of_run;
    }
    workspace_event_add(node, event, object, detail);
    log_event(LOG_INFO, event, is_of_run ? "run" : "workspace",
              is_of_run ? workspace_run_id(name) : name, "detail", detail, NULL);
}

void workspace_incident(struct node *node, const struct catalog_workspace *workspace,
                        const char *event, const char *incident)
{
    struct err failure = ERR_INIT;
    if (catalog_volume_set_incident(node->catalog, workspace->volume.id, incident, &failure) < 0)
        log_event(LOG_WARN, "incident-lost", "workspace", workspace->name, "error", failure.text,
                  NULL);
    workspace_event(node, event, workspace->name, incident);
}

static void tell_failed(const struct catalog_workspace *workspace,
                        const struct volume_status *status, char ret[WORKSPACE_INCIDENT_MAX])
{
    const char *why = status->failed_num > 0 ? strerrordesc_np(status->failed_num) : NULL;
    char help[WORKSPACE_NAME_MAX + 64];
    if (workspace_is_of_run(workspace->name))
        snprintf(help, sizeof help, "use the run again, which mounts it anew");
    else
        snprintf(help, sizeof help, "run `varve workspace unmount %s --abandon` and mount it again",
                 workspace->name);
    snprintf(ret, WORKSPACE_INCIDENT_MAX,
             "fenced: the host's disk failed to sync what was written to it%s%s; what was synced "
             "inside before is kept, the rest may be lost, later writes fail. Look at that disk, "
             "then %s",
             why ? ": " : "", why ? why : "", help);
}

void workspace_tell_fenced(const struct node *node, const struct catalog_workspace *workspace,
                           const struct volume_status *status, char ret[WORKSPACE_INCIDENT_MAX])
{
    if (status->failed) {
        tell_failed(workspace, status, ret);
        return;
    }
    snprintf(ret, WORKSPACE_INCIDENT_MAX,
             "fenced: its writes waited for the host's full disk for more than %lld seconds "
             "([volume] disk_wait); what was written before is kept, later writes fail. Free space "
             "there, then %s",
             (long long)(node->volume.disk_wait_ns / CLOCK_NS_PER_S),
             workspace_is_of_run(workspace->name) ? "use the run again, which mounts it anew"
                                                  : "unmount it and mount it again");
}

int workspace_note_loss(struct node *node, const struct catalog_workspace *workspace,
                        struct err *err)
{
    char incident[WORKSPACE_INCIDENT_MAX];
    struct volume_status status = {0};
    struct err ignored = ERR_INIT;
    if (volumes_status(node->volumes, workspace->volume.id, &status, &ignored) < 0 ||
        status.unsynced_num == 0)
        return 0;
    const char *why = strerrordesc_np(status.unsynced_num);
    snprintf(incident, sizeof incident,
             "it was unmounted, but what was not synced inside before is lost: %s. Look at the "
             "host's disk; the next mount checks the file system where that has met an error",
             why ? why : "an error");
    workspace_incident(node, workspace, "workspace-data-lost", incident);
    int rc = err_fail(
        err, ERR_IO, "workspace %s is unmounted, but what was not synced inside before is lost: %s",
        workspace->name, why ? why : "an error");
    err_hint(err, "look at the host's disk and the kernel's log; what was synced before is kept");
    return rc;
}

int workspace_status(struct node *node, const struct catalog_workspace *workspace,
                     struct volume_status *ret, struct err *err)
{
    struct err failure = ERR_INIT;
    *ret = (struct volume_status){0};
    int rc = volumes_status(node->volumes, workspace->volume.id, ret, &failure);
    rc = err_found(err, rc, &failure);
    return rc < 0 ? rc : 0;
}

int workspace_must_be_there(struct node *node, const char *id, int rc, struct err *err)
{
    if (rc >= 0 || !err || err->code != ERR_NOT_FOUND)
        return rc;
    err_clear(err);
    rc = err_fail(err, ERR_DAMAGED, "the directory %s/volumes/%s is gone", node->data_dir, id);
    err_hint(err, "put it back, or remove the workspace");
    return rc;
}

int workspace_set_states(struct node *node, const struct catalog_workspace *workspace,
                         enum catalog_volume_state volume, enum catalog_mount_state mount,
                         struct err *err)
{
    struct catalog *catalog = node->catalog;
    int rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    rc = catalog_volume_set_state(catalog, workspace->volume.id, volume, err);
    if (rc == 0 && workspace->wanted)
        rc = catalog_mount_set_state(catalog, workspace->volume.id, mount, err);
    return catalog_end(catalog, rc, err);
}

/* Whether nothing has died since it was attached: then there is nothing to check. */
static bool is_alive(struct node *node, const char *id)
{
    struct volume_status status = {0};
    struct err ignored = ERR_INIT;
    return volumes_status(node->volumes, id, &status, &ignored) == 0 && status.attached &&
           !status.dead && !status.detaching;
}

int workspace_bring_up(struct node *node, const char *id, const char *path, bool read_only,
                       bool check, struct volumes_mended *ret, struct err *err)
{
    check = check && !is_alive(node, id);
    int rc = workspace_must_be_there(node, id, volumes_attach(node->volumes, id, err), err);
    if (rc == 0)
        rc = FAULT_POINT("workspace.attached", err);
    /* What follows may read, and waits then for what the remote has. */
    if (rc == 0)
        rc = workspace_fetch_ensure(node, id, err);
    if (rc == 0)
        rc = volumes_mount(node->volumes, id, path, read_only, check, ret, err);
    return rc == 0 ? FAULT_POINT("workspace.mounted", err) : rc;
}

char *workspace_tell_mended(const char *told, const struct volumes_mended *mended)
{
    char *text = NULL;
    const char *did = mended->said[0]            ? "e2fsck has mended its file system: "
                      : mended->replayed && told ? "its journal was replayed"
                                                 : "";
    if (!told && !did[0])
        return NULL;
    if (asprintf(&text, "%s%s%s%s", told ? told : "", told && did[0] ? "; " : "", did,
                 mended->said) < 0)
        return NULL;
    return text;
}

static bool waits_for_remote(struct node *node, const char *id)
{
    struct volume_status status = {0};
    return volumes_status(node->volumes, id, &status, NULL) == 0 && status.absent_waits > 0;
}

int workspace_check_views(struct node *node, const char *id, struct err *err)
{
    cleanup_free char *view = NULL;
    int rc = catalog_workspace_view(node->catalog, id, &view, err);
    if (rc <= 0)
        return rc;
    rc = err_fail(err, ERR_CONFLICT, "the view %s shows what it was", view);
    err_hint(err, "unmount that first with `varve workspace unmount %s`", view);
    return rc;
}

int workspace_detach(struct node *node, const char *id, int wait_ms, struct err *err)
{
    int rc = workspace_check_views(node, id, err);
    return rc < 0 ? rc : volumes_detach(node->volumes, id, wait_ms, err);
}

/* Whether anybody but this daemon's own calls holds the device, or that cannot be seen. */
static bool is_used(struct node *node, const char *id)
{
    struct volume_status status = {0};
    struct volume_holders holders = {.text = ""};
    if (volumes_status(node->volumes, id, &status, NULL) < 0)
        return true;
    if (status.device_dev == 0)
        return false;
    if (volume_holders_find(status.device_dev, &holders, NULL) < 0)
        return true;
    int own = 0;
    for (int i = 0; i < holders.shown && i < holders.open; i++)
        own += workspace_kill_is_own_call(holders.pids[i]);
    return holders.kernel > 0 || holders.namespaces > 0 || holders.open > own;
}

int workspace_take_back(struct node *node, const char *id, struct err *err)
{
    struct err why = ERR_INIT;
    /* A call of ours that waits for the remote does not let go by being waited for. */
    const int wait_ms = waits_for_remote(node, id) ? HELD_DETACH_MS : WORKSPACE_DETACH_MS;
    int rc = workspace_detach(node, id, wait_ms, &why);
    if (rc == 0)
        return 0;
    /* Closing it needs the room that is missing, and nobody has written anything. */
    if (why.code == ERR_NO_SPACE)
        return volumes_discard(node->volumes, id, err);
    /* Who looked at it waits for the remote, cannot be ended, and holds the device. */
    if (why.code == ERR_CONFLICT && waits_for_remote(node, id) && !is_used(node, id) &&
        workspace_check_views(node, id, NULL) == 0) {
        volumes_cut(node->volumes, id);
        return volumes_abandon(node->volumes, id, NULL, false, err);
    }
    return err_pass(err, rc, &why);
}

static int note_mounted(struct catalog *catalog, const char *id, const char *boot,
                        const char *incident, struct err *err)
{
    int rc = catalog_volume_set_state(catalog, id, CATALOG_VOLUME_ATTACHED, err);
    if (rc == 0)
        rc = catalog_mount_set_state(catalog, id, CATALOG_MOUNT_MOUNTED, err);
    if (rc == 0)
        rc = catalog_volume_set_boot(catalog, id, boot, err);
    if (rc == 0 && incident)
        rc = catalog_volume_set_incident(catalog, id, incident, err);
    return rc;
}

int workspace_set_mounted(struct node *node, const struct catalog_workspace *workspace,
                          const char *event, const char *incident, struct err *err)
{
    struct catalog *catalog = node->catalog;
    int rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    rc = note_mounted(catalog, workspace->volume.id, node->boot_id, incident, err);
    if (rc == 0)
        workspace_event(node, event, workspace->name, incident);
    return catalog_end(catalog, rc, err);
}

/* The moves of the diagram that lead to detached from wherever it is. */
static int walk_to_detached(struct catalog *catalog, const char *id, struct err *err)
{
    cleanup_catalog_volume struct catalog_volume volume = {0};
    int rc = catalog_volume_get(catalog, id, &volume, err);
    if (rc < 0)
        return rc;
    if (volume.state == CATALOG_VOLUME_ATTACHED || volume.state == CATALOG_VOLUME_FENCED)
        rc = catalog_volume_set_state(catalog, id, CATALOG_VOLUME_DETACHING, err);
    return rc == 0 ? catalog_volume_set_state(catalog, id, CATALOG_VOLUME_DETACHED, err) : rc;
}

int workspace_set_detached(struct node *node, const struct catalog_workspace *workspace,
                           const char *event, struct err *err)
{
    struct catalog *catalog = node->catalog;
    int rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    rc = walk_to_detached(catalog, workspace->volume.id, err);
    if (rc == 0)
        rc = catalog_mount_remove(catalog, workspace->volume.id, err);
    if (rc == 0 && event)
        workspace_event(node, event, workspace->name, NULL);
    return catalog_end(catalog, rc, err);
}

void workspace_end_left(struct node *node, const struct catalog_workspace *workspace)
{
    struct err why = ERR_INIT;
    if (volumes_epoch_end_left(node->volumes, workspace->volume.id, &why) < 0)
        log_event(LOG_WARN, "epoch-not-ended", "workspace", workspace->name, "error", why.text,
                  NULL);
}

static int remove_rows(struct node *node, const struct catalog_workspace *workspace,
                       const char *event, struct err *err)
{
    int rc = catalog_begin(node->catalog, err);
    if (rc < 0)
        return rc;
    rc = catalog_workspace_remove(node->catalog, workspace->name, err);
    if (rc == 0 && event)
        workspace_event(node, event, workspace->name, NULL);
    return catalog_end(node->catalog, rc, err);
}

int workspace_discard(struct node *node, const struct catalog_workspace *workspace,
                      const char *event, struct err *err)
{
    int rc = volumes_remove(node->volumes, workspace->volume.id, err);
    if (rc == 0)
        rc = FAULT_POINT("workspace.bytes-removed", err);
    if (rc == 0)
        workspace_epoch_release(node, workspace->volume.id);
    if (rc == 0)
        workspace_fork_release(node, workspace->volume.id);
    return rc == 0 ? remove_rows(node, workspace, event, err) : rc;
}
