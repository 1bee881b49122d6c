/* A checkpoint is read back from the remote. */
#include "workspace_checkpoint_work.h"

#include "checkpoint_verify.h"
#include "fault.h"

#include <string.h>

enum {
    ANCESTORS_MAX = 1000, /* that are looked at for one that was verified */
};

static void free_checkpoint(struct checkpoint **checkpoint)
{
    checkpoint_free(*checkpoint);
}

int checkpoint_work_find_row(struct checkpoint_work *work, const char *digest,
                             struct catalog_checkpoint *ret, struct err *err)
{
    struct err why = ERR_INIT;
    int rc = catalog_checkpoint_get(work->node->catalog, digest, ret, &why);
    return err_found(err, rc, &why);
}

/* Whether it was read back from this remote; what another one had says nothing of this. */
static bool was_verified_here(const struct checkpoint_work *work,
                              const struct catalog_checkpoint *row)
{
    return row->durability == CATALOG_VERIFIED && row->remote &&
           strcmp(row->remote, work->node->remote->url) == 0;
}

/* The nearest one before it that was verified, as what both stand on need not be read again; NULL:
 * there is none, it cannot be opened, or the remote has just lost something, so that nothing it had
 * is believed. */
static int open_known(struct checkpoint_work *work, const char *digest, struct checkpoint **ret,
                      struct err *err)
{
    cleanup_free char *at = work->lost_count == 0 ? strdup(digest) : NULL;
    struct err ignored = ERR_INIT;
    for (int i = 0; at && i < ANCESTORS_MAX; i++) {
        cleanup_catalog_checkpoint struct catalog_checkpoint row = {0};
        int rc = checkpoint_work_find_row(work, at, &row, err);
        if (rc < 0)
            return rc;
        if (rc == 0 || strcmp(row.lineage, work->line.lineage) != 0)
            return 0;
        if (was_verified_here(work, &row)) {
            (void)workspace_line_open(work->node, row.lineage, at, checkpoint_work_ask, work, ret,
                                      &ignored);
            return 0;
        }
        free(at);
        at = steal_ptr(row.parent);
    }
    return 0;
}

int checkpoint_work_read_back(struct checkpoint_work *work, const struct digest *digest,
                              const struct checkpoint *known, struct err *err)
{
    struct checkpoint_verified verified;
    const struct checkpoint_options options = {
        .remote = work->node->remote, .repository = work->repository, .key = work->node->trust_key};
    return checkpoint_verify(&options, digest, known, checkpoint_work_ask, work, &verified, err);
}

/* It is not in the remote, whatever was recorded, and the next one does not build on it. */
static int tell_damaged(struct checkpoint_work *work, const char *name, bool recorded,
                        const struct err *why, struct err *err)
{
    int rc = recorded ? catalog_checkpoint_set_lost(work->node->catalog, name, err) : 0;
    if (rc < 0)
        return rc;
    workspace_event(work->node, "checkpoint-damaged", work->name, name);
    rc = err_fail(err, ERR_DAMAGED,
                  "it is stored and recorded, and the remote does not give back "
                  "what it was given: %s",
                  why->text);
    err_hint(err,
             "look at the remote: what it has lost or damaged it may lose again; the workspace "
             "itself is as it was, and the next checkpoint stores anew what is all here");
    return rc;
}

static int read_back(struct checkpoint_work *work, const char *name, bool recorded, struct err *err)
{
    struct err why = ERR_INIT;
    cleanup_with(free_checkpoint) struct checkpoint *known = NULL;
    int rc = open_known(work, name, &known, err);
    if (rc < 0)
        return rc;
    rc = checkpoint_work_read_back(work, &work->written.digest, known, &why);
    if (rc == 0)
        return FAULT_POINT("checkpoint-verify.read", err);
    return workspace_line_is_lost(&why) ? tell_damaged(work, name, recorded, &why, err)
                                        : err_pass(err, rc, &why);
}

int checkpoint_work_verify(struct checkpoint_work *work, struct err *err)
{
    const struct digest_text name = digest_format(&work->written.digest);
    cleanup_catalog_checkpoint struct catalog_checkpoint row = {0};
    int known = checkpoint_work_find_row(work, name.s, &row, err);
    if (known < 0)
        return known;
    work->reached = known && was_verified_here(work, &row) ? CATALOG_VERIFIED : CATALOG_PUSHED;
    if (work->wanted != CATALOG_VERIFIED || work->reached == CATALOG_VERIFIED)
        return 0;
    int rc = job_mark(work->job, "verify", err);
    if (rc == 0)
        rc = read_back(work, name.s, known, err);
    if (rc == 0 && known)
        rc = catalog_checkpoint_set_verified(work->node->catalog, name.s, work->node->remote->url,
                                             err);
    if (rc == 0)
        work->reached = CATALOG_VERIFIED;
    return rc;
}
