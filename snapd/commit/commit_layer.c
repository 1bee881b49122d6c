#include "commit_layer.h"

#include "blobs.h"
#include "commit_blobs.h"

enum {
    LEASE_ATTEMPTS = 3,
};

static int progress(void *arg, uint64_t entries, struct err *err)
{
    return job_progress(arg, entries, 0, "entries", err);
}

/* Whether the leased blob is still there. */
static int is_there(struct node *node, const struct digest *digest, bool *ret, struct err *err)
{
    struct err missing = ERR_INIT;
    uint64_t size;
    int rc = blobs_stat(node->blobs, digest, &size, &missing);
    if (rc < 0 && missing.code != ERR_NOT_FOUND)
        return err_fail(err, missing.code, "%s", missing.text);
    *ret = rc == 0;
    return 0;
}

/* The digest of a layer is known only when its blob is there, so a removal of an equal blob that
 * was queued before can take it until it is leased. Then it is made again. */
int commit_layer_capture(struct job *job, int root_fd, enum capture_kind kind,
                         struct capture_result *ret, struct err *err)
{
    struct node *node = job_node(job);
    for (int attempt = 0; attempt < LEASE_ATTEMPTS; attempt++) {
        cleanup_capture_result struct capture_result result = {.skipped = NULL};
        bool there = false;
        int rc = capture_tree(root_fd, kind, node->blobs, progress, job, &result, err);
        if (rc == 0)
            rc = commit_blobs_lease(job, &result.digest, err);
        if (rc == 0)
            rc = is_there(node, &result.digest, &there, err);
        if (rc < 0)
            return rc;
        if (there) {
            *ret = result;
            result.skipped = NULL;
            return 0;
        }
    }
    return err_fail(err, ERR_INTERNAL, "the new layer was removed as soon as it was made");
}
