/* The cut, and from there into the remote and the catalog. */
#include "workspace_checkpoint_work.h"

#include "fault.h"
#include "workspace_fetch.h"
#include "workspace_token.h"

#include <string.h>
#include <sys/random.h>

enum {
    EXT4_UUID_AT = 1024 + 0x68, /* s_uuid, in the first block of the volume */
};

static int make_token(uint64_t *ret, struct err *err)
{
    do {
        if (getrandom(ret, sizeof *ret, 0) != sizeof *ret)
            return err_errno(err, errno, "cannot get random bytes");
    } while (*ret == 0);
    return 0;
}

static int attach(struct checkpoint_work *work, struct err *err)
{
    const char *id = work->row.volume.id;
    struct volume_status status = {0};
    int rc = volumes_status(work->node->volumes, id, &status, err);
    if (rc < 0)
        return workspace_must_be_there(work->node, id, rc, err);
    rc = workspace_line_check(&work->line, &status.base, err);
    if (rc < 0)
        return err_wrap(err, rc, "workspace %s", work->name);
    if (status.attached)
        return 0;
    rc = volumes_attach(work->node->volumes, id, err);
    work->attached = rc == 0;
    return rc;
}

/* What is not mounted stands still by itself. */
static int cut(struct checkpoint_work *work, uint64_t token, uint32_t uses, struct err *err)
{
    struct volumes *volumes = work->node->volumes;
    const struct catalog_workspace *row = &work->row;
    const struct workspace_stillness *how = &work->stillness;
    const char *path = work->claimed || !row->wanted || how->consistency == WORKSPACE_NONE
                           ? NULL
                           : row->mount.path;
    return path && how->consistency == WORKSPACE_FREEZE
               ? volumes_epoch_cut_frozen(volumes, row->volume.id, token, uses, path,
                                          how->freeze_budget_ms, &work->epoch, err)
               : volumes_epoch_cut(volumes, row->volume.id, token, uses, path, &work->epoch, err);
}

/* A checkpoint of its own needs all of the volume, for which an epoch of the other kind is kept. */
int checkpoint_work_cut(struct checkpoint_work *work, struct err *err)
{
    const struct catalog_workspace *row = &work->row;
    bool whole = !work->parent;
    uint64_t token;
    int rc = attach(work, err);
    if (rc == 0)
        rc = checkpoint_work_check_here(work, err);
    if (rc == 0)
        rc = FAULT_POINT("checkpoint.attached", err);
    /* What the parent has of chunks that nobody changed is believed of the very one alone. */
    if (rc == 0)
        rc = volumes_build_on(work->node->volumes, row->volume.id,
                              work->parent ? checkpoint_digest(work->parent) : NULL, err);
    if (rc >= 0)
        rc = make_token(&token, err);
    if (rc == 0)
        rc = cut(work, token, LIVE_USE_CHECKPOINT | (whole ? LIVE_USE_VIEW : 0), err);
    return rc == 0 ? FAULT_POINT("checkpoint.cut", err) : rc;
}

/* --- storing --- */

static void fill_config(struct checkpoint_work *work)
{
    struct checkpoint_config *config = &work->config;
    const char *node = work->node->id;
    checkpoint_config_free(config);
    *config = (struct checkpoint_config){.generation = (uint64_t)work->line.generation + 1,
                                         .token = (uint64_t)work->line.token,
                                         .created_ns = clock_wall_ns(&work->node->clock)};
    if (work->heads.generation >= config->generation)
        config->generation = work->heads.generation + 1;
    (void)snprintf(config->volume, sizeof config->volume, "%s", work->row.volume.id);
    (void)snprintf(config->lineage, sizeof config->lineage, "%s", work->line.lineage);
    (void)snprintf(config->node, sizeof config->node, "%s", node);
}

static void make_tag(struct checkpoint_work *work)
{
    struct checkpoint_tag tag = {.kind =
                                     work->diverged ? CHECKPOINT_TAG_DIVERGED : CHECKPOINT_TAG_KEPT,
                                 .generation = work->config.generation};
    memcpy(tag.volume, work->config.volume, sizeof tag.volume);
    checkpoint_tag_node(work->node->id, tag.node);
    checkpoint_tag_format(&tag, work->tag);
}

/* An attempt before this one, of which nobody heard, comes through at this moment. */
static int check_late(const struct checkpoint_heads *heads, struct err *err)
{
    return heads->has_own ? err_fail(err, ERR_CONFLICT,
                                     "an earlier attempt, which seemed to have failed, was stored "
                                     "meanwhile; the next one goes on from there")
                          : 0;
}

/* checkpoint_write.choose: whether the head still is what it was when this began (I8); storing may
 * have taken long. From here on the index may be in the remote, whatever is heard of it (I2). */
static int choose(void *arg, const struct digest *index, const char **ret_tag, struct err *err)
{
    struct checkpoint_work *work = arg;
    const char *volume = work->row.volume.id;
    const struct digest_text digest = digest_format(index);
    bool gone_on = false;
    cleanup_checkpoint_heads struct checkpoint_heads now = {.lost = NULL};
    int rc = workspace_line_heads(work->node, work->line.lineage, volume, work->line.storing,
                                  checkpoint_work_ask, work, &now, err);
    if (rc == 0)
        rc = check_late(&now, err);
    if (rc == 0)
        rc = checkpoint_work_compare(work, &now, &gone_on, err);
    if (rc == 0)
        rc = catalog_line_set_storing(work->node->catalog, volume, digest.s, err);
    if (rc < 0)
        return rc;
    work->diverged = work->diverged || gone_on;
    make_tag(work);
    *ret_tag = work->tag;
    return FAULT_POINT("checkpoint.chosen", err);
}

/* Of checkpoint_write: after the last read it is known whether all that was read is of the epoch.
 */
static int progress(void *arg, uint64_t chunks, uint64_t bytes, struct err *err)
{
    struct checkpoint_work *work = arg;
    (void)chunks;
    int rc = job_progress(work->job, bytes, 0, "bytes", err);
    return rc < 0 ? rc
                  : volumes_epoch_is_whole(work->node->volumes, work->row.volume.id, &work->epoch,
                                           err);
}

static bool is_listed(const struct checkpoint_config *config, uint32_t chunk)
{
    for (size_t i = 0; i < config->touched_count; i++)
        if (config->touched[i] == chunk)
            return true;
    return false;
}

/* What is to be brought first at the next attach: what was, and what reads have waited for since,
 * as what was brought in time is not waited for. */
static int fill_touched(struct checkpoint_work *work, struct err *err)
{
    struct checkpoint_config *config = &work->config;
    const struct checkpoint_config *old = work->parent ? checkpoint_config_of(work->parent) : NULL;
    cleanup_free uint32_t *fresh = calloc(CHECKPOINT_TOUCH_MAX, sizeof *fresh);
    config->touched = calloc(CHECKPOINT_TOUCH_MAX, sizeof *config->touched);
    if (!fresh || !config->touched)
        return err_errno(err, ENOMEM, "cannot describe the checkpoint");
    size_t count =
        workspace_fetch_touched(work->node, work->row.volume.id, fresh, CHECKPOINT_TOUCH_MAX);
    if (old && old->touched_count > 0) {
        memcpy(config->touched, old->touched, old->touched_count * sizeof *old->touched);
        config->touched_count = old->touched_count;
    }
    for (size_t i = 0; i < count && config->touched_count < CHECKPOINT_TOUCH_MAX; i++)
        if (!is_listed(config, fresh[i]))
            config->touched[config->touched_count++] = fresh[i];
    return 0;
}

/* What the superblock says, which a fork has taken over of its source until it was mounted. */
static int read_uuid(struct checkpoint_work *work, struct err *err)
{
    struct epoch_chunk what;
    uint8_t *uuid = work->config.uuid;
    cleanup_free uint8_t *buffer = aligned_alloc(VOLUME_BLOCK, VOLUME_CHUNK);
    if (!buffer)
        return err_errno(err, ENOMEM, "cannot read the superblock");
    int rc = epoch_reader_read(&work->epoch.reader, 0, buffer, &what, err);
    if (rc < 0)
        return rc;
    if (what.state == VOLUME_ABSENT && !(what.mask & 1)) {
        if (work->parent)
            memcpy(uuid, checkpoint_config_of(work->parent)->uuid, VOLUME_UUID_LEN);
        return 0;
    }
    memcpy(uuid, buffer + EXT4_UUID_AT, VOLUME_UUID_LEN);
    return 0;
}

/* Whether the remote needs a checkpoint also when no chunk has changed: the one before is lost, or
 * shows nobody the volume's token. */
static bool is_news(const struct checkpoint_work *work)
{
    return work->lost_count > 0 ||
           (work->parent && workspace_token_is_new(checkpoint_config_of(work->parent),
                                                   work->row.volume.id, work->line.token));
}

int checkpoint_work_store(struct checkpoint_work *work, struct err *err)
{
    struct workspace_checkpoint_source chunks = {.epoch = &work->epoch, .whole = !work->parent};
    const struct checkpoint_source source = workspace_checkpoint_source(&chunks);
    checkpoint_written_free(&work->written);
    fill_config(work);
    /* What is absent after a power cut is taken from the head then. */
    int rc = work->line.parent
                 ? volumes_epoch_flush(work->node->volumes, work->row.volume.id, &work->epoch, err)
                 : 0;
    if (rc == 0)
        rc = read_uuid(work, err);
    if (rc == 0)
        rc = fill_touched(work, err);
    if (rc < 0)
        return rc;
    const struct checkpoint_write write = {.remote = work->node->remote,
                                           .repository = work->repository,
                                           .choose = choose,
                                           .choose_arg = work,
                                           .parent = work->parent,
                                           .after = work->has_before ? &work->before : NULL,
                                           .fresh = work->lost_count > 0,
                                           .always = is_news(work),
                                           .ret_parent_lost = &work->parent_failed,
                                           .temp_fd = work->node->temp_fd,
                                           .key = work->node->trust_key,
                                           .config = work->config,
                                           .stop = checkpoint_work_ask,
                                           .stop_arg = work,
                                           .progress = progress,
                                           .progress_arg = work};
    rc = checkpoint_write(&write, &source, &work->written, err);
    return rc == 0 ? FAULT_POINT("checkpoint.stored", err) : rc;
}

int checkpoint_work_record(struct checkpoint_work *work, struct err *err)
{
    struct node *node = work->node;
    struct digest_text digest = digest_format(&work->written.digest);
    const struct catalog_checkpoint row = {
        .digest = digest.s,
        .volume = work->row.volume.id,
        .lineage = work->line.lineage,
        .generation = (int64_t)work->config.generation,
        .node = (char *)node->id,
        .token = work->line.token,
        .parent = (char *)workspace_line_base(&work->line),
        .diverged = work->diverged,
        .reason = work->reason,
        .tag = work->tag,
        .durability = CATALOG_PUSHED,
        .remote = node->remote->url,
        .bytes_new = (int64_t)work->written.bytes_new,
        .bytes_total = (int64_t)work->written.bytes_total,
    };
    if (work->written.unchanged)
        return 0;
    int rc = catalog_begin(node->catalog, err);
    if (rc < 0)
        return rc;
    if (!work->claimed) /* else it is a step of something larger, which settles by itself */
        rc = job_settle(work->job, "record", err);
    if (rc == 0)
        rc = catalog_checkpoint_add(node->catalog, &row, &work->line, err);
    if (rc == 0)
        workspace_event(node, work->diverged ? "checkpoint-diverged" : "checkpoint-stored",
                        work->name, digest.s);
    rc = catalog_end(node->catalog, rc, err);
    return rc == 0 ? FAULT_POINT("checkpoint.recorded", err) : rc;
}
