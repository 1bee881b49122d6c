/* volume_spin.h - how long a thread that has nothing to do looks for more before it sleeps.
 *
 * To wake a sleeping thread costs about as much as a small write to a fast disk, twice for each
 * request: when it comes, and when the disk is done. So the thread that reads requests goes on
 * looking for a while, if that has paid lately: the window grows when the next event came soon
 * after the thread had gone to sleep, and shrinks to nothing when it did not. A volume without load
 * costs nothing; one with a request at a time costs up to one processor while they come.
 *
 * Between two looks the thread yields (sched_yield(2)). When it gets the processor back late,
 * others want it: it then sleeps as soon as it has nothing to do, for a while.
 *
 * Times are of the monotonic clock. Nothing is locked: a thread has its own.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define VOLUME_SPIN_MAX_NS    UINT64_C(100000)
#define VOLUME_SPIN_FIRST_NS  UINT64_C(20000)
#define VOLUME_SPIN_STOLEN_NS UINT64_C(200000)   /* between two looks: the processor was away */
#define VOLUME_SPIN_QUIET_NS  UINT64_C(10000000) /* then */

struct volume_spin {
    uint64_t window_ns;
    uint64_t idle_ns; /* since when there is nothing to do; 0: there is */
    uint64_t looked_ns;
    uint64_t quiet_ns; /* no looking before */
};

/* There was something to do. */
void volume_spin_busy(struct volume_spin *spin);
/* There was nothing to do at `now`: look again? Else sleep. */
bool volume_spin_again(struct volume_spin *spin, uint64_t now);
/* After the sleep. */
void volume_spin_woken(struct volume_spin *spin, uint64_t now);
