#include "workspace.h"

json_t *workspace_json(struct node *node, const struct catalog_workspace *workspace,
                       struct err *err)
{
    const struct catalog_volume *volume = &workspace->volume;
    (void)node;
    struct clock_text created = clock_format(workspace->created_ns);
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:n, s:s?, s:b, s:n, s:n, s:{s:I, s:f}, s:n, s:s}", "name",
        workspace->name, "id", volume->id, "state", catalog_volume_state_name(volume->state),
        "size", (json_int_t)volume->size, "stored", (json_int_t)0, "filesystem", "path",
        workspace->mount.path, "read_only", workspace->mount.read_only, "device", "worker",
        "waiting", "requests", (json_int_t)0, "seconds", 0.0, "incident", "created", created.s);
    if (!json)
        (void)err_errno(err, ENOMEM, "cannot describe workspace %s", workspace->name);
    return json;
}
