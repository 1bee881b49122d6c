/* Blobs of layers that nobody converts now, as their images are here already: made of another blob,
 * or left when this one was lost. They are fetched several at a time, like those that are
 * converted.
 */
#include "layers.h"
#include "pull_internal.h"

/* What the threads share. */
struct rest {
    struct pull *pull;
    pthread_mutex_t lock; /* on what follows */
    size_t next;
    bool failed;
    size_t failed_index;
    int rc;
    struct err failure; /* the first one */
};

static int rest_stop(void *arg, struct err *err)
{
    struct rest *rest = arg;
    pthread_mutex_lock(&rest->lock);
    bool failed = rest->failed;
    pthread_mutex_unlock(&rest->lock);
    if (failed)
        return err_fail(err, ERR_CANCELLED, "another layer failed");
    return job_stop(rest->pull->job, err);
}

/* The next blob that is not in the store; the number of layers when there is none. */
static size_t take_next(struct rest *rest)
{
    size_t count = rest->pull->row.layer_count;
    pthread_mutex_lock(&rest->lock);
    while (rest->next < count && rest->pull->settled[rest->next])
        rest->next++;
    size_t index = rest->failed ? count : rest->next;
    if (index < count)
        rest->next++;
    pthread_mutex_unlock(&rest->lock);
    return index;
}

static void note_failure(struct rest *rest, size_t index, int rc, const struct err *failure)
{
    pthread_mutex_lock(&rest->lock);
    if (!rest->failed) {
        rest->failed = true;
        rest->failed_index = index;
        rest->rc = rc;
        rest->failure = *failure;
    }
    pthread_mutex_unlock(&rest->lock);
}

static void *run(void *arg)
{
    struct rest *rest = arg;
    for (size_t i; (i = take_next(rest)) < rest->pull->row.layer_count;) {
        struct err failure = ERR_INIT;
        int rc = pull_blob(rest->pull, i, NULL, rest_stop, rest, &failure);
        if (rc < 0)
            note_failure(rest, i, rc, &failure);
    }
    return NULL;
}

/* Fewer threads do the same work, so one that cannot be started is no failure. */
static void run_threads(struct rest *rest, size_t missing)
{
    pthread_t threads[LAYERS_PARALLEL - 1];
    size_t count = 0;
    while (count + 1 < missing && count < ARRAY_SIZE(threads) &&
           pthread_create(&threads[count], NULL, run, rest) == 0)
        count++;
    (void)run(rest);
    for (size_t i = 0; i < count; i++)
        (void)pthread_join(threads[i], NULL);
}

int pull_rest(struct pull *pull, struct err *err)
{
    size_t missing = 0;
    for (size_t i = 0; i < pull->row.layer_count; i++)
        missing += !pull->settled[i];
    if (missing == 0)
        return 0;
    struct rest rest = {.pull = pull};
    (void)pthread_mutex_init(&rest.lock, NULL);
    run_threads(&rest, missing);
    (void)pthread_mutex_destroy(&rest.lock);
    if (!rest.failed)
        return 0;
    if (err)
        *err = rest.failure;
    return err_wrap(err, rest.rc, "layer %zu of %zu", rest.failed_index + 1, pull->row.layer_count);
}
