#include "keeper.h"

#include <errno.h>
#include <sys/epoll.h>
#include <time.h>

int keeper_watch(const struct keeper *keeper, int op, int fd, uint32_t events, uint64_t tag)
{
    struct epoll_event event = {.events = events, .data.u64 = tag};
    return epoll_ctl(keeper->epoll, op, fd, &event) < 0 ? -errno : 0;
}

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 * KEEPER_MS + now.tv_nsec;
}

static void dispatch(struct keeper *keeper, const struct epoll_event *event)
{
    int number = (int)(uint32_t)event->data.u64;
    switch ((enum keeper_source)(event->data.u64 >> 32)) {
    case KEEPER_LISTENER:
        keeper_socket_accept(keeper);
        break;
    case KEEPER_CONNECTION:
        keeper_socket_ready(keeper, number, event->events);
        break;
    case KEEPER_WORKER:
        if (keeper->volumes[number].id[0] != '\0')
            keeper_child_reap(keeper, &keeper->volumes[number]);
        break;
    case KEEPER_DROPPED:
        keeper_child_bury(keeper, number);
        break;
    }
}

/* False when nobody has needed keeper for KEEPER_IDLE_S. `next` is brought forward to that time. */
static bool is_needed(struct keeper *keeper, int64_t *next)
{
    if (keeper->volume_count > 0 || keeper_socket_has_any(keeper)) {
        keeper->idle_since = 0;
        return true;
    }
    if (keeper->idle_since == 0)
        keeper->idle_since = keeper->now;
    int64_t end = keeper->idle_since + KEEPER_IDLE_S * 1000 * KEEPER_MS;
    if (end < *next)
        *next = end;
    return keeper->now < end;
}

void keeper_loop(struct keeper *keeper)
{
    struct epoll_event events[64];
    int64_t next = 0;
    keeper->now = keeper->last_round = now_ns();
    do {
        int64_t ms = next == INT64_MAX     ? -1
                     : next <= keeper->now ? 0
                                           : (next - keeper->now + KEEPER_MS - 1) / KEEPER_MS;
        int count = epoll_wait(keeper->epoll, events, 64, (int)ms);
        keeper->now = now_ns();
        for (int i = 0; i < count; i++)
            dispatch(keeper, &events[i]);
        next = keeper_child_round(keeper);
        keeper_socket_send_events(keeper);
    } while (is_needed(keeper, &next));
}
