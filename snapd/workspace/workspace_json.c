#include "workspace.h"

#include "volume_fs.h"
#include "workspace_internal.h"

#include <sys/stat.h>

/* What a workspace is at this moment. */
struct look {
    struct volume_status status; /* all zeros when there is no such volume */
    bool mounted;
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

/* The numbers of the file system, which it keeps in memory. Nothing, when something else is mounted
 * over it. */
static bool read_space(const char *path, const char *device, struct volume_fs_space *ret)
{
    struct stat dev;
    return device[0] && stat(device, &dev) == 0 &&
           volume_fs_space(path, dev.st_rdev, ret, NULL) == 0;
}

static int look_at(struct node *node, const struct catalog_workspace *workspace, struct look *ret,
                   struct err *err)
{
    const char *id = workspace->volume.id;
    int rc = workspace_status(node, workspace, &ret->status, err);
    if (rc < 0)
        return rc;
    if (!workspace->wanted || !ret->status.attached || ret->status.dead)
        return 0;
    rc = volumes_is_mounted(node->volumes, id, workspace->mount.path, &ret->mounted, err);
    if (rc == 0 && ret->mounted)
        ret->has_space = read_space(workspace->mount.path, ret->status.device, &ret->space);
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

static json_t *describe(const struct catalog_workspace *workspace, const struct look *look)
{
    const struct catalog_volume *volume = &workspace->volume;
    const struct volume_status *status = &look->status;
    struct clock_text created = clock_format(workspace->created_ns);
    json_t *device = status->device[0] ? json_string(status->device) : json_null();
    return json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:o, s:s?, s:b, s:o, s:o, s:{s:I, s:f}, s:o, s:s}", "name",
        workspace->name, "id", volume->id, "state", state_name(workspace, look), "size",
        (json_int_t)volume->size, "stored", (json_int_t)status->local, "filesystem",
        space_json(look), "path", workspace->mount.path, "read_only", workspace->mount.read_only,
        "device", device, "worker", worker_json(status), "waiting", "requests",
        (json_int_t)status->held, "seconds", (double)status->held_ns / (double)CLOCK_NS_PER_S,
        "incident", incident_json(volume), "created", created.s);
}

json_t *workspace_json(struct node *node, const struct catalog_workspace *workspace,
                       struct err *err)
{
    struct look look = {0};
    int rc = look_at(node, workspace, &look, err);
    if (rc < 0) {
        (void)err_wrap(err, rc, "workspace %s", workspace->name);
        return NULL;
    }
    json_t *json = describe(workspace, &look);
    if (!json)
        (void)err_errno(err, ENOMEM, "cannot describe workspace %s", workspace->name);
    return json;
}
