#include "workspace.h"

#include "catalog_checkpoint.h"
#include "workspace_fetch.h"

#include "workspace_internal.h"

#include <string.h>

/* What a workspace is at this moment. */
struct look {
    int rc;
    struct volume_status status; /* all zeros when there is no such volume */
    bool wanted;                 /* it is worth looking for its mount */
    bool mounted;
    bool read_only; /* its file system */
    bool has_space;
    struct volume_fs_space space;
};

static const char *state_name(const struct catalog_workspace *workspace, const struct look *look)
{
    const struct volume_status *status = &look->status;
    switch (workspace->volume.state) {
    case CATALOG_VOLUME_CREATING:
        return "creating";
    case CATALOG_VOLUME_REMOVING:
        return "removing";
    case CATALOG_VOLUME_FENCED:
        return "fenced";
    default:
        break;
    }
    if (status->dead)
        return "dead";
    if (status->fenced)
        return "fenced";
    if (status->detaching || workspace->volume.state == CATALOG_VOLUME_DETACHING)
        return "detaching";
    if (look->mounted)
        return "mounted";
    return status->attached ? "attached" : "detached";
}

/* What all of them are; the reason where that isn't known. */
static void look_at_each(struct node *node, const struct catalog_workspace *workspaces,
                         size_t count, struct look *looks, struct err *errs)
{
    for (size_t i = 0; i < count; i++) {
        struct look *look = &looks[i];
        look->rc = workspace_status(node, &workspaces[i], &look->status, &errs[i]);
        look->wanted =
            look->rc == 0 && workspaces[i].wanted && look->status.attached && !look->status.dead;
    }
}

/* Where those that are to be mounted are, and the numbers of their file systems, which these keep
 * in memory. */
static int look_at_places(struct node *node, const struct catalog_workspace *workspaces,
                          size_t count, struct look *looks, struct err *err)
{
    cleanup_free struct volumes_place *places = calloc(count + 1, sizeof *places);
    size_t n = 0;
    if (!places)
        return err_errno(err, ENOMEM, "cannot look at the workspaces");
    for (size_t i = 0; i < count; i++)
        if (looks[i].wanted)
            places[n++] = (struct volumes_place){.id = workspaces[i].volume.id,
                                                 .path = workspaces[i].mount.path,
                                                 .device_dev = looks[i].status.device_dev};
    int rc = n > 0 ? volumes_look(node->volumes, places, n, err) : 0;
    n = 0;
    for (size_t i = 0; i < count && rc == 0; i++)
        if (looks[i].wanted) {
            looks[i].mounted = places[n].mounted;
            looks[i].read_only = places[n].read_only;
            looks[i].has_space = places[n].known;
            looks[i].space = places[n++].space;
        }
    return rc;
}

static json_t *space_json(const struct look *look)
{
    const struct volume_fs_space *fs = &look->space;
    if (!look->has_space)
        return json_null();
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "size", (json_int_t)fs->size, "used",
                     (json_int_t)fs->used, "free", (json_int_t)fs->free, "inodes",
                     (json_int_t)fs->inodes, "inodes_used", (json_int_t)fs->inodes_used);
}

static json_t *worker_json(const struct volume_status *status)
{
    if (!status->attached && !status->detaching)
        return json_null();
    return json_pack("{s:I, s:I, s:b, s:b, s:b, s:I}", "pid", (json_int_t)status->worker, "starts",
                     (json_int_t)status->starts, "locked", status->locked, "direct", status->direct,
                     "resends", status->resends, "locked_bytes", (json_int_t)status->locked_bytes);
}

static json_t *incident_json(const struct catalog_volume *volume)
{
    if (!volume->incident)
        return json_null();
    struct clock_text when = clock_format(volume->incident_ns);
    json_t *what = json_string(volume->incident); /* JSON holds UTF-8 alone */
    return json_pack("{s:s, s:o}", "when", when.s, "what",
                     what ? what : json_string("see the log of varved"));
}

/* How what is still in the remote comes here; null when all of it is here. */
static json_t *fetch_json(struct node *node, const struct catalog_workspace *workspace,
                          const struct volume_status *status)
{
    struct volume_fetch_status fetch = {.absent = 0};
    if (status->absent == 0)
        return json_null();
    bool known = workspace_fetch_look(node, workspace->volume.id, &fetch);
    return json_pack("{s:I, s:I, s:I, s:f, s:s?}", "absent",
                     (json_int_t)(status->absent * VOLUME_CHUNK), "fetched",
                     (json_int_t)(fetch.fetched * VOLUME_CHUNK), "waiting",
                     (json_int_t)status->absent_waits, "seconds",
                     (double)fetch.waiting_ns / (double)CLOCK_NS_PER_S, "why",
                     known && fetch.text[0] ? fetch.text : NULL);
}

/* Null: nobody has given it one. */
static json_t *token_json(const struct catalog_line *line)
{
    return line->token > 0 ? json_integer(line->token) : json_null();
}

/* Whether somebody has checked who made what it is made of; null when it is made of nothing. */
static json_t *signed_json(const struct node *node, const struct catalog_line *line)
{
    return line->parent ? json_boolean(node->trust_key != NULL) : json_null();
}

/* Of a view, the workspace that it shows; else null. */
static json_t *view_json(const char *name)
{
    const char *at = strchr(name, '@');
    return at ? json_stringn(name, (size_t)(at - name)) : json_null();
}

static json_t *describe(struct node *node, const struct catalog_workspace *workspace,
                        const struct look *look)
{
    const struct catalog_volume *volume = &workspace->volume;
    const struct volume_status *status = &look->status;
    struct clock_text created = clock_format(workspace->created_ns);
    cleanup_catalog_line struct catalog_line line = {0};
    (void)catalog_line_get(node->catalog, volume->id, &line, NULL);
    json_t *device = status->device[0] ? json_string(status->device) : json_null();
    return json_pack(
        "{s:s, s:o, s:s, s:s, s:I, s:I, s:o, s:s?, s:b, s:o, s:o, s:{s:I, s:f}, s:b, s:o, s:o,"
        " s:o, s:o, s:s}",
        "name", workspace->name, "view_of", view_json(workspace->name), "id", volume->id, "state",
        state_name(workspace, look), "size", (json_int_t)volume->size, "stored",
        (json_int_t)status->local, "filesystem", space_json(look), "path", workspace->mount.path,
        "read_only", workspace->mount.read_only || look->read_only, "device", device, "worker",
        worker_json(status), "waiting", "requests", (json_int_t)status->held, "seconds",
        (double)status->held_ns / (double)CLOCK_NS_PER_S, "lazy", status->absent > 0, "fetch",
        fetch_json(node, workspace, status), "token", token_json(&line), "signed",
        signed_json(node, &line), "incident", incident_json(volume), "created", created.s);
}

static json_t *finish(struct node *node, const struct catalog_workspace *workspace,
                      const struct look *look, struct err *err)
{
    json_t *json = look->rc == 0 ? describe(node, workspace, look) : NULL;
    if (look->rc < 0)
        (void)err_wrap(err, look->rc, "workspace %s", workspace->name);
    else if (!json)
        (void)err_errno(err, ENOMEM, "cannot describe workspace %s", workspace->name);
    return json;
}

int workspace_json_each(struct node *node, const struct catalog_workspace *workspaces, size_t count,
                        json_t **ret, struct err *ret_errs, struct err *err)
{
    cleanup_free struct look *looks = calloc(count + 1, sizeof *looks);
    if (!looks)
        return err_errno(err, ENOMEM, "cannot look at the workspaces");
    look_at_each(node, workspaces, count, looks, ret_errs);
    int rc = look_at_places(node, workspaces, count, looks, err);
    for (size_t i = 0; i < count && rc == 0; i++)
        ret[i] = finish(node, &workspaces[i], &looks[i], &ret_errs[i]);
    return rc;
}

json_t *workspace_json(struct node *node, const struct catalog_workspace *workspace,
                       struct err *err)
{
    json_t *json = NULL;
    struct err why = ERR_INIT;
    int rc = workspace_json_each(node, workspace, 1, &json, &why, err);
    if (rc == 0 && !json && err && err->code == ERR_NONE)
        *err = why;
    return json;
}
