#include "registry_pipe.h"

#include "cleanup.h"
#include "clock.h"

#include <string.h>

int registry_pipe_open(struct registry_pipe *pipe, size_t size, struct err *err)
{
    *pipe = (struct registry_pipe){.size = size};
    if (size > 0 && !(pipe->ring = malloc(size)))
        return err_errno(err, ENOMEM, "cannot talk to a registry");
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&pipe->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    (void)pthread_mutex_init(&pipe->lock, NULL);
    return 0;
}

void registry_pipe_close(struct registry_pipe *pipe)
{
    (void)pthread_mutex_destroy(&pipe->lock);
    (void)pthread_cond_destroy(&pipe->changed);
    free(pipe->ring);
    pipe->ring = NULL;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Where the bytes end and room begins. */
static size_t end_of(const struct registry_pipe *pipe)
{
    return (pipe->start + pipe->used) % pipe->size;
}

static void wake_near(struct registry_pipe *pipe)
{
    if (pipe->near_waits)
        pthread_cond_signal(&pipe->changed);
}

bool registry_pipe_put(struct registry_pipe *pipe, const void *bytes, size_t len)
{
    pthread_mutex_lock(&pipe->lock);
    bool fits = len <= pipe->size - pipe->used;
    if (fits && len > 0) {
        size_t at = end_of(pipe);
        size_t first = smaller(len, pipe->size - at);
        memcpy(pipe->ring + at, bytes, first);
        memcpy(pipe->ring, (const char *)bytes + first, len - first);
        pipe->used += len;
    }
    if (!fits)
        pipe->far_waits = true;
    if (!fits || pipe->used >= REGISTRY_PIPE_WAKE_BYTES)
        wake_near(pipe);
    pthread_mutex_unlock(&pipe->lock);
    return fits;
}

size_t registry_pipe_take(struct registry_pipe *pipe, void *into, size_t len)
{
    pthread_mutex_lock(&pipe->lock);
    size_t n = smaller(len, pipe->used);
    if (n > 0) {
        size_t first = smaller(n, pipe->size - pipe->start);
        memcpy(into, pipe->ring + pipe->start, first);
        memcpy((char *)into + first, pipe->ring, n - first);
        pipe->start = (pipe->start + n) % pipe->size;
        pipe->used -= n;
    } else {
        pipe->far_waits = true;
    }
    if (pipe->size - pipe->used >= REGISTRY_PIPE_PIECE)
        wake_near(pipe);
    pthread_mutex_unlock(&pipe->lock);
    return n;
}

void registry_pipe_flush(struct registry_pipe *pipe)
{
    pthread_mutex_lock(&pipe->lock);
    if (pipe->used > 0)
        wake_near(pipe);
    pthread_mutex_unlock(&pipe->lock);
}

void registry_pipe_restart(struct registry_pipe *pipe, uint64_t position)
{
    pthread_mutex_lock(&pipe->lock);
    pipe->used = 0;
    pipe->restarts++;
    pipe->position = position;
    wake_near(pipe);
    pthread_mutex_unlock(&pipe->lock);
}

void registry_pipe_end(struct registry_pipe *pipe)
{
    pthread_mutex_lock(&pipe->lock);
    pipe->ended = true;
    wake_near(pipe);
    pthread_mutex_unlock(&pipe->lock);
}

/* Whether the near side has something to do. */
static bool is_fulfilled(const struct registry_pipe *pipe, enum registry_pipe_wish wish,
                         unsigned int restarts)
{
    if (pipe->ended || pipe->restarts != restarts)
        return true;
    switch (wish) {
    case REGISTRY_PIPE_BYTES_WISHED:
        return pipe->used > 0;
    case REGISTRY_PIPE_ROOM_WISHED:
        return pipe->size - pipe->used >= REGISTRY_PIPE_PIECE;
    case REGISTRY_PIPE_END_WISHED:
        break;
    }
    return false;
}

static struct registry_pipe_state show(const struct registry_pipe *pipe,
                                       enum registry_pipe_wish wish)
{
    struct registry_pipe_state state = {
        .ended = pipe->ended, .restarts = pipe->restarts, .position = pipe->position};
    size_t at = 0;
    if (wish == REGISTRY_PIPE_BYTES_WISHED && pipe->size > 0) {
        at = pipe->start;
        state.len = smaller(pipe->used, pipe->size - at);
    } else if (wish == REGISTRY_PIPE_ROOM_WISHED && pipe->size > 0) {
        at = end_of(pipe);
        state.len = smaller(pipe->size - pipe->used, pipe->size - at);
    }
    state.at = pipe->ring ? pipe->ring + at : NULL;
    state.len = smaller(state.len, REGISTRY_PIPE_PIECE);
    return state;
}

struct registry_pipe_state registry_pipe_wait(struct registry_pipe *pipe,
                                              enum registry_pipe_wish wish, unsigned int restarts,
                                              int64_t ms)
{
    struct timespec until = clock_in_ms(ms);
    pthread_mutex_lock(&pipe->lock);
    pipe->near_waits = true;
    while (!is_fulfilled(pipe, wish, restarts) &&
           pthread_cond_timedwait(&pipe->changed, &pipe->lock, &until) == 0)
        ;
    pipe->near_waits = false;
    struct registry_pipe_state state = show(pipe, wish);
    pthread_mutex_unlock(&pipe->lock);
    return state;
}

bool registry_pipe_taken(struct registry_pipe *pipe, size_t len)
{
    pthread_mutex_lock(&pipe->lock);
    pipe->start = (pipe->start + len) % pipe->size;
    pipe->used -= len;
    bool wake = pipe->far_waits && pipe->used <= pipe->size / 2;
    if (wake)
        pipe->far_waits = false;
    pthread_mutex_unlock(&pipe->lock);
    return wake;
}

bool registry_pipe_added(struct registry_pipe *pipe, size_t len, unsigned int restarts)
{
    pthread_mutex_lock(&pipe->lock);
    if (pipe->restarts == restarts)
        pipe->used += len;
    bool wake = pipe->far_waits && pipe->used > 0;
    if (wake)
        pipe->far_waits = false;
    pthread_mutex_unlock(&pipe->lock);
    return wake;
}
