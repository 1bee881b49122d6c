/* workspace_internal.h - the steps of making, mounting and removing workspaces, for workspace*.c,
 * recover*.c and their tests only.
 *
 * Every step can be repeated, as volumes.h looks what is there before it does anything. A workspace
 * is worked on by whoever has its claim (workspace_claim.h).
 */
#pragma once

#include "catalog_workspace.h"
#include "cleanup.h"
#include "engine.h"
#include "id.h"
#include "node.h"
#include "volumes.h"
#include "wait_stop.h"
#include "workspace_claim.h"

#include <stdbool.h>

enum {
    WORKSPACE_DETACH_MS = 5000, /* that an unmount waits for those who still hold the device */
    WORKSPACE_CLAIM_MS = 30000, /* for the claim, of jobs that have no threads of their own */
    WORKSPACE_NAME_MAX = ID_LEN_MAX + 24, /* with the NUL byte; of views (workspace_view.h), too */
    WORKSPACE_OBJECT_MAX = WORKSPACE_NAME_MAX + 24,
    WORKSPACE_INCIDENT_MAX = 512,
    WORKSPACE_EVENT_MAX = 64, /* bytes of an event's name */
};

/* The name in a job's parameters, checked. Borrowed. */
int workspace_job_name(struct job *job, const char **ret, struct err *err);
/* Who may end the waits of a job's work on a volume (wait_stop.h): who cancels the job. A stop of
 * the daemon has its own ways (volumes_stop()). `step` is what the job settles with when the work
 * decides. To be ended with wait_stop_end(). */
struct workspace_waits {
    struct wait_stop stop;
    struct job *job;
    const char *step; /* NULL: it decides by itself */
};
void workspace_waits_begin(struct workspace_waits *waits, struct job *job, const char *step);
void workspace_waits_end(struct workspace_waits *waits);
#define cleanup_workspace_waits cleanup_with(workspace_waits_end)

/* Claims the workspace for a job, waiting for the monitor. What an earlier attempt has begun is
 * waited for also when the job was cancelled, to undo it. */
int workspace_job_claim(struct job *job, const char *name, struct workspace_claim *ret,
                        struct err *err);
/* The same for a job that others must not be behind: ERR_CONFLICT after WORKSPACE_CLAIM_MS. */
int workspace_job_claim_soon(struct job *job, const char *name, struct workspace_claim *ret,
                             struct err *err);
/* The workspace's document, as a job's result. */
int workspace_job_result(struct job *job, const char *name, json_t **ret, struct err *err);

/* The failure of a job, for `return`: of one that ended because somebody gave the workspace up, it
 * says that. */
int workspace_job_failed(struct job *job, const char *name, int rc, struct err *err);

/* 1 and the row, 0 when there is none, or -errno. */
int workspace_find(struct node *node, const char *name, struct catalog_workspace *ret,
                   struct err *err);
/* Whether a job works on the workspace now, or will: 1, 0, or -errno. */
int workspace_has_job(struct node *node, const char *name, struct err *err);
/* Whether a row speaks of the volume: 1, 0, or -errno. */
int workspace_knows_volume(struct node *node, const char *id, struct err *err);
/* ERR_CONFLICT for one that is half made or half removed. */
int workspace_check_whole(const struct catalog_workspace *workspace, struct err *err);

/* An event of a workspace ("workspace-..." of a run's volume becomes "run-volume-..."): into the
 * catalog, in the transaction that is open or one of its own, and
 * into the log. A catalog that cannot take it loses the event alone. `detail` may be NULL. */
void workspace_event(struct node *node, const char *event, const char *name, const char *detail);
/* The catalog's part of it, for any object. */
void workspace_event_add(struct node *node, const char *event, const char *object,
                         const char *detail);
/* An event that those who use the workspace have to know of: it is the row's last incident too. */
void workspace_incident(struct node *node, const struct catalog_workspace *workspace,
                        const char *event, const char *incident);

/* Why it is fenced, or will be, and what helps: a sync of the host's disk has failed, or writes
 * have waited for room for too long. For its incident. */
void workspace_tell_fenced(const struct node *node, const struct catalog_workspace *workspace,
                           const struct volume_status *status, char ret[WORKSPACE_INCIDENT_MAX]);

/* After an unmount: ERR_IO where its sync had failed, so that something was lost, which is then its
 * incident, too. It is unmounted all the same, so whoever is told goes on with what he has to do.
 */
int workspace_note_loss(struct node *node, const struct catalog_workspace *workspace,
                        struct err *err);

/* volumes_status(); all zeros for a volume whose directory somebody took away. */
int workspace_status(struct node *node, const struct catalog_workspace *workspace,
                     struct volume_status *ret, struct err *err);
/* Of a call for a volume that a row speaks of: that there is none is a damage, not a wrong name. */
int workspace_must_be_there(struct node *node, const char *id, int rc, struct err *err);

/* Writes the states of volume and mount in one transaction, durable before anything follows. */
int workspace_set_states(struct node *node, const struct catalog_workspace *workspace,
                         enum catalog_volume_state volume, enum catalog_mount_state mount,
                         struct err *err);

/* The work of "workspace.mount", for who has the claim. */
int workspace_mount_at(struct job *job, const char *name, const char *path, bool read_only,
                       struct err *err);
/* Attaches and mounts at `path`, which is the row's. `check`: the file system, before, unless the
 * volume is attached and nothing has died since. `ret`: what was done to it. */
int workspace_bring_up(struct node *node, const char *id, const char *path, bool read_only,
                       bool check, struct volumes_mended *ret, struct err *err);
/* What those who used it, `told` (may be NULL) and what was done to its file system come to, for
 * its incident. Caller frees; NULL: nothing that has to be told, or no memory. */
char *workspace_tell_mended(const char *told, const struct volumes_mended *mended);
/* ERR_CONFLICT while a view shows an epoch of the volume; the message names it. */
int workspace_check_views(struct node *node, const char *id, struct err *err);
/* volumes_detach(), but for a volume that a view needs (ERR_CONFLICT). */
int workspace_detach(struct node *node, const char *id, int wait_ms, struct err *err);
/* Detaches what a mount that failed has attached and nobody has used. */
int workspace_take_back(struct node *node, const char *id, struct err *err);
/* Writes down that it is attached and mounted in this life of the host, with the event. `incident`
 * (may be NULL) is what those who used it will have noticed. */
int workspace_set_mounted(struct node *node, const struct catalog_workspace *workspace,
                          const char *event, const char *incident, struct err *err);
/* Writes down that it is detached and to be mounted nowhere. `event` may be NULL. */
int workspace_set_detached(struct node *node, const struct catalog_workspace *workspace,
                           const char *event, struct err *err);

/* Ends what a checkpoint of a former life of varved has left open (volumes_epoch_end_left()). */
void workspace_end_left(struct node *node, const struct catalog_workspace *workspace);
/* One that is not attached is on its way out from here on: nothing brings it back. */
int workspace_mark_removing(struct node *node, const struct catalog_workspace *workspace,
                            struct err *err);
/* Takes a volume away whatever its row says, with the rows: for one that is half made or half
 * removed. `event` may be NULL. */
int workspace_discard(struct node *node, const struct catalog_workspace *workspace,
                      const char *event, struct err *err);

/* Brings a workspace that is to be mounted back: one that is dead is abandoned, then it is
 * attached, checked and mounted. One that lives, perhaps in another mount namespace, is mounted as
 * it is, and when that fails it is left so. One that is mounted is left as it is. `died` says what
 * the incident is, unless the host has been restarted since; NULL: nobody knows. A failure is
 * written into the row as an incident. The caller has the claim, and may say who ends the waits
 * (wait_stop.h), which is decided when it is mounted. 1: it was brought back, 0: nothing was to be
 * done. */
int workspace_revive(struct node *node, const struct catalog_workspace *workspace, const char *died,
                     struct err *err);
/* Whether a workspace that is to be mounted isn't: 1, 0, or -errno. */
int workspace_is_missing(struct node *node, const struct catalog_workspace *workspace,
                         struct err *err);
/* Goes on with what a job left half done and no job will finish: 1 something was done, 0 nothing
 * was to do. The caller has the claim. */
int workspace_settle(struct node *node, const struct catalog_workspace *workspace, struct err *err);
