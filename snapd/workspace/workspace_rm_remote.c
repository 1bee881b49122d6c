/* What is to go, and the job. */
#include "workspace_rm_remote.h"

#include "catalog_event.h"
#include "catalog_expiry.h"
#include "checkpoint_manifest.h"
#include "checkpoint_tag.h"
#include "fault.h"
#include "log.h"
#include "workspace_internal.h"
#include "workspace_line.h"

#include <string.h>

/* What the work has; all is owned but the job's parameters. */
struct removal {
    struct job *job;
    struct job_asker asker;
    const char *volume;
    const char *lineage;
    char *repository;
    char own[CHECKPOINT_TAG_MAX]; /* this node's ID in tags */
    struct workspace_unneeded *list;
    size_t count;
    int others;
    struct workspace_rm_remote_result result;
};

static void free_removal(struct removal *removal)
{
    for (size_t i = 0; i < removal->count; i++)
        free(removal->list[i].tag);
    free(removal->list);
    free(removal->repository);
    workspace_rm_remote_result_free(&removal->result);
}
#define cleanup_removal cleanup_with(free_removal)

static int read_request(struct removal *removal, struct err *err)
{
    static const char what[] = "the request to remove checkpoints";
    const json_t *params = job_params(removal->job);
    int rc = json_doc_get_str(params, "volume", what, &removal->volume, err);
    if (rc == 0)
        rc = json_doc_get_str(params, "lineage", what, &removal->lineage, err);
    if (rc < 0)
        return rc;
    const struct node *node = job_node(removal->job);
    removal->repository = workspace_line_repository(node, removal->lineage);
    checkpoint_tag_node(node->id, removal->own);
    return removal->repository ? 0 : err_errno(err, ENOMEM, "cannot remove checkpoints");
}

/* What lies under a tag: 1 when it is a checkpoint of this volume and node. What is gone, and what
 * is something else whatever its tag says, is 0. */
static int is_own(struct removal *removal, const char *tag, struct digest *ret, struct err *err)
{
    const struct node *node = job_node(removal->job);
    struct err why = ERR_INIT;
    cleanup_remote_manifest struct remote_manifest manifest = {.bytes = NULL};
    cleanup_checkpoint_index struct checkpoint_index index = {.lists = NULL};
    int rc = remote_manifest_get_or_stop(node->remote, removal->repository, tag, job_asker_ask,
                                         &removal->asker, &manifest, &why);
    if (rc == 0)
        rc = checkpoint_index_decode(manifest.bytes, manifest.len, &index, &why);
    if (rc < 0 && why.code == ERR_NOT_FOUND)
        return 0;
    bool foreign = rc < 0 && (why.code == ERR_DAMAGED || why.code == ERR_UNSUPPORTED ||
                              why.code == ERR_TOO_LARGE || why.code == ERR_TOO_NEW ||
                              why.code == ERR_DIGEST || why.code == ERR_INVALID);
    if (rc < 0 && !foreign)
        return err_pass(err, rc, &why);
    if (foreign || strcmp(index.volume, removal->volume) != 0 ||
        strcmp(index.node, node->id) != 0) {
        removal->others++;
        return 0;
    }
    *ret = manifest.digest;
    return 1;
}

static int look_at_tag(struct removal *removal, const char *text, struct err *err)
{
    struct checkpoint_tag tag;
    struct digest digest;
    if (!checkpoint_tag_parse(text, &tag) || strcmp(tag.volume, removal->volume) != 0 ||
        tag.kind == CHECKPOINT_TAG_HOLD)
        return 0;
    if (strcmp(tag.node, removal->own) != 0) {
        removal->others++;
        return 0;
    }
    int rc = is_own(removal, text, &digest, err);
    if (rc <= 0)
        return rc;
    char *own = strdup(text);
    if (!own)
        return err_errno(err, ENOMEM, "cannot remove checkpoints");
    removal->list[removal->count++] = (struct workspace_unneeded){.tag = own, .digest = digest};
    return 0;
}

static int find_all(struct removal *removal, struct err *err)
{
    cleanup_remote_tags struct remote_tags tags = {.names = NULL};
    int rc = remote_tags_list(job_node(removal->job)->remote, removal->repository, job_asker_ask,
                              &removal->asker, &tags, err);
    if (rc < 0)
        return rc;
    removal->list = calloc(tags.count + 1, sizeof *removal->list);
    if (!removal->list)
        return err_errno(err, ENOMEM, "cannot remove checkpoints");
    for (size_t i = 0; rc == 0 && i < tags.count; i++)
        rc = look_at_tag(removal, tags.names[i], err);
    return rc;
}

static json_t *result_of(const struct removal *removal)
{
    const struct workspace_rm_remote_counts *c = &removal->result.checkpoints;
    const struct workspace_rm_remote_counts *m = &removal->result.manifests;
    return json_pack("{s:s, s:{s:i, s:i, s:i, s:i}, s:{s:i, s:i, s:i, s:i, s:i}, s:i, s:O?}",
                     "volume", removal->volume, "checkpoints", "removed", c->removed, "absent",
                     c->absent, "kept", c->kept, "refused", c->refused, "manifests", "removed",
                     m->removed, "absent", m->absent, "kept", m->kept, "refused", m->refused,
                     "waits", m->waits, "others", removal->others, "messages",
                     removal->result.messages);
}

/* The wish is fulfilled as far as it can be. */
static int record(const struct removal *removal, const json_t *result, struct err *err)
{
    struct node *node = job_node(removal->job);
    char object[WORKSPACE_OBJECT_MAX];
    cleanup_free char *text = json_doc_dump(result);
    if (!text)
        return err_errno(err, ENOMEM, "cannot record the removal");
    (void)snprintf(object, sizeof object, "volume:%s", removal->volume);
    int rc = catalog_begin(node->catalog, err);
    if (rc < 0)
        return rc;
    rc = catalog_expiry_done(node->catalog, removal->volume, node->remote->url, err);
    if (rc == 0)
        rc = catalog_event_add(node->catalog, "checkpoints-removed", object, text, err);
    return catalog_end(node->catalog, rc, err);
}

static int run(struct job *job, json_t **ret_result, struct err *err)
{
    cleanup_removal struct removal removal = {.job = job, .asker = {.job = job}};
    int rc = read_request(&removal, err);
    if (rc == 0)
        rc = job_mark(job, "look", err);
    if (rc < 0)
        return rc;
    rc = job_asker_end(&removal.asker, find_all(&removal, err), err);
    if (rc == 0)
        rc = workspace_rm_remote_delete(job, removal.lineage, removal.list, removal.count,
                                        &removal.result, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot remove the checkpoints of volume %s", removal.volume);
    cleanup_json json_t *result = result_of(&removal);
    if (!result)
        return err_errno(err, ENOMEM, "cannot describe the removal");
    rc = record(&removal, result, err);
    if (rc == 0)
        *ret_result = json_incref(result);
    return rc;
}

const struct job_kind workspace_rm_remote_job = {
    .name = "workspace.rm-remote", .run = run, .remote = true};

/* --- asking for it --- */

int workspace_rm_remote_begin(struct node *node, const char *volume, const char *lineage,
                              char **ret_job, struct err *err)
{
    char object[WORKSPACE_OBJECT_MAX];
    cleanup_json json_t *params = json_pack("{s:s, s:s}", "volume", volume, "lineage", lineage);
    if (!params)
        return err_errno(err, ENOMEM, "cannot remove checkpoints");
    (void)snprintf(object, sizeof object, WORKSPACE_RM_REMOTE_OBJECT "%s", volume);
    const struct job_request request = {
        .kind = workspace_rm_remote_job.name, .object = object, .params = params};
    struct err why = ERR_INIT;
    *ret_job = NULL;
    pthread_mutex_lock(&node->engine_lock);
    int rc = node->engine ? engine_submit(node->engine, &request, ret_job, &why) : 0;
    pthread_mutex_unlock(&node->engine_lock);
    return rc < 0 && why.code != ERR_CONFLICT ? err_pass(err, rc, &why) : 0;
}

bool workspace_rm_remote_pass(struct node *node)
{
    struct catalog_expired *list = NULL;
    size_t count = 0;
    struct err why = ERR_INIT;
    bool all = true;
    int rc = catalog_expiry_list(node->catalog, node->remote->url, &list, &count, &why);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        cleanup_free char *job = NULL;
        struct err failure = ERR_INIT;
        if (workspace_rm_remote_begin(node, list[i].volume, list[i].lineage, &job, &failure) < 0)
            log_event(LOG_WARN, "checkpoints-not-removed", "volume", list[i].volume, "error",
                      failure.text, NULL);
        all = all && job != NULL;
    }
    catalog_expired_free_list(list, count);
    if (rc < 0)
        log_event(LOG_WARN, "checkpoints-not-removed", "error", why.text, NULL);
    return rc == 0 && all;
}
