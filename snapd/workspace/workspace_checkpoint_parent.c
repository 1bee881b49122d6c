/* What a checkpoint stands on, and what is done when the remote has lost it. */
#include "workspace_checkpoint_work.h"

#include <inttypes.h>
#include <string.h>

static bool is_lost(const struct checkpoint_work *work, const struct digest *digest)
{
    for (size_t i = 0; i < work->lost_count; i++)
        if (digest_equal(&work->lost[i], digest))
            return true;
    return false;
}

static void note_lost(struct checkpoint_work *work, const struct digest *digest,
                      const struct err *why)
{
    if (is_lost(work, digest) || work->lost_count == CHECKPOINT_WORK_LOST_MAX)
        return;
    if (work->lost_count == 0)
        work->why_lost = *why;
    work->lost[work->lost_count++] = *digest;
    workspace_event(work->node, "checkpoint-lost", work->name, why->text);
}

/* One that was not given back as it had been stored: it is read again, as somebody may have put the
 * remote back, and built upon when it is whole. */
static int check_again(struct checkpoint_work *work, const struct digest *digest, struct err *err)
{
    const struct digest_text name = digest_format(digest);
    cleanup_catalog_checkpoint struct catalog_checkpoint row = {0};
    int rc = checkpoint_work_find_row(work, name.s, &row, err);
    if (rc <= 0 || row.durability != CATALOG_LOCAL)
        return rc < 0 ? rc : 0;
    rc = checkpoint_work_read_back(work, digest, NULL, err);
    return rc < 0 ? rc
                  : catalog_checkpoint_set_verified(work->node->catalog, name.s,
                                                    work->node->remote->url, err);
}

/* What cannot be the parent any more. */
static void set_lost(struct checkpoint_work *work, const struct err *why)
{
    note_lost(work, checkpoint_digest(work->parent), why);
    checkpoint_free(steal_ptr(work->parent));
}

/* 1 with the parent, 0: it is lost. */
static int open_one(struct checkpoint_work *work, const char *name, struct err *err)
{
    struct digest digest;
    struct err why = ERR_INIT;
    int rc = digest_parse(name, &digest, err);
    if (rc < 0)
        return rc;
    if (is_lost(work, &digest))
        return 0;
    rc = workspace_line_open(work->node, work->line.lineage, name, checkpoint_work_ask, work,
                             &work->parent, &why);
    if (rc == 0)
        rc = check_again(work, &digest, &why);
    if (rc == 0)
        return 1;
    if (!workspace_line_is_lost(&why))
        return err_pass(err, rc, &why);
    if (work->parent)
        set_lost(work, &why);
    else
        note_lost(work, &digest, &why);
    return 0;
}

/* What is absent here is of the checkpoint that the volume was made of, so that is as good: more is
 * read and stored then. */
int checkpoint_work_open_parent(struct checkpoint_work *work, struct err *err)
{
    const struct catalog_line *line = &work->line;
    const char *base = workspace_line_base(line);
    work->has_before = base != NULL;
    if (!base)
        return 0;
    int rc = digest_parse(base, &work->before, err);
    if (rc == 0)
        rc = open_one(work, base, err);
    if (rc == 0 && line->parent && !catalog_line_is_open(line) && strcmp(line->parent, base) != 0)
        rc = open_one(work, line->parent, err);
    return rc < 0 ? rc : 0;
}

bool checkpoint_work_lost_parent(struct checkpoint_work *work, const struct err *failure)
{
    if (!work->parent_failed || !work->parent || work->lost_count == CHECKPOINT_WORK_LOST_MAX)
        return false;
    work->parent_failed = false;
    set_lost(work, failure);
    return true;
}

int checkpoint_work_check_here(struct checkpoint_work *work, struct err *err)
{
    struct volume_status status = {0};
    if (work->parent || work->lost_count == 0)
        return 0;
    int rc = volumes_status(work->node->volumes, work->row.volume.id, &status, err);
    if (rc < 0 || status.absent == 0)
        return rc;
    rc = err_fail(err, ERR_DAMAGED,
                  "%" PRIu64 " chunks of it, of %d KiB each, are not all here, and the remote has "
                  "lost what has them: %s",
                  status.absent, (int)(VOLUME_CHUNK / 1024), work->why_lost.text);
    err_hint(err,
             "put the remote back from a copy of it; what is here can be read meanwhile, where "
             "the workspace is mounted");
    return rc;
}
