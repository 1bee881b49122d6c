#include "workspace_view.h"

#include "cleanup.h"
#include "log.h"
#include "workspace_fork.h"
#include "workspace_internal.h"
#include "workspace_now.h"

#include <string.h>

enum {
    GENERATION_DIGITS = 17,
    NOW_DIGITS = 6,
};

bool workspace_is_view(const char *name)
{
    return strchr(name, '@') != NULL;
}

/* What stands behind "@". */
static bool is_generation(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    return digits > 0 && digits <= GENERATION_DIGITS && !text[digits] && text[0] != '0';
}

static bool is_now(const char *text)
{
    static const char word[] = WORKSPACE_NOW_WORD "-";
    const char *digits = text + strlen(word);
    return strncmp(text, word, strlen(word)) == 0 && strlen(digits) == NOW_DIGITS &&
           strspn(digits, "0123456789abcdef") == NOW_DIGITS;
}

int workspace_name_check(const char *name, struct err *err)
{
    const char *at = strchr(name, '@');
    if (!at)
        return id_check(name, "workspace name", err);
    if (!is_generation(at + 1) && !is_now(at + 1))
        return err_fail(err, ERR_INVALID, "'%.100s' is no name of a workspace or of a view", name);
    cleanup_free char *workspace = strndup(name, (size_t)(at - name));
    return workspace ? id_check(workspace, "workspace name", err)
                     : err_errno(err, ENOMEM, "cannot check a name");
}

int workspace_view_check_checkpoint(const char *name, struct err *err)
{
    if (!workspace_is_view(name))
        return 0;
    int rc = err_fail(err, ERR_INVALID, "%.100s is a view, of which no checkpoint is made", name);
    err_hint(err, "make one of the workspace that it shows: `varve workspace checkpoint %.*s`",
             (int)strcspn(name, "@"), name);
    return rc;
}

int workspace_view_find(const struct node *node, const char *name, const char *checkpoint,
                        char **ret_name, char **ret_from, struct err *err)
{
    cleanup_free char *text = NULL;
    cleanup_free char *view = NULL;
    cleanup_free char *from = NULL;
    cleanup_workspace_source struct workspace_source source = {NULL};
    cleanup_catalog_checkpoint struct catalog_checkpoint row = {0};
    int rc = id_check(name, "workspace name", err);
    if (rc < 0)
        return rc;
    if (asprintf(&text, "%s@%s", name, checkpoint) < 0)
        return text = NULL, err_errno(err, ENOMEM, "cannot find a checkpoint");
    rc = workspace_source_find(node, text, &source, err);
    if (rc == 0)
        rc = catalog_checkpoint_get(node->catalog, source.digest, &row, err);
    if (rc < 0)
        return rc;
    if (asprintf(&view, "%s@%lld", name, (long long)row.generation) < 0)
        view = NULL;
    if (asprintf(&from, "%s@%s", name, row.digest) < 0)
        from = NULL;
    if (!view || !from)
        return err_errno(err, ENOMEM, "cannot find a checkpoint");
    *ret_name = steal_ptr(view);
    *ret_from = steal_ptr(from);
    return 0;
}

int workspace_view_drop(struct node *node, const char *name, struct err *err)
{
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    int rc = workspace_find(node, name, &row, err);
    if (rc <= 0)
        return rc;
    rc = workspace_mark_removing(node, &row, err);
    return rc == 0 ? workspace_discard(node, &row, NULL, err) : rc;
}

/* A view that is not mounted is of no use to anybody. A job that is cancelled while it waits for
 * the name has not got that; it is waited for once more, by work that nobody but the daemon ends.
 */
static int undo(struct job *job, const char *name, bool claimed, struct err *err)
{
    struct node *node = job_node(job);
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    cleanup_workspace_claim struct workspace_claim claim = {0};
    cleanup_wait_stop struct wait_stop nobody = {.ask = NULL};
    wait_stop_begin(&nobody);
    if (!claimed) {
        int rc = workspace_claim_wait(node->workspaces, name, job_stop_undo, job, err);
        if (rc < 0)
            return rc;
        claim = (struct workspace_claim){.workspaces = node->workspaces, .name = name};
        rc = workspace_find(node, name, &row, err);
        if (rc <= 0 || row.wanted) /* somebody else has mounted it meanwhile */
            return rc < 0 ? rc : 0;
    }
    return workspace_view_drop(node, name, err);
}

int workspace_view_mount(struct job *job, const char *name, const char *path, bool fresh,
                         struct err *err)
{
    struct err failure = ERR_INIT;
    struct err why = ERR_INIT;
    cleanup_workspace_claim struct workspace_claim claim = {0};
    int rc = workspace_job_claim(job, name, &claim, &why);
    if (rc == 0)
        rc = workspace_mount_at(job, name, path, true, &why);
    if (rc < 0 && why.code != ERR_INTERRUPTED && (fresh || job_is_repeated(job)) &&
        undo(job, name, claim.workspaces != NULL, &failure) < 0)
        log_event(LOG_WARN, "workspace-not-undone", "workspace", name, "error", failure.text, NULL);
    return err_pass(err, rc, &why);
}

/* A workspace that was removed may have left a view, and another one of its name have a checkpoint
 * of that generation. */
static int check_same(struct job *job, const struct catalog_workspace *row, struct err *err)
{
    const char *from = NULL;
    cleanup_catalog_line struct catalog_line line = {0};
    int rc = json_doc_get_str(job_params(job), "from", "the request for a view", &from, err);
    if (rc == 0)
        rc = catalog_line_get(job_node(job)->catalog, row->volume.id, &line, err);
    const char *at = rc == 0 ? strchr(from, '@') : NULL;
    if (rc < 0 || (at && line.parent && strcmp(at + 1, line.parent) == 0))
        return rc;
    rc = err_fail(err, ERR_CONFLICT, "there is a view %s of another checkpoint", row->name);
    err_hint(err, "unmount it first with `varve workspace unmount %s`", row->name);
    return rc;
}

static int run(struct job *job, json_t **ret_result, struct err *err)
{
    const char *name = NULL;
    const char *path = NULL;
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    int rc = workspace_job_name(job, &name, err);
    if (rc == 0)
        rc = json_doc_get_str(job_params(job), "path", "the request for a view", &path, err);
    int found = rc < 0 ? rc : workspace_find(job_node(job), name, &row, err);
    if (found > 0)
        rc = check_same(job, &row, err);
    if (found < 0 || rc < 0)
        return rc < 0 ? rc : found;
    /* One that is whole is the same again, or another path, which the mount refuses. */
    if (!found || row.volume.state == CATALOG_VOLUME_CREATING)
        rc = workspace_fork_part(job, err);
    if (rc == 0)
        rc = workspace_view_mount(job, name, path, !found, err);
    return rc == 0 ? workspace_job_result(job, name, ret_result, err) : rc;
}

const struct job_kind workspace_view_job = {.name = "workspace.view", .run = run, .remote = true};
