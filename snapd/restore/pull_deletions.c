#include "pull.h"

#include "catalog_lease.h"
#include "layers.h"
#include "log.h"

#include <string.h>

/* Removes the bytes while the transaction of catalog_deletion_next() is open. */
static int remove_bytes(struct node *node, const char *key, struct err *err)
{
    if (strncmp(key, "blob:", 5) != 0)
        return layers_remove_queued(node, key, err);
    struct digest digest;
    int rc = digest_parse(strchr(key, ':') + 1, &digest, err);
    return rc == 0 ? blobs_remove(node->blobs, &digest, err) : rc;
}

/* Puts an object that cannot be removed behind the others. */
static int put_last(struct node *node, const char *key, const struct err *failure, struct err *err)
{
    log_event(LOG_WARN, "not-removed", "object", key, "error", failure->text, NULL);
    return catalog_deletion_postpone(node->catalog, key, err);
}

static int remove_one(struct node *node, const char *key, struct err *failure, struct err *err)
{
    int rc = remove_bytes(node, key, failure);
    return rc < 0 ? put_last(node, key, failure, err)
                  : catalog_deletion_done(node->catalog, key, err);
}

enum {
    FAILURES_MAX = 100, /* of one round; the objects wait in the queue for the next */
};

int pull_run_deletions(struct node *node, struct err *err)
{
    cleanup_free char *first_failed = NULL; /* seen again, the round is complete */
    struct err first = ERR_INIT;
    int failures = 0;
    for (;;) {
        cleanup_free char *key = NULL;
        struct err failure = ERR_INIT;
        int rc = catalog_deletion_next(node->catalog, &key, err);
        if (rc < 0)
            return rc;
        if (!key)
            break;
        if (first_failed && strcmp(first_failed, key) == 0) {
            catalog_rollback(node->catalog);
            break;
        }
        rc = remove_one(node, key, &failure, err);
        if (rc < 0)
            return err_wrap(err, rc, "cannot remove %s", key);
        if (failure.code != ERR_NONE && !first_failed) {
            first = failure;
            first_failed = steal_ptr(key);
        }
        /* The first may never come again, as somebody can lease it meanwhile. */
        if (failure.code != ERR_NONE && ++failures == FAILURES_MAX)
            break;
    }
    return first.code == ERR_NONE ? 0 : err_pass(err, -first.num, &first);
}
