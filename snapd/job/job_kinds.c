#include "job_kinds.h"

#include "export.h"
#include "import.h"
#include "pull.h"
#include "recover.h"
#include "run.h"
#include "run_rollback.h"
#include "snapshot.h"
#include "workspace.h"
#include "workspace_checkpoint.h"
#include "workspace_fork.h"
#include "workspace_now.h"
#include "workspace_rm_remote.h"
#include "workspace_rollback.h"
#include "workspace_view.h"

const struct job_kind *const *job_kinds(size_t *ret_count)
{
    static const struct job_kind *const kinds[] = {
        &import_job,
        &export_job,
        &pull_job,
        &image_rm_job,
        &run_create_job,
        &run_rm_job,
        &run_reset_job,
        &run_mount_job,
        &run_rollback_job,
        &recover_job,
        &snapshot_create_job,
        &snapshot_push_job,
        &snapshot_rm_job,
        &workspace_create_job,
        &workspace_mount_job,
        &workspace_unmount_job,
        &workspace_abandon_job,
        &workspace_resize_job,
        &workspace_rm_job,
        &workspace_rm_remote_job,
        &workspace_checkpoint_job,
        &workspace_fork_job,
        &workspace_release_job,
        &workspace_rollback_job,
        &workspace_view_job,
        &workspace_now_job,
    };
    *ret_count = ARRAY_SIZE(kinds);
    return kinds;
}
