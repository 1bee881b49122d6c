#include "volume_pace.h"

#define NS_PER_S 1000000000u

enum {
    OP = 1000, /* a request in op_debt */
};

void volume_pace_init(struct volume_pace *pace)
{
    *pace = (struct volume_pace){.last_ns = 0};
    (void)pthread_mutex_init(&pace->lock, NULL);
}

/* What `ns` give at `rate` a second. */
static int64_t tokens(uint64_t rate, uint64_t ns)
{
    unsigned __int128 product = (unsigned __int128)rate * ns / NS_PER_S;
    return product > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)product;
}

static int64_t fill(int64_t debt, uint64_t rate, uint64_t ns)
{
    int64_t most = tokens(rate, (uint64_t)VOLUME_PACE_BURST_MS * 1000000u);
    int64_t left = debt - tokens(rate, ns);
    return left < -most ? -most : left;
}

static uint64_t wait_for(int64_t debt, uint64_t rate)
{
    if (rate == 0 || debt <= 0)
        return 0;
    unsigned __int128 ns = (unsigned __int128)debt * NS_PER_S / rate + 1;
    return ns > 3600ull * NS_PER_S ? 3600ull * NS_PER_S : (uint64_t)ns;
}

uint64_t volume_pace_take(struct volume_pace *pace, uint64_t now_ns, size_t bytes,
                          uint64_t limit_bytes, uint64_t limit_ops)
{
    if (limit_bytes == 0 && limit_ops == 0)
        return 0;
    uint64_t op_rate = limit_ops > UINT64_MAX / OP ? UINT64_MAX : limit_ops * OP;
    (void)pthread_mutex_lock(&pace->lock);
    uint64_t ns = now_ns > pace->last_ns ? now_ns - pace->last_ns : 0;
    /* A remainder below one token is kept by moving the time only when there was one. */
    if (ns >= 1000000u || tokens(limit_bytes, ns) > 0 || tokens(op_rate, ns) > 0) {
        pace->byte_debt = limit_bytes ? fill(pace->byte_debt, limit_bytes, ns) : 0;
        pace->op_debt = limit_ops ? fill(pace->op_debt, op_rate, ns) : 0;
        pace->last_ns = now_ns;
    }
    uint64_t wait = wait_for(pace->byte_debt, limit_bytes);
    uint64_t op_wait = wait_for(pace->op_debt, op_rate);
    if (op_wait > wait)
        wait = op_wait;
    if (wait == 0) {
        pace->byte_debt += limit_bytes ? (int64_t)bytes : 0;
        pace->op_debt += limit_ops ? OP : 0;
    }
    (void)pthread_mutex_unlock(&pace->lock);
    return wait;
}
