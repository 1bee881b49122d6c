/* volume_fetch.h - brings the absent chunks of an attached volume to its worker.
 *
 * Job: one for each attached volume that has absent chunks. It holds a connection to the worker
 * (VOLUME_WIRE_FETCH), hears there what reads wait for, reads it from a checkpoint
 * (artifact/checkpoint.h) and sends it back. When nothing waits it brings the others, in this
 * order: the chunks that the checkpoint says were read first after an earlier attach, then all in
 * volume order, within the limit of bytes per second. It ends by itself when no chunk is absent.
 *
 *   a read waits  ->  its chunks, then the rest of the 1 MiB around them; of 4 MiB when it goes on
 *                     where one before it ended
 *
 * Reads that wait go before everything else: one reader is kept for them, and what is read ahead or
 * in the background ends at its next ranged read while one of them has not begun.
 *
 * Where bytes come from: any `volume_fetch_source`, such as checkpoint_read() of a checkpoint.
 * When it cannot be read for now (the remote is away), it is tried again with growing pauses up to
 * VOLUME_FETCH_PAUSE_MS; reads wait, and status says since when and why. What it will never give (a
 * chunk that is damaged or lost) is told once and tried again each VOLUME_FETCH_LOST_MS, as a
 * registry may be mended.
 *
 * Death: when the worker dies the connection ends and the next one is made to its successor, which
 * tells again of all that waits. When varved dies, the next one starts this again.
 *
 * A fetch is for one live map. When the volume is detached it brings nothing more; when it is
 * attached anew, perhaps made of another checkpoint, the worker refuses it (-ESTALE), and it asks
 * again seldom, for nothing, until it is stopped.
 *
 * A worker may lie: what it asks for is bounded, what is not of the protocol ends the connection,
 * which is made again after a pause, and its live map says only what is worth fetching.
 *
 * Memory: a byte for each chunk of the volume, VOLUME_FETCH_SOCKET_BYTES of the kernel's, and what
 * the source needs for VOLUME_FETCH_READERS reads at a time (of a checkpoint: the bytes of one
 * ranged read each, at most CHECKPOINT_READ_MAX).
 *
 * Threads: VOLUME_FETCH_READERS that read from the source, one for the connection. Calls come from
 * any thread.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VOLUME_FETCH_READERS = 3,
    VOLUME_FETCH_PAUSE_MS = 5000,
    VOLUME_FETCH_LOST_MS = 60000,
    VOLUME_FETCH_TOUCHED_MAX = 4096,     /* chunks whose order is kept */
    VOLUME_FETCH_SOCKET_BYTES = 2 << 20, /* on their way to the worker */
};

/* Takes the bytes of a chunk, or NULL: it is zero. */
typedef int volume_fetch_take(void *arg, uint64_t chunk, const void *bytes, struct err *err);

struct volume_fetch_source {
    /* Gives each of the chunks once, in any order; called by several threads at once. `stop` is
     * asked at least once a second, and before each ranged read, then with `total` 0: nothing that
     * is under way is lost when it says yes (ERR_CANCELLED). ERR_NOT_FOUND, ERR_DIGEST,
     * ERR_DAMAGED, ERR_TOO_NEW, ERR_TOO_LARGE, ERR_UNSUPPORTED: a chunk that was not given is lost
     * or damaged; anything else: the source cannot be read for now. */
    int (*read)(void *arg, const uint64_t *chunks, size_t count,
                int (*stop)(void *arg, uint64_t done, uint64_t total), void *stop_arg,
                volume_fetch_take *take, void *take_arg, struct err *err);
    /* The chunks that are brought first in the background; valid as long as the source. Asked
     * before the first background read, and again after a failure, which is as one of a read. May
     * be NULL. */
    int (*first)(void *arg, int (*stop)(void *arg, uint64_t done, uint64_t total), void *stop_arg,
                 const uint32_t **ret, size_t *ret_count, struct err *err);
    void *arg;
};

struct volume_fetch_options {
    int workers_fd;                    /* RUN/workers; borrowed */
    const char *id;                    /* of the volume */
    int live_fd;                       /* of the live map; duplicated */
    struct volume_fetch_source source; /* what it points to outlives the fetch */
    uint64_t background_bytes; /* of chunks, a second; UINT64_MAX: no limit, 0: no background */
};

struct volume_fetch_status {
    uint64_t absent;     /* chunks that are (partly) absent */
    uint64_t fetched;    /* chunks brought, since its start */
    uint64_t waiting;    /* reads that wait now */
    uint64_t lost;       /* chunks that the source will not give, until they are tried again */
    uint64_t waiting_ns; /* for how long nothing could be brought although reads wait; 0 */
    bool ended;          /* nothing is absent */
    char text[512];      /* why nothing comes now, or what is lost; "" */
};

struct volume_fetch;
int volume_fetch_start(const struct volume_fetch_options *options, struct volume_fetch **ret,
                       struct err *err);
/* Ends it as soon as the source asks whether to stop, within a second; what reads wait for goes on
 * waiting. */
void volume_fetch_stop(struct volume_fetch *fetch); /* NULL is fine */
void volume_fetch_look(struct volume_fetch *fetch, struct volume_fetch_status *ret);
/* Another limit for the background. */
void volume_fetch_limit(struct volume_fetch *fetch, uint64_t background_bytes);
/* The chunks that reads waited for, in the order in which they were first told of, at most `max`
 * and VOLUME_FETCH_TOUCHED_MAX. Returns how many. */
size_t volume_fetch_touched(struct volume_fetch *fetch, uint32_t *ret, size_t max);
