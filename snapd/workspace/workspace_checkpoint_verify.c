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

/* The row of a checkpoint: 1, 0 there is none, or -errno. */
static int find_row(struct checkpoint_work *work, const char *digest,
                    struct catalog_checkpoint *ret, struct err *err)
{
    struct err why = ERR_INIT;
    int rc = catalog_checkpoint_get(work->node->catalog, digest, ret, &why);
    return err_found(err, rc, &why);
}

/* The nearest one before it that was verified, as what both stand on need not be read again; NULL:
 * there is none, or it cannot be opened. */
static int open_known(struct checkpoint_work *work, const char *digest, struct checkpoint **ret,
                      struct err *err)
{
    cleanup_free char *at = strdup(digest);
    struct err ignored = ERR_INIT;
    for (int i = 0; at && i < ANCESTORS_MAX; i++) {
        cleanup_catalog_checkpoint struct catalog_checkpoint row = {0};
        int rc = find_row(work, at, &row, err);
        if (rc < 0)
            return rc;
        if (rc == 0 || strcmp(row.lineage, work->line.lineage) != 0)
            return 0;
        if (row.durability == CATALOG_VERIFIED) {
            (void)workspace_line_open(work->node, row.lineage, at, checkpoint_work_ask, work, ret,
                                      &ignored);
            return 0;
        }
        free(at);
        at = steal_ptr(row.parent);
    }
    return 0;
}

static int read_back(struct checkpoint_work *work, const char *name, struct err *err)
{
    struct checkpoint_verified verified;
    struct err why = ERR_INIT;
    cleanup_with(free_checkpoint) struct checkpoint *known = NULL;
    const struct checkpoint_options options = {
        .remote = work->node->remote, .repository = work->repository, .key = work->node->trust_key};
    int rc = open_known(work, name, &known, err);
    if (rc < 0)
        return rc;
    rc = checkpoint_verify(&options, &work->written.digest, known, checkpoint_work_ask, work,
                           &verified, &why);
    if (rc == 0)
        return FAULT_POINT("checkpoint-verify.read", err);
    if (!workspace_line_is_lost(&why))
        return err_pass(err, rc, &why);
    workspace_event(work->node, "checkpoint-damaged", work->name, name);
    rc = err_fail(err, ERR_DAMAGED,
                  "it is stored and recorded, and the remote does not give back "
                  "what it was given: %s",
                  why.text);
    err_hint(err,
             "look at the remote: what it has lost or damaged it may lose again; the workspace "
             "itself is as it was");
    return rc;
}

int checkpoint_work_verify(struct checkpoint_work *work, struct err *err)
{
    const struct digest_text name = digest_format(&work->written.digest);
    cleanup_catalog_checkpoint struct catalog_checkpoint row = {0};
    int known = find_row(work, name.s, &row, err);
    if (known < 0)
        return known;
    work->reached = known ? row.durability : CATALOG_PUSHED;
    if (work->wanted != CATALOG_VERIFIED || work->reached == CATALOG_VERIFIED)
        return 0;
    int rc = job_mark(work->job, "verify", err);
    if (rc == 0)
        rc = read_back(work, name.s, err);
    if (rc == 0 && known)
        rc = catalog_checkpoint_set_verified(work->node->catalog, name.s, err);
    if (rc == 0)
        work->reached = CATALOG_VERIFIED;
    return rc;
}
