/* What volume_fetch brings next. */
#include "volume_fetch_parts.h"

#include "clock.h"

#include <string.h>

/* Absent, and nobody is at it. */
static bool is_free(const struct volume_fetch *fetch, uint64_t chunk)
{
    return !fetch_has(fetch, chunk, FETCH_READING | FETCH_SENT | FETCH_WAITS) &&
           fetch_is_absent(fetch, chunk);
}

/* --- what reads wait for --- */

static bool is_waiting(const struct volume_fetch *fetch, const struct fetch_range *want)
{
    for (uint32_t i = 0; i < want->count; i++)
        if (fetch_is_absent(fetch, want->first + i))
            return true;
    return false;
}

void volume_fetch_order_prune(struct volume_fetch *fetch)
{
    size_t kept = 0;
    for (size_t i = 0; i < fetch->want_count; i++)
        if (is_waiting(fetch, &fetch->wants[i]))
            fetch->wants[kept++] = fetch->wants[i];
    fetch->want_count = kept;
}

/* Whether this read goes on where one before it ended; notes where the next one would. */
static bool is_sequential(struct volume_fetch *fetch, const struct fetch_range *want,
                          struct fetch_stream **ret)
{
    struct fetch_stream *oldest = &fetch->streams[0];
    for (size_t i = 0; i < FETCH_STREAMS; i++) {
        struct fetch_stream *stream = &fetch->streams[i];
        if (stream->used != 0 && (want->first == stream->read_end ||
                                  (want->first >= stream->around_end &&
                                   want->first - stream->around_end <= FETCH_STREAM_SLACK))) {
            *ret = stream;
            return true;
        }
        if (stream->used < oldest->used)
            oldest = stream;
    }
    *ret = oldest;
    return false;
}

static struct fetch_range window(const struct volume_fetch *fetch, uint32_t chunk, uint32_t size)
{
    struct fetch_range range = {.first = chunk / size * size, .count = size};
    if (range.count > fetch->chunks - range.first)
        range.count = fetch->chunks - range.first;
    return range;
}

void volume_fetch_order_around(struct volume_fetch *fetch, const struct fetch_range *range)
{
    for (size_t i = 0; i < fetch->rest_count; i++)
        if (fetch->rests[i].first == range->first && fetch->rests[i].count == range->count)
            return;
    if (fetch->rest_count == FETCH_RESTS)
        memmove(fetch->rests, fetch->rests + 1, sizeof *fetch->rests * --fetch->rest_count);
    fetch->rests[fetch->rest_count++] = *range;
}

static void note_touched(struct volume_fetch *fetch, const struct fetch_range *want)
{
    for (uint32_t chunk = want->first; chunk < want->first + want->count; chunk++) {
        if (fetch_has(fetch, chunk, FETCH_TOUCHED) ||
            fetch->touched_count == VOLUME_FETCH_TOUCHED_MAX)
            continue;
        fetch->flags[chunk] |= FETCH_TOUCHED;
        fetch->touched[fetch->touched_count++] = chunk;
    }
}

bool volume_fetch_order_want(struct volume_fetch *fetch, uint32_t first, uint32_t count)
{
    const struct fetch_range want = {.first = first, .count = count};
    struct fetch_stream *stream;
    volume_fetch_order_prune(fetch);
    if (fetch->want_count == FETCH_WANTS)
        return false;
    if (fetch->want_count == 0)
        fetch->wants_since_ns = clock_now_ns();
    fetch->wants[fetch->want_count++] = want;
    note_touched(fetch, &want);
    bool goes_on = is_sequential(fetch, &want, &stream);
    const struct fetch_range around =
        window(fetch, first, goes_on ? FETCH_BATCH : FETCH_NEAR_CHUNKS);
    *stream = (struct fetch_stream){.read_end = first + count,
                                    .around_end = around.first + around.count,
                                    .used = ++fetch->stream_uses};
    volume_fetch_order_around(fetch, &around);
    return true;
}

bool volume_fetch_order_is_urgent(const struct volume_fetch *fetch)
{
    for (size_t i = 0; i < fetch->want_count; i++) {
        const struct fetch_range *want = &fetch->wants[i];
        for (uint32_t chunk = want->first; chunk < want->first + want->count; chunk++)
            if (!fetch_has(fetch, chunk, FETCH_DEMANDED | FETCH_SENT | FETCH_WAITS) &&
                fetch_is_absent(fetch, chunk))
                return true;
    }
    return false;
}

/* --- tasks --- */

static void sooner(int64_t *until_ns, int64_t at_ns)
{
    if (at_ns != 0 && (*until_ns == 0 || at_ns < *until_ns))
        *until_ns = at_ns;
}

/* Adds what is free of a range; a chunk that is to be read alone only to an empty task, which then
 * has no other. False: the task is full. */
static bool add_free(struct volume_fetch *fetch, struct fetch_task *task,
                     const struct fetch_range *range, size_t max)
{
    for (uint32_t chunk = range->first; chunk < range->first + range->count; chunk++) {
        if (task->count == max)
            return false;
        if (!is_free(fetch, chunk))
            continue;
        bool alone = fetch_has(fetch, chunk, FETCH_ALONE);
        if (alone && task->count > 0)
            continue;
        fetch->flags[chunk] |= FETCH_READING;
        if (task->kind == FETCH_DEMAND)
            fetch->flags[chunk] |= FETCH_DEMANDED;
        task->given[task->count] = false;
        task->chunks[task->count++] = chunk;
        if (alone)
            return false;
    }
    return task->count < max;
}

/* What reads wait for: the oldest, and what others wait for near it. */
static bool next_demand(struct volume_fetch *fetch, struct fetch_task *task)
{
    struct fetch_range near = {.count = 0};
    task->kind = FETCH_DEMAND;
    for (size_t i = 0; i < fetch->want_count; i++) {
        struct fetch_range want = fetch->wants[i];
        while (near.count == 0 && want.count > 0 && !is_free(fetch, want.first))
            want = (struct fetch_range){.first = want.first + 1, .count = want.count - 1};
        if (want.count == 0)
            continue;
        if (near.count == 0)
            near = window(fetch, want.first, FETCH_BATCH);
        const uint32_t end = want.first + want.count, near_end = near.first + near.count;
        want.first = want.first > near.first ? want.first : near.first;
        if (want.first >= near_end || end <= want.first)
            continue;
        want.count = (end < near_end ? end : near_end) - want.first;
        if (!add_free(fetch, task, &want, FETCH_BATCH))
            break;
    }
    return task->count > 0;
}

static bool next_rest(struct volume_fetch *fetch, struct fetch_task *task)
{
    task->kind = FETCH_REST;
    while (task->count == 0 && fetch->rest_count > 0) {
        task->around = fetch->rests[0];
        (void)add_free(fetch, task, &task->around, FETCH_BATCH);
        memmove(fetch->rests, fetch->rests + 1, sizeof *fetch->rests * --fetch->rest_count);
    }
    return task->count > 0;
}

static bool next_of_first(struct volume_fetch *fetch, struct fetch_task *task, size_t max)
{
    for (; fetch->first_next < fetch->first_count; fetch->first_next++) {
        const struct fetch_range one = {.first = fetch->first[fetch->first_next], .count = 1};
        if (one.first < fetch->chunks && !fetch_has(fetch, one.first, FETCH_ALONE) &&
            !add_free(fetch, task, &one, max < FETCH_FIRST_BATCH ? max : FETCH_FIRST_BATCH))
            break;
    }
    return task->count > 0;
}

/* Moves the cursor to the next chunk that is free and not to be read alone. */
static bool seek_free(struct volume_fetch *fetch)
{
    while (fetch->cursor < fetch->chunks &&
           (!is_free(fetch, fetch->cursor) || fetch_has(fetch, fetch->cursor, FETCH_ALONE)))
        fetch->cursor++;
    return fetch->cursor < fetch->chunks;
}

/* The same for those that are; in turn, so that none is tried for ever before the others. */
static bool seek_alone(struct volume_fetch *fetch)
{
    for (uint32_t i = 0; i < fetch->chunks && fetch->alone > 0; i++) {
        if (++fetch->alone_cursor >= fetch->chunks)
            fetch->alone_cursor = 0;
        if (!fetch_has(fetch, fetch->alone_cursor, FETCH_ALONE))
            continue;
        if (is_free(fetch, fetch->alone_cursor))
            return true;
        if (!fetch_is_absent(fetch, fetch->alone_cursor)) /* overwritten */
            fetch_set_alone(fetch, fetch->alone_cursor, false);
    }
    return false;
}

/* What is to be read alone, in its time. */
static bool next_alone(struct volume_fetch *fetch, struct fetch_task *task, int64_t *until_ns)
{
    const int64_t now = clock_now_ns();
    if (fetch->alone == 0)
        return false;
    if (now >= fetch->alone_at_ns && seek_alone(fetch)) {
        const struct fetch_range one = {.first = fetch->alone_cursor, .count = 1};
        (void)add_free(fetch, task, &one, 1);
        return true;
    }
    if (now >= fetch->alone_at_ns)
        fetch->alone_at_ns = now + FETCH_ALONE_MS * (CLOCK_NS_PER_S / 1000);
    sooner(until_ns, fetch->alone_at_ns);
    return false;
}

static bool next_background(struct volume_fetch *fetch, struct fetch_task *task, int64_t *until_ns)
{
    size_t max = FETCH_BATCH;
    if (!fetch->first_known && fetch->source.first) {
        task->kind = FETCH_FIRST;
        bool asks = !fetch->first_asked;
        fetch->first_asked = true;
        return asks;
    }
    task->kind = FETCH_BACKGROUND;
    if (fetch->limit / FETCH_PARTS_A_SECOND / VOLUME_CHUNK < max)
        max = fetch->limit / FETCH_PARTS_A_SECOND / VOLUME_CHUNK;
    max = max > 0 ? max : 1;
    bool found = next_of_first(fetch, task, max);
    if (!found && seek_free(fetch)) {
        struct fetch_range range = window(fetch, fetch->cursor, FETCH_BATCH);
        range.count -= fetch->cursor - range.first;
        range.first = fetch->cursor;
        (void)add_free(fetch, task, &range, max);
        found = true;
    }
    if (!found)
        found = next_alone(fetch, task, until_ns);
    fetch->debt += task->count * (uint64_t)VOLUME_CHUNK;
    return found;
}

void volume_fetch_order_settle(struct volume_fetch *fetch)
{
    int64_t now = clock_now_ns();
    double paid = (double)fetch->limit * (double)(now - fetch->debt_ns) / (double)CLOCK_NS_PER_S;
    fetch->debt = fetch->limit == UINT64_MAX || paid >= (double)fetch->debt
                      ? 0
                      : fetch->debt - (uint64_t)paid;
    fetch->debt_ns = now;
}

/* Whether the background may go on; if not, *ret_until_ns is when (0: never, as it is). */
static bool is_paid(struct volume_fetch *fetch, int64_t *ret_until_ns)
{
    if (fetch->limit == 0)
        return false;
    volume_fetch_order_settle(fetch);
    if (fetch->debt == 0)
        return true;
    *ret_until_ns = fetch->debt_ns + 1 +
                    (int64_t)((double)fetch->debt / (double)fetch->limit * (double)CLOCK_NS_PER_S);
    return false;
}

/* What nobody waits for. One reader is kept for what somebody does; and while that has not begun,
 * it may be part of a read that is under way and ends in a moment. */
static bool next_idle(struct volume_fetch *fetch, struct fetch_task *task, int64_t *until_ns)
{
    int64_t paid_ns = 0;
    if (fetch->idle_reads == VOLUME_FETCH_READERS - 1 || volume_fetch_order_is_urgent(fetch))
        return false;
    bool found = next_rest(fetch, task) ||
                 (is_paid(fetch, &paid_ns) && next_background(fetch, task, until_ns));
    fetch->idle_reads += found;
    sooner(until_ns, paid_ns);
    return found;
}

bool volume_fetch_order_next(struct volume_fetch *fetch, struct fetch_task *ret,
                             int64_t *ret_until_ns)
{
    const int64_t now = clock_now_ns();
    int64_t until = 0;
    if (fetch->socket < 0)
        return false; /* whoever makes the connection tells */
    if (now < fetch->source_pause.until_ns || now < fetch->keep_pause.until_ns) {
        *ret_until_ns = fetch->source_pause.until_ns > fetch->keep_pause.until_ns
                            ? fetch->source_pause.until_ns
                            : fetch->keep_pause.until_ns;
        return false;
    }
    if (fetch->lost_now > 0 && now >= fetch->lost_until_ns)
        volume_fetch_outcome_retry(fetch);
    ret->fetch = fetch;
    ret->count = 0;
    atomic_store(&ret->yielded, false);
    volume_fetch_order_prune(fetch);
    if (next_demand(fetch, ret))
        return true;
    if (fetch->lost_now > 0)
        sooner(&until, fetch->lost_until_ns);
    if (next_idle(fetch, ret, &until))
        return true;
    *ret_until_ns = until;
    return false;
}

bool volume_fetch_order_is_done(struct volume_fetch *fetch)
{
    uint32_t from = fetch->absent_hint;
    for (uint32_t i = 0; i < fetch->chunks; i++, from++) {
        from = from >= fetch->chunks ? 0 : from;
        if (fetch_is_absent(fetch, from)) {
            fetch->absent_hint = from;
            return false;
        }
    }
    return true;
}
