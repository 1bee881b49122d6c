#include "workspace_token.h"

#include "catalog_workspace.h"
#include "cleanup.h"
#include "fault.h"
#include "workspace_line.h"

#include <inttypes.h>
#include <string.h>

enum {
    MS_NS = 1000000,
};

int workspace_token_read(const json_t *params, const char *what, int64_t *ret, struct err *err)
{
    int64_t token = 0;
    int rc = json_doc_opt_int(params, "token", what, &token, err);
    if (rc < 0)
        return rc;
    if (token < 0)
        return err_fail(err, ERR_INVALID, "a fencing token is a positive number");
    *ret = token;
    return 0;
}

int workspace_token_check(const char *name, const struct catalog_line *line, int64_t token,
                          struct err *err)
{
    if (token == 0 || token >= line->token)
        return 0;
    int rc = err_fail(err, ERR_CONFLICT,
                      "workspace %s has had the fencing token %" PRId64 " on this node already, "
                      "and %" PRId64 " is lower",
                      name, line->token, token);
    err_hint(err, "another writer was given the workspace after this one; to go on here, pass a "
                  "token that is higher than all before");
    return rc;
}

int workspace_token_compare(const char *name, const struct checkpoint_heads *heads, int64_t token,
                            struct err *err)
{
    const struct checkpoint_head *writer = &heads->writer;
    char own[64] = "no fencing token";
    if (!heads->has_writer || writer->token <= (uint64_t)token)
        return 0;
    if (token > 0)
        (void)snprintf(own, sizeof own, "the fencing token %" PRId64, token);
    int rc = err_fail(err, ERR_CONFLICT,
                      "workspace %s has %s here, and the remote has its checkpoint %" PRIu64
                      " of node %s with the higher token %" PRIu64,
                      name, own, writer->generation, writer->node, writer->token);
    err_hint(err,
             "another writer was given the workspace: end what writes to it here; to go on here, "
             "mount it with a token above %" PRIu64 ": varve workspace mount %s PATH --token N",
             writer->token, name);
    return rc;
}

/* Who waits for the remote, and until when. */
struct waiting {
    struct job_asker asker;
    int64_t until_ns;
    bool is_late;
};

/* remote_progress */
static int ask(void *arg, uint64_t done, uint64_t total)
{
    struct waiting *waiting = arg;
    if (job_asker_ask(&waiting->asker, done, total))
        return -1;
    waiting->is_late = clock_now_ns() >= waiting->until_ns;
    return waiting->is_late ? -1 : 0;
}

static int look_at_remote(struct job *job, const struct catalog_line *line, const char *volume,
                          struct checkpoint_heads *ret, struct err *err)
{
    struct waiting waiting = {.asker = {.job = job},
                              .until_ns =
                                  clock_now_ns() + (int64_t)WORKSPACE_TOKEN_LOOK_MS * MS_NS};
    struct err why = ERR_INIT;
    int rc =
        workspace_line_heads(job_node(job), line->lineage, volume, NULL, ask, &waiting, ret, &why);
    if (rc == 0)
        return 0;
    if (waiting.is_late) {
        rc = err_fail(err, ERR_UNREACHABLE, "the remote has not answered for %d s",
                      WORKSPACE_TOKEN_LOOK_MS / 1000);
        err_hint(err, "try again when it answers; without a token a mount asks nobody");
        return rc;
    }
    return job_asker_end(&waiting.asker, err_pass(err, rc, &why), err);
}

/* Whether an attempt before a kill has looked, and recorded the token with what it had begun; the
 * token alone may be an older mount's, which has ended. */
static bool has_begun(const struct catalog_workspace *row, const struct catalog_line *line,
                      int64_t token)
{
    return line->token == token && row->wanted && row->mount.state == CATALOG_MOUNT_MOUNTING;
}

bool workspace_token_is_new(const struct checkpoint_config *parent, const char *volume,
                            int64_t token)
{
    return token > 0 && (strcmp(parent->volume, volume) != 0 || parent->token < (uint64_t)token);
}

int workspace_token_look(struct job *job, const char *name, int64_t token, struct err *err)
{
    struct node *node = job_node(job);
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    cleanup_catalog_line struct catalog_line line = {0};
    cleanup_checkpoint_heads struct checkpoint_heads heads = {.lost = NULL};
    if (token == 0)
        return 0;
    int rc = catalog_workspace_get(node->catalog, name, &row, err);
    if (rc == 0)
        rc = catalog_line_get(node->catalog, row.volume.id, &line, err);
    if (rc == 0)
        rc = workspace_token_check(name, &line, token, err);
    if (rc < 0 || (job_is_repeated(job) && has_begun(&row, &line, token)))
        return rc;
    rc = FAULT_POINT("workspace.token-look", err);
    if (rc == 0)
        rc = look_at_remote(job, &line, row.volume.id, &heads, err);
    if (rc < 0)
        return err_wrap(err, rc, "workspace %s: its fencing token cannot be compared", name);
    return workspace_token_compare(name, &heads, token, err);
}

int workspace_token_set(struct node *node, const char *name, const char *volume, int64_t token,
                        struct err *err)
{
    cleanup_catalog_line struct catalog_line line = {0};
    if (token == 0)
        return 0;
    int rc = catalog_line_get(node->catalog, volume, &line, err);
    if (rc == 0)
        rc = workspace_token_check(name, &line, token, err);
    if (rc < 0 || token == line.token)
        return rc;
    return catalog_line_set_token(node->catalog, volume, token, err);
}
