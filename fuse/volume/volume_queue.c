#include "volume_queue.h"

#include "volume_queue_parts.h"

#include "cleanup.h"
#include "fault.h"

#include <string.h>
#include <time.h>

enum {
    BUFFER_BYTES = VOLUME_BLOCK + VOLUME_MAX_WRITE, /* the head stands at the end of the first */
};

uint64_t volume_queue_now(void)
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
        rc = pthread_cond_init(&queue->retried, &attr);
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
    queue->tell_fd = -1;
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

int volume_queue_slot(struct volume_queue *queue, struct volume_ring *ring, struct volume_slot *ret,
                      struct err *err)
{
    struct volume_buffer *buffer = queue->free_buffers;
    if (!buffer)
        return err_errno(err, ENOMEM, "there are no more buffers of requests");
    queue->free_buffers = buffer->next;
    *ret = (struct volume_slot){.queue = queue, .buffer = buffer, .ring = ring};
    return 0;
}

static bool is_change(const struct volume_task *task)
{
    return task->op == VOLUME_TASK_WRITE || task->op == VOLUME_TASK_DISCARD;
}

bool volume_queue_is_fenced(const struct volume_queue *queue)
{
    return (atomic_load_explicit(&queue->header->orders, memory_order_relaxed) &
            LIVE_ORDER_FENCED) != 0;
}

bool volume_queue_is_hopeless(const struct volume_queue *queue, const struct volume_task *task)
{
    return queue->stopped || (task->op != VOLUME_TASK_READ && volume_queue_is_fenced(queue));
}

int volume_queue_run(struct volume_queue *queue, const struct volume_task *task)
{
    if (is_change(task) && volume_queue_is_fenced(queue))
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

void volume_queue_answer(struct volume_queue *queue, const struct volume_task *task, int result)
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

struct volume_tasks *volume_queue_list(struct volume_queue *queue, const struct volume_task *task,
                                       int result)
{
    if (result == -EAGAIN && task->op == VOLUME_TASK_READ)
        return &queue->absent;
    if ((result == -ENOSPC || result == -EDQUOT) && task->op != VOLUME_TASK_READ)
        return &queue->held;
    return NULL;
}

uint64_t volume_queue_pace(struct volume_queue *queue, const struct volume_task *task, uint64_t now)
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
    struct volume_task *parked = slot->queue->stopped ? NULL : volume_parked_make(slot, task);
    if (parked)
        volume_parked_add(slot->queue, list, parked);
    return parked != NULL;
}

static void wait_until(struct volume_queue *queue, pthread_cond_t *cond, uint64_t ns)
{
    struct timespec at = {.tv_sec = (time_t)(ns / UINT64_C(1000000000)),
                          .tv_nsec = (long)(ns % UINT64_C(1000000000))};
    (void)pthread_cond_timedwait(cond, &queue->lock, &at);
}

/* For the thread that has a request too many: it waits itself. Under lock. */
static void wait_here(struct volume_slot *slot, const struct volume_task *task,
                      struct volume_tasks *list)
{
    struct volume_queue *queue = slot->queue;
    struct volume_task here = *task; /* as whoever brings absent chunks finds it */
    int result = 0;
    volume_parked_here(queue, &here, list == &queue->absent);
    while (list && !volume_queue_is_hopeless(queue, task)) {
        if (park(slot, list, task)) { /* a buffer has become free meanwhile */
            volume_parked_here(queue, &here, false);
            return;
        }
        if (!here.due)
            wait_until(queue, &queue->retried, volume_queue_now() + VOLUME_RETRY_MS * NS_PER_MS);
        here.due = false;
        (void)pthread_mutex_unlock(&queue->lock);
        result = volume_queue_run(queue, task);
        list = volume_queue_list(queue, task, result);
        (void)pthread_mutex_lock(&queue->lock);
    }
    volume_parked_here(queue, &here, false);
    (void)pthread_mutex_unlock(&queue->lock);
    volume_queue_answer(queue, task, list ? -EIO : result);
    (void)pthread_mutex_lock(&queue->lock);
}

static unsigned under_way(const struct volume_slot *slot)
{
    return slot->ring ? volume_ring_under_way(slot->ring) : 0;
}

static void done(void *arg, void *token, int result)
{
    struct volume_queue *queue = arg;
    struct volume_task *task = token;
    result = chunk_io_end(queue->io, &task->step, result);
    struct volume_tasks *list =
        result == -EBUSY ? &queue->ready : volume_queue_list(queue, task, result);
    if (list) {
        (void)pthread_mutex_lock(&queue->lock);
        bool hopeless = volume_queue_is_hopeless(queue, task);
        if (!hopeless)
            volume_parked_add(queue, list, task);
        (void)pthread_mutex_unlock(&queue->lock);
        if (!hopeless)
            return;
        result = -EIO;
    }
    volume_queue_answer(queue, task, result);
    (void)pthread_mutex_lock(&queue->lock);
    volume_parked_free(queue, task);
    (void)pthread_mutex_unlock(&queue->lock);
}

unsigned volume_queue_reap(struct volume_slot *slot)
{
    return slot->ring ? volume_ring_reap(slot->ring, done, slot->queue) : 0;
}

void volume_queue_drain(struct volume_slot *slot)
{
    while (under_way(slot) > 0) {
        if (volume_queue_reap(slot) == 0)
            volume_ring_wait(slot->ring, -1);
    }
}

/* Begins it in the slot's ring, or does it at once. False: that can't be without waiting. */
static bool begin_step(struct volume_slot *slot, const struct volume_task *task)
{
    struct volume_queue *queue = slot->queue;
    struct chunk_io_step step;
    int rc = -EBUSY;
    if (slot->leads && slot->ring && task->op == VOLUME_TASK_READ)
        rc = chunk_io_begin_read(queue->io, task->payload, task->len, task->offset, &step);
    else if (slot->leads && slot->ring && task->op == VOLUME_TASK_WRITE)
        rc = chunk_io_begin_write(queue->io, task->payload, task->len, task->offset, &step);
    if (rc == 0)
        volume_queue_answer(queue, task, 0);
    if (rc != 1)
        return rc == 0;
    (void)pthread_mutex_lock(&queue->lock);
    struct volume_task *begun = volume_parked_make(slot, task);
    (void)pthread_mutex_unlock(&queue->lock);
    bool fits = false;
    if (begun) {
        begun->step = step;
        int fd = queue->io->data_fd;
        fits = step.write
                   ? volume_ring_write(slot->ring, fd, step.buffer, step.len, step.offset, begun)
                   : volume_ring_read(slot->ring, fd, step.buffer, step.len, step.offset, begun);
    }
    if (fits)
        return true;
    (void)chunk_io_end(queue->io, &step, -ECANCELED);
    if (begun) {
        (void)pthread_mutex_lock(&queue->lock);
        struct volume_buffer *buffer = slot->buffer;
        slot->buffer = begun->buffer;
        begun->buffer = buffer;
        volume_parked_free(queue, begun);
        (void)pthread_mutex_unlock(&queue->lock);
    }
    return false;
}

/* Before a thread that leads does what may wait: true when others do it instead, else the slot has
 * nothing under way, and somebody else leads if there is anybody, or may. */
static bool hand_over(struct volume_slot *slot, const struct volume_task *task)
{
    struct volume_queue *queue = slot->queue;
    bool handed = false;
    (void)pthread_mutex_lock(&queue->lock);
    bool helped =
        !queue->stopped && under_way(slot) == 0 && queue->idle > volume_parked_ready(queue);
    if (helped && task->op == VOLUME_TASK_FLUSH) {
        queue->lender = slot;
        slot->lends = true;
        queue->lent_ns = volume_queue_now();
        if (!queue->watched)
            volume_parked_wake(queue);
    } else if (helped) {
        slot->leads = queue->led = false;
        volume_parked_wake(queue);
    } else {
        handed = park(slot, &queue->ready, task);
    }
    (void)pthread_mutex_unlock(&queue->lock);
    if (!handed)
        volume_queue_drain(slot);
    return handed;
}

/* After what hand_over() left to this thread: does it still lead? */
static void retake(struct volume_slot *slot)
{
    struct volume_queue *queue = slot->queue;
    (void)pthread_mutex_lock(&queue->lock);
    if (queue->lender == slot)
        queue->lender = NULL;
    else
        slot->leads = false;
    slot->lends = false;
    (void)pthread_mutex_unlock(&queue->lock);
}

static bool has_limits(const struct live_map_header *header)
{
    return atomic_load_explicit(&header->limit_bytes, memory_order_relaxed) != 0 ||
           atomic_load_explicit(&header->limit_ops, memory_order_relaxed) != 0;
}

/* True: the limits say "later", and it is parked. */
static bool is_paced(struct volume_slot *slot, const struct volume_task *task)
{
    struct volume_queue *queue = slot->queue;
    (void)pthread_mutex_lock(&queue->lock);
    bool later = queue->paced.count > 0 || volume_queue_pace(queue, task, volume_queue_now()) > 0;
    /* Where there is no room to wait: rather too fast than stuck. */
    bool parked = later && park(slot, &queue->paced, task);
    (void)pthread_mutex_unlock(&queue->lock);
    return parked;
}

/* Does it here, whatever it takes. */
static void do_here(struct volume_slot *slot, const struct volume_task *task)
{
    struct volume_queue *queue = slot->queue;
    int result = volume_queue_run(queue, task);
    struct volume_tasks *list = volume_queue_list(queue, task, result);
    if (!list) {
        volume_queue_answer(queue, task, result);
        return;
    }
    (void)pthread_mutex_lock(&queue->lock);
    if (!park(slot, list, task))
        wait_here(slot, task, list);
    (void)pthread_mutex_unlock(&queue->lock);
}

void volume_queue_do(struct volume_slot *slot, const struct volume_task *task)
{
    struct volume_queue *queue = slot->queue;
    count(&queue->header->in_flight, 1);
    if (is_change(task) && volume_queue_is_fenced(queue)) {
        volume_queue_answer(queue, task, -EIO);
        return;
    }
    if (task->op != VOLUME_TASK_FLUSH && has_limits(queue->header) && is_paced(slot, task))
        return;
    if (begin_step(slot, task))
        return;
    if (slot->leads && hand_over(slot, task))
        return;
    do_here(slot, task);
    if (slot->lends)
        retake(slot);
}

/* Under lock. Whether a leader has been busy for too long, so that the caller leads from now on. */
static bool is_lent(struct volume_queue *queue, uint64_t now)
{
    if (!queue->lender || now - queue->lent_ns < VOLUME_LEND_MS * NS_PER_MS)
        return false;
    queue->lender = NULL;
    return true;
}

/* Under lock. One thread at a time looks after a leader that has been lent lately. */
static void rest(struct volume_queue *queue, uint64_t now, uint64_t until)
{
    bool watches = !queue->watched && now - queue->lent_ns < VOLUME_WATCH_MS * NS_PER_MS;
    if (watches)
        until = now + VOLUME_LEND_MS * NS_PER_MS;
    queue->watched |= watches;
    queue->idle++;
    if (watches || queue->held.count + queue->paced.count + queue->absent.count > 0)
        wait_until(queue, &queue->changed, until);
    else
        (void)pthread_cond_wait(&queue->changed, &queue->lock);
    queue->idle--;
    if (watches)
        queue->watched = false;
}

bool volume_queue_lead(struct volume_slot *slot)
{
    struct volume_queue *queue = slot->queue;
    (void)pthread_mutex_lock(&queue->lock);
    while (!slot->leads) {
        struct volume_tasks *list = NULL;
        uint64_t until = 0;
        uint64_t now = volume_queue_now();
        if ((!queue->led && !queue->stopped) || is_lent(queue, now)) {
            slot->leads = queue->led = true;
            volume_parked_watch(queue);
            break;
        }
        struct volume_task *task = volume_parked_due(queue, &list, &until);
        if (task)
            volume_parked_try(queue, list, task);
        else if (queue->stopped)
            break;
        else
            rest(queue, now, until);
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return slot->leads;
}

void volume_queue_stop(struct volume_queue *queue)
{
    (void)pthread_mutex_lock(&queue->lock);
    queue->stopped = true;
    (void)pthread_cond_broadcast(&queue->changed);
    (void)pthread_cond_broadcast(&queue->retried);
    (void)pthread_mutex_unlock(&queue->lock);
}
