#include "quick_time.h"

static int64_t wall_ns(const struct clock *clock)
{
    const struct quick_time *quick = (const struct quick_time *)clock;
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * CLOCK_NS_PER_S + now.tv_nsec + quick->ahead_ms * 1000000;
}

static int64_t mono_ns(const struct clock *clock)
{
    const struct quick_time *quick = (const struct quick_time *)clock;
    return clock_now_ns() + quick->ahead_ms * 1000000;
}

static int sleep_quickly(void *arg, int64_t ms, const struct registry_waiter *waiter,
                         struct err *err)
{
    struct quick_time *quick = arg;
    quick->sleeps++;
    quick->last_ms = ms;
    quick_time_pass(quick, ms);
    return registry_pool_ask(waiter, err);
}

static void pause_quickly(void *arg, struct registry_pool *pool, const char *url, int64_t ms)
{
    struct quick_time *quick = arg;
    (void)pool;
    (void)url;
    quick->pauses++;
    quick->pause_ms = ms;
}

void quick_time_init(struct quick_time *quick)
{
    *quick = (struct quick_time){.clock = {.wall_ns = wall_ns, .mono_ns = mono_ns}};
    quick->time = (struct registry_repeat_time){
        .clock = &quick->clock, .sleep = sleep_quickly, .pause = pause_quickly, .arg = quick};
}

void quick_time_use(struct quick_time *quick, struct registry_pool *pool)
{
    registry_auth_set_time(registry_pool_auth(pool), &quick->time);
}

void quick_time_pass(struct quick_time *quick, int64_t ms)
{
    quick->ahead_ms += ms;
}
