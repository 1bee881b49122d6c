/* volume_fetch_parts.h - what the files of volume_fetch.h share.
 *
 *   volume_fetch.c          start, stop, status
 *   volume_fetch_order.c    what is brought next
 *   volume_fetch_outcome.c  what became of it, failures
 *   volume_fetch_reader.c   the threads that read from the source
 *   volume_fetch_link.c     the connection to the worker
 *
 * One lock, `lock`, for all that changes; no call that can wait is made under it. The states of a
 * chunk that is absent, by its flags:
 *
 *   free -> reading (-> demanded: for a read that waits) -> sent -> not absent any more
 *     ^        |                                             |
 *     +--------+ given up, failed (-> alone, -> lost)        |
 *     +------------------------------------------------------+ no room; the worker died
 *
 * A chunk that becomes free again moves `cursor` back, so the background finds it without looking
 * at all others again. What is to be read alone comes after all others there, with pauses
 * as long as it fails: a pack that is lost costs a question for each chunk in it.
 */
#pragma once

#include "live_map.h"
#include "volume_fetch.h"

#include <pthread.h>

enum {
    FETCH_FILLS = 16,       /* chunks sent and not answered */
    FETCH_WANTS = 1024,     /* reads that wait; a worker has buffers for far fewer */
    FETCH_WANT_CHUNKS = 64, /* of one read */
    FETCH_RESTS = 32,       /* parts around misses that are still to be read */
    FETCH_NEAR_CHUNKS = 16, /* 1 MiB around a miss */
    FETCH_BATCH = 64,       /* chunks of one read from the source, and around a sequential miss */
    FETCH_FIRST_BATCH = 16, /* of those that are first */
    FETCH_STREAMS = 8,      /* sequential reads that are told from each other */
    FETCH_STREAM_SLACK = 2, /* chunks by which read-ahead may be early */
    FETCH_PAUSE_FIRST_MS = 100,
    FETCH_ALONE_FIRST_MS = 5,
    FETCH_ALONE_MS = 1000,
    FETCH_PARTS_A_SECOND = 4, /* of background reads under a limit */
};

/* Flags of a chunk. */
enum {
    FETCH_READING = 1,  /* somebody reads it from the source */
    FETCH_DEMANDED = 2, /* for a read that waits */
    FETCH_SENT = 4,     /* it is on its way to the worker */
    FETCH_ALONE = 8,    /* a read with it and others failed: it is read alone */
    FETCH_LOST = 16,    /* the source would not give it */
    FETCH_WAITS = 32,   /* it is lost, and not tried again yet */
    FETCH_TOUCHED = 64, /* a read has waited for it */
};

struct fetch_range {
    uint32_t first, count;
};

/* A reader of the volume that goes on: where the next read will be. */
struct fetch_stream {
    uint32_t read_end;   /* of the last read that waited */
    uint32_t around_end; /* of what was read around it */
    uint64_t used;
};

/* After failures that pass. */
struct fetch_pause {
    int64_t until_ns; /* nothing is read before */
    int ms;           /* 0: the last time was good */
    char text[512];
};

enum fetch_kind {
    FETCH_DEMAND,
    FETCH_REST,
    FETCH_BACKGROUND,
    FETCH_FIRST, /* asks what is first in the background */
};

/* One read from the source. */
struct fetch_task {
    struct volume_fetch *fetch;
    enum fetch_kind kind;
    uint64_t chunks[FETCH_BATCH];
    bool given[FETCH_BATCH]; /* lock */
    size_t count;
    struct fetch_range around; /* of FETCH_REST */
    _Atomic bool yielded;      /* the source was told to end for reads that wait */
};

struct volume_fetch {
    int workers_fd; /* borrowed */
    char id[VOLUME_ID_LEN + 1];
    int live_fd;          /* owned */
    uint64_t live_number; /* of the live map */
    struct live_map live;
    uint32_t chunks; /* of the volume as it was at the start: what came later is not absent */
    struct volume_fetch_source source;
    int wake_fd; /* eventfd: the end, for the thread of the connection */
    int lost_ms; /* VOLUME_FETCH_LOST_MS; tests have less time */
    pthread_t link;
    pthread_t readers[VOLUME_FETCH_READERS];
    unsigned thread_count; /* the connection's first */
    _Atomic bool stopping;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* CLOCK_MONOTONIC */
    /* From here on: lock. */
    bool ended; /* nothing is absent */
    uint8_t *flags;
    unsigned idle_reads; /* that are under way, and nobody waits for */

    int socket;   /* to the worker, when it has answered FETCH; -1. Closed while nobody sends */
    bool sending; /* somebody does */
    uint32_t fills[FETCH_FILLS]; /* a ring: sent, and not answered */
    unsigned fill_first, fill_count;

    struct fetch_range wants[FETCH_WANTS]; /* in the order in which they came */
    size_t want_count;
    int64_t wants_since_ns; /* when there was none before */
    int64_t progress_ns;    /* when a chunk was brought last */
    struct fetch_range rests[FETCH_RESTS];
    size_t rest_count;
    struct fetch_stream streams[FETCH_STREAMS];
    uint64_t stream_uses;
    bool first_asked; /* somebody asks the source what is first */
    bool first_known;
    const uint32_t *first;
    size_t first_count, first_next;
    uint32_t cursor;       /* no chunk before it is absent and free, and not to be read alone */
    uint32_t alone;        /* chunks that are to be read alone */
    uint32_t alone_cursor; /* where the background looks for the next of these, in turn */
    int64_t alone_at_ns;   /* and when */
    int alone_ms;          /* the pause before it; 0: the last one came */
    uint32_t absent_hint;

    uint64_t limit;  /* bytes a second of the background */
    uint64_t debt;   /* bytes that it is ahead of the limit */
    int64_t debt_ns; /* when that was so */

    struct fetch_pause source_pause; /* the source cannot be read */
    struct fetch_pause keep_pause;   /* the worker cannot keep what it is given */
    uint32_t lost;                   /* chunks, also while they are tried again */
    uint32_t lost_now;               /* those that are not */
    int64_t lost_until_ns;
    char lost_text[512];
    char link_text[512]; /* why there is no connection; "" */

    uint64_t fetched;
    uint32_t touched[VOLUME_FETCH_TOUCHED_MAX];
    size_t touched_count;
};

static inline bool fetch_is_over(const struct volume_fetch *fetch)
{
    return atomic_load(&fetch->stopping);
}
static inline bool fetch_is_absent(const struct volume_fetch *fetch, uint64_t chunk)
{
    uint32_t word = atomic_load_explicit(&fetch->live.words[chunk], memory_order_acquire);
    return live_word_state(word) == VOLUME_ABSENT;
}
/* What follows: under lock. */
static inline bool fetch_has(const struct volume_fetch *fetch, uint64_t chunk, unsigned flags)
{
    return (fetch->flags[chunk] & flags) != 0;
}
static inline void fetch_set_alone(struct volume_fetch *fetch, uint32_t chunk, bool alone)
{
    fetch->alone = fetch->alone + alone - fetch_has(fetch, chunk, FETCH_ALONE);
    fetch->flags[chunk] &= (uint8_t)~FETCH_ALONE;
    fetch->flags[chunk] |= alone ? FETCH_ALONE : 0;
}
/* Nobody is at it any more. */
static inline void fetch_free(struct volume_fetch *fetch, uint32_t chunk, unsigned flags)
{
    fetch->flags[chunk] &= (uint8_t)~flags;
    if (chunk < fetch->cursor)
        fetch->cursor = chunk;
}

/* volume_fetch_order.c; all under lock. */
/* A read waits. False: there are more of them than can be. */
bool volume_fetch_order_want(struct volume_fetch *fetch, uint32_t first, uint32_t count);
/* What is around a miss is to be read. Where there is no room the oldest goes, which the background
 * brings. */
void volume_fetch_order_around(struct volume_fetch *fetch, const struct fetch_range *range);
/* Forgets reads that wait for nothing any more. */
void volume_fetch_order_prune(struct volume_fetch *fetch);
/* What to read next. False: nothing now; look again when something has changed, or at *ret_until_ns
 * (0: no time). */
bool volume_fetch_order_next(struct volume_fetch *fetch, struct fetch_task *ret,
                             int64_t *ret_until_ns);
/* A read that waits has not begun. */
bool volume_fetch_order_is_urgent(const struct volume_fetch *fetch);
/* Settles the background's limit up to now. */
void volume_fetch_order_settle(struct volume_fetch *fetch);
/* Whether no chunk is absent. */
bool volume_fetch_order_is_done(struct volume_fetch *fetch);

/* volume_fetch_outcome.c; all under lock. */
/* The source has given a chunk. */
void volume_fetch_outcome_found(struct volume_fetch *fetch, uint32_t chunk);
/* The task has ended with `rc` of the source. */
void volume_fetch_outcome_finish(struct volume_fetch *fetch, struct fetch_task *task, int rc,
                                 const struct err *failure);
/* A chunk has been sent, and the worker has answered; or it never will (-ECONNRESET). */
void volume_fetch_outcome_answered(struct volume_fetch *fetch, uint32_t chunk, int status,
                                   const char *text);
/* What was lost is tried again; what is not absent any more is not lost. */
void volume_fetch_outcome_retry(struct volume_fetch *fetch);

/* volume_fetch_link.c: body of the thread of the connection. */
void *volume_fetch_link_run(void *fetch);
/* Sends a chunk to the worker (NULL: it is zero); waits until there is one. -ECANCELED: the end.
 * Without lock. */
int volume_fetch_link_fill(struct volume_fetch *fetch, uint32_t chunk, const void *bytes);

/* volume_fetch_reader.c: body of the threads that read. */
void *volume_fetch_reader_run(void *fetch);
