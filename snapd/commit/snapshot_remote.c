#include "snapshot_remote.h"

#include "id.h"
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
                                         [REMOTE_UNDELETED] = "refused"};
    snapshot_outcome_set(outcome, states[deletion->state], deletion->message);
}

static int remove_it(struct job *job, const struct catalog_snapshot *row,
                     struct snapshot_outcome *outcome, struct err *err)
{
    struct digest digest;
    struct remote_deletion deletion;
    struct job_asker asker = {.job = job, .stop = ERR_INIT};
    int rc = digest_parse(row->image, &digest, err);
    if (rc < 0)
        return rc;
    /* Before it is asked, as its answer may be lost. */
    rc = catalog_snapshot_set_local(job_node(job)->catalog, row->id, err);
    if (rc < 0)
        return rc;
    rc = remote_delete(job_node(job)->remote, row->repository, &digest, row->tag, job_asker_ask,
                       &asker, &deletion, err);
    if (rc < 0)
        return job_asker_end(&asker, rc, err);
    tell(&deletion, outcome);
    return 0;
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
