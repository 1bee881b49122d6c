/* volume_queue.h - requests between the kernel and the disk: buffers, and what has to wait.
 *
 * A fixed number of buffers, each large enough for the largest request, resident (I10). The payload
 * of a write, and of a read's reply, lies at a block boundary, as `data` is opened with O_DIRECT.
 *
 * VOLUME_THREADS threads serve, each with a *slot*: a buffer, and a ring (volume_ring.h). One of
 * them *leads*: it reads requests. What is a read or a write of chunks that are local already, it
 * begins in its ring and reads on, so that many are under way on one thread. What may wait
 * otherwise (a flush, a discard, the first write into a chunk) it does itself when its ring is
 * empty and another thread has nothing to do, which leads from then on; else it gives it to the
 * others as a task. Without a ring everything may wait. So the thread that leads waits for nothing
 * but requests and its ring, and the others have no read or write under way in theirs. A flush is
 * an exception: most are over sooner than another thread could be woken, and what comes next mostly
 * waits for it. So its thread goes on leading, but is *lent*: another one looks after
 * VOLUME_LEND_MS and leads if the flush is not over; it keeps looking for VOLUME_WATCH_MS after the
 * last flush.
 *
 * A request that can't be done now is *parked* as a task, with the buffer if it has a payload:
 *
 *   ready    for the next thread that has nothing to do
 *   held     the host's disk is full: never answered with ENOSPC, which the loop device would make
 *            lost data of. Tried again every VOLUME_RETRY_MS, oldest first; answered with EIO when
 *            varved has fenced the volume
 *   paced    the volume's rate limit says "later" (volume_pace.h); in the order of arrival
 *   absent   a read of blocks that only the remote has. Whoever brings chunks (volume_fetch_io.h)
 * is told of it, and it is tried again when one of its chunks has come, and every VOLUME_RETRY_MS,
 * as a write may have covered what it lacked
 *
 * The threads that don't lead do what is parked when its time has come. Limits and orders in the
 * live map are noticed within VOLUME_RETRY_MS.
 *
 * Why there is always a buffer: the loop device has at most VOLUME_LOOP_REQUESTS requests under
 * way, none larger than VOLUME_MAX_WRITE, so that each is one request here (varved sets its queue
 * so when it attaches); and the kernel's bound on asynchronous requests lies above that, so that it
 * keeps no read back behind held writes. So at most that many tasks have a buffer, each thread has
 * one, and one more for a moment after an answer; there are as many. Requests without payload
 * (flush, discard) are parked without. Where the loop device's queue could not be set, or root
 * itself writes to `device` beside it, buffers or tasks may run out: then the thread that has one
 * more does and awaits it itself, with the buffer it has; when that thread leads, reads wait too.
 *
 * Order: a flush covers what was answered, and what is parked was not. The queue knows no FUSE:
 * `answer` is called exactly once for each task, by any thread.
 */
#pragma once

#include "chunk_io.h"
#include "volume_pace.h"
#include "volume_resident.h"
#include "volume_ring.h"

#include <stdbool.h>

enum {
    VOLUME_THREADS = 10,
    VOLUME_BUFFERS = VOLUME_LOOP_REQUESTS + 2 * VOLUME_THREADS,
    VOLUME_TASKS = VOLUME_BUFFERS + 128,
    VOLUME_RETRY_MS = 200,
    VOLUME_LEND_MS = 1,
    VOLUME_WATCH_MS = 20,
    /* fuse_in_header and fuse_write_in: what comes before the payload of a write. */
    VOLUME_REQUEST_HEAD = 80,
    VOLUME_REQUEST_MAX = VOLUME_REQUEST_HEAD + VOLUME_MAX_WRITE,
};

struct volume_buffer {
    struct volume_buffer *next; /* in the free list */
    char *head;                 /* where a request is read to: VOLUME_REQUEST_HEAD before payload */
    char *payload;              /* VOLUME_MAX_WRITE bytes, block-aligned */
};

enum volume_task_op {
    VOLUME_TASK_READ,
    VOLUME_TASK_WRITE,
    VOLUME_TASK_DISCARD,
    VOLUME_TASK_FLUSH,
};

struct volume_task {
    enum volume_task_op op;
    void *request; /* the caller's, for `answer` */
    uint64_t offset;
    uint64_t len;
    void *payload; /* block-aligned; of reads and writes */

    /* The queue's own, while it is parked or under way. */
    struct volume_buffer *buffer; /* owned; NULL: no payload */
    struct chunk_io_step step;    /* under way */
    uint64_t since_ns;
    bool running;
    bool due;      /* something that it waits for has come */
    uint64_t told; /* number of the connection that was told of it last */
    struct volume_task *next;
};

/* The result is 0 or -errno; for a read that is 0, `len` bytes of `payload` are the reply. */
typedef void volume_answer(void *arg, const struct volume_task *task, int result);

struct volume_tasks {
    struct volume_task *first;
    struct volume_task *last;
    size_t count;
};

struct volume_queue {
    struct chunk_io *io;            /* borrowed */
    struct live_map_header *header; /* borrowed; a mapping that stays where it is */
    volume_answer *answer;
    void *arg;
    struct volume_pace pace;

    pthread_mutex_t lock;   /* all below */
    pthread_cond_t changed; /* for threads with nothing to do: one is woken for each change */
    pthread_cond_t retried; /* for those who await one request; signalled when they are to look
                               again before their time */
    bool led;
    const struct volume_slot *lender; /* leads, but is busy with a flush; NULL: none is */
    uint64_t lent_ns;                 /* since when, or when it was the last time */
    bool watched;                     /* a thread looks at that */
    size_t idle;                      /* threads that wait for `changed` */
    struct volume_buffer buffers[VOLUME_BUFFERS];
    struct volume_buffer *free_buffers;
    struct volume_task tasks[VOLUME_TASKS];
    struct volume_task *free_tasks;
    struct volume_tasks ready, held, paced, absent;
    struct volume_tasks absent_here; /* the same of threads that wait themselves */
    int tell_fd;                     /* borrowed: eventfd; -1: nobody brings absent chunks */
    uint64_t held_retry_ns, paced_ready_ns, absent_retry_ns; /* not before */
    bool stopped; /* nothing waits any more: what can't be done is EIO */
};

/* What a thread works with. */
struct volume_slot {
    struct volume_queue *queue;
    struct volume_buffer *buffer; /* owned */
    struct volume_ring *ring;     /* borrowed; or NULL */
    bool leads;
    bool lends; /* was the lender when its thread last looked */
};

/* Bytes of the region that volume_queue_init() takes. */
size_t volume_queue_bytes(void);
int volume_queue_init(struct volume_queue *queue, struct chunk_io *io,
                      struct live_map_header *header, volume_answer *answer, void *arg,
                      struct volume_resident *resident, struct err *err);
/* A slot with a buffer. `ring` may be NULL. */
int volume_queue_slot(struct volume_queue *queue, struct volume_ring *ring, struct volume_slot *ret,
                      struct err *err);

/* Does what is parked until nobody leads. True: `slot` leads now. False: after
 * volume_queue_stop(). */
bool volume_queue_lead(struct volume_slot *slot);
/* Does the task now and answers it, begins it in the ring, or parks it. `task` is copied. After the
 * call slot->buffer may be another one, and the slot may not lead any more. */
void volume_queue_do(struct volume_slot *slot, const struct volume_task *task);
/* For the slot that leads: answers what has ended in its ring. Returns how many. */
unsigned volume_queue_reap(struct volume_slot *slot);
/* The same, until nothing is under way. */
void volume_queue_drain(struct volume_slot *slot);
/* For whoever brings absent chunks. `fd`, an eventfd that does not block, is written to whenever a
 * read begins to wait for the remote. Before the first request. */
void volume_queue_tell(struct volume_queue *queue, int fd);
/* The next read that waits for the remote and that this connection (not 0) was not told of: true,
 * and its range; it counts as told. */
bool volume_queue_next_absent(struct volume_queue *queue, uint64_t connection, uint64_t *ret_offset,
                              uint64_t *ret_len);
/* A chunk has come: reads that wait for it are tried again now. */
void volume_queue_filled(struct volume_queue *queue, uint64_t chunk);
/* From here on nothing waits: what is parked, and what would be, is answered with EIO. */
void volume_queue_stop(struct volume_queue *queue);
