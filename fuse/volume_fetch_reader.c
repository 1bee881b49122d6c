/* The threads of volume_fetch that read from the source. */
#include "volume_fetch_parts.h"

#include "clock.h"

/* For the source: whether to end. What nobody waits for makes room for what somebody waits for,
 * where nothing that has been read is thrown away. */
static int ask_stop(void *arg, uint64_t done, uint64_t total)
{
    struct fetch_task *task = arg;
    struct volume_fetch *fetch = task->fetch;
    (void)done;
    if (fetch_is_over(fetch))
        return 1;
    if (total != 0 || task->kind == FETCH_DEMAND)
        return 0;
    (void)pthread_mutex_lock(&fetch->lock);
    bool urgent = volume_fetch_order_is_urgent(fetch);
    (void)pthread_mutex_unlock(&fetch->lock);
    if (urgent)
        atomic_store(&task->yielded, true);
    return urgent;
}

/* Whether the chunk was asked for and has not been given yet. */
static bool note_given(struct fetch_task *task, uint64_t chunk)
{
    struct volume_fetch *fetch = task->fetch;
    bool is_new = false;
    (void)pthread_mutex_lock(&fetch->lock);
    for (size_t i = 0; i < task->count && !is_new; i++)
        if (task->chunks[i] == chunk && !task->given[i])
            is_new = task->given[i] = true;
    if (is_new) {
        volume_fetch_outcome_found(fetch, (uint32_t)chunk);
        fetch->flags[chunk] &= (uint8_t)~FETCH_READING;
        fetch->flags[chunk] |= FETCH_SENT;
    }
    (void)pthread_mutex_unlock(&fetch->lock);
    return is_new;
}

static int take(void *arg, uint64_t chunk, const void *bytes, struct err *err)
{
    struct fetch_task *task = arg;
    if (!note_given(task, chunk))
        return 0;
    int rc = volume_fetch_link_fill(task->fetch, (uint32_t)chunk, bytes);
    return rc < 0 ? err_fail(err, ERR_CANCELLED, "nobody fetches chunks any more") : 0;
}

/* What is to be first in the background. */
static int ask_first(struct fetch_task *task, struct err *err)
{
    struct volume_fetch *fetch = task->fetch;
    const uint32_t *first = NULL;
    size_t count = 0;
    int rc = fetch->source.first(fetch->source.arg, ask_stop, task, &first, &count, err);
    (void)pthread_mutex_lock(&fetch->lock);
    fetch->first_asked = false;
    fetch->first_known = rc >= 0;
    fetch->first = first;
    fetch->first_count = rc >= 0 ? count : 0;
    (void)pthread_mutex_unlock(&fetch->lock);
    return rc;
}

static void run_task(struct fetch_task *task)
{
    struct volume_fetch *fetch = task->fetch;
    const struct volume_fetch_source *source = &fetch->source;
    struct err failure = ERR_INIT;
    int rc = task->kind == FETCH_FIRST ? ask_first(task, &failure)
                                       : source->read(source->arg, task->chunks, task->count,
                                                      ask_stop, task, take, task, &failure);
    (void)pthread_mutex_lock(&fetch->lock);
    volume_fetch_outcome_finish(fetch, task, rc, &failure);
    (void)pthread_cond_broadcast(&fetch->changed);
    (void)pthread_mutex_unlock(&fetch->lock);
}

/* Until there is a task. False: the end. */
static bool next_task(struct volume_fetch *fetch, struct fetch_task *ret)
{
    bool found = false;
    (void)pthread_mutex_lock(&fetch->lock);
    while (!fetch_is_over(fetch) && !fetch->ended) {
        int64_t until = 0;
        found = volume_fetch_order_next(fetch, ret, &until);
        if (found)
            break;
        if (until == 0) {
            (void)pthread_cond_wait(&fetch->changed, &fetch->lock);
            continue;
        }
        const struct timespec at = {.tv_sec = until / CLOCK_NS_PER_S,
                                    .tv_nsec = until % CLOCK_NS_PER_S};
        (void)pthread_cond_timedwait(&fetch->changed, &fetch->lock, &at);
    }
    (void)pthread_mutex_unlock(&fetch->lock);
    return found;
}

void *volume_fetch_reader_run(void *arg)
{
    struct volume_fetch *fetch = arg;
    struct fetch_task task;
    while (next_task(fetch, &task))
        run_task(&task);
    return NULL;
}
