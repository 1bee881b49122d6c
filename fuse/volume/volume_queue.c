#include "volume_queue.h"

#include "cleanup.h"
#include "fault.h"

#include <string.h>
#include <time.h>

#define NS_PER_MS UINT64_C(1000000)

enum {
    BUFFER_BYTES = VOLUME_BLOCK + VOLUME_MAX_WRITE, /* the head stands at the end of the first */
};

static uint64_t now_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

size_t volume_queue_bytes(void)
{
    return VOLUME_BUFFERS * volume_resident_round(BUFFER_BYTES);
}

static int init_locks(struct volume_queue *queue)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc == 0)
        rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (rc == 0)
        rc = pthread_cond_init(&queue->changed, &attr);
    if (rc == 0)
        rc = pthread_mutex_init(&queue->lock, NULL);
    return rc;
}

int volume_queue_init(struct volume_queue *queue, struct chunk_io *io,
                      struct live_map_header *header, volume_answer *answer, void *arg,
                      struct volume_resident *resident, struct err *err)
{
    memset(queue, 0, sizeof *queue);
    queue->io = io;
    queue->header = header;
    queue->answer = answer;
    queue->arg = arg;
    volume_pace_init(&queue->pace);
    int rc = init_locks(queue);
    if (rc != 0)
        return err_errno(err, rc, "cannot make the queue of requests");
    for (size_t i = 0; i < VOLUME_BUFFERS; i++) {
        char *at = volume_resident_take(resident, BUFFER_BYTES);
        if (!at)
            return err_errno(err, ENOMEM, "cannot make the buffers of requests");
        queue->buffers[i].payload = at + VOLUME_BLOCK;
        queue->buffers[i].head = at + VOLUME_BLOCK - VOLUME_REQUEST_HEAD;
        queue->buffers[i].next = queue->free_buffers;
        queue->free_buffers = &queue->buffers[i];
    }
    for (size_t i = 0; i < VOLUME_TASKS; i++) {
        queue->tasks[i].next = queue->free_tasks;
        queue->free_tasks = &queue->tasks[i];
    }
    atomic_store(&header->held, 0);
    atomic_store(&header->held_since_ns, 0);
    atomic_store(&header->absent, 0);
    atomic_store(&header->in_flight, 0);
    return 0;
}

static struct volume_buffer *take_buffer(struct volume_queue *queue)
{
    struct volume_buffer *buffer = queue->free_buffers;
    if (buffer)
        queue->free_buffers = buffer->next;
    return buffer;
}

int volume_queue_slot(struct volume_queue *queue, bool reads, struct volume_slot *ret,
                      struct err *err)
{
    struct volume_slot slot = {.queue = queue};
    if (reads)
        slot.buffer = take_buffer(queue);
    if (reads && !slot.buffer)
        return err_errno(err, ENOMEM, "there are no more buffers of requests");
    *ret = slot;
    return 0;
}

static bool is_change(const struct volume_task *task)
{
    return task->op == VOLUME_TASK_WRITE || task->op == VOLUME_TASK_DISCARD;
}

static bool is_fenced(const struct volume_queue *queue)
{
    return (atomic_load_explicit(&queue->header->orders, memory_order_relaxed) &
            LIVE_ORDER_FENCED) != 0;
}

static int run(struct volume_slot *slot, const struct volume_task *task)
{
    struct volume_queue *queue = slot->queue;
    if (is_change(task) && is_fenced(queue))
        return -EIO;
    switch (task->op) {
    case VOLUME_TASK_READ:
        return chunk_io_read(queue->io, task->payload, task->len, task->offset);
    case VOLUME_TASK_WRITE:
        return chunk_io_write(queue->io, task->payload, task->len, task->offset);
    case VOLUME_TASK_DISCARD:
        return chunk_io_discard(queue->io, task->len, task->offset);
    case VOLUME_TASK_FLUSH:
        return chunk_io_flush(queue->io);
    }
    return -EINVAL;
}

static void count(_Atomic uint64_t *counter, uint64_t by)
{
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

static void answer(struct volume_queue *queue, const struct volume_task *task, int result)
{
    struct live_map_header *header = queue->header;
    (void)FAULT_POINT("volume.request-done", NULL);
    if (result < 0) {
        count(&header->errors, 1);
    } else if (task->op == VOLUME_TASK_READ) {
        count(&header->reads, 1);
        count(&header->read_bytes, task->len);
    } else if (task->op == VOLUME_TASK_WRITE) {
        count(&header->writes, 1);
        count(&header->write_bytes, task->len);
    } else if (task->op == VOLUME_TASK_DISCARD) {
        count(&header->discards, 1);
        count(&header->discard_bytes, task->len);
    } else {
        count(&header->flushes, 1);
    }
    queue->answer(queue->arg, task, result);
    atomic_fetch_sub_explicit(&header->in_flight, 1, memory_order_relaxed);
}

/* The list in which a task waits after `result`, or NULL: it is done. */
static struct volume_tasks *list_after(struct volume_queue *queue, const struct volume_task *task,
                                       int result)
{
    if (result == -EAGAIN && task->op == VOLUME_TASK_READ)
        return &queue->absent;
    if ((result == -ENOSPC || result == -EDQUOT) && task->op != VOLUME_TASK_READ)
        return &queue->held;
    return NULL;
}

/* Under lock: what the live map says about waiting. */
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
    show(queue);
}

static uint64_t pace(struct volume_queue *queue, const struct volume_task *task, uint64_t now)
{
    struct live_map_header *header = queue->header;
    uint64_t bytes = atomic_load_explicit(&header->limit_bytes, memory_order_relaxed);
    uint64_t ops = atomic_load_explicit(&header->limit_ops, memory_order_relaxed);
    if ((bytes == 0 && ops == 0) || task->op == VOLUME_TASK_FLUSH)
        return 0;
    size_t cost = task->op == VOLUME_TASK_DISCARD ? 0 : task->len;
    return volume_pace_take(&queue->pace, now, cost, bytes, ops);
}

/* Under lock. False when tasks or buffers have run out. */
static bool park(struct volume_slot *slot, struct volume_tasks *list,
                 const struct volume_task *task)
{
    struct volume_queue *queue = slot->queue;
    bool payload = task->op == VOLUME_TASK_READ || task->op == VOLUME_TASK_WRITE;
    struct volume_task *parked = queue->free_tasks;
    struct volume_buffer *next = NULL;
    if (!parked || queue->stopped || (payload && !(next = take_buffer(queue))))
        return false;
    queue->free_tasks = parked->next;
    *parked = *task;
    parked->running = false;
    parked->buffer = NULL;
    parked->since_ns = now_ns();
    if (payload) {
        parked->buffer = slot->buffer;
        slot->buffer = next;
    }
    uint64_t retry = parked->since_ns + VOLUME_RETRY_MS * NS_PER_MS;
    if (list == &queue->held && list->count == 0)
        queue->held_retry_ns = retry;
    if (list == &queue->absent && list->count == 0)
        queue->absent_retry_ns = retry;
    append(queue, list, parked);
    /* All, as one who waits himself listens too and would do nothing with it. */
    (void)pthread_cond_broadcast(&queue->changed);
    return true;
}

static void wait_until(struct volume_queue *queue, uint64_t ns)
{
    struct timespec at = {.tv_sec = (time_t)(ns / UINT64_C(1000000000)),
                          .tv_nsec = (long)(ns % UINT64_C(1000000000))};
    (void)pthread_cond_timedwait(&queue->changed, &queue->lock, &at);
}

/* Under lock. Nobody waits any more for what would make this task possible. */
static bool is_hopeless(const struct volume_queue *queue, const struct volume_task *task)
{
    return queue->stopped || (task->op != VOLUME_TASK_READ && is_fenced(queue));
}

/* For the thread that has a request too many: it waits itself. Under lock. */
static void wait_here(struct volume_slot *slot, const struct volume_task *task,
                      struct volume_tasks *list)
{
    struct volume_queue *queue = slot->queue;
    int result = 0;
    while (list && !is_hopeless(queue, task)) {
        wait_until(queue, now_ns() + VOLUME_RETRY_MS * NS_PER_MS);
        (void)pthread_mutex_unlock(&queue->lock);
        result = run(slot, task);
        list = list_after(queue, task, result);
        (void)pthread_mutex_lock(&queue->lock);
    }
    (void)pthread_mutex_unlock(&queue->lock);
    answer(queue, task, list ? -EIO : result);
    (void)pthread_mutex_lock(&queue->lock);
}

void volume_queue_do(struct volume_slot *slot, const struct volume_task *task)
{
    struct volume_queue *queue = slot->queue;
    struct live_map_header *header = queue->header;
    struct volume_tasks *list = NULL;
    int result = 0;
    count(&header->in_flight, 1);
    bool limited = atomic_load_explicit(&header->limit_bytes, memory_order_relaxed) != 0 ||
                   atomic_load_explicit(&header->limit_ops, memory_order_relaxed) != 0;
    if (limited && task->op != VOLUME_TASK_FLUSH) {
        (void)pthread_mutex_lock(&queue->lock);
        if (queue->paced.count > 0 || pace(queue, task, now_ns()) > 0)
            list = &queue->paced;
        if (list && park(slot, list, task)) {
            (void)pthread_mutex_unlock(&queue->lock);
            return;
        }
        (void)pthread_mutex_unlock(&queue->lock);
        list = NULL; /* no room to wait: rather too fast than stuck */
    }
    result = run(slot, task);
    list = list_after(queue, task, result);
    if (!list) {
        answer(queue, task, result);
        return;
    }
    (void)pthread_mutex_lock(&queue->lock);
    if (!park(slot, list, task))
        wait_here(slot, task, list);
    (void)pthread_mutex_unlock(&queue->lock);
}

static struct volume_task *first_idle(const struct volume_tasks *list)
{
    for (struct volume_task *task = list->first; task; task = task->next)
        if (!task->running)
            return task;
    return NULL;
}

static void sooner(uint64_t *until, uint64_t ns)
{
    if (ns < *until)
        *until = ns;
}

/* Under lock: the next task whose time has come, and its list; else NULL and when to look again. */
static struct volume_task *next_due(struct volume_queue *queue, struct volume_tasks **ret_list,
                                    uint64_t *ret_until)
{
    uint64_t now = now_ns();
    uint64_t until = now + (uint64_t)VOLUME_RETRY_MS * NS_PER_MS;
    struct volume_task *task = first_idle(&queue->held);
    if (task && (queue->stopped || is_fenced(queue) || now >= queue->held_retry_ns)) {
        queue->held_retry_ns = now + (uint64_t)VOLUME_RETRY_MS * NS_PER_MS;
        *ret_list = &queue->held;
        return task;
    }
    if (task)
        sooner(&until, queue->held_retry_ns);
    task = first_idle(&queue->paced);
    if (task && (queue->stopped || now >= queue->paced_ready_ns)) {
        uint64_t wait = queue->stopped ? 0 : pace(queue, task, now);
        queue->paced_ready_ns = 0;
        *ret_list = &queue->paced;
        if (wait == 0)
            return task;
        /* A limit may be raised meanwhile. */
        uint64_t most = (uint64_t)VOLUME_RETRY_MS * NS_PER_MS;
        queue->paced_ready_ns = now + (wait < most ? wait : most);
    }
    if (task)
        sooner(&until, queue->paced_ready_ns);
    task = first_idle(&queue->absent);
    if (task && (queue->stopped || now >= queue->absent_retry_ns)) {
        queue->absent_retry_ns = now + (uint64_t)VOLUME_RETRY_MS * NS_PER_MS;
        *ret_list = &queue->absent;
        return task;
    }
    if (task)
        sooner(&until, queue->absent_retry_ns);
    *ret_until = until;
    return NULL;
}

static void give_back(struct volume_queue *queue, struct volume_task *task)
{
    if (task->buffer) {
        task->buffer->next = queue->free_buffers;
        queue->free_buffers = task->buffer;
    }
    task->next = queue->free_tasks;
    queue->free_tasks = task;
}

/* Under lock, which is let go of for the work. */
static void try_task(struct volume_slot *slot, struct volume_tasks *list, struct volume_task *task)
{
    struct volume_queue *queue = slot->queue;
    task->running = true;
    bool stopped = queue->stopped;
    (void)pthread_mutex_unlock(&queue->lock);
    int result = stopped ? -EIO : run(slot, task);
    struct volume_tasks *next = list_after(queue, task, result);
    (void)pthread_mutex_lock(&queue->lock);
    if (next && is_hopeless(queue, task)) {
        next = NULL;
        result = -EIO;
    }
    task->running = false;
    remove_task(queue, list, task);
    if (next) {
        /* To the end, so that one that can't go does not keep back others. */
        if (next != list)
            task->since_ns = now_ns();
        append(queue, next, task);
        return;
    }
    /* There is room again, or blocks have come: the next one now. */
    if (list == &queue->held)
        queue->held_retry_ns = 0;
    if (list == &queue->absent)
        queue->absent_retry_ns = 0;
    (void)pthread_mutex_unlock(&queue->lock);
    answer(queue, task, result);
    (void)pthread_mutex_lock(&queue->lock);
    give_back(queue, task);
}

void volume_queue_park_thread(struct volume_slot *slot)
{
    struct volume_queue *queue = slot->queue;
    (void)pthread_mutex_lock(&queue->lock);
    for (;;) {
        struct volume_tasks *list = NULL;
        uint64_t until = 0;
        struct volume_task *task = next_due(queue, &list, &until);
        if (task)
            try_task(slot, list, task);
        else if (queue->stopped)
            break;
        else if (queue->held.count + queue->paced.count + queue->absent.count > 0)
            wait_until(queue, until);
        else
            (void)pthread_cond_wait(&queue->changed, &queue->lock);
    }
    (void)pthread_mutex_unlock(&queue->lock);
}

void volume_queue_stop(struct volume_queue *queue)
{
    (void)pthread_mutex_lock(&queue->lock);
    queue->stopped = true;
    (void)pthread_cond_broadcast(&queue->changed);
    (void)pthread_mutex_unlock(&queue->lock);
}
