#include "snapshot_remote.h"

#include "catalog_leftover.h"
#include "clock.h"
#include "fault.h"
#include "id.h"
#include "layers_busy.h"
#include "log.h"
#include "node.h"
#include "remote.h"

#include <string.h>

void snapshot_outcome_set(struct snapshot_outcome *outcome, const char *state, const char *message)
{
    outcome->state = state;
    snprintf(outcome->message, sizeof outcome->message, "%s", message);
}

/* Whether two snapshots have one name in one remote. */
static bool shares_tag(const struct catalog_snapshot *a, const struct catalog_snapshot *b)
{
    return strcmp(a->id, b->id) != 0 && b->remote && strcmp(a->remote, b->remote) == 0 &&
           strcmp(a->repository, b->repository) == 0 && strcmp(a->tag, b->tag) == 0 &&
           strcmp(a->image, b->image) == 0;
}

/* 1 when another snapshot of this node stands for the same image under the same tag. */
static int find_sharer(struct node *node, const struct catalog_snapshot *row,
                       struct snapshot_outcome *outcome, struct err *err)
{
    struct catalog_snapshot *rows = NULL;
    size_t count = 0;
    int found = catalog_snapshot_list(node->catalog, &rows, &count, err);
    for (size_t i = 0; i < count; i++) {
        if (found == 0 && shares_tag(row, &rows[i])) {
            char message[ID_LEN_MAX + 64];
            snprintf(message, sizeof message, "snapshot %.*s has the same tag", ID_LEN_MAX,
                     rows[i].id);
            snapshot_outcome_set(outcome, "kept", message);
            found = 1;
        }
        catalog_snapshot_free(&rows[i]);
    }
    free(rows);
    return found;
}

static void tell(const struct remote_deletion *deletion, struct snapshot_outcome *outcome)
{
    static const char *const states[] = {[REMOTE_DELETED] = "removed",
                                         [REMOTE_ABSENT] = "absent",
                                         [REMOTE_KEPT] = "kept",
                                         [REMOTE_UNDELETED] = "refused",
                                         [REMOTE_WAITS] = "waits"};
    snapshot_outcome_set(outcome, states[deletion->state], deletion->message);
    outcome->waits = deletion->state == REMOTE_WAITS;
}

/* The manifest that is to go, first, and those of its repository that wait. */
struct crowd {
    struct catalog_leftover *waiting; /* owned */
    size_t waiting_count;
    struct remote_unneeded *list; /* owned; what waits at index i is in list[i + 1] */
};

static void crowd_free(struct crowd *crowd)
{
    catalog_leftover_free_list(crowd->waiting, crowd->waiting_count);
    free(crowd->list);
}

static int gather(struct node *node, const struct catalog_snapshot *row, struct crowd *ret,
                  struct err *err)
{
    int rc =
        catalog_leftover_list(node->catalog, row->remote, row->repository,
                              SNAPSHOT_REMOTE_WAITING_MAX, &ret->waiting, &ret->waiting_count, err);
    if (rc < 0)
        return rc;
    ret->list = calloc(ret->waiting_count + 1, sizeof *ret->list);
    if (!ret->list)
        return err_errno(err, ENOMEM, "cannot remove it from the remote");
    ret->list[0].tag = row->tag;
    rc = digest_parse(row->image, &ret->list[0].digest, err);
    for (size_t i = 0; rc == 0 && i < ret->waiting_count; i++)
        rc = digest_parse(ret->waiting[i].digest, &ret->list[i + 1].digest, err);
    return rc;
}

/* Whether one has waited for so long that all tags are asked, however many there are. */
static bool is_late(const struct crowd *crowd)
{
    return crowd->waiting_count > 0 &&
           crowd->waiting[0].age_ns > SNAPSHOT_REMOTE_WAIT_S * CLOCK_NS_PER_S;
}

/* How many tags may be asked for what they name. A directory is asked for nothing. */
static size_t looks_for(const struct node *node, const struct crowd *crowd, bool late)
{
    if (late || node->remote->host[0] == '\0')
        return SIZE_MAX;
    return SNAPSHOT_REMOTE_LOOKS * (crowd->waiting_count + 1);
}

/* A removal in the remote. */
struct removing {
    struct job *job;
    struct node *node;
    const struct catalog_snapshot *row;
    struct job_asker asker;
    struct crowd crowd;
    bool is_here; /* the image, which stays until the snapshot's record goes */
    bool begun;   /* it, or its tag, may be gone */
};

static void removing_free(struct removing *removing)
{
    crowd_free(&removing->crowd);
}
#define cleanup_removing cleanup_with(removing_free)

/* What is kept when its image is not here is kept in the remote alone. So behind this point the job
 * goes on to its end, and what may be gone is not said to be there (I3). */
static int settle(void *arg, struct err *err)
{
    struct removing *removing = arg;
    const struct catalog_snapshot *row = removing->row;
    struct catalog *catalog = removing->node->catalog;
    removing->begun = true;
    if (removing->is_here)
        return 0;
    int rc = catalog_begin(catalog, err);
    if (rc < 0)
        return rc;
    rc = job_settle(removing->job, "delete", err);
    if (rc == 0)
        rc = catalog_snapshot_set_lost(catalog, row->id, row->remote, err);
    rc = catalog_end(catalog, rc < 0 ? rc : 0, err);
    return rc == 0 ? FAULT_POINT("snapshot.remote-settled", err) : rc;
}

/* Records what became of one that waited; only a log line tells of what nobody asked for now. */
static int note_one(const struct removing *removing, size_t index, bool late, struct err *err)
{
    struct catalog *catalog = removing->node->catalog;
    const struct catalog_snapshot *row = removing->row;
    const struct remote_deletion *result = &removing->crowd.list[index + 1].result;
    const char *digest = removing->crowd.waiting[index].digest;
    bool waits = result->state == REMOTE_WAITS;
    if (result->message[0] && (waits || result->state == REMOTE_UNDELETED))
        log_event(LOG_WARN, waits ? "remote-manifest-waits" : "remote-manifest-refused",
                  "repository", row->repository, "digest", digest, "error", result->message, NULL);
    if (!waits)
        return catalog_leftover_remove(catalog, row->remote, row->repository, digest, err);
    return late ? catalog_leftover_renew(catalog, row->remote, row->repository, digest, err) : 0;
}

static int note_waiting(const struct removing *removing, bool late, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < removing->crowd.waiting_count; i++)
        rc = note_one(removing, i, late, err);
    return rc;
}

static int delete_it(struct removing *removing, bool late, struct err *err)
{
    const struct crowd *crowd = &removing->crowd;
    const struct remote_deleting how = {.looks_max = looks_for(removing->node, crowd, late),
                                        .progress = job_asker_ask,
                                        .arg = &removing->asker,
                                        .before = settle,
                                        .before_arg = removing};
    int rc = remote_delete_some(removing->node->remote, removing->row->repository, crowd->list,
                                crowd->waiting_count + 1, &how, err);
    return rc < 0 ? job_asker_end(&removing->asker, rc, err) : note_waiting(removing, late, err);
}

/* Whether the same with less to ask for may do better. */
static bool is_of_the_look(const struct removing *removing, const struct err *failure)
{
    return !removing->begun && failure->code != ERR_CANCELLED && failure->code != ERR_INTERRUPTED &&
           failure->code != ERR_UNREACHABLE && failure->code != ERR_DENIED;
}

/* One such look in a repository at a time; what it told the others need not ask for again. When it
 * fails, the removal that happened upon it does without. */
static int delete_with_late(struct removing *removing, struct err *err)
{
    struct err failure = ERR_INIT;
    cleanup_layers_busy struct layers_busy busy = {0};
    const struct catalog_snapshot *row = removing->row;
    int rc = layers_busy_enter(&busy, removing->node, "remove", row->repository, job_stop,
                               removing->job, err);
    if (rc < 0)
        return rc;
    crowd_free(&removing->crowd);
    removing->crowd = (struct crowd){.list = NULL};
    rc = gather(removing->node, row, &removing->crowd, err);
    if (rc < 0 || !is_late(&removing->crowd))
        return rc < 0 ? rc : delete_it(removing, false, err);
    rc = delete_it(removing, true, &failure);
    if (rc == 0 || !is_of_the_look(removing, &failure))
        return err_pass(err, rc, &failure);
    log_event(LOG_WARN, "remote-look-failed", "repository", row->repository, "error", failure.text,
              NULL);
    for (size_t i = 0; i < removing->crowd.waiting_count; i++) {
        rc = catalog_leftover_renew(removing->node->catalog, row->remote, row->repository,
                                    removing->crowd.waiting[i].digest, err);
        if (rc < 0)
            return rc;
    }
    return delete_it(removing, false, err);
}

static int remove_it(struct job *job, const struct catalog_snapshot *row,
                     struct snapshot_outcome *outcome, struct err *err)
{
    struct node *node = job_node(job);
    cleanup_removing struct removing removing = {
        .job = job, .node = node, .row = row, .asker = {.job = job, .stop = ERR_INIT}};
    /* Before it is asked, as its answer may be lost. */
    int rc = catalog_snapshot_set_local(node->catalog, row->id, err);
    removing.is_here = rc > 0;
    if (rc >= 0)
        rc = gather(node, row, &removing.crowd, err);
    if (rc == 0)
        rc = is_late(&removing.crowd) ? delete_with_late(&removing, err)
                                      : delete_it(&removing, false, err);
    if (rc == 0)
        tell(&removing.crowd.list[0].result, outcome);
    return rc;
}

int snapshot_remote_remove(struct job *job, const struct catalog_snapshot *row,
                           struct snapshot_outcome *ret, struct err *err)
{
    struct node *node = job_node(job);
    if (row->durability == CATALOG_LOCAL && !row->remote) {
        snapshot_outcome_set(ret, "not_pushed", "");
        return 0;
    }
    if (!row->remote || strcmp(row->remote, node->remote->url) != 0) {
        snapshot_outcome_set(ret, "kept", "it was pushed to a remote that is not configured");
        return 0;
    }
    int rc = job_step(job, "remote", err);
    if (rc == 0)
        rc = find_sharer(node, row, ret, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    return remove_it(job, row, ret, err);
}
