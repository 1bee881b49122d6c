#include "commit_layer.h"

#include "commit_blobs.h"

static int progress(void *arg, uint64_t entries, struct err *err)
{
    return job_progress(arg, entries, 0, "entries", err);
}

static int claim(void *arg, const struct digest *digest, struct err *err)
{
    return commit_blobs_lease(arg, digest, err);
}

int commit_layer_capture(struct job *job, int root_fd, enum capture_kind kind,
                         struct capture_result *ret, struct err *err)
{
    struct capture_hooks hooks = {.progress = progress, .claim = claim, .arg = job};
    return capture_tree(root_fd, kind, job_node(job)->blobs, &hooks, ret, err);
}
