#include "workspace_checkpoint.h"

#include "log.h"
#include "workspace_checkpoint_work.h"

#include <string.h>

enum {
    MS_NS = 1000000,
    LOOKS_MAX = 8,
};

int checkpoint_work_ask(void *arg, uint64_t done, uint64_t total)
{
    struct checkpoint_work *work = arg;
    struct err ignored = ERR_INIT;
    (void)done, (void)total;
    if (job_stop(work->job, &ignored) == 0 &&
        !(work->claimed && workspace_claim_is_awaited(work->node->workspaces, work->name)))
        return 0;
    atomic_store(&work->stopped, true);
    return -1;
}

static int read_request(struct checkpoint_work *work, struct err *err)
{
    int rc = workspace_job_name(work->job, &work->name, err);
    return rc < 0 ? rc : workspace_consistency_read(job_params(work->job), &work->stillness, err);
}

static int read_durability(struct checkpoint_work *work, struct err *err)
{
    const char *word = "pushed";
    int rc = json_doc_opt_str(job_params(work->job), "durability", "the request for a checkpoint",
                              &word, err);
    if (rc < 0)
        return rc;
    work->wanted = strcmp(word, "verified") == 0 ? CATALOG_VERIFIED : CATALOG_PUSHED;
    if (work->wanted == CATALOG_VERIFIED || strcmp(word, "pushed") == 0)
        return 0;
    return err_fail(err, ERR_INVALID,
                    "the durability of a checkpoint is pushed or verified, not '%s'", word);
}

static void tell_not_detached(const struct checkpoint_work *work, const struct err *why)
{
    log_event(LOG_WARN, "workspace-not-detached", "workspace", work->name, "error", why->text,
              NULL);
}

static int detach_volume(struct checkpoint_work *work, struct err *err)
{
    return workspace_detach(work->node, work->row.volume.id, WORKSPACE_DETACH_MS, err);
}

/* Unless somebody has begun to use it, who found it attached. */
static void detach_unused(struct checkpoint_work *work)
{
    struct node *node = work->node;
    struct err why = ERR_INIT;
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    cleanup_workspace_claim struct workspace_claim claim = {0};
    int rc = workspace_claim_try(node->workspaces, work->name, &why);
    if (rc == 0)
        rc = workspace_claim_wait(node->workspaces, work->name, job_stop_undo, work->job, &why);
    if (rc >= 0)
        claim = (struct workspace_claim){.workspaces = node->workspaces, .name = work->name};
    if (rc >= 0)
        rc = catalog_workspace_get(node->catalog, work->name, &row, &why);
    if (rc == 0 && !row.wanted && row.volume.state == CATALOG_VOLUME_DETACHED)
        rc = detach_volume(work, &why);
    if (rc < 0 && why.code != ERR_NOT_FOUND)
        tell_not_detached(work, &why);
}

static void detach(struct checkpoint_work *work)
{
    struct err why = ERR_INIT;
    if (!work->claimed)
        detach_unused(work);
    else if (detach_volume(work, &why) < 0)
        tell_not_detached(work, &why);
}

/* NULL: nothing was frozen, as it was not asked for, or nobody could write. */
static const char *frozen_by(const struct volumes_epoch *epoch)
{
    return !epoch->frozen || epoch->freeze.unwritable ? NULL
           : epoch->freeze.others                     ? "other"
                                                      : "varve";
}

static json_t *result_of(const struct checkpoint_work *work)
{
    const struct checkpoint_written *written = &work->written;
    struct digest_text digest = digest_format(&written->digest);
    cleanup_free char *reference =
        workspace_line_reference(work->node, work->line.lineage, &written->digest);
    const struct checkpoint_config *config =
        written->unchanged ? checkpoint_config_of(work->parent) : &work->config;
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:s?, s:b, s:b, s:b, s:s, s:I, s:s?, s:s, s:s?, s:I, s:I,"
        " s:{s:I, s:I, s:I}, s:{s:I, s:f, s:f, s:f, s:I}}",
        "name", work->name, "id", work->row.volume.id, "checkpoint", digest.s, "reference",
        reference ? reference : "", "generation", (json_int_t)config->generation, "parent",
        written->unchanged ? NULL : workspace_line_base(&work->line), "unchanged",
        written->unchanged, "diverged", work->diverged, "parent_lost", work->lost_count > 0,
        "durability", catalog_durability_name(work->reached), "token", (json_int_t)config->token,
        "tag", written->unchanged ? NULL : work->tag, "consistency",
        workspace_consistency_name(work->stillness.consistency), "frozen_by",
        frozen_by(&work->epoch), "bytes_new", (json_int_t)written->bytes_new, "bytes_total",
        (json_int_t)written->bytes_total, "chunks", "read", (json_int_t)written->chunks_read,
        "stored", (json_int_t)written->chunks_new, "all", (json_int_t)written->chunks, "ms", "sync",
        (json_int_t)(work->epoch.synced_ns / MS_NS), "freeze",
        (double)work->epoch.freeze.took_ns / MS_NS, "frozen",
        (double)work->epoch.freeze.frozen_ns / MS_NS, "cut", (double)work->epoch.cut_ns / MS_NS,
        "store", (json_int_t)((clock_now_ns() - work->begun_ns) / MS_NS));
}

/* Its times stay. */
static void end_epoch(struct checkpoint_work *work)
{
    if (work->row.volume.id)
        volumes_epoch_end(work->node->volumes, work->row.volume.id, &work->epoch);
    work->epoch.number = 0;
}

static void free_work(struct checkpoint_work *work)
{
    end_epoch(work);
    if (work->attached)
        detach(work);
    checkpoint_free(work->parent);
    checkpoint_head_free(&work->heads);
    checkpoint_written_free(&work->written);
    checkpoint_config_free(&work->config);
    free(work->repository);
    catalog_line_free(&work->line);
    catalog_workspace_free(&work->row);
}
#define cleanup_work cleanup_with(free_work)

/* The attach and the sync before it may wait, and whoever cancels the job ends that. */
static int cut(struct checkpoint_work *work, struct err *err)
{
    cleanup_workspace_waits struct workspace_waits waits;
    workspace_waits_begin(&waits, work->job, NULL);
    return checkpoint_work_cut(work, err);
}

/* 1: cut. 0: to be done again, as somebody else has changed what was looked at. */
static int try_epoch(struct checkpoint_work *work, struct err *err)
{
    cleanup_workspace_claim struct workspace_claim claim = {0};
    int rc = checkpoint_work_look(work, err);
    if (rc == 0)
        rc = workspace_job_claim(work->job, work->name, &claim, err);
    if (rc == 0)
        rc = checkpoint_work_is_current(work, err);
    if (rc <= 0)
        return rc;
    rc = job_mark(work->job, "cut", err);
    if (rc == 0)
        rc = cut(work, err);
    return rc < 0 ? rc : 1;
}

/* With the claim: nobody attaches, mounts or detaches meanwhile. */
static int take_epoch(struct checkpoint_work *work, struct err *err)
{
    int rc = job_mark(work->job, "look", err);
    for (int i = 0; i < LOOKS_MAX && rc == 0; i++)
        rc = try_epoch(work, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = err_fail(err, ERR_CONFLICT, "others change workspace %s all the time", work->name);
    err_hint(err, "try again later");
    return rc;
}

static int keep(struct checkpoint_work *work, struct err *err)
{
    work->begun_ns = clock_now_ns();
    int rc = job_mark(work->job, "store", err);
    if (rc == 0)
        rc = checkpoint_work_store(work, err);
    if (rc == 0)
        rc = checkpoint_work_record(work, err);
    if (rc == 0)
        volumes_built(work->node->volumes, work->row.volume.id, work->epoch.life,
                      &work->written.digest);
    if (rc == 0)
        volumes_epoch_clean(work->node->volumes, work->row.volume.id, &work->epoch);
    return rc;
}

/* What is in the catalog by now is told whatever becomes of the rest. */
static int finish(struct checkpoint_work *work, struct err *err)
{
    end_epoch(work);
    return checkpoint_work_verify(work, err);
}

/* Of what had been read of an epoch some may be gone, so without the parent it is another cut. */
static int keep_epoch(struct checkpoint_work *work,
                      int (*cut_again)(struct checkpoint_work *work, struct err *err),
                      struct err *err)
{
    for (;;) {
        struct err why = ERR_INIT;
        int rc = keep(work, &why);
        if (rc == 0)
            return finish(work, err);
        if (!checkpoint_work_lost_parent(work, &why))
            return err_pass(err, rc, &why);
        end_epoch(work);
        rc = cut_again(work, err);
        if (rc < 0)
            return rc;
    }
}

/* What is told to end says so in words of its own. */
static int why_stopped(const struct checkpoint_work *work, int rc, struct err *err)
{
    if (rc >= 0 || !atomic_load(&work->stopped))
        return rc;
    struct err why = ERR_INIT;
    int stopped = job_stop(work->job, &why);
    if (stopped == 0) /* somebody gives the workspace up, which the caller tells */
        return rc;
    err_clear(err);
    return err_pass(err, stopped, &why);
}

/* For who has the claim. */
static int look_and_cut(struct checkpoint_work *work, struct err *err)
{
    int rc = checkpoint_work_look(work, err);
    return rc == 0 ? cut(work, err) : rc;
}

int workspace_checkpoint_take(struct job *job, const char *name,
                              enum catalog_checkpoint_reason reason, struct digest *ret,
                              struct err *err)
{
    cleanup_work struct checkpoint_work work = {.job = job,
                                                .node = job_node(job),
                                                .name = name,
                                                .claimed = true,
                                                .reason = reason,
                                                .epoch = {.dir_fd = -1, .live_fd = -1}};
    int rc = look_and_cut(&work, err);
    if (rc == 0)
        rc = keep_epoch(&work, look_and_cut, err);
    if (rc < 0)
        return err_wrap(err, why_stopped(&work, rc, err), "cannot checkpoint workspace %s", name);
    *ret = work.written.digest;
    return 0;
}

static int run(struct job *job, json_t **ret_result, struct err *err)
{
    cleanup_work struct checkpoint_work work = {
        .job = job, .node = job_node(job), .epoch = {.dir_fd = -1, .live_fd = -1}};
    int rc = read_request(&work, err);
    if (rc == 0)
        rc = read_durability(&work, err);
    if (rc < 0)
        return rc;
    rc = take_epoch(&work, err);
    if (rc == 0)
        rc = keep_epoch(&work, take_epoch, err);
    if (rc < 0)
        return err_wrap(err, why_stopped(&work, rc, err), "cannot checkpoint workspace %s",
                        work.name);
    *ret_result = result_of(&work);
    return *ret_result ? 0 : err_errno(err, ENOMEM, "cannot describe the checkpoint");
}

const struct job_kind workspace_checkpoint_job = {
    .name = "workspace.checkpoint", .run = run, .remote = true};

json_t *workspace_checkpoint_json(const struct node *node,
                                  const struct catalog_checkpoint *checkpoint, bool is_head)
{
    struct digest digest;
    struct clock_text created = clock_format(checkpoint->created_ns);
    cleanup_free char *reference =
        digest_parse(checkpoint->digest, &digest, NULL) == 0
            ? workspace_line_reference(node, checkpoint->lineage, &digest)
            : NULL;
    struct clock_text verified = clock_format(checkpoint->verified_ns);
    return json_pack(
        "{s:s, s:s?, s:I, s:s, s:I, s:s?, s:b, s:b, s:s, s:s?, s:s, s:s?, s:I, s:I, s:s}",
        "checkpoint", checkpoint->digest, "reference", reference, "generation",
        (json_int_t)checkpoint->generation, "node", checkpoint->node, "token",
        (json_int_t)checkpoint->token, "parent", checkpoint->parent, "diverged",
        checkpoint->diverged, "head", is_head, "reason",
        catalog_checkpoint_reason_name(checkpoint->reason), "tag", checkpoint->tag, "durability",
        catalog_durability_name(checkpoint->durability), "verified",
        checkpoint->verified_ns ? verified.s : NULL, "bytes_new", (json_int_t)checkpoint->bytes_new,
        "bytes_total", (json_int_t)checkpoint->bytes_total, "created", created.s);
}
