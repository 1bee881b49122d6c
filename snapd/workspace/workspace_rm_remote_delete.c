/* Deleting indexes, and then what they alone named. */
#include "workspace_rm_remote.h"

#include "catalog_leftover.h"
#include "checkpoint_manifest.h"
#include "checkpoint_tag.h"
#include "fault.h"
#include "workspace_internal.h"
#include "workspace_line.h"

#include <string.h>

enum {
    WAITING_MAX = 10000, /* manifests that go by one look */
};

void workspace_rm_remote_result_free(struct workspace_rm_remote_result *result)
{
    json_decref(result->messages);
    result->messages = NULL;
}

struct deleting {
    struct job *job;
    struct node *node;
    struct job_asker asker;
    char *repository;
    struct workspace_rm_remote_result *result;
};

static void count_one(struct deleting *deleting, struct workspace_rm_remote_counts *counts,
                      const struct remote_deletion *deletion)
{
    switch (deletion->state) {
    case REMOTE_DELETED:
        counts->removed++;
        return;
    case REMOTE_ABSENT:
        counts->absent++;
        return;
    case REMOTE_KEPT:
        counts->kept++;
        break;
    case REMOTE_UNDELETED:
        counts->refused++;
        break;
    case REMOTE_WAITS:
    default:
        counts->waits++;
        break;
    }
    json_t *messages = deleting->result->messages;
    if (deletion->message[0] && json_array_size(messages) < WORKSPACE_RM_REMOTE_MESSAGES)
        (void)json_array_append_new(messages, json_string(deletion->message));
}

/* --- what the indexes name --- */

static int note_leftover(const struct deleting *deleting, const struct checkpoint_blob *blob,
                         struct err *err)
{
    return catalog_leftover_add(deleting->node->catalog, deleting->node->remote->url,
                                deleting->repository, digest_format(&blob->digest).s, err);
}

/* One that is gone, or is not what it was, names nothing here. */
static int note_index(struct deleting *deleting, const struct workspace_unneeded *item,
                      struct err *err)
{
    struct err why = ERR_INIT;
    cleanup_remote_manifest struct remote_manifest manifest = {.bytes = NULL};
    cleanup_checkpoint_index struct checkpoint_index index = {.lists = NULL};
    int rc = remote_manifest_get_or_stop(deleting->node->remote, deleting->repository,
                                         digest_format(&item->digest).s, job_asker_ask,
                                         &deleting->asker, &manifest, &why);
    if (rc == 0)
        rc = checkpoint_index_decode(manifest.bytes, manifest.len, &index, &why);
    if (rc < 0)
        return why.code == ERR_NOT_FOUND ? 0 : err_pass(err, rc, &why);
    rc = catalog_begin(deleting->node->catalog, err);
    if (rc < 0)
        return rc;
    rc = note_leftover(deleting, &index.root_manifest, err);
    for (size_t i = 0; rc == 0 && i < index.list_count; i++)
        rc = note_leftover(deleting, &index.lists[i], err);
    return catalog_end(deleting->node->catalog, rc, err);
}

/* --- deleting --- */

/* Behind this point the job goes on to its end. */
static int settle(struct deleting *deleting, struct err *err)
{
    int rc = job_settle(deleting->job, "delete", err);
    return rc == 0 ? FAULT_POINT("workspace.rm-remote-settled", err) : rc;
}

/* `anew`: somebody may give one a hold meanwhile. */
static int delete_some(struct deleting *deleting, struct remote_unneeded *list, size_t count,
                       bool anew, struct err *err)
{
    const struct remote_deleting how = {.looks_max = SIZE_MAX,
                                        .lists_anew = anew,
                                        .progress = job_asker_ask,
                                        .arg = &deleting->asker};
    return remote_delete_some(deleting->node->remote, deleting->repository, list, count, &how, err);
}

static int delete_indexes(struct deleting *deleting, const struct workspace_unneeded *list,
                          size_t count, struct err *err)
{
    if (count == 0)
        return 0;
    cleanup_free struct remote_unneeded *unneeded = calloc(count, sizeof *unneeded);
    if (!unneeded)
        return err_errno(err, ENOMEM, "cannot remove checkpoints");
    for (size_t i = 0; i < count; i++)
        unneeded[i] = (struct remote_unneeded){
            .digest = list[i].digest, .tag = list[i].tag, .tag_waits = true};
    int rc = delete_some(deleting, unneeded, count, true, err);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        /* Without a message nobody could tell of any, which the first one says. */
        if (unneeded[i].result.state == REMOTE_WAITS && !unneeded[i].result.message[0])
            unneeded[i].result.state = REMOTE_KEPT;
        if (unneeded[i].result.state == REMOTE_WAITS)
            rc = err_fail(err, ERR_UNREACHABLE, "checkpoint %s could not be removed: %s",
                          list[i].tag, unneeded[i].result.message);
        count_one(deleting, &deleting->result->checkpoints, &unneeded[i].result);
    }
    return rc == 0 ? FAULT_POINT("workspace.rm-remote-indexes", err) : rc;
}

/* Manifests of the repository that wait, with the tags that their digests gave them. */
struct waiting {
    struct catalog_leftover *rows; /* owned, as all here */
    size_t count;
    struct remote_unneeded *list;
    char (*tags)[CHECKPOINT_TAG_MAX];
};

static void free_waiting(struct waiting *waiting)
{
    catalog_leftover_free_list(waiting->rows, waiting->count);
    free(waiting->list);
    free(waiting->tags);
}
#define cleanup_waiting cleanup_with(free_waiting)

/* A pack list's tag and a root manifest's begin with different letters: which it is the remote
 * says. */
static int find_tag(struct deleting *deleting, const struct digest *digest,
                    char ret[CHECKPOINT_TAG_MAX], struct err *err)
{
    static const char kinds[] = {'p', 'r'};
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        struct remote_manifest_stat stat;
        struct err why = ERR_INIT;
        checkpoint_tag_of_digest(kinds[i], digest, ret);
        int rc = remote_manifest_stat(deleting->node->remote, deleting->repository, ret,
                                      job_asker_ask, &deleting->asker, &stat, &why);
        rc = err_found(err, rc, &why);
        if (rc < 0 || (rc == 1 && digest_equal(&stat.digest, digest)))
            return rc < 0 ? rc : 0;
    }
    ret[0] = '\0';
    return 0;
}

static int gather(struct deleting *deleting, struct waiting *ret, struct err *err)
{
    int rc = catalog_leftover_list(deleting->node->catalog, deleting->node->remote->url,
                                   deleting->repository, WAITING_MAX, &ret->rows, &ret->count, err);
    if (rc < 0)
        return rc;
    ret->list = calloc(ret->count + 1, sizeof *ret->list);
    ret->tags = calloc(ret->count + 1, sizeof *ret->tags);
    if (!ret->list || !ret->tags)
        return err_errno(err, ENOMEM, "cannot remove manifests");
    for (size_t i = 0; rc == 0 && i < ret->count; i++) {
        struct remote_unneeded *item = &ret->list[i];
        rc = digest_parse(ret->rows[i].digest, &item->digest, err);
        if (rc == 0)
            rc = find_tag(deleting, &item->digest, ret->tags[i], err);
        item->tag = ret->tags[i][0] ? ret->tags[i] : NULL;
        item->keeps_tag = true;
    }
    return rc;
}

/* What is needed by others goes with them. */
static int delete_leftovers(struct deleting *deleting, struct err *err)
{
    cleanup_waiting struct waiting waiting = {.rows = NULL};
    int rc = gather(deleting, &waiting, err);
    if (rc < 0 || waiting.count == 0)
        return rc;
    rc = delete_some(deleting, waiting.list, waiting.count, false, err);
    for (size_t i = 0; rc == 0 && i < waiting.count; i++) {
        count_one(deleting, &deleting->result->manifests, &waiting.list[i].result);
        if (waiting.list[i].result.state != REMOTE_WAITS)
            rc = catalog_leftover_remove(deleting->node->catalog, deleting->node->remote->url,
                                         deleting->repository, waiting.rows[i].digest, err);
    }
    return rc == 0 ? FAULT_POINT("workspace.rm-remote-manifests", err) : rc;
}

int workspace_rm_remote_delete(struct job *job, const char *lineage,
                               const struct workspace_unneeded *list, size_t count,
                               struct workspace_rm_remote_result *ret, struct err *err)
{
    struct deleting deleting = {
        .job = job, .node = job_node(job), .asker = {.job = job}, .result = ret};
    cleanup_free char *repository = workspace_line_repository(deleting.node, lineage);
    ret->messages = json_array();
    if (!repository || !ret->messages)
        return err_errno(err, ENOMEM, "cannot remove checkpoints");
    deleting.repository = repository;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = note_index(&deleting, &list[i], err);
    if (rc == 0)
        rc = FAULT_POINT("workspace.rm-remote-noted", err);
    if (rc == 0)
        rc = settle(&deleting, err);
    if (rc == 0)
        rc = delete_indexes(&deleting, list, count, err);
    if (rc == 0)
        rc = delete_leftovers(&deleting, err);
    return job_asker_end(&deleting.asker, rc, err);
}
