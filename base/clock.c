#include "clock.h"

#include <stdlib.h>
#include <time.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return ts.tv_sec * CLOCK_NS_PER_S + ts.tv_nsec;
}

static int64_t system_wall_ns(const struct clock *clock)
{
    return read_clock(CLOCK_REALTIME) + clock->offset_ns;
}

static int64_t system_mono_ns(const struct clock *clock)
{
    (void)clock;
    return read_clock(CLOCK_MONOTONIC);
}

struct clock clock_system(void)
{
    struct clock clock = {.wall_ns = system_wall_ns, .mono_ns = system_mono_ns};
    const char *offset = getenv("VARVE_CLOCK_OFFSET");
    if (offset)
        clock.offset_ns = (int64_t)strtol(offset, NULL, 10) * CLOCK_NS_PER_S;
    return clock;
}

int64_t clock_wall_ns(const struct clock *clock)
{
    return clock->wall_ns(clock);
}

int64_t clock_mono_ns(const struct clock *clock)
{
    return clock->mono_ns(clock);
}

struct clock_text clock_format(int64_t wall_ns)
{
    struct clock_text text;
    time_t seconds = wall_ns / CLOCK_NS_PER_S;
    struct tm tm;
    if (!gmtime_r(&seconds, &tm) || strftime(text.s, sizeof text.s, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        text.s[0] = '\0';
    return text;
}
