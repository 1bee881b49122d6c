#include "workspace.h"

static int fail(struct job *job, json_t **ret_result, struct err *err)
{
    (void)job;
    (void)ret_result;
    return err_fail(err, ERR_UNSUPPORTED, "this build has no volumes");
}

const struct job_kind workspace_create_job = {.name = "workspace.create", .run = fail};
const struct job_kind workspace_mount_job = {.name = "workspace.mount", .run = fail};
const struct job_kind workspace_unmount_job = {.name = "workspace.unmount", .run = fail};
const struct job_kind workspace_resize_job = {.name = "workspace.resize", .run = fail};
const struct job_kind workspace_rm_job = {.name = "workspace.rm", .run = fail};
