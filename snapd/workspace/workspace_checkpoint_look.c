/* What there is of a volume before it is cut: in the catalog, and in the remote. */
#include "workspace_checkpoint_work.h"

#include "workspace_token.h"
#include "workspace_view.h"

#include <string.h>

static int check_state(const struct catalog_workspace *row, struct err *err)
{
    int rc = workspace_check_whole(row, err);
    if (rc == 0)
        rc = workspace_view_check_checkpoint(row->name, err);
    if (rc < 0)
        return rc;
    if (row->volume.state != CATALOG_VOLUME_FENCED && row->volume.state != CATALOG_VOLUME_DETACHING)
        return 0;
    rc = err_fail(err, ERR_CONFLICT, "workspace %s is %s", row->name,
                  catalog_volume_state_name(row->volume.state));
    err_hint(err, "unmount it first; an unmounted workspace can be checkpointed");
    return rc;
}

int checkpoint_work_read_row(struct checkpoint_work *work, struct err *err)
{
    struct catalog_workspace row = {0};
    int rc = catalog_workspace_get(work->node->catalog, work->name, &row, err);
    if (rc < 0)
        return rc;
    catalog_workspace_free(&work->row);
    work->row = row;
    return check_state(&work->row, err);
}

/* Whether this node has made or recorded a checkpoint: 1, 0, or -errno. */
static int is_known(struct checkpoint_work *work, const struct digest *digest, struct err *err)
{
    struct err why = ERR_INIT;
    struct digest_text text = digest_format(digest);
    cleanup_catalog_checkpoint struct catalog_checkpoint known = {0};
    int rc = catalog_checkpoint_get(work->node->catalog, text.s, &known, &why);
    return err_found(err, rc, &why);
}

/* Whether this node has recorded a checkpoint under a tag: 1, 0, or -errno. */
static int is_recorded(struct checkpoint_work *work, const struct checkpoint_tag *tag,
                       struct err *err)
{
    char text[CHECKPOINT_TAG_MAX];
    struct catalog_checkpoint *list = NULL;
    size_t count = 0;
    bool found = false;
    checkpoint_tag_format(tag, text);
    int rc = catalog_checkpoint_list(work->node->catalog, tag->volume, &list, &count, err);
    for (size_t i = 0; i < count; i++) {
        found = found || (list[i].tag && strcmp(list[i].tag, text) == 0);
        catalog_checkpoint_free(&list[i]);
    }
    free(list);
    return rc < 0 ? rc : found;
}

/* Whether this node has made what stood under a tag that names nothing any more. */
static int is_own(struct checkpoint_work *work, const struct checkpoint_tag *tag, struct err *err)
{
    char own[CHECKPOINT_TAG_MAX];
    checkpoint_tag_node(work->node->id, own);
    if (strcmp(own, tag->node) != 0)
        return 0;
    /* Of a live one the next takes its place. */
    return tag->kind == CHECKPOINT_TAG_LIVE ? 1 : is_recorded(work, tag, err);
}

/* A tag that comes after the head and names nothing that can be read: somebody has gone on with the
 * volume, and nobody can see how. Which is not known is not the same as not there (I8). */
static int is_hidden(struct checkpoint_work *work, const struct checkpoint_heads *heads,
                     const struct checkpoint_tag *tag, struct err *err)
{
    if (tag->kind == CHECKPOINT_TAG_DIVERGED)
        return 0;
    if (tag->kind == CHECKPOINT_TAG_KEPT && heads->has_head &&
        tag->generation <= heads->head.generation)
        return 0;
    int rc = is_own(work, tag, err);
    return rc < 0 ? rc : !rc;
}

static void tell_lost(const struct checkpoint_work *work, const struct checkpoint_tag *tag)
{
    char text[CHECKPOINT_TAG_MAX];
    checkpoint_tag_format(tag, text);
    workspace_event(work->node, "checkpoint-unreadable", work->name, text);
}

/* Each head that this node has neither made nor recorded is somebody else's, and stays so, whatever
 * this node makes after it, until it goes on from there. */
int checkpoint_work_compare(struct checkpoint_work *work, const struct checkpoint_heads *heads,
                            bool *ret_gone_on, struct err *err)
{
    int rc = workspace_token_compare(work->name, heads, work->line.token, err);
    if (rc < 0)
        return rc;
    int known = heads->has_head ? is_known(work, &heads->head.digest, err) : 1;
    int hidden = 0;
    for (size_t i = 0; i < heads->lost_count && known >= 0 && hidden == 0; i++)
        hidden = is_hidden(work, heads, &heads->lost[i], err);
    if (known < 0 || hidden < 0)
        return known < 0 ? known : hidden;
    *ret_gone_on = !known || hidden;
    return 0;
}

/* One that this node has stored and not recorded, as it was killed in between, or nobody told it
 * that it was stored. It is what the next one may build on, also when it diverged or somebody else
 * has gone on since: what changed since its parent is still marked as changed. */
static int record_own(struct checkpoint_work *work, struct err *err)
{
    const struct checkpoint_head *own = &work->heads.own;
    char tag[CHECKPOINT_TAG_MAX];
    struct digest_text digest = digest_format(&own->digest);
    struct digest_text parent = digest_format(&own->parent);
    checkpoint_tag_format(&own->tag, tag);
    const struct catalog_checkpoint row = {.digest = digest.s,
                                           .volume = work->row.volume.id,
                                           .lineage = work->line.lineage,
                                           .generation = (int64_t)own->generation,
                                           .node = (char *)work->node->id,
                                           .token = (int64_t)own->token,
                                           .parent = own->has_parent ? parent.s : NULL,
                                           .diverged = own->tag.kind == CHECKPOINT_TAG_DIVERGED,
                                           .reason = CATALOG_CHECKPOINT_MANUAL,
                                           .tag = tag,
                                           .durability = CATALOG_PUSHED,
                                           .remote = work->node->remote->url};
    int rc = catalog_checkpoint_add(work->node->catalog, &row, &work->line, err);
    if (rc < 0)
        return rc;
    catalog_line_free(&work->line);
    return catalog_line_get(work->node->catalog, work->row.volume.id, &work->line, err);
}

/* Before the cut, as there is no generation after the last one. */
static int check_generation(const struct checkpoint_heads *heads, struct err *err)
{
    char tag[CHECKPOINT_TAG_MAX];
    if (heads->generation < INT64_MAX)
        return 0;
    checkpoint_tag_format(&heads->newest, tag);
    int rc = err_fail(err, ERR_DAMAGED, "the tag %s has the last generation that there is", tag);
    err_hint(err, "no varve has come so far: remove that tag in the remote");
    return rc;
}

static int look_at_head(struct checkpoint_work *work, struct err *err)
{
    struct checkpoint_heads *heads = &work->heads;
    checkpoint_head_free(heads);
    int rc = workspace_line_heads(work->node, work->line.lineage, work->row.volume.id,
                                  work->line.storing, checkpoint_work_ask, work, heads, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < heads->lost_count; i++)
        tell_lost(work, &heads->lost[i]);
    rc = check_generation(heads, err);
    if (rc == 0 && heads->has_own)
        rc = record_own(work, err);
    return rc < 0 ? rc : checkpoint_work_compare(work, heads, &work->diverged, err);
}

static int look_at_remote(struct checkpoint_work *work, struct err *err)
{
    free(work->repository);
    checkpoint_free(steal_ptr(work->parent));
    work->repository = workspace_line_repository(work->node, work->line.lineage);
    if (!work->repository)
        return err_errno(err, ENOMEM, "cannot look at the remote");
    int rc = look_at_head(work, err);
    if (rc == 0)
        rc = checkpoint_work_open_parent(work, err);
    return rc;
}

static int read_line(struct checkpoint_work *work, struct err *err)
{
    struct catalog_line line = {0};
    int rc = catalog_line_get(work->node->catalog, work->row.volume.id, &line, err);
    if (rc < 0)
        return rc;
    catalog_line_free(&work->line);
    work->line = line;
    return 0;
}

static bool is_same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* What was looked at may be another one's work by now, as a rollback's. */
int checkpoint_work_is_current(struct checkpoint_work *work, struct err *err)
{
    cleanup_catalog_line struct catalog_line line = {0};
    int rc = checkpoint_work_read_row(work, err);
    if (rc == 0)
        rc = catalog_line_get(work->node->catalog, work->row.volume.id, &line, err);
    if (rc < 0)
        return rc;
    return is_same(line.head, work->line.head) && is_same(line.parent, work->line.parent) &&
           line.generation == work->line.generation && line.token == work->line.token;
}

int checkpoint_work_look(struct checkpoint_work *work, struct err *err)
{
    int rc = checkpoint_work_read_row(work, err);
    if (rc == 0)
        rc = read_line(work, err);
    return rc == 0 ? look_at_remote(work, err) : rc;
}
