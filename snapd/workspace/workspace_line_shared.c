#include "workspace_line_shared.h"

#include "clock.h"

enum {
    LOOK_MS = 50,
};

void workspace_line_shared_init(struct workspace_line_shared *shared, const struct node *node)
{
    *shared = (struct workspace_line_shared){.node = node};
    (void)pthread_mutex_init(&shared->lock, NULL);
    (void)pthread_cond_init(&shared->changed, NULL);
}

void workspace_line_shared_free(struct workspace_line_shared *shared)
{
    checkpoint_free(shared->checkpoint);
    (void)pthread_cond_destroy(&shared->changed);
    (void)pthread_mutex_destroy(&shared->lock);
}

/* Under lock: until it is open, or this thread is to open it. `stop` is asked without the lock, as
 * it may have one of its own. */
static int wait_turn(struct workspace_line_shared *shared, remote_progress stop, void *arg,
                     struct err *err)
{
    int rc = 0;
    while (!shared->checkpoint && shared->opening && rc == 0) {
        const struct timespec until = clock_in_ms(LOOK_MS);
        (void)pthread_cond_clockwait(&shared->changed, &shared->lock, CLOCK_MONOTONIC, &until);
        (void)pthread_mutex_unlock(&shared->lock);
        if (stop && stop(arg, 0, 0))
            rc = err_fail(err, ERR_CANCELLED, "the wait for checkpoint %s was ended",
                          shared->digest);
        (void)pthread_mutex_lock(&shared->lock);
    }
    return rc;
}

int workspace_line_shared_open(struct workspace_line_shared *shared, remote_progress stop,
                               void *arg, struct checkpoint **ret, struct err *err)
{
    struct checkpoint *opened = NULL;
    (void)pthread_mutex_lock(&shared->lock);
    int rc = wait_turn(shared, stop, arg, err);
    if (rc == 0 && !shared->checkpoint) {
        shared->opening = true;
        (void)pthread_mutex_unlock(&shared->lock);
        rc = workspace_line_open(shared->node, shared->lineage, shared->digest, stop, arg, &opened,
                                 err);
        (void)pthread_mutex_lock(&shared->lock);
        shared->opening = false;
        shared->checkpoint = opened;
        (void)pthread_cond_broadcast(&shared->changed);
    }
    if (rc == 0)
        *ret = shared->checkpoint;
    (void)pthread_mutex_unlock(&shared->lock);
    return rc;
}
