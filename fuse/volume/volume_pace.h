/* volume_pace.h - the rate limit of a volume: bytes and requests a second.
 *
 * Two buckets of tokens, filled at the limit's rate, at most VOLUME_PACE_BURST_MS worth. A request
 * goes when both are above zero, and takes its whole cost, also below zero: so a request of any
 * size goes in the end, the rate over time is exact, and the next one waits for the debt. The
 * limits are varved's, in the live map, and may change at any time.
 */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VOLUME_PACE_BURST_MS = 100,
};

struct volume_pace {
    pthread_mutex_t lock;
    uint64_t last_ns;  /* when the buckets were filled; under lock */
    int64_t byte_debt; /* bytes, negative: tokens; under lock */
    int64_t op_debt;   /* thousandths of a request; under lock */
};

void volume_pace_init(struct volume_pace *pace);
/* 0: go, the cost is taken. Otherwise the nanoseconds after which to ask again, at least one.
 * Limits of 0 are none. */
uint64_t volume_pace_take(struct volume_pace *pace, uint64_t now_ns, size_t bytes,
                          uint64_t limit_bytes, uint64_t limit_ops);
