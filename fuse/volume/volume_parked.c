/* Tasks that wait, and what is done with them when their time has come. */
#include "volume_queue_parts.h"

#include <errno.h>
#include <unistd.h>

/* What the live map says about waiting. */
static void show(struct volume_queue *queue)
{
    struct live_map_header *header = queue->header;
    uint64_t oldest = 0;
    for (struct volume_task *task = queue->held.first; task; task = task->next)
        if (oldest == 0 || task->since_ns < oldest)
            oldest = task->since_ns;
    atomic_store(&header->held, queue->held.count);
    atomic_store(&header->held_since_ns, oldest);
    atomic_store(&header->absent, queue->absent.count);
}

static void append(struct volume_queue *queue, struct volume_tasks *list, struct volume_task *task)
{
    task->next = NULL;
    if (list->last)
        list->last->next = task;
    else
        list->first = task;
    list->last = task;
    list->count++;
    if (list == &queue->held || list == &queue->absent)
        show(queue);
}

static void remove_task(struct volume_queue *queue, struct volume_tasks *list,
                        struct volume_task *task)
{
    struct volume_task *before = NULL;
    for (struct volume_task *at = list->first; at != task; at = at->next)
        before = at;
    if (before)
        before->next = task->next;
    else
        list->first = task->next;
    if (list->last == task)
        list->last = before;
    list->count--;
    if (list == &queue->held || list == &queue->absent)
        show(queue);
}

static struct volume_buffer *take_buffer(struct volume_queue *queue)
{
    struct volume_buffer *buffer = queue->free_buffers;
    if (buffer)
        queue->free_buffers = buffer->next;
    return buffer;
}

struct volume_task *volume_parked_make(struct volume_slot *slot, const struct volume_task *task)
{
    struct volume_queue *queue = slot->queue;
    bool payload = task->op == VOLUME_TASK_READ || task->op == VOLUME_TASK_WRITE;
    struct volume_task *made = queue->free_tasks;
    struct volume_buffer *next = NULL;
    if (!made || (payload && !(next = take_buffer(queue))))
        return NULL;
    queue->free_tasks = made->next;
    *made = *task;
    made->running = made->due = false;
    made->told = 0;
    made->buffer = NULL;
    if (payload) {
        made->buffer = slot->buffer;
        slot->buffer = next;
    }
    return made;
}

void volume_parked_free(struct volume_queue *queue, struct volume_task *task)
{
    if (task->buffer) {
        task->buffer->next = queue->free_buffers;
        queue->free_buffers = task->buffer;
    }
    task->next = queue->free_tasks;
    queue->free_tasks = task;
}

void volume_parked_wake(struct volume_queue *queue)
{
    (void)pthread_cond_signal(&queue->changed);
}

/* Somebody is to bring what a read waits for. */
static void tell(const struct volume_queue *queue)
{
    const uint64_t one = 1;
    ssize_t n = queue->tell_fd >= 0 ? write(queue->tell_fd, &one, sizeof one) : 0;
    (void)n; /* the counter is full: he knows */
}

void volume_parked_here(struct volume_queue *queue, struct volume_task *task, bool waits)
{
    if (waits && !task->running) {
        append(queue, &queue->absent_here, task);
        tell(queue);
    } else if (!waits && task->running) {
        remove_task(queue, &queue->absent_here, task);
    }
    task->running = waits;
}

void volume_parked_add(struct volume_queue *queue, struct volume_tasks *list,
                       struct volume_task *task)
{
    task->since_ns = volume_queue_now();
    uint64_t retry = task->since_ns + VOLUME_RETRY_MS * NS_PER_MS;
    if (list == &queue->held && list->count == 0)
        queue->held_retry_ns = retry;
    if (list == &queue->absent && list->count == 0)
        queue->absent_retry_ns = retry;
    append(queue, list, task);
    if (list == &queue->absent)
        tell(queue);
    volume_parked_wake(queue);
}

size_t volume_parked_ready(const struct volume_queue *queue)
{
    size_t count = 0;
    for (const struct volume_task *task = queue->ready.first; task; task = task->next)
        count += !task->running;
    return count;
}

void volume_parked_watch(struct volume_queue *queue)
{
    if (queue->held.count + queue->paced.count + queue->absent.count > 0 ||
        volume_parked_ready(queue) > 0 || queue->lender)
        volume_parked_wake(queue);
}

static struct volume_task *first_idle(const struct volume_tasks *list)
{
    for (struct volume_task *task = list->first; task; task = task->next)
        if (!task->running)
            return task;
    return NULL;
}

/* Something that it waits for has come. */
static struct volume_task *first_due(const struct volume_tasks *list)
{
    for (struct volume_task *task = list->first; task; task = task->next)
        if (!task->running && task->due)
            return task;
    return NULL;
}

static void sooner(uint64_t *until, uint64_t ns)
{
    if (ns < *until)
        *until = ns;
}

/* A refusal costs nothing, so it needs no pace. */
static struct volume_task *first_hopeless(const struct volume_queue *queue)
{
    if (!queue->stopped && !volume_queue_is_fenced(queue))
        return NULL;
    for (struct volume_task *task = queue->paced.first; task; task = task->next)
        if (!task->running && volume_queue_is_hopeless(queue, task))
            return task;
    return NULL;
}

static struct volume_task *due_paced(struct volume_queue *queue, uint64_t now, uint64_t *until)
{
    struct volume_task *task = first_hopeless(queue);
    if (task)
        return task;
    task = first_idle(&queue->paced);
    if (task && now >= queue->paced_ready_ns) {
        uint64_t wait = volume_queue_pace(queue, task, now);
        queue->paced_ready_ns = 0;
        if (wait == 0)
            return task;
        /* A limit may be raised meanwhile. */
        uint64_t most = (uint64_t)VOLUME_RETRY_MS * NS_PER_MS;
        queue->paced_ready_ns = now + (wait < most ? wait : most);
    }
    if (task)
        sooner(until, queue->paced_ready_ns);
    return NULL;
}

static struct volume_task *due_retry(const struct volume_queue *queue,
                                     const struct volume_tasks *list, bool now_or_never,
                                     uint64_t *retry_ns, uint64_t now, uint64_t *until)
{
    struct volume_task *task = first_idle(list);
    if (task && (queue->stopped || now_or_never || now >= *retry_ns)) {
        *retry_ns = now + (uint64_t)VOLUME_RETRY_MS * NS_PER_MS;
        return task;
    }
    if (task)
        sooner(until, *retry_ns);
    return NULL;
}

struct volume_task *volume_parked_due(struct volume_queue *queue, struct volume_tasks **ret_list,
                                      uint64_t *ret_until)
{
    uint64_t now = volume_queue_now();
    uint64_t until = now + (uint64_t)VOLUME_RETRY_MS * NS_PER_MS;
    struct volume_task *task = first_idle(&queue->ready);
    *ret_list = &queue->ready;
    if (!task) {
        *ret_list = &queue->held;
        task = due_retry(queue, &queue->held, volume_queue_is_fenced(queue), &queue->held_retry_ns,
                         now, &until);
    }
    if (!task) {
        *ret_list = &queue->paced;
        task = due_paced(queue, now, &until);
    }
    if (!task) {
        *ret_list = &queue->absent;
        task = first_due(&queue->absent);
    }
    if (!task) {
        task = due_retry(queue, &queue->absent, false, &queue->absent_retry_ns, now, &until);
    }
    *ret_until = until;
    return task;
}

void volume_parked_try(struct volume_queue *queue, struct volume_tasks *list,
                       struct volume_task *task)
{
    task->running = true;
    task->due = false;
    volume_parked_watch(queue);
    bool stopped = queue->stopped;
    (void)pthread_mutex_unlock(&queue->lock);
    int result = stopped ? -EIO : volume_queue_run(queue, task);
    struct volume_tasks *next = volume_queue_list(queue, task, result);
    (void)pthread_mutex_lock(&queue->lock);
    if (next && volume_queue_is_hopeless(queue, task)) {
        next = NULL;
        result = -EIO;
    }
    task->running = false;
    remove_task(queue, list, task);
    if (next && next != list) {
        volume_parked_add(queue, next, task);
        return;
    }
    if (next) {
        /* To the end, so that one that can't go does not keep back others. */
        append(queue, next, task);
        return;
    }
    /* There is room again, or blocks have come: the next one now. */
    if (list == &queue->held)
        queue->held_retry_ns = 0;
    if (list == &queue->absent)
        queue->absent_retry_ns = 0;
    (void)pthread_mutex_unlock(&queue->lock);
    volume_queue_answer(queue, task, result);
    (void)pthread_mutex_lock(&queue->lock);
    volume_parked_free(queue, task);
}

/* Absent chunks */

void volume_queue_tell(struct volume_queue *queue, int fd)
{
    (void)pthread_mutex_lock(&queue->lock);
    queue->tell_fd = fd;
    (void)pthread_mutex_unlock(&queue->lock);
}

static struct volume_task *first_untold(const struct volume_tasks *list, uint64_t connection)
{
    for (struct volume_task *task = list->first; task; task = task->next)
        if (task->told != connection)
            return task;
    return NULL;
}

bool volume_queue_next_absent(struct volume_queue *queue, uint64_t connection, uint64_t *ret_offset,
                              uint64_t *ret_len)
{
    (void)pthread_mutex_lock(&queue->lock);
    struct volume_task *task = first_untold(&queue->absent, connection);
    if (!task)
        task = first_untold(&queue->absent_here, connection);
    if (task) {
        task->told = connection;
        *ret_offset = task->offset;
        *ret_len = task->len;
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return task != NULL;
}

/* Marks those that wait for the chunk. */
static bool mark_due(const struct volume_tasks *list, uint64_t chunk)
{
    bool some = false;
    for (struct volume_task *task = list->first; task; task = task->next)
        if (task->offset / VOLUME_CHUNK <= chunk &&
            chunk <= (task->offset + task->len - 1) / VOLUME_CHUNK)
            some = task->due = true;
    return some;
}

void volume_queue_filled(struct volume_queue *queue, uint64_t chunk)
{
    (void)pthread_mutex_lock(&queue->lock);
    if (mark_due(&queue->absent, chunk))
        volume_parked_wake(queue);
    if (mark_due(&queue->absent_here, chunk))
        (void)pthread_cond_broadcast(&queue->retried);
    (void)pthread_mutex_unlock(&queue->lock);
}
