/* clock.h - the time, from a source that tests can replace.
 *
 * Whoever needs time gets a `const struct clock *` handed down. Two kinds of time:
 *   wall       for records and policies; can jump; VARVE_CLOCK_OFFSET (seconds) shifts it
 *   monotonic  for deadlines, leases and measured durations; never jumps
 */
#pragma once

#include <stdint.h>

struct clock {
    int64_t (*wall_ns)(const struct clock *clock); /* nanoseconds since the epoch */
    int64_t (*mono_ns)(const struct clock *clock); /* nanoseconds since an arbitrary start */
    int64_t offset_ns;                             /* added to the wall clock */
};

#define CLOCK_NS_PER_S     INT64_C(1000000000)
#define CLOCK_OFFSET_MAX_S (INT64_C(100) * 366 * 24 * 3600) /* 100 years, either way */

/* The system's clocks, with the offset from VARVE_CLOCK_OFFSET when it is set; what is no whole
 * number of at most CLOCK_OFFSET_MAX_S is ignored. */
struct clock clock_system(void);

int64_t clock_wall_ns(const struct clock *clock);
int64_t clock_mono_ns(const struct clock *clock);

/* Room for "2026-11-29T16:38:56Z". */
struct clock_text {
    char s[40];
};

/* RFC 3339 in UTC, whole seconds. */
struct clock_text clock_format(int64_t wall_ns);
