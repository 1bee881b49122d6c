/* volume_queue.h - requests between the kernel and the disk: buffers, and what has to wait.
 *
 * A fixed number of buffers, each large enough for the largest request, resident (I10). The payload
 * of a write, and of a read's reply, lies at a block boundary, as `data` is opened with O_DIRECT.
 *
 * VOLUME_THREADS threads take turns at /dev/fuse, each with a *slot*: a buffer of its
 * own. A request that can't be done now is *parked* as a task, with the buffer if it has a payload,
 * and the thread goes on with another buffer, so that reads go on while writes wait:
 *
 *   held     the host's disk is full: never answered with ENOSPC, which the loop device would make
 *            lost data of. Tried again every VOLUME_RETRY_MS, oldest first; answered with EIO when
 *            varved has fenced the volume
 *   paced    the volume's rate limit says "later" (volume_pace.h); in the order of arrival
 *   absent   blocks that only the remote has; tried again every VOLUME_RETRY_MS
 *
 * VOLUME_PARK_THREADS more threads do what was parked when its time has come. Limits and orders in
 * the live map are noticed within VOLUME_RETRY_MS.
 *
 * Why there is always a buffer: the loop device has at most VOLUME_LOOP_REQUESTS requests under
 * way, none larger than VOLUME_MAX_WRITE, so that each is one request here (varved sets its queue
 * so when it attaches); and the kernel's bound on asynchronous requests lies above that, so that it
 * keeps no read back behind held writes. So at most that many parked tasks have a buffer, each
 * thread has one, and there are as many. Requests without payload (flush, discard) are parked
 * without. Where the loop device's queue could not be set, or root itself writes to `device` beside
 * it, buffers or tasks may run out: then the thread that has one more waits itself, with the buffer
 * it has, until its request can be done; when all threads do, reads wait too.
 *
 * Order: a flush covers what was answered, and what is parked was not. The queue knows no FUSE:
 * `answer` is called exactly once for each task, by any thread.
 */
#pragma once

#include "chunk_io.h"
#include "volume_pace.h"
#include "volume_resident.h"

#include <stdbool.h>

enum {
    VOLUME_THREADS = 16,
    VOLUME_PARK_THREADS = 2,
    VOLUME_SLOTS = VOLUME_THREADS + VOLUME_PARK_THREADS,
    VOLUME_BUFFERS = VOLUME_LOOP_REQUESTS + VOLUME_THREADS + 4,
    VOLUME_TASKS = VOLUME_BUFFERS + 128,
    VOLUME_RETRY_MS = 200,
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

    /* The queue's own, while it is parked. */
    struct volume_buffer *buffer; /* owned; NULL: no payload */
    uint64_t since_ns;
    bool running;
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

    pthread_mutex_t lock; /* all below */
    pthread_cond_t changed;
    struct volume_buffer buffers[VOLUME_BUFFERS];
    struct volume_buffer *free_buffers;
    struct volume_task tasks[VOLUME_TASKS];
    struct volume_task *free_tasks;
    struct volume_tasks held, paced, absent;
    uint64_t held_retry_ns, paced_ready_ns, absent_retry_ns; /* not before */
    bool stopped; /* nothing waits any more: what can't be done is EIO */
};

/* What a thread works with. */
struct volume_slot {
    struct volume_queue *queue;
    struct volume_buffer *buffer; /* owned; NULL for threads that read no requests */
};

/* Bytes of the region that volume_queue_init() takes. */
size_t volume_queue_bytes(void);
int volume_queue_init(struct volume_queue *queue, struct chunk_io *io,
                      struct live_map_header *header, volume_answer *answer, void *arg,
                      struct volume_resident *resident, struct err *err);
/* A slot, with a buffer for a thread that reads requests. */
int volume_queue_slot(struct volume_queue *queue, bool reads, struct volume_slot *ret,
                      struct err *err);

/* Does the task now and answers it, or parks it. `task` is copied. After the call slot->buffer may
 * be another one. */
void volume_queue_do(struct volume_slot *slot, const struct volume_task *task);
/* Body of a parking thread; returns after volume_queue_stop(). */
void volume_queue_park_thread(struct volume_slot *slot);
/* From here on nothing waits: what is parked, and what would be, is answered with EIO. */
void volume_queue_stop(struct volume_queue *queue);
