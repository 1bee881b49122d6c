#include "registry_repeat.h"

#include <string.h>

enum {
    NS_PER_MS = 1000000,
};

/* What moves in an attempt: bytes that the caller's sink has taken, and the request's body. */
struct counted {
    const struct registry_http_request *request;
    uint64_t taken;
    uint64_t sent;
    int64_t sent_ms; /* when the last byte of the body moved, by the system's clock */
};

static int system_sleep(void *arg, int64_t ms, const struct registry_waiter *waiter,
                        struct err *err)
{
    (void)arg;
    return registry_pool_sleep(ms, waiter, err);
}

static void system_pause(void *arg, struct registry_pool *pool, const char *url, int64_t ms)
{
    (void)arg;
    registry_pool_pause(pool, url, ms);
}

static int64_t system_wall_ns(const struct clock *clock)
{
    struct timespec now;
    (void)clock;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * CLOCK_NS_PER_S + now.tv_nsec;
}

static int64_t system_mono_ns(const struct clock *clock)
{
    (void)clock;
    return clock_now_ns();
}

struct registry_repeat_time registry_repeat_system_time(void)
{
    static const struct clock clock = {.wall_ns = system_wall_ns, .mono_ns = system_mono_ns};
    return (struct registry_repeat_time){
        .clock = &clock, .sleep = system_sleep, .pause = system_pause};
}

static int watch_body(void *arg, uint64_t done, uint64_t total)
{
    struct counted *counted = arg;
    const struct registry_http_request *request = counted->request;
    if (done != counted->sent)
        counted->sent_ms = clock_now_ms();
    counted->sent = done;
    return request->progress ? request->progress(request->progress_arg, done, total) : 0;
}

static int count_and_pass(void *arg, const void *bytes, size_t len, struct err *err)
{
    struct counted *counted = arg;
    counted->taken += len;
    return counted->request->sink(counted->request->sink_arg, bytes, len, err);
}

static int pass_head(void *arg, const struct registry_http_response *head, struct err *err)
{
    const struct counted *counted = arg;
    return counted->request->head(counted->request->sink_arg, head, err);
}

int registry_repeat_wait(const struct registry_repeat_means *means, struct registry_retry *retry,
                         const struct registry_http_response *response,
                         const struct registry_waiter *waiter, struct err *err)
{
    const struct registry_repeat_time *time = means->time;
    int64_t ms;
    bool all;
    if (registry_retry_next(retry, response, clock_wall_ns(time->clock) / CLOCK_NS_PER_S,
                            clock_mono_ns(time->clock) / NS_PER_MS, &ms, &all) == 0)
        return 0;
    struct registry_pool *pool = registry_http_pool(means->http);
    if (all && pool)
        time->pause(time->arg, pool, response->url, ms);
    int rc = time->sleep(time->arg, ms, waiter, err);
    return rc < 0 ? rc : 1;
}

static bool answer_may_pass(const struct registry_http_response *response,
                            enum registry_repeat repeat)
{
    return (repeat != REGISTRY_REPEAT_ASKED && registry_retry_is_put_off(response)) ||
           (repeat == REGISTRY_REPEAT_SAFE && registry_retry_is_passing(response));
}

/* One attempt. 1 when there may be another one: *ret is the answer then, or zero and *failure says
 * why there is none. Else as registry_http_perform(). */
static int attempt(const struct registry_repeat_means *means,
                   const struct registry_http_request *request, enum registry_repeat repeat,
                   struct registry_retry *retry, struct registry_http_response *ret,
                   struct err *failure)
{
    int64_t from_ms = clock_now_ms();
    struct counted counted = {.request = request, .sent_ms = from_ms};
    struct registry_http_request inner = *request;
    if (request->body_size > 0) {
        inner.progress = watch_body;
        inner.progress_arg = &counted;
    }
    if (request->sink) {
        inner.sink = count_and_pass;
        inner.head = request->head ? pass_head : NULL;
        inner.sink_arg = &counted;
    }
    int rc = registry_http_perform(means->http, &inner, ret, failure);
    if (rc < 0 || registry_retry_is_passing(ret))
        registry_retry_moved(retry, counted.sent_ms - from_ms);
    if (rc == 0)
        return answer_may_pass(ret, repeat);
    bool again =
        repeat == REGISTRY_REPEAT_SAFE && registry_retry_is_lost(failure) && counted.taken == 0;
    return again ? 1 : rc;
}

int registry_repeat_perform(const struct registry_repeat_means *means,
                            const struct registry_http_request *request,
                            enum registry_repeat repeat, struct registry_retry *retry,
                            struct registry_http_response *ret, struct err *err)
{
    struct registry_retry own = {.attempts = 0};
    retry = retry ? retry : &own;
    struct registry_waiter waiter = {
        .progress = request->progress, .arg = request->progress_arg, .total = request->body_size};
    for (;;) {
        cleanup_http_response struct registry_http_response response = {0};
        struct err failure = ERR_INIT;
        int rc = attempt(means, request, repeat, retry, &response, &failure);
        if (rc < 0)
            return err_pass(err, rc, &failure);
        bool lost = failure.code != ERR_NONE;
        if (rc == 1) {
            rc = registry_repeat_wait(means, retry, lost ? NULL : &response, &waiter, err);
            if (rc < 0)
                return rc;
            if (rc == 1)
                continue;
            if (lost) {
                err_wrap(&failure, -failure.num, "%d attempts failed", retry->attempts);
                return err_pass(err, -failure.num, &failure);
            }
        }
        *ret = response;
        response = (struct registry_http_response){0};
        return 0;
    }
}
