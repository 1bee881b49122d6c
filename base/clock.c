#include "clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static int64_t system_wall_ns(const struct clock *clock)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * CLOCK_NS_PER_S + now.tv_nsec + clock->offset_ns;
}

static int64_t system_mono_ns(const struct clock *clock)
{
    (void)clock;
    return clock_now_ns();
}

/* What VARVE_CLOCK_OFFSET says; 0 for anything that is no whole number within the bounds. */
static int64_t offset_from_environment(void)
{
    const char *text = getenv("VARVE_CLOCK_OFFSET");
    char *end;
    if (!text)
        return 0;
    long long seconds = strtoll(text, &end, 10); /* saturates when it is too large */
    if (end == text || *end != '\0' || seconds > CLOCK_OFFSET_MAX_S ||
        seconds < -CLOCK_OFFSET_MAX_S)
        return 0;
    return seconds * CLOCK_NS_PER_S;
}

struct clock clock_system(void)
{
    return (struct clock){.wall_ns = system_wall_ns,
                          .mono_ns = system_mono_ns,
                          .offset_ns = offset_from_environment()};
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

bool clock_parse(const char *text, int64_t *ret_wall_ns)
{
    struct tm tm = {.tm_sec = 0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    int64_t seconds = end && *end == '\0' ? timegm(&tm) : -1;
    if (seconds < 0 || seconds > INT64_MAX / CLOCK_NS_PER_S ||
        strcmp(clock_format(seconds * CLOCK_NS_PER_S).s, text) != 0)
        return false;
    *ret_wall_ns = seconds * CLOCK_NS_PER_S;
    return true;
}
