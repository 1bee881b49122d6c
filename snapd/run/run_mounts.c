#include "mountinfo.h"
#include "run.h"
#include "run_internal.h"

#include <string.h>

int run_mounts_each(struct node *node, const char *id, run_mounts_take *take, void *arg,
                    struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    int rc = run_paths_make(node, id, &paths, err);
    if (rc == 0)
        rc = mountinfo_open("self", &info, err);
    if (rc < 0)
        return rc;
    size_t len = strlen(paths.rootfs);
    while ((rc = mountinfo_next(&info, &entry, err)) > 0) {
        if (strncmp(entry.point, paths.rootfs, len) != 0 || entry.point[len] != '/')
            continue;
        rc = take(arg, entry.point + len + 1, err);
        if (rc < 0)
            break;
    }
    return rc < 0 ? rc : 0;
}
