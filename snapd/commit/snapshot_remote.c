#include "snapshot_remote.h"

#include "catalog_leftover.h"
#include "clock.h"
#include "id.h"
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
#define cleanup_crowd cleanup_with(crowd_free)

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

/* How many tags may be asked for what they name. A directory is asked for nothing. */
static size_t looks_for(const struct node *node, const struct crowd *crowd)
{
    bool late = crowd->waiting_count > 0 &&
                crowd->waiting[0].age_ns > SNAPSHOT_REMOTE_WAIT_S * CLOCK_NS_PER_S;
    if (late || node->remote->host[0] == '\0')
        return SIZE_MAX;
    return SNAPSHOT_REMOTE_LOOKS * (crowd->waiting_count + 1);
}

/* Records what went. Of what could not be asked now a line in the log tells. */
static int note_waiting(struct node *node, const struct catalog_snapshot *row,
                        const struct crowd *crowd, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < crowd->waiting_count; i++) {
        const struct remote_deletion *result = &crowd->list[i + 1].result;
        const char *digest = crowd->waiting[i].digest;
        if (result->state != REMOTE_WAITS)
            rc = catalog_leftover_remove(node->catalog, row->remote, row->repository, digest, err);
        else if (result->message[0])
            log_event(LOG_WARN, "remote-manifest-waits", "repository", row->repository, "digest",
                      digest, "error", result->message, NULL);
    }
    return rc;
}

static int remove_it(struct job *job, const struct catalog_snapshot *row,
                     struct snapshot_outcome *outcome, struct err *err)
{
    struct node *node = job_node(job);
    cleanup_crowd struct crowd crowd = {.list = NULL};
    struct job_asker asker = {.job = job, .stop = ERR_INIT};
    /* Before it is asked, as its answer may be lost. */
    int rc = catalog_snapshot_set_local(node->catalog, row->id, err);
    if (rc == 0)
        rc = gather(node, row, &crowd, err);
    if (rc < 0)
        return rc;
    rc = remote_delete_some(node->remote, row->repository, crowd.list, crowd.waiting_count + 1,
                            looks_for(node, &crowd), job_asker_ask, &asker, err);
    if (rc < 0)
        return job_asker_end(&asker, rc, err);
    rc = note_waiting(node, row, &crowd, err);
    tell(&crowd.list[0].result, outcome);
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
