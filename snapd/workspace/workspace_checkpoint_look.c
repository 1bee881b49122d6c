/* What there is of a volume before it is cut: in the catalog, and in the remote. */
#include "workspace_checkpoint_work.h"

#include "log.h"

#include <string.h>

static int check_state(const struct catalog_workspace *row, struct err *err)
{
    int rc = workspace_check_whole(row, err);
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

/* 1 with the parent, 0: there is none. */
static int open_parent(struct checkpoint_work *work, struct err *err)
{
    const char *base = workspace_line_base(&work->line);
    struct err why = ERR_INIT;
    if (!base)
        return 0;
    int rc = workspace_line_open(work->node, work->line.lineage, base, checkpoint_work_ask, work,
                                 &work->parent, &why);
    if (rc == 0)
        return 1;
    if (why.code != ERR_NOT_FOUND)
        return err_pass(err, rc, &why);
    log_event(LOG_WARN, "checkpoint-lost", "workspace", work->name, "checkpoint", base, "error",
              why.text, NULL);
    return 0;
}

/* Whether the catalog knows the remote's head: 1, 0, or -errno. */
static int is_known(struct checkpoint_work *work, struct err *err)
{
    struct err why = ERR_INIT;
    struct digest_text digest = digest_format(&work->head.digest);
    cleanup_catalog_checkpoint struct catalog_checkpoint known = {0};
    int rc = catalog_checkpoint_get(work->node->catalog, digest.s, &known, &why);
    return err_found(err, rc, &why);
}

/* Whether a head that the catalog does not know is one that this node has stored and not recorded,
 * as it was killed in between: nobody else makes one with this parent under this node's tag, and
 * it comes after all that are recorded. */
static bool is_unrecorded(const struct checkpoint_work *work)
{
    char own[CHECKPOINT_TAG_MAX];
    struct digest known;
    checkpoint_tag_node(work->node->id, own);
    if (strcmp(work->head.tag.node, own) != 0 ||
        work->head.generation <= (uint64_t)work->line.generation)
        return false;
    const char *base = workspace_line_base(&work->line);
    if (!base)
        return !work->head.has_parent;
    return digest_parse(base, &known, NULL) == 0 && work->head.has_parent &&
           digest_equal(&work->head.parent, &known);
}

/* It is what the next one may build on: what changed since its parent is still marked as changed.
 */
static int record_head(struct checkpoint_work *work, struct err *err)
{
    char tag[CHECKPOINT_TAG_MAX];
    struct digest_text digest = digest_format(&work->head.digest);
    checkpoint_tag_format(&work->head.tag, tag);
    const struct catalog_checkpoint row = {.digest = digest.s,
                                           .volume = work->row.volume.id,
                                           .lineage = work->line.lineage,
                                           .generation = (int64_t)work->head.generation,
                                           .node = (char *)work->node->id,
                                           .token = (int64_t)work->head.token,
                                           .parent = (char *)workspace_line_base(&work->line),
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

/* Whether it can be opened, and is signed where that is wanted: else it is somebody else's,
 * whatever its tag says. */
static bool is_sound(struct checkpoint_work *work)
{
    struct err ignored = ERR_INIT;
    struct checkpoint *head = NULL;
    struct digest_text digest = digest_format(&work->head.digest);
    int rc = workspace_line_open(work->node, work->line.lineage, digest.s, checkpoint_work_ask,
                                 work, &head, &ignored);
    checkpoint_free(head);
    return rc == 0;
}

/* A head that this node has neither made nor recorded: somebody else has gone on with the volume.
 * It stays so, whatever this node makes after it, until it goes on from there. */
static int look_at_head(struct checkpoint_work *work, struct err *err)
{
    work->diverged = false;
    int rc = checkpoint_head_find(work->node->remote, work->repository, work->row.volume.id,
                                  checkpoint_work_ask, work, &work->head, NULL, err);
    work->has_head = rc > 0;
    if (rc <= 0)
        return rc;
    rc = is_known(work, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (is_unrecorded(work) && is_sound(work))
        return record_head(work, err);
    work->diverged = true;
    return 0;
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
        rc = open_parent(work, err);
    return rc < 0 ? rc : 0;
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
           line.generation == work->line.generation;
}

int checkpoint_work_look(struct checkpoint_work *work, struct err *err)
{
    int rc = checkpoint_work_read_row(work, err);
    if (rc == 0)
        rc = read_line(work, err);
    return rc == 0 ? look_at_remote(work, err) : rc;
}
