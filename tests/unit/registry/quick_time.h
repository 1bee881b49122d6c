/* quick_time.h - time for tests of the registry client, in which pauses last nothing.
 *
 * A sleep or a pause of all moves its clocks on at once and is recorded. Threads: may be used by
 * several at once.
 */
#pragma once

#include "registry_auth.h"

#include <stdatomic.h>

struct quick_time {
    struct clock clock; /* first, so that the two pointers are one */
    struct registry_repeat_time time;
    _Atomic int64_t ahead_ms; /* of the real clocks */
    _Atomic int sleeps;
    _Atomic int64_t last_ms; /* of the last sleep */
    _Atomic int pauses;
    _Atomic int64_t pause_ms; /* of the last pause */
};

void quick_time_init(struct quick_time *quick);
/* Makes it the time of everybody who uses this pool. */
void quick_time_use(struct quick_time *quick, struct registry_pool *pool);
void quick_time_pass(struct quick_time *quick, int64_t ms);
