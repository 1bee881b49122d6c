/* volume_queue_parts.h - what the files of volume_queue share. Internal. */
#pragma once

#include "volume_queue.h"

#define NS_PER_MS UINT64_C(1000000)

uint64_t volume_queue_now(void);

/* Does the task, which may wait. 0 or -errno. */
int volume_queue_run(struct volume_queue *queue, const struct volume_task *task);
/* Counts and answers, once for each task. Not under lock. */
void volume_queue_answer(struct volume_queue *queue, const struct volume_task *task, int result);
/* The list in which a task waits after `result`, or NULL: it is done. */
struct volume_tasks *volume_queue_list(struct volume_queue *queue, const struct volume_task *task,
                                       int result);
/* Nanoseconds that the limits ask the task to wait. Under lock. */
uint64_t volume_queue_pace(struct volume_queue *queue, const struct volume_task *task,
                           uint64_t now);
bool volume_queue_is_fenced(const struct volume_queue *queue);
/* Nobody waits any more for what would make this task possible. Under lock. */
bool volume_queue_is_hopeless(const struct volume_queue *queue, const struct volume_task *task);

/* volume_parked.c; all under lock. */

/* A copy of the task that has the slot's buffer if it needs one; the slot gets another. NULL when
 * tasks or buffers have run out. */
struct volume_task *volume_parked_make(struct volume_slot *slot, const struct volume_task *task);
void volume_parked_add(struct volume_queue *queue, struct volume_tasks *list,
                       struct volume_task *task);
void volume_parked_free(struct volume_queue *queue, struct volume_task *task);
/* A task of a thread that waits itself (zeroed but for what was asked): it waits for the remote, or
 * does no more. */
void volume_parked_here(struct volume_queue *queue, struct volume_task *task, bool waits);
/* Makes one thread that has nothing to do look again. */
void volume_parked_wake(struct volume_queue *queue);
/* Before a thread that watched over what is parked does something else: another one watches. */
void volume_parked_watch(struct volume_queue *queue);
/* Tasks that are ready, and nobody has begun yet. */
size_t volume_parked_ready(const struct volume_queue *queue);
/* The next task whose time has come, and its list; else NULL and when to look again. */
struct volume_task *volume_parked_due(struct volume_queue *queue, struct volume_tasks **ret_list,
                                      uint64_t *ret_until);
/* Does a task of a list; lets go of the lock for the work. */
void volume_parked_try(struct volume_queue *queue, struct volume_tasks *list,
                       struct volume_task *task);
