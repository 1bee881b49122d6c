#include "registry_pieces.h"

#include "clock.h"

#include <string.h>

enum {
    SLOTS = REGISTRY_PIECES_AHEAD + 1,
    JUDGE_BYTES = 2 << 20,      /* of the first piece that come before anything is decided */
    HAND_ON_BYTES = 256 * 1024, /* that the sink gets at once, at most */
};

/* The buffer of a piece. The bytes below `filled` do not change until the piece was handed on. */
struct slot {
    char *bytes; /* REGISTRY_PIECES_BYTES; owned, NULL before its first use */
    size_t filled;
};

struct pieces {
    struct registry_source *source;
    remote_sink sink;
    void *sink_arg;
    remote_progress progress;
    void *progress_arg;
    uint64_t count; /* of pieces */
    pthread_t threads[REGISTRY_PIECES_AHEAD];
    size_t thread_count;
    uint64_t came;     /* bytes of the first piece */
    int64_t sunk_ns;   /* when the sink had taken the last bytes of the first piece */
    int64_t waited_ns; /* for bytes of it */
    int64_t worked_ns; /* the sink, on them */

    pthread_mutex_t lock; /* on what follows */
    pthread_cond_t changed;
    struct slot slots[SLOTS]; /* of piece i: i modulo their number */
    uint64_t next;            /* piece that nobody has taken yet */
    uint64_t at;              /* piece that is being handed on */
    bool ends;                /* the threads are to end */
    int rc;                   /* of the first thread that failed */
    struct err failure;
};

static struct registry_range range_of(const struct pieces *pieces, uint64_t index)
{
    uint64_t offset = index * REGISTRY_PIECES_BYTES;
    uint64_t left = pieces->source->size - offset;
    return (struct registry_range){
        .offset = offset, .size = left < REGISTRY_PIECES_BYTES ? left : REGISTRY_PIECES_BYTES};
}

/* Threads that fetch ahead */

/* A piece on its way into its slot. */
struct ahead {
    struct pieces *pieces;
    struct slot *slot;
};

static int fill(void *arg, const void *bytes, size_t len, struct err *err)
{
    (void)err; /* registry_range.h gives no more than was asked for */
    const struct ahead *ahead = arg;
    memcpy(ahead->slot->bytes + ahead->slot->filled, bytes, len);
    pthread_mutex_lock(&ahead->pieces->lock);
    ahead->slot->filled += len;
    pthread_cond_broadcast(&ahead->pieces->changed);
    pthread_mutex_unlock(&ahead->pieces->lock);
    return 0;
}

static int on_wait(void *arg, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    struct pieces *pieces = ((const struct ahead *)arg)->pieces;
    pthread_mutex_lock(&pieces->lock);
    bool ends = pieces->ends;
    pthread_mutex_unlock(&pieces->lock);
    return ends;
}

/* Waits for a piece that may be fetched; the number of pieces when there is none. */
static uint64_t take_next(struct pieces *pieces)
{
    pthread_mutex_lock(&pieces->lock);
    while (!pieces->ends && pieces->next < pieces->count &&
           pieces->next > pieces->at + REGISTRY_PIECES_AHEAD)
        pthread_cond_wait(&pieces->changed, &pieces->lock);
    uint64_t index = pieces->ends ? pieces->count : pieces->next;
    if (index < pieces->count)
        pieces->next++;
    pthread_mutex_unlock(&pieces->lock);
    return index;
}

static int fetch_ahead(struct pieces *pieces, uint64_t index, struct err *err)
{
    uint64_t done;
    struct ahead ahead = {.pieces = pieces, .slot = &pieces->slots[index % SLOTS]};
    struct registry_range range = range_of(pieces, index);
    range.sink = fill;
    range.sink_arg = &ahead;
    range.progress = on_wait;
    range.progress_arg = &ahead;
    if (!ahead.slot->bytes)
        ahead.slot->bytes = malloc(REGISTRY_PIECES_BYTES);
    if (!ahead.slot->bytes)
        return err_errno(err, ENOMEM, "cannot fetch a blob");
    return registry_range_fetch(pieces->source, &range, &done, err);
}

static void *run_ahead(void *arg)
{
    struct pieces *pieces = arg;
    for (uint64_t index; (index = take_next(pieces)) < pieces->count;) {
        struct err failure = ERR_INIT;
        int rc = fetch_ahead(pieces, index, &failure);
        if (rc == 0)
            continue;
        pthread_mutex_lock(&pieces->lock);
        if (pieces->rc == 0 && !pieces->ends) {
            pieces->rc = rc;
            pieces->failure = failure;
        }
        pieces->ends = true;
        pthread_cond_broadcast(&pieces->changed);
        pthread_mutex_unlock(&pieces->lock);
    }
    return NULL;
}

/* Fewer threads do the same work, so one that cannot be started is no failure. */
static void start_threads(struct pieces *pieces)
{
    size_t wanted = pieces->count - 1 < REGISTRY_PIECES_AHEAD ? (size_t)pieces->count - 1
                                                              : REGISTRY_PIECES_AHEAD;
    while (pieces->thread_count < wanted &&
           pthread_create(&pieces->threads[pieces->thread_count], NULL, run_ahead, pieces) == 0)
        pieces->thread_count++;
}

static void end_threads(struct pieces *pieces)
{
    pthread_mutex_lock(&pieces->lock);
    pieces->ends = true;
    pthread_cond_broadcast(&pieces->changed);
    pthread_mutex_unlock(&pieces->lock);
    for (size_t i = 0; i < pieces->thread_count; i++)
        (void)pthread_join(pieces->threads[i], NULL);
}

/* The caller's thread */

/* Bytes of the first piece. What takes longer, they or the sink? */
static int first_sink(void *arg, const void *bytes, size_t len, struct err *err)
{
    struct pieces *pieces = arg;
    int64_t came = clock_now_ns();
    pieces->waited_ns += came - pieces->sunk_ns;
    pieces->came += len;
    if (pieces->thread_count == 0 && pieces->came >= JUDGE_BYTES &&
        !registry_source_is_whole(pieces->source) && pieces->waited_ns > pieces->worked_ns &&
        pieces->waited_ns > REGISTRY_PIECES_WAIT_MS * INT64_C(1000000))
        start_threads(pieces);
    int rc = pieces->sink(pieces->sink_arg, bytes, len, err);
    pieces->sunk_ns = clock_now_ns();
    pieces->worked_ns += pieces->sunk_ns - came;
    return rc;
}

static int fetch_first(struct pieces *pieces, uint64_t *ret_done, struct err *err)
{
    struct registry_range range = range_of(pieces, 0);
    range.or_rest = true;
    range.sink = first_sink;
    range.sink_arg = pieces;
    range.progress = pieces->progress;
    range.progress_arg = pieces->progress_arg;
    pieces->sunk_ns = clock_now_ns();
    return registry_range_fetch(pieces->source, &range, ret_done, err);
}

static int fetch_rest(struct pieces *pieces, struct err *err)
{
    uint64_t done;
    const struct registry_range range = {.offset = REGISTRY_PIECES_BYTES,
                                         .size = pieces->source->size - REGISTRY_PIECES_BYTES,
                                         .sink = pieces->sink,
                                         .sink_arg = pieces->sink_arg,
                                         .progress = pieces->progress,
                                         .progress_arg = pieces->progress_arg};
    return registry_range_fetch(pieces->source, &range, &done, err);
}

/* Waits until the slot has more than `had` bytes; how many it has. */
static int wait_for_bytes(struct pieces *pieces, const struct slot *slot, size_t had,
                          size_t *ret_have, struct err *err)
{
    for (;;) {
        const struct timespec until = clock_in_ms(REGISTRY_POOL_ASK_MS);
        pthread_mutex_lock(&pieces->lock);
        if (slot->filled == had && pieces->rc == 0)
            (void)pthread_cond_clockwait(&pieces->changed, &pieces->lock, CLOCK_MONOTONIC, &until);
        size_t have = slot->filled;
        int rc = pieces->rc;
        pthread_mutex_unlock(&pieces->lock);
        if (have > had) {
            *ret_have = have;
            return 0;
        }
        if (rc < 0) /* not changed any more */
            return err_pass(err, rc, &pieces->failure);
        if (pieces->progress && pieces->progress(pieces->progress_arg, 0, 0) != 0)
            return err_fail(err, ERR_CANCELLED, "the download was cancelled");
    }
}

static int hand_on(struct pieces *pieces, uint64_t index, struct err *err)
{
    struct slot *slot = &pieces->slots[index % SLOTS];
    size_t size = (size_t)range_of(pieces, index).size;
    size_t have = 0;
    for (size_t done = 0; done < size;) {
        int rc = done == have ? wait_for_bytes(pieces, slot, done, &have, err) : 0;
        size_t len = have - done < HAND_ON_BYTES ? have - done : HAND_ON_BYTES;
        if (rc == 0)
            rc = pieces->sink(pieces->sink_arg, slot->bytes + done, len, err);
        if (rc < 0)
            return rc;
        done += len;
    }
    return 0;
}

/* The piece was handed on: the next one's turn. The slot is free, if it had one. */
static void go_on(struct pieces *pieces)
{
    pthread_mutex_lock(&pieces->lock);
    pieces->slots[pieces->at % SLOTS].filled = 0;
    pieces->at++;
    pthread_cond_broadcast(&pieces->changed);
    pthread_mutex_unlock(&pieces->lock);
}

static int run(struct pieces *pieces, struct err *err)
{
    uint64_t done = 0;
    int rc = fetch_first(pieces, &done, err);
    if (rc < 0 || done > REGISTRY_PIECES_BYTES) /* the whole blob came */
        return rc;
    if (pieces->thread_count == 0)
        return fetch_rest(pieces, err);
    go_on(pieces);
    for (uint64_t index = 1; index < pieces->count; index++) {
        rc = hand_on(pieces, index, err);
        if (rc < 0)
            return rc;
        go_on(pieces);
    }
    return 0;
}

static int fetch_in_pieces(struct pieces *pieces, struct err *err)
{
    pthread_mutex_init(&pieces->lock, NULL);
    pthread_cond_init(&pieces->changed, NULL);
    int rc = run(pieces, err);
    end_threads(pieces);
    pthread_cond_destroy(&pieces->changed);
    pthread_mutex_destroy(&pieces->lock);
    for (size_t i = 0; i < SLOTS; i++)
        free(pieces->slots[i].bytes);
    return rc;
}

int registry_pieces_fetch(struct registry_source *source, remote_sink sink, void *sink_arg,
                          remote_progress progress, void *progress_arg, struct err *err)
{
    if (source->size == UINT64_MAX || source->size < REGISTRY_PIECES_MIN) {
        uint64_t done;
        const struct registry_range all = {.size = UINT64_MAX,
                                           .sink = sink,
                                           .sink_arg = sink_arg,
                                           .progress = progress,
                                           .progress_arg = progress_arg};
        return registry_range_fetch(source, &all, &done, err);
    }
    struct pieces pieces = {.source = source,
                            .next = 1,
                            .sink = sink,
                            .sink_arg = sink_arg,
                            .progress = progress,
                            .progress_arg = progress_arg,
                            .count =
                                (source->size + REGISTRY_PIECES_BYTES - 1) / REGISTRY_PIECES_BYTES};
    return fetch_in_pieces(&pieces, err);
}
