/* registry_repeat.h - a request under the rules of registry_retry.h.
 *
 * Job: performs a request, and once more after failures that pass, with the pauses between that
 * the rules say; a pause that a registry asks for holds for everybody who asks this registry
 * (registry_pool_pause()). Whoever waits is asked whether to go on.
 *
 * A body from a descriptor or memory is sent again from its beginning. A sink that has had bytes
 * cannot take them back, so a GET that broke off after its first byte is not repeated.
 *
 * Authorization is the caller's (registry_call.h).
 */
#pragma once

#include "clock.h"
#include "registry_pool.h"
#include "registry_retry.h"

/* What makes another attempt safe. */
enum registry_repeat {
    REGISTRY_REPEAT_NEVER, /* only after an answer that says that nothing was done: 401, 429, or 503
                            * with Retry-After */
    REGISTRY_REPEAT_ASKED, /* the caller repeats, as it looks at something else in between */
    REGISTRY_REPEAT_SAFE,  /* changes nothing, or the same once more */
};

/* Time as the registry client sees it, for tests to replace. */
struct registry_repeat_time {
    const struct clock *clock; /* without an offset: other machines' times are compared with it */
    int (*sleep)(void *arg, int64_t ms, const struct registry_waiter *waiter, struct err *err);
    void (*pause)(void *arg, struct registry_pool *pool, const char *url, int64_t ms);
    void *arg;
};
struct registry_repeat_time registry_repeat_system_time(void);

/* What repeating needs. Borrowed. */
struct registry_repeat_means {
    struct registry_http *http;
    const struct registry_repeat_time *time;
};

/* As registry_http_perform(). An answer of a passing failure is what is returned when there were
 * enough attempts. `retry` is that of the work that this request is a part of; NULL: it is all of
 * it. */
int registry_repeat_perform(const struct registry_repeat_means *means,
                            const struct registry_http_request *request,
                            enum registry_repeat repeat, struct registry_retry *retry,
                            struct registry_http_response *ret, struct err *err);

/* For callers with loops of their own: counts a failed attempt and waits. 1 when another one may be
 * made, 0 when not, or ERR_CANCELLED. `response` is NULL when there was none. */
int registry_repeat_wait(const struct registry_repeat_means *means, struct registry_retry *retry,
                         const struct registry_http_response *response,
                         const struct registry_waiter *waiter, struct err *err);
