/* deadline_child.h - calls that can hang, made where nobody has to wait for them.
 *
 * A call on a file system whose device does not answer (umount, syncfs, statfs, a mount) cannot be
 * interrupted, and a process with a thread in one cannot even end. So such a call is made by a
 * child process that has nothing of its parent's open but what the call needs. When the time is
 * over the child is killed; one that does not die (state D) is left behind and taken away later,
 * when it does. At most DEADLINE_CHILD_LEFT_MAX may be left behind, and DEADLINE_CHILD_SAME_MAX for
 * one object, so that it doesn't stop what concerns others; then further calls are refused.
 *
 * The child is a fork of a process that may have threads: its function may use system calls, stack
 * memory, snprintf and the C library's allocation, no locks, no logging.
 *
 * Who waits may be told to end (wait_stop.h); then a call is given up at once, as if its time were
 * over, and its failure is that of who was asked.
 *
 * When this program is to end nobody has the time to wait: deadline_child_stop(). A tool ends with
 * the thread that waits for it, however that ends.
 *
 * Threads: calls may be made by several threads at once.
 */
#pragma once

#include "confine.h"
#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum {
    DEADLINE_CHILD_RESULT_MAX = 4096, /* bytes that a function can give back */
    DEADLINE_CHILD_LEFT_MAX = 64,
    DEADLINE_CHILD_OTHERS_MAX = 32, /* of those that are left, before a spare call is refused */
    DEADLINE_CHILD_SAME_MAX = 8,
    DEADLINE_CHILD_KEEP_MAX = 8,
    DEADLINE_CHILD_EACH_MS = 5000,
    DEADLINE_CHILD_STOP_MS = 2000,
};

/* What ps shows of a child, until it runs a program. */
#define DEADLINE_CHILD_NAME "varve-call"

/* Runs in the child. Returns 0, a positive result, or -errno with err set. `result` is zeroed and
 * has the room that the caller asked for; a descriptor in *ret_fd (-1 before) is handed to the
 * parent.
 */
typedef int deadline_child_call(void *arg, void *result, int *ret_fd, struct err *err);

struct deadline_child {
    const char *what;   /* for messages: "unmount /srv/a" */
    const char *object; /* what it may hang on, for the limit: a path, a device; may be NULL */
    int wait_ms;
    bool spare;       /* whoever asks may choose the object: such calls leave places for others */
    const char *hint; /* what to do when the time is over; may be NULL */
    const int *keep;  /* descriptors that the child needs; borrowed. A tool has them as 3, 4, ... */
    size_t keep_count;             /* at most DEADLINE_CHILD_KEEP_MAX */
    const struct confine *confine; /* of a tool: rights that it loses; NULL: none; borrowed */
};

/* Makes the call in a child. Returns what it returned; on success `result_len` bytes of result are
 * copied, and a descriptor that it gave is in *ret_fd (the caller's; -1: none). `result` and
 * `ret_fd` may be NULL. ERR_UNREACHABLE says for how long was waited: whether the call takes effect
 * later is open, unless it did all its work on a descriptor that only it has. */
int deadline_child_run(const struct deadline_child *child, deadline_child_call *call, void *arg,
                       void *result, size_t result_len, int *ret_fd, struct err *err);
/* The same call for many objects that seldom hang, by one child: it takes one after the other, and
 * `wait_ms` is for each. When one hangs, it is left behind with the child, and another child goes
 * on behind it, with less patience, and for DEADLINE_CHILD_EACH_MS in all. One that an earlier
 * child hangs on is not asked again before that has ended.
 *
 * ret_rcs[i] is what the call for objects[i] returned, its result at i * result_len of `results`,
 * which is written on success alone; -EHOSTUNREACH for one that gave no answer. `child->object` is
 * not used. The whole fails when no child can be made. */
typedef int deadline_child_item(void *arg, size_t i, void *result);
int deadline_child_each(const struct deadline_child *child, const char *const *objects,
                        size_t count, deadline_child_item *call, void *arg, void *results,
                        size_t result_len, int *ret_rcs, struct err *err);
/* Runs a program (argv[0] is its absolute path) with this environment (NULL: PATH and LC_ALL=C).
 * Returns its exit status (128 + signal), or -errno. What it said on both streams is in `ret_said`,
 * the end of it where it is longer. */
int deadline_child_tool(const struct deadline_child *child, const char *const *argv,
                        const char *const *envp, char *ret_said, size_t said_size, struct err *err);
/* From here on no call, also one that is under way, waits for more than DEADLINE_CHILD_STOP_MS;
 * what is cut short by that is ERR_INTERRUPTED. For the end of the program. */
void deadline_child_stop(void);
/* From here on the time of calls that this thread waits for does not run while `waits` says so
 * (asked five times a second): they wait for something else than the object, which is known and
 * told elsewhere. NULL: it always runs. Not for deadline_child_each(). */
void deadline_child_hold(bool (*waits)(void *arg), void *arg);
/* Whether a call for the object was left behind and has not ended. */
bool deadline_child_hangs(const char *object);
/* Takes away those that were left behind and have ended; returns how many have not. */
int deadline_child_reap(void);
