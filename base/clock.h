/* clock.h - the time, from a source that tests can replace.
 *
 * Whoever needs time for what outlives a call gets a `const struct clock *` handed down. Two kinds
 * of time: wall       for records and policies; can jump; VARVE_CLOCK_OFFSET (seconds) shifts it
 *   monotonic  for deadlines, leases and measured durations; never jumps
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

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

/* The kernel's own monotonic clock, for waits within one call and for what processes tell each
 * other: CLOCK_MONOTONIC is the same in all of them, and no test replaces it. */
static inline int64_t clock_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * CLOCK_NS_PER_S + now.tv_nsec;
}
static inline int64_t clock_now_ms(void)
{
    return clock_now_ns() / (CLOCK_NS_PER_S / 1000);
}
/* When `ms` milliseconds from now are over, for waits on condition variables. */
static inline struct timespec clock_in_ms(int64_t ms)
{
    int64_t ns = clock_now_ns() + ms * (CLOCK_NS_PER_S / 1000);
    return (struct timespec){.tv_sec = ns / CLOCK_NS_PER_S, .tv_nsec = ns % CLOCK_NS_PER_S};
}

/* Room for "2026-11-29T16:38:56Z". */
struct clock_text {
    char s[40];
};

/* RFC 3339 in UTC, whole seconds. */
struct clock_text clock_format(int64_t wall_ns);
/* What clock_format() writes, of a time from 1970 on, and nothing else. */
bool clock_parse(const char *text, int64_t *ret_wall_ns);
