#include "workspace_event_limit.h"

#include "clock.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of one volume. */
struct allowance {
    char id[VOLUME_ID_LEN + 1];
    int left;
    int64_t since_ns; /* what has come back before this time is in `left` */
    uint64_t left_out;
};

struct workspace_event_limit {
    struct allowance *list; /* owned */
    size_t count;
};

struct workspace_event_limit *workspace_event_limit_new(void)
{
    return calloc(1, sizeof(struct workspace_event_limit));
}

void workspace_event_limit_free(struct workspace_event_limit *limit)
{
    if (limit)
        free(limit->list);
    free(limit);
}

static void give_back(struct allowance *allowance, int64_t now_ns)
{
    const int64_t every = WORKSPACE_EVENT_SECONDS * CLOCK_NS_PER_S;
    int64_t count = now_ns > allowance->since_ns ? (now_ns - allowance->since_ns) / every : 0;
    allowance->since_ns += count * every;
    if (count >= WORKSPACE_EVENTS_AT_ONCE - allowance->left) {
        allowance->left = WORKSPACE_EVENTS_AT_ONCE;
        allowance->since_ns = now_ns;
    } else {
        allowance->left += (int)count;
    }
}

/* Those with all that they can have say nothing that a new one would not. */
static void forget_quiet(struct workspace_event_limit *limit, int64_t now_ns)
{
    size_t kept = 0;
    for (size_t i = 0; i < limit->count; i++) {
        give_back(&limit->list[i], now_ns);
        if (limit->list[i].left < WORKSPACE_EVENTS_AT_ONCE || limit->list[i].left_out > 0)
            limit->list[kept++] = limit->list[i];
    }
    limit->count = kept;
}

static struct allowance *find(struct workspace_event_limit *limit, const char *id, int64_t now_ns)
{
    for (size_t i = 0; i < limit->count; i++)
        if (strcmp(limit->list[i].id, id) == 0)
            return &limit->list[i];
    struct allowance *list = realloc(limit->list, (limit->count + 1) * sizeof *list);
    if (!list)
        return NULL;
    limit->list = list;
    struct allowance *allowance = &list[limit->count++];
    *allowance = (struct allowance){.left = WORKSPACE_EVENTS_AT_ONCE, .since_ns = now_ns};
    snprintf(allowance->id, sizeof allowance->id, "%s", id);
    return allowance;
}

bool workspace_event_limit_take(struct workspace_event_limit *limit, const char *id, int64_t now_ns,
                                uint64_t *ret_left_out)
{
    forget_quiet(limit, now_ns);
    struct allowance *allowance = find(limit, id, now_ns);
    *ret_left_out = 0;
    if (!allowance)
        return true;
    if (allowance->left == 0) {
        allowance->left_out++;
        return false;
    }
    allowance->left--;
    *ret_left_out = allowance->left_out;
    allowance->left_out = 0;
    return true;
}

bool workspace_event_limit_due(struct workspace_event_limit *limit, int64_t now_ns,
                               char ret_id[VOLUME_ID_LEN + 1], uint64_t *ret_left_out)
{
    for (size_t i = 0; i < limit->count; i++) {
        struct allowance *allowance = &limit->list[i];
        give_back(allowance, now_ns);
        if (allowance->left_out == 0 || allowance->left == 0)
            continue;
        allowance->left--;
        *ret_left_out = allowance->left_out;
        allowance->left_out = 0;
        memcpy(ret_id, allowance->id, sizeof allowance->id);
        return true;
    }
    return false;
}
