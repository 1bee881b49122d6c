#include "run_internal.h"

void run_paths_free(struct run_paths *paths)
{
    free(paths->rootfs);
    free(paths->lock);
    free(paths->volume);
    *paths = (struct run_paths){0};
}

static char *join(const struct node *node, const char *id, const char *name)
{
    char *path;
    return asprintf(&path, "%s/runs/%s/%s", node->run_dir, id, name) < 0 ? NULL : path;
}

int run_paths_make(const struct node *node, const char *id, struct run_paths *ret, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {
        .rootfs = join(node, id, "rootfs"),
        .lock = join(node, id, "lock"),
        .volume = join(node, id, "volume"),
    };
    if (!paths.rootfs || !paths.lock || !paths.volume)
        return err_errno(err, ENOMEM, "cannot name the directories of run %s", id);
    *ret = paths;
    paths = (struct run_paths){0};
    return 0;
}
