#include "workspace_fork.h"

#include "checkpoint_tag.h"
#include "cleanup.h"
#include "fault.h"
#include "log.h"
#include "volumes.h"
#include "workspace_create.h"
#include "workspace_internal.h"
#include "workspace_line.h"
#include "workspace_rm_remote.h"
#include "workspace_token.h"

#include <string.h>
#include <time.h>

enum {
    GONE_LOOKS = 150, /* half a minute */
    GONE_LOOK_NS = 200 * 1000 * 1000,
};

/* What the work has; all is owned. */
struct fork {
    struct job *job;
    struct job_asker asker;
    struct workspace_source source;
    struct checkpoint *checkpoint;
};

static void free_fork(struct fork *fork)
{
    workspace_source_free(&fork->source);
    checkpoint_free(fork->checkpoint);
}
#define cleanup_fork cleanup_with(free_fork)

static void hold_tag(const char *source, const char *fork, char ret[CHECKPOINT_TAG_MAX])
{
    struct checkpoint_tag tag = {.kind = CHECKPOINT_TAG_HOLD};
    (void)snprintf(tag.volume, sizeof tag.volume, "%s", source);
    (void)snprintf(tag.node, sizeof tag.node, "%s", fork);
    checkpoint_tag_format(&tag, ret);
}

/* Before anything stands on it: whoever removes checkpoints meanwhile finds the tag. */
static int hold(struct fork *fork, struct node *node, const char *volume, struct err *err)
{
    char tag[CHECKPOINT_TAG_MAX];
    cleanup_remote_manifest struct remote_manifest index = {0};
    cleanup_free char *repository = workspace_line_repository(node, fork->source.lineage);
    if (!repository)
        return err_errno(err, ENOMEM, "cannot hold the checkpoint");
    hold_tag(checkpoint_config_of(fork->checkpoint)->volume, volume, tag);
    int rc = remote_manifest_get_or_stop(node->remote, repository, fork->source.digest,
                                         job_asker_ask, &fork->asker, &index, err);
    if (rc == 0)
        rc = remote_manifest_put_or_stop(node->remote, repository, tag, NULL, index.bytes,
                                         index.len, job_asker_ask, &fork->asker, NULL, err);
    return rc == 0 ? FAULT_POINT("workspace.fork-held", err) : rc;
}

/* workspace_creation.make */
static int make(void *arg, struct node *node, const struct workspace_creation *creation,
                struct err *err)
{
    struct fork *fork = arg;
    const struct volume_base base = workspace_line_volume_base(fork->checkpoint);
    cleanup_checkpoint_walk struct checkpoint_walk walk = {.leaf = NULL};
    int rc = hold(fork, node, creation->volume, err);
    if (rc == 0)
        rc = checkpoint_walk_begin(fork->checkpoint, job_asker_ask, &fork->asker, &walk, err);
    if (rc < 0)
        return job_asker_end(&fork->asker, rc, err);
    rc = volumes_create_from(node->volumes, creation->volume, creation->size, &base,
                             checkpoint_walk_next, &walk, err);
    /* Before it is undone: a stop of the daemon undoes nothing. */
    return job_asker_end(&fork->asker, workspace_line_walked(&walk, rc, err), err);
}

static int open_source(struct fork *fork, struct err *err)
{
    const char *from = NULL;
    struct node *node = job_node(fork->job);
    int rc =
        json_doc_get_str(job_params(fork->job), "from", "the request for a workspace", &from, err);
    if (rc == 0)
        rc = workspace_source_find(node, from, &fork->source, err);
    if (rc == 0)
        rc = job_mark(fork->job, "open", err);
    if (rc == 0)
        rc = workspace_line_open(node, fork->source.lineage, fork->source.digest, job_asker_ask,
                                 &fork->asker, &fork->checkpoint, err);
    return rc;
}

static int make_fork(struct job *job, bool part, json_t **ret_result, struct err *err)
{
    cleanup_fork struct fork fork = {.job = job, .asker = {.job = job}};
    struct workspace_creation creation = {.make = make, .arg = &fork, .part = part};
    int rc = workspace_job_name(job, &creation.name, err);
    if (rc == 0)
        rc = workspace_token_read(job_params(job), "the request for a workspace", &creation.token,
                                  err);
    if (rc == 0)
        rc = workspace_create_id(job, creation.volume, err);
    if (rc == 0)
        rc = open_source(&fork, err);
    rc = job_asker_end(&fork.asker, rc, err);
    if (rc < 0 && err && creation.volume[0])
        workspace_create_undo(job_node(job), &creation, err);
    if (rc == 0) {
        creation.size = checkpoint_config_of(fork.checkpoint)->size;
        creation.lineage = fork.source.lineage;
        creation.parent = fork.source.digest;
        rc = workspace_create_run(job, &creation, ret_result, err);
    }
    return job_asker_end(&fork.asker, rc, err);
}

int workspace_fork_part(struct job *job, struct err *err)
{
    cleanup_json json_t *ignored = NULL;
    return make_fork(job, true, &ignored, err);
}

static int run(struct job *job, json_t **ret_result, struct err *err)
{
    return make_fork(job, false, ret_result, err);
}

const struct job_kind workspace_fork_job = {.name = "workspace.fork", .run = run, .remote = true};

/* --- the end of a fork --- */

struct release {
    const char *volume;
    const char *lineage;
    const char *checkpoint;
};

static int read_release(const struct job *job, struct release *ret, struct err *err)
{
    static const char what[] = "the request to let go of a checkpoint";
    const json_t *params = job_params(job);
    int rc = json_doc_get_str(params, "volume", what, &ret->volume, err);
    if (rc == 0)
        rc = json_doc_get_str(params, "lineage", what, &ret->lineage, err);
    return rc == 0 ? json_doc_get_str(params, "checkpoint", what, &ret->checkpoint, err) : rc;
}

/* Whether one of the tags that its owner may have given it still names the checkpoint: 1, 0. */
static int has_owner(struct job_asker *asker, const char *repository,
                     const struct checkpoint_index *index, const struct digest *digest,
                     struct err *err)
{
    static const enum checkpoint_tag_kind kinds[] = {CHECKPOINT_TAG_KEPT, CHECKPOINT_TAG_LIVE,
                                                     CHECKPOINT_TAG_DIVERGED};
    struct checkpoint_tag tag = {.generation = index->generation};
    memcpy(tag.volume, index->volume, sizeof tag.volume);
    checkpoint_tag_node(index->node, tag.node);
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        char text[CHECKPOINT_TAG_MAX];
        struct remote_manifest_stat stat;
        struct err missing = ERR_INIT;
        tag.kind = kinds[i];
        checkpoint_tag_format(&tag, text);
        int rc = remote_manifest_stat(job_node(asker->job)->remote, repository, text, job_asker_ask,
                                      asker, &stat, &missing);
        rc = err_found(err, rc, &missing);
        if (rc < 0 || (rc == 1 && digest_equal(&stat.digest, digest)))
            return rc;
    }
    return 0;
}

/* A checkpoint that its owner has given up goes with its last hold. */
static int take_hold(struct job_asker *asker, const struct release *release, struct err *err)
{
    char tag[CHECKPOINT_TAG_MAX];
    struct digest digest;
    struct node *node = job_node(asker->job);
    cleanup_remote_manifest struct remote_manifest manifest = {0};
    cleanup_checkpoint_index struct checkpoint_index index = {.lists = NULL};
    cleanup_free char *repository = workspace_line_repository(node, release->lineage);
    if (!repository)
        return err_errno(err, ENOMEM, "cannot let go of the checkpoint");
    int rc = digest_parse(release->checkpoint, &digest, err);
    if (rc == 0)
        rc = remote_manifest_get_or_stop(node->remote, repository, release->checkpoint,
                                         job_asker_ask, asker, &manifest, err);
    if (rc == 0)
        rc = checkpoint_index_decode(manifest.bytes, manifest.len, &index, err);
    if (rc == 0)
        rc = has_owner(asker, repository, &index, &digest, err);
    if (rc < 0)
        return rc;
    hold_tag(index.volume, release->volume, tag);
    if (rc > 0)
        return remote_tag_delete(node->remote, repository, tag, &digest, job_asker_ask, asker, err);
    const struct workspace_unneeded unneeded = {.tag = tag, .digest = digest};
    cleanup_workspace_rm_remote_result struct workspace_rm_remote_result result = {{0}};
    return workspace_rm_remote_delete(asker->job, release->lineage, &unneeded, 1, &result, err);
}

enum standing {
    STANDS_ELSEWHERE, /* or is gone */
    STANDS_ON_IT,
    BEING_PUT_BACK, /* nobody knows what it stands on until that was done */
};

static int look_where_it_stands(struct node *node, const struct release *release, struct err *err)
{
    cleanup_catalog_line struct catalog_line line = {0};
    struct err why = ERR_INIT;
    int rc = err_found(err, catalog_line_get(node->catalog, release->volume, &line, &why), &why);
    if (rc <= 0)
        return rc < 0 ? rc : STANDS_ELSEWHERE;
    if (catalog_line_is_open(&line))
        return BEING_PUT_BACK;
    return line.parent && strcmp(line.parent, release->checkpoint) != 0 ? STANDS_ELSEWHERE
                                                                        : STANDS_ON_IT;
}

/* Its row goes in a moment, or it is put back; or it stays, as the job that makes it was stopped in
 * the middle and goes on, or the one that puts it back has failed: then the hold is needed. A
 * putting back that has begun is waited for. 0: it is free, 1: not. */
static int wait_until_free(struct job *job, const struct release *release, struct err *err)
{
    for (int looks = 0; looks < GONE_LOOKS;) {
        int standing = look_where_it_stands(job_node(job), release, err);
        if (standing <= 0)
            return standing;
        looks += standing == STANDS_ON_IT;
        int rc = job_stop(job, err);
        if (rc < 0)
            return rc;
        (void)nanosleep(&(struct timespec){.tv_nsec = GONE_LOOK_NS}, NULL);
    }
    return 1;
}

/* What is gone already, checkpoint or tag, needs no letting go. */
static int run_release(struct job *job, json_t **ret_result, struct err *err)
{
    struct release release = {0};
    struct err why = ERR_INIT;
    struct job_asker asker = {.job = job};
    int rc = read_release(job, &release, err);
    if (rc < 0)
        return rc;
    rc = wait_until_free(job, &release, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = job_settle(job, "release", err);
    if (rc < 0)
        return rc;
    rc = take_hold(&asker, &release, &why);
    if (rc < 0 && why.code != ERR_NOT_FOUND)
        return job_asker_end(&asker, err_pass(err, rc, &why), err);
    *ret_result = json_pack("{s:s}", "volume", release.volume);
    return 0;
}

const struct job_kind workspace_release_job = {
    .name = "workspace.release", .run = run_release, .remote = true};

/* Before jobs run, or when none is begun any more: the next start of the jobs does it. */
static int record_release(struct node *node, char *object, const json_t *params, struct err *err)
{
    struct id made;
    cleanup_free char *existing = NULL;
    cleanup_free char *text = json_doc_dump(params);
    int rc = text ? id_new("j", &made, err) : err_errno(err, ENOMEM, "cannot record a job");
    if (rc < 0)
        return rc;
    const struct catalog_job job = {.id = made.s,
                                    .kind = (char *)workspace_release_job.name,
                                    .object = object,
                                    .key = object,
                                    .params = text};
    return catalog_job_add(node->catalog, &job, &existing, err);
}

/* `object` and `key` may be NULL: it excludes no other one, and is another job each time. */
static int submit_release(struct node *node, const char *object, const char *key,
                          const json_t *params, struct err *err)
{
    cleanup_free char *id = NULL;
    const struct job_request request = {
        .kind = workspace_release_job.name, .object = object, .key = key, .params = params};
    /* The thread may be one that settles workspaces, while the jobs begin or end. */
    pthread_mutex_lock(&node->engine_lock);
    int rc = node->engine ? engine_submit(node->engine, &request, &id, err)
                          : err_fail(err, ERR_INTERRUPTED, "no job is begun now");
    pthread_mutex_unlock(&node->engine_lock);
    return rc;
}

/* 1 with the parameters of a job that lets go of what the volume stands on; 0: it stands on none.
 */
static int release_of(const char *volume, const struct catalog_line *line, json_t **ret,
                      struct err *err)
{
    if (!line->parent || catalog_line_is_open(line))
        return 0;
    json_t *params = json_pack("{s:s, s:s, s:s}", "volume", volume, "lineage", line->lineage,
                               "checkpoint", line->parent);
    if (!params)
        return err_errno(err, ENOMEM, "cannot let go of the checkpoint");
    *ret = params;
    return 1;
}

static void tell_held(const char *volume, int rc, const struct err *why)
{
    if (rc < 0 && why->code != ERR_NOT_FOUND)
        log_event(LOG_WARN, "checkpoint-still-held", "volume", volume, "error", why->text, NULL);
}

void workspace_fork_release(struct node *node, const char *volume)
{
    char object[WORKSPACE_OBJECT_MAX];
    struct err why = ERR_INIT;
    struct err ignored = ERR_INIT;
    cleanup_json json_t *params = NULL;
    cleanup_catalog_line struct catalog_line line = {0};
    (void)snprintf(object, sizeof object, "volume:%s", volume);
    int rc = catalog_line_get(node->catalog, volume, &line, &why);
    if (rc == 0)
        rc = release_of(volume, &line, &params, &why);
    if (rc == 1 && submit_release(node, object, object, params, &ignored) < 0)
        rc = record_release(node, object, params, &why);
    tell_held(volume, rc, &why);
}

/* Whether what the volume stands on is its own, which no hold keeps: 1, 0, or -errno. */
static int is_own(struct node *node, const char *volume, const char *checkpoint, struct err *err)
{
    cleanup_catalog_checkpoint struct catalog_checkpoint row = {0};
    struct err why = ERR_INIT;
    int rc = err_found(err, catalog_checkpoint_get(node->catalog, checkpoint, &row, &why), &why);
    return rc <= 0 ? rc : strcmp(row.volume, volume) == 0;
}

/* Without an object, as the volume may go before that job has ended, and an earlier attempt may
 * have left one that is about to give up. */
void workspace_fork_let_go(struct node *node, const char *volume)
{
    struct err why = ERR_INIT;
    cleanup_json json_t *params = NULL;
    cleanup_catalog_line struct catalog_line line = {0};
    int rc = catalog_line_get(node->catalog, volume, &line, &why);
    if (rc == 0)
        rc = release_of(volume, &line, &params, &why);
    int own = rc == 1 ? is_own(node, volume, line.parent, &why) : 0;
    if (rc == 1 && own == 0)
        rc = submit_release(node, NULL, NULL, params, &why);
    tell_held(volume, own < 0 ? own : rc, &why);
}
