/* fetch_rig.h - volume_fetch between a worker and a source that do as a test says.
 *
 * The worker is a thread that accepts connections at RUN/workers/ID.sock, answers FETCH, tells of
 * the reads that wait, and keeps what it is brought: it compares the bytes and makes the chunk
 * clean. The source makes bytes of a chunk's number, in ranged reads of so many chunks. Fields of
 * `deeds` and `source` may be changed while they run, under `lock`.
 */
#pragma once

#include "live_map.h"
#include "scratch.h"
#include "volume_fetch.h"

#include <pthread.h>

enum {
    FETCH_RIG_SEEN = 4096,
    FETCH_RIG_WAIT_MS = 20000,
};
#define FETCH_RIG_ID   "0123456789ab"
#define FETCH_RIG_SIZE ((uint64_t)64 << 20) /* 1,024 chunks */

/* What the worker does. */
struct fetch_deeds {
    int status; /* of the next `status_times` FILLs, which are not kept */
    int status_times;
    int die_after;    /* after so many more FILLs the connection ends without answers; 0: never */
    int refuse;       /* status of the next answer to FETCH */
    bool hold;        /* takes nothing */
    bool lie;         /* says that it has kept what it has not */
    bool other_chunk; /* answers for another one */
    bool garbage;     /* says something short */
};

struct fetch_source_deeds {
    unsigned range;     /* chunks of a ranged read */
    int delay_ms;       /* of each */
    enum err_code fail; /* what the next `fail_times` reads answer */
    uint32_t fail_times;
    bool hang;          /* until it is asked to end */
    uint32_t lost_more; /* and so many behind it */
    uint32_t lost;      /* this chunk; UINT32_MAX: none */
    bool silent_loss;   /* it is left out, without a failure */
    uint32_t zero;      /* this chunk; UINT32_MAX */
    bool too_many;      /* gives each twice, and others */
    uint32_t slow_from; /* chunks from here on take `delay_ms`; 0: all */
};

struct fetch_rig {
    struct scratch *scratch;
    int workers_fd;
    int live_fd;
    struct live_map live;
    uint32_t chunks;
    struct volume_fetch *fetch;
    struct volume_fetch_source other; /* in place of the rig's own, when it has a `read`, */
    void (*bytes)(uint64_t chunk, uint8_t *ret); /* with these bytes */
    const uint32_t *first;                       /* what the source says is first */
    size_t first_count;

    pthread_mutex_t lock; /* what follows */
    struct fetch_deeds deeds;
    struct fetch_source_deeds source;
    uint32_t kept[FETCH_RIG_SEEN]; /* in their order */
    size_t kept_count;
    uint32_t fills; /* also those that were not kept */
    uint32_t connections;
    uint64_t live_number; /* that the last one has said */
    struct {
        uint32_t first, count;
        bool yielded;
        int64_t at_ms;
    } reads[FETCH_RIG_SEEN]; /* ranged reads, as they begin */
    size_t read_count;
    uint32_t asked[1024]; /* how often a chunk was read */
    bool wrong_bytes;
    uint32_t first_asked;
    struct {
        uint64_t first, count;
        bool told;
    } wants[2048];
    size_t want_count;

    int listener;
    int wake_fd;
    bool end;
    pthread_t thread;
    bool running;
};

int fetch_rig_setup(void **state);
int fetch_rig_teardown(void **state);
/* Makes the socket and begins to serve it. */
void fetch_rig_serve(struct fetch_rig *rig);
void fetch_rig_absent(struct fetch_rig *rig, uint32_t first, uint32_t count);
void fetch_rig_state(struct fetch_rig *rig, uint32_t chunk, enum volume_state state);
/* `first`: chunks of the first list, or NULL. */
void fetch_rig_start(struct fetch_rig *rig, uint64_t background, const uint32_t *first,
                     size_t count);
/* A read that waits. */
void fetch_rig_want(struct fetch_rig *rig, uint64_t first, uint64_t count);
/* Waits until the chunks are not absent. */
void fetch_rig_await(struct fetch_rig *rig, uint32_t first, uint32_t count);
void fetch_rig_await_end(struct fetch_rig *rig);
/* A counter, which is read under lock; nothing is asserted under it. */
uint32_t fetch_rig_count(struct fetch_rig *rig, const uint32_t *counter);
/* Waits until `*counter` (under lock) is at least `count`. */
void fetch_rig_await_count(struct fetch_rig *rig, const uint32_t *counter, uint32_t count);
void fetch_rig_await_reads(struct fetch_rig *rig, size_t count);
size_t fetch_rig_reads(struct fetch_rig *rig);
size_t fetch_rig_kept(struct fetch_rig *rig);
struct volume_fetch_status fetch_rig_look(struct fetch_rig *rig);
/* Nothing happens for a while. */
void fetch_rig_quiet(int ms);
