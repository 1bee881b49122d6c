#include "chunk_site.h"
#include "cleanup.h"
#include "volume_queue.h"

#include "chunk_io_parts.h"

#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The queue on a volume's files, without FUSE: who answers what, and what is left over. */

enum {
    ABSENT_FIRST = 8,
    ABSENT_COUNT = 24,
    FOLLOWERS = 2,
};

struct stage {
    struct chunk_site site;
    struct volume_resident resident;
    struct volume_queue queue;
    struct volume_slot slot;   /* does what it is told */
    struct volume_slot leader; /* leads, with a ring, from the beginning */
    struct volume_slot followers[FOLLOWERS];
    pthread_t threads[FOLLOWERS];
    atomic_int led; /* followers that came to lead */
    atomic_int answers, failures;
};

static void take_answer(void *arg, const struct volume_task *task, int result)
{
    struct stage *stage = arg;
    (void)task;
    atomic_fetch_add(&stage->answers, 1);
    if (result < 0)
        atomic_fetch_add(&stage->failures, 1);
}

/* One that comes to lead has no requests to read; it only says so. */
static void *follow(void *arg)
{
    struct volume_slot *slot = arg;
    if (volume_queue_lead(slot)) {
        struct stage *stage = slot->queue->arg;
        atomic_fetch_add(&stage->led, 1);
    }
    return NULL;
}

static void await_idle(struct stage *stage)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 20000; i++) {
        (void)pthread_mutex_lock(&stage->queue.lock);
        size_t idle = stage->queue.idle;
        (void)pthread_mutex_unlock(&stage->queue.lock);
        if (idle == FOLLOWERS)
            return;
        (void)nanosleep(&pause, NULL);
    }
    fail_msg("the threads do not come to rest");
}

static int setup(void **state)
{
    void *scratch = NULL;
    struct err err = ERR_INIT;
    struct stage *stage = calloc(1, sizeof *stage);
    if (!stage || scratch_setup(&scratch) != 0)
        return -1;
    struct scratch *at = scratch;
    chunk_site_make_absent(&stage->site, at, at->fd, VOLUME_SIZE_MIN, ABSENT_FIRST, ABSENT_COUNT);
    assert_int_equal(volume_resident_map(volume_queue_bytes(), &stage->resident, &err), 0);
    assert_int_equal(volume_queue_init(&stage->queue, &stage->site.io, stage->site.live.header,
                                       take_answer, stage, &stage->resident, &err),
                     0);
    assert_null(volume_resident_take(&stage->resident, 1));
    struct volume_ring *ring = NULL;
    assert_int_equal(volume_ring_open(&ring, &err), 0);
    assert_int_equal(volume_queue_slot(&stage->queue, NULL, &stage->slot, &err), 0);
    assert_int_equal(volume_queue_slot(&stage->queue, ring, &stage->leader, &err), 0);
    assert_true(volume_queue_lead(&stage->leader));
    for (size_t i = 0; i < FOLLOWERS; i++) {
        struct volume_slot *slot = &stage->followers[i];
        assert_int_equal(volume_queue_slot(&stage->queue, NULL, slot, &err), 0);
        assert_int_equal(pthread_create(&stage->threads[i], NULL, follow, slot), 0);
    }
    await_idle(stage);
    *state = stage;
    return 0;
}

static int teardown(void **state)
{
    struct stage *stage = *state;
    void *scratch = stage->site.scratch;
    volume_queue_stop(&stage->queue);
    for (size_t i = 0; i < FOLLOWERS; i++)
        (void)pthread_join(stage->threads[i], NULL);
    volume_ring_close(stage->leader.ring);
    chunk_site_leave(&stage->site);
    volume_resident_unmap(&stage->resident);
    free(stage);
    return scratch_teardown(&scratch);
}

static void submit_to(struct volume_slot *slot, enum volume_task_op op, uint64_t chunk)
{
    const struct volume_task task = {.op = op,
                                     .offset = chunk * VOLUME_CHUNK,
                                     .len = op == VOLUME_TASK_FLUSH ? 0 : VOLUME_CHUNK,
                                     .payload = slot->buffer->payload};
    volume_queue_do(slot, &task);
}

static void submit(struct stage *stage, enum volume_task_op op, uint64_t chunk)
{
    submit_to(&stage->slot, op, chunk);
}

static void await_answers(struct stage *stage, int count)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 20000 && atomic_load(&stage->answers) < count; i++)
        (void)nanosleep(&pause, NULL);
    assert_int_equal(atomic_load(&stage->answers), count);
}

static size_t free_buffers(struct stage *stage)
{
    size_t count = 0;
    (void)pthread_mutex_lock(&stage->queue.lock);
    for (struct volume_buffer *at = stage->queue.free_buffers; at; at = at->next)
        count++;
    (void)pthread_mutex_unlock(&stage->queue.lock);
    return count;
}

static size_t free_tasks(struct stage *stage)
{
    size_t count = 0;
    (void)pthread_mutex_lock(&stage->queue.lock);
    for (struct volume_task *at = stage->queue.free_tasks; at; at = at->next)
        count++;
    (void)pthread_mutex_unlock(&stage->queue.lock);
    return count;
}

static void payloads_lie_at_blocks(void **state)
{
    struct stage *stage = *state;
    for (size_t i = 0; i < VOLUME_BUFFERS; i++) {
        const struct volume_buffer *buffer = &stage->queue.buffers[i];
        assert_int_equal((uintptr_t)buffer->payload % VOLUME_BLOCK, 0);
        assert_ptr_equal(buffer->head + VOLUME_REQUEST_HEAD, buffer->payload);
    }
}

static void what_can_be_done_is_answered_at_once(void **state)
{
    struct stage *stage = *state;
    struct live_map_header *header = stage->site.live.header;
    submit(stage, VOLUME_TASK_WRITE, 0);
    submit(stage, VOLUME_TASK_READ, 0);
    submit(stage, VOLUME_TASK_DISCARD, 0);
    submit(stage, VOLUME_TASK_FLUSH, 0);
    assert_int_equal(atomic_load(&stage->answers), 4);
    assert_int_equal(atomic_load(&stage->failures), 0);
    assert_int_equal(atomic_load(&header->writes), 1);
    assert_int_equal(atomic_load(&header->write_bytes), VOLUME_CHUNK);
    assert_int_equal(atomic_load(&header->reads), 1);
    assert_int_equal(atomic_load(&header->read_bytes), VOLUME_CHUNK);
    assert_int_equal(atomic_load(&header->discards), 1);
    assert_int_equal(atomic_load(&header->discard_bytes), VOLUME_CHUNK);
    assert_int_equal(atomic_load(&header->flushes), 1);
    assert_int_equal(atomic_load(&header->in_flight), 0);
}

static void parked_tasks_give_everything_back(void **state)
{
    struct stage *stage = *state;
    struct live_map_header *header = stage->site.live.header;
    const size_t buffers = free_buffers(stage);
    const size_t tasks = free_tasks(stage);
    for (uint64_t i = 0; i < ABSENT_COUNT; i++)
        submit(stage, VOLUME_TASK_READ, ABSENT_FIRST + i);
    assert_int_equal(atomic_load(&stage->answers), 0);
    assert_int_equal(atomic_load(&header->absent), ABSENT_COUNT);
    assert_int_equal(atomic_load(&header->in_flight), ABSENT_COUNT);
    assert_int_equal(free_buffers(stage), buffers - ABSENT_COUNT);
    /* One that cannot go does not keep back the others. */
    for (uint64_t i = 1; i < ABSENT_COUNT; i++)
        submit(stage, VOLUME_TASK_WRITE, ABSENT_FIRST + i);
    struct timespec begun;
    struct timespec ended;
    (void)clock_gettime(CLOCK_MONOTONIC, &begun);
    await_answers(stage, 2 * (ABSENT_COUNT - 1));
    (void)clock_gettime(CLOCK_MONOTONIC, &ended);
    assert_true(ended.tv_sec - begun.tv_sec < 3); /* not one a VOLUME_RETRY_MS */
    assert_int_equal(atomic_load(&stage->failures), 0);
    volume_queue_stop(&stage->queue);
    await_answers(stage, 2 * (ABSENT_COUNT - 1) + 1);
    assert_int_equal(atomic_load(&stage->failures), 1);
    assert_int_equal(atomic_load(&header->absent), 0);
    assert_int_equal(atomic_load(&header->in_flight), 0);
    for (int i = 0; i < 1000 && free_tasks(stage) != tasks; i++)
        (void)sched_yield();
    assert_int_equal(free_buffers(stage), buffers);
    assert_int_equal(free_tasks(stage), tasks);
    /* Nothing waits any more. */
    submit(stage, VOLUME_TASK_READ, ABSENT_FIRST);
    assert_int_equal(atomic_load(&stage->failures), 2);
}

static void paced_tasks_keep_their_order(void **state)
{
    struct stage *stage = *state;
    atomic_store(&stage->site.live.header->limit_ops, 100);
    for (uint64_t i = 0; i < 30; i++)
        submit(stage, VOLUME_TASK_WRITE, 20 + i);
    assert_true(atomic_load(&stage->answers) < 30);
    submit(stage, VOLUME_TASK_FLUSH, 0); /* is not kept back */
    await_answers(stage, 31);
    assert_int_equal(atomic_load(&stage->failures), 0);
}

static void a_fenced_volume_is_read_only(void **state)
{
    struct stage *stage = *state;
    atomic_store(&stage->site.live.header->orders, LIVE_ORDER_FENCED);
    submit(stage, VOLUME_TASK_WRITE, 0);
    submit(stage, VOLUME_TASK_DISCARD, 0);
    assert_int_equal(atomic_load(&stage->failures), 2);
    submit(stage, VOLUME_TASK_READ, 0);
    submit(stage, VOLUME_TASK_FLUSH, 0);
    assert_int_equal(atomic_load(&stage->failures), 2);
    assert_int_equal(atomic_load(&stage->answers), 4);
}

/* At the pace of the limit these refusals would take five minutes. */
static void what_a_fence_refuses_has_no_pace(void **state)
{
    struct stage *stage = *state;
    struct live_map_header *header = stage->site.live.header;
    atomic_store(&header->limit_ops, 1);
    submit(stage, VOLUME_TASK_WRITE, 20); /* takes what may be ahead */
    int before = atomic_load(&stage->answers);
    for (uint64_t i = 0; i < 10; i++) {
        submit(stage, VOLUME_TASK_READ, 40);
        submit(stage, VOLUME_TASK_WRITE, 20 + i);
    }
    atomic_store(&header->orders, LIVE_ORDER_FENCED);
    for (uint64_t i = 0; i < 300; i++)
        submit(stage, VOLUME_TASK_WRITE, 20);
    assert_true(atomic_load(&stage->failures) >= 300); /* at once */
    for (int i = 0; i < 5000 && atomic_load(&stage->failures) < 309; i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_true(atomic_load(&stage->failures) >= 309); /* one may have gone before the fence */
    assert_true(atomic_load(&stage->answers) < before + 300 + 20);
}

struct waiter {
    struct stage *stage;
    struct volume_slot slot;
};

static void *wait_without_a_buffer(void *arg)
{
    struct waiter *waiter = arg;
    const struct volume_task task = {.op = VOLUME_TASK_READ,
                                     .offset = (uint64_t)ABSENT_FIRST * VOLUME_CHUNK,
                                     .len = VOLUME_CHUNK,
                                     .payload = waiter->slot.buffer->payload};
    volume_queue_do(&waiter->slot, &task);
    return NULL;
}

/* A thread that had no buffer to park its request with waits on its own. What is parked meanwhile
 * is news for the threads that have nothing to do, whoever else listens. */
static void a_thread_that_waits_itself_takes_no_news_away(void **state)
{
    struct stage *stage = *state;
    struct live_map_header *header = stage->site.live.header;
    struct waiter waiter = {.stage = stage};
    struct err err = ERR_INIT;
    pthread_t thread;
    assert_int_equal(volume_queue_slot(&stage->queue, NULL, &waiter.slot, &err), 0);
    (void)pthread_mutex_lock(&stage->queue.lock);
    struct volume_buffer *all = stage->queue.free_buffers;
    stage->queue.free_buffers = NULL;
    (void)pthread_mutex_unlock(&stage->queue.lock);
    assert_int_equal(pthread_create(&thread, NULL, wait_without_a_buffer, &waiter), 0);
    const struct timespec pause = {.tv_nsec = 50000000};
    (void)nanosleep(&pause, NULL);
    assert_int_equal(atomic_load(&header->in_flight), 1);
    assert_int_equal(atomic_load(&header->absent), 0);
    (void)pthread_mutex_lock(&stage->queue.lock);
    stage->queue.free_buffers = all;
    (void)pthread_mutex_unlock(&stage->queue.lock);
    /* Beyond the first few, each is parked, alone. */
    atomic_store(&header->limit_ops, 200);
    for (int i = 1; i <= 400; i++) {
        submit(stage, VOLUME_TASK_WRITE, 20 + (uint64_t)i % 8);
        await_answers(stage, i);
    }
    /* With a buffer again it is parked like others, and its thread is free. */
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&header->absent), 1);
    volume_queue_stop(&stage->queue);
    await_answers(stage, 401);
    assert_int_equal(atomic_load(&stage->failures), 1);
}

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Reads that wait for the remote are told of once for each connection, also those of a thread that
 * waits itself, and go on when their chunk has come. */
static void who_brings_chunks_is_told(void **state)
{
    struct stage *stage = *state;
    struct waiter waiter = {.stage = stage};
    struct err err = ERR_INIT;
    pthread_t thread;
    uint64_t offset = 0;
    uint64_t len = 0;
    uint64_t count = 0;
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(fd >= 0);
    volume_queue_tell(&stage->queue, fd);
    assert_false(volume_queue_next_absent(&stage->queue, 1, &offset, &len));
    for (uint64_t i = 0; i < 3; i++)
        submit(stage, VOLUME_TASK_READ, ABSENT_FIRST + 1 + i);
    assert_int_equal(volume_queue_slot(&stage->queue, NULL, &waiter.slot, &err), 0);
    (void)pthread_mutex_lock(&stage->queue.lock);
    struct volume_buffer *all = stage->queue.free_buffers;
    stage->queue.free_buffers = NULL;
    (void)pthread_mutex_unlock(&stage->queue.lock);
    assert_int_equal(pthread_create(&thread, NULL, wait_without_a_buffer, &waiter), 0);
    for (uint64_t seen = 0; seen < 4;) { /* a signal for each */
        (void)poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 10000);
        assert_int_equal(read(fd, &count, sizeof count), sizeof count);
        seen += count;
        assert_true(seen <= 4);
    }
    for (uint64_t connection = 1; connection <= 2; connection++) {
        bool told[4] = {false};
        for (int i = 0; i < 4; i++) {
            assert_true(volume_queue_next_absent(&stage->queue, connection, &offset, &len));
            assert_int_equal(len, VOLUME_CHUNK);
            assert_in_range(offset / VOLUME_CHUNK, ABSENT_FIRST, ABSENT_FIRST + 3);
            told[offset / VOLUME_CHUNK - ABSENT_FIRST] = true;
        }
        assert_true(told[0] && told[1] && told[2] && told[3]);
        assert_false(volume_queue_next_absent(&stage->queue, connection, &offset, &len));
    }
    int64_t before = now_ms();
    for (int i = 0; i < 4; i++) {
        const uint64_t chunk = ABSENT_FIRST + (uint64_t)(3 - i);
        assert_int_equal(chunk_io_fill(&stage->site.io, chunk, chunk_io_zeros), 0);
        volume_queue_filled(&stage->queue, chunk);
        await_answers(stage, i + 1);
    }
    assert_true(now_ms() - before < VOLUME_RETRY_MS * 3);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&stage->failures), 0);
    (void)pthread_mutex_lock(&stage->queue.lock);
    assert_int_equal(stage->queue.absent.count + stage->queue.absent_here.count, 0);
    while (all) {
        struct volume_buffer *next = all->next;
        all->next = stage->queue.free_buffers;
        stage->queue.free_buffers = all;
        all = next;
    }
    (void)pthread_mutex_unlock(&stage->queue.lock);
    volume_queue_tell(&stage->queue, -1);
    (void)close(fd);
}

static void fill(struct stage *stage, uint64_t chunk)
{
    memset(stage->slot.buffer->payload, 'a', VOLUME_CHUNK);
    int before = atomic_load(&stage->answers);
    submit(stage, VOLUME_TASK_WRITE, chunk);
    assert_int_equal(atomic_load(&stage->answers), before + 1);
}

static void local_chunks_are_read_and_written_in_the_ring(void **state)
{
    struct stage *stage = *state;
    struct volume_slot *leader = &stage->leader;
    const size_t buffers = free_buffers(stage);
    const size_t tasks = free_tasks(stage);
    for (uint64_t i = 0; i < 4; i++)
        fill(stage, i);
    for (uint64_t i = 0; i < 4; i++) {
        memset(leader->buffer->payload, 'b' + (int)i, VOLUME_CHUNK);
        submit_to(leader, VOLUME_TASK_WRITE, i);
        submit_to(leader, VOLUME_TASK_READ, i);
    }
    assert_true(leader->leads);
    assert_int_equal(volume_ring_under_way(leader->ring), 8);
    assert_int_equal(free_buffers(stage), buffers - 8);
    assert_int_equal(atomic_load(&stage->site.live.header->in_flight), 8);
    assert_int_equal(atomic_load(&stage->answers), 4);
    volume_queue_drain(leader);
    assert_int_equal(atomic_load(&stage->answers), 12);
    assert_int_equal(atomic_load(&stage->failures), 0);
    assert_int_equal(free_buffers(stage), buffers);
    assert_int_equal(free_tasks(stage), tasks);
    assert_int_equal(atomic_load(&stage->site.live.header->in_flight), 0);
    for (uint64_t i = 0; i < 4; i++) {
        submit(stage, VOLUME_TASK_READ, i);
        assert_int_equal(stage->slot.buffer->payload[VOLUME_CHUNK - 1], 'b' + (int)i);
    }
}

static void one_that_may_wait_is_given_to_others_while_the_ring_is_busy(void **state)
{
    struct stage *stage = *state;
    struct volume_slot *leader = &stage->leader;
    fill(stage, 0);
    submit_to(leader, VOLUME_TASK_WRITE, 0);
    submit_to(leader, VOLUME_TASK_FLUSH, 0);
    submit_to(leader, VOLUME_TASK_WRITE, 1); /* the first into its chunk */
    assert_true(leader->leads);
    await_answers(stage, 3); /* without looking at the ring */
    assert_int_equal(volume_ring_under_way(leader->ring), 1);
    volume_queue_drain(leader);
    assert_int_equal(atomic_load(&stage->answers), 4);
    assert_int_equal(atomic_load(&stage->failures), 0);
    assert_int_equal(atomic_load(&stage->led), 0);
}

static void await_leader(struct stage *stage)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 20000 && atomic_load(&stage->led) == 0; i++)
        (void)nanosleep(&pause, NULL);
    assert_int_equal(atomic_load(&stage->led), 1);
}

static void another_one_leads_while_one_waits(void **state)
{
    struct stage *stage = *state;
    submit_to(&stage->leader, VOLUME_TASK_DISCARD, 0);
    assert_false(stage->leader.leads);
    assert_int_equal(atomic_load(&stage->answers), 1); /* by the one that led */
    await_leader(stage);
}

static void *flush(void *arg)
{
    struct stage *stage = arg;
    submit_to(&stage->leader, VOLUME_TASK_FLUSH, 0);
    return NULL;
}

/* So that the thread that has just answered it sees what comes next without being woken. */
static void the_leader_goes_on_after_a_short_flush(void **state)
{
    struct stage *stage = *state;
    for (int i = 0; i < 200; i++) {
        submit_to(&stage->leader, VOLUME_TASK_FLUSH, 0);
        assert_null(stage->queue.lender);
    }
    assert_int_equal(atomic_load(&stage->answers), 200);
    assert_true(stage->leader.leads || atomic_load(&stage->led) == 1); /* one may have been slow */
}

static void a_long_flush_keeps_nobody_from_leading(void **state)
{
    struct stage *stage = *state;
    pthread_t thread;
    (void)pthread_mutex_lock(&stage->site.io.flush_lock);
    assert_int_equal(pthread_create(&thread, NULL, flush, stage), 0);
    await_leader(stage);
    assert_int_equal(atomic_load(&stage->answers), 0);
    (void)pthread_mutex_unlock(&stage->site.io.flush_lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&stage->answers), 1);
    assert_false(stage->leader.leads);
    assert_null(stage->queue.lender);
}

/* Without a buffer to read on with, the leader awaits what it has begun and does the rest itself.
 */
static void a_leader_without_buffers_does_it_itself(void **state)
{
    struct stage *stage = *state;
    struct volume_slot *leader = &stage->leader;
    fill(stage, 0);
    submit_to(leader, VOLUME_TASK_WRITE, 0);
    (void)pthread_mutex_lock(&stage->queue.lock);
    struct volume_buffer *all = stage->queue.free_buffers;
    stage->queue.free_buffers = NULL;
    (void)pthread_mutex_unlock(&stage->queue.lock);
    submit_to(leader, VOLUME_TASK_WRITE, 0);
    submit_to(leader, VOLUME_TASK_WRITE, 1);
    assert_int_equal(volume_ring_under_way(leader->ring), 0);
    assert_int_equal(atomic_load(&stage->answers), 4);
    assert_int_equal(atomic_load(&stage->failures), 0);
    (void)pthread_mutex_lock(&stage->queue.lock);
    struct volume_buffer *last = stage->queue.free_buffers;
    while (last && last->next)
        last = last->next;
    if (last)
        last->next = all;
    else
        stage->queue.free_buffers = all;
    (void)pthread_mutex_unlock(&stage->queue.lock);
}

int main(void)
{
#define STAGE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        STAGE(payloads_lie_at_blocks),
        STAGE(what_can_be_done_is_answered_at_once),
        STAGE(parked_tasks_give_everything_back),
        STAGE(paced_tasks_keep_their_order),
        STAGE(a_fenced_volume_is_read_only),
        STAGE(what_a_fence_refuses_has_no_pace),
        STAGE(a_thread_that_waits_itself_takes_no_news_away),
        STAGE(who_brings_chunks_is_told),
        STAGE(local_chunks_are_read_and_written_in_the_ring),
        STAGE(one_that_may_wait_is_given_to_others_while_the_ring_is_busy),
        STAGE(another_one_leads_while_one_waits),
        STAGE(the_leader_goes_on_after_a_short_flush),
        STAGE(a_long_flush_keeps_nobody_from_leading),
        STAGE(a_leader_without_buffers_does_it_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
