/* What became of what volume_fetch has read, and what is done about failures. */
#include "volume_fetch_parts.h"

#include "clock.h"
#include "log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NS_PER_MS (CLOCK_NS_PER_S / 1000)

static void lengthen(struct volume_fetch *fetch, struct fetch_pause *pause, const char *text)
{
    const int64_t now = clock_now_ns();
    if (now < pause->until_ns)
        return; /* others have met the same */
    if (pause->ms == 0)
        log_event(LOG_WARN, "volume-fetch-waits", "volume", fetch->id, "why", text, NULL);
    pause->ms = pause->ms == 0 ? FETCH_PAUSE_FIRST_MS : pause->ms * 2;
    pause->ms = pause->ms < VOLUME_FETCH_PAUSE_MS ? pause->ms : VOLUME_FETCH_PAUSE_MS;
    pause->until_ns = now + pause->ms * NS_PER_MS;
    (void)snprintf(pause->text, sizeof pause->text, "%.511s", text);
}

static void go_on(struct volume_fetch *fetch, struct fetch_pause *pause)
{
    if (pause->ms == 0)
        return;
    log_event(LOG_INFO, "volume-fetch-goes-on", "volume", fetch->id, NULL);
    pause->ms = 0;
    pause->text[0] = '\0';
}

static bool is_of_chunks(const struct err *failure)
{
    switch (failure->code) {
    case ERR_NOT_FOUND:
    case ERR_DIGEST:
    case ERR_DAMAGED:
    case ERR_TOO_NEW:
    case ERR_TOO_LARGE:
    case ERR_UNSUPPORTED:
        return true;
    default:
        return false;
    }
}

static void lose(struct volume_fetch *fetch, uint32_t chunk, const char *text)
{
    if (fetch->lost_now++ == 0)
        fetch->lost_until_ns = clock_now_ns() + fetch->lost_ms * NS_PER_MS;
    if (!fetch_has(fetch, chunk, FETCH_LOST) && fetch->lost++ == 0)
        log_event(LOG_ERROR, "volume-chunk-lost", "volume", fetch->id, "why", text, NULL);
    fetch->flags[chunk] |= FETCH_LOST | FETCH_WAITS;
    (void)snprintf(fetch->lost_text, sizeof fetch->lost_text, "%.511s", text);
}

void volume_fetch_outcome_found(struct volume_fetch *fetch, uint32_t chunk)
{
    if (fetch_has(fetch, chunk, FETCH_LOST) && --fetch->lost == 0) {
        log_event(LOG_INFO, "volume-chunk-not-lost", "volume", fetch->id, NULL);
        fetch->lost_text[0] = '\0';
    }
    fetch->flags[chunk] &= (uint8_t)~FETCH_LOST;
    fetch_set_alone(fetch, chunk, false);
}

/* A read of them gave some of the chunks or none, and will not give the others. */
static void note_lost(struct volume_fetch *fetch, const struct fetch_task *task, const char *text)
{
    for (size_t i = 0; i < task->count; i++) {
        uint32_t chunk = (uint32_t)task->chunks[i];
        if (task->given[i])
            continue;
        if (task->count == 1)
            lose(fetch, chunk, text);
        else
            fetch_set_alone(fetch, chunk, true);
    }
}

/* Frees what was not given. Returns how many these are. */
static size_t give_back(struct volume_fetch *fetch, struct fetch_task *task)
{
    size_t count = 0;
    for (size_t i = 0; i < task->count; i++) {
        uint32_t chunk = (uint32_t)task->chunks[i];
        if (task->given[i])
            continue;
        fetch_free(fetch, chunk, FETCH_READING | FETCH_DEMANDED);
        count++;
    }
    return count;
}

static void pace_alone(struct volume_fetch *fetch, bool failed)
{
    int ms = fetch->alone_ms < FETCH_ALONE_FIRST_MS ? FETCH_ALONE_FIRST_MS : 2 * fetch->alone_ms;
    fetch->alone_ms = !failed ? 0 : ms < FETCH_ALONE_MS ? ms : FETCH_ALONE_MS;
    fetch->alone_at_ns = clock_now_ns() + fetch->alone_ms * NS_PER_MS;
}

void volume_fetch_outcome_finish(struct volume_fetch *fetch, struct fetch_task *task, int rc,
                                 const struct err *failure)
{
    size_t missing = give_back(fetch, task);
    if (task->kind != FETCH_DEMAND)
        fetch->idle_reads--;
    if (task->kind == FETCH_BACKGROUND) {
        uint64_t bytes = missing * (uint64_t)VOLUME_CHUNK;
        fetch->debt = fetch->debt > bytes ? fetch->debt - bytes : 0;
    }
    if (atomic_load(&task->yielded) && missing > 0 && task->kind == FETCH_REST)
        volume_fetch_order_around(fetch, &task->around);
    if (fetch_is_over(fetch) || fetch->ended || (rc < 0 && atomic_load(&task->yielded)))
        return;
    if (rc < 0 && (task->kind == FETCH_FIRST || !is_of_chunks(failure))) {
        lengthen(fetch, &fetch->source_pause, failure->text);
        return;
    }
    if (missing > 0)
        note_lost(fetch, task,
                  rc < 0 ? failure->text : "the source did not give all that it was asked for");
    if (missing < task->count || task->kind == FETCH_FIRST)
        go_on(fetch, &fetch->source_pause);
    if (task->kind == FETCH_BACKGROUND && task->count == 1)
        pace_alone(fetch, missing > 0);
}

void volume_fetch_outcome_answered(struct volume_fetch *fetch, uint32_t chunk, int status,
                                   const char *text)
{
    char what[512];
    if (status == 0 && !fetch_is_absent(fetch, chunk)) {
        fetch->flags[chunk] &= (uint8_t) ~(FETCH_SENT | FETCH_DEMANDED);
        fetch->fetched++;
        fetch->progress_ns = clock_now_ns();
        go_on(fetch, &fetch->keep_pause);
        return;
    }
    fetch_free(fetch, chunk, FETCH_SENT | FETCH_DEMANDED);
    if (status == -ECONNRESET)
        return;
    const char *why = status == 0 ? "it is absent still" : strerrordesc_np(-status);
    (void)snprintf(what, sizeof what, "the worker cannot keep chunk %u: %s%s%.300s", chunk,
                   why ? why : "it does not say why", text[0] != '\0' ? ": " : "", text);
    lengthen(fetch, &fetch->keep_pause, what);
}

void volume_fetch_outcome_retry(struct volume_fetch *fetch)
{
    for (uint32_t chunk = 0; fetch->lost_now > 0 && chunk < fetch->chunks; chunk++) {
        if (!fetch_has(fetch, chunk, FETCH_WAITS))
            continue;
        fetch_free(fetch, chunk, FETCH_WAITS);
        fetch->lost_now--;
        if (!fetch_is_absent(fetch, chunk))
            volume_fetch_outcome_found(fetch, chunk);
    }
}
