/* registry_loop.h - the transport's thread: all transfers of the node on one multi handle of curl.
 *
 * Job: runs curl handles that other threads have set up, and tells when each is over. Connections
 * belong to the multi handle, so every transfer finds those that earlier ones have left open.
 *
 * The thread never waits but for the network: it runs nothing but curl and the callbacks of
 * registry_exchange.c, which move bytes between curl and memory. Names are resolved by threads of
 * curl's; one whose transfer has ended is left to end by itself (CURLOPT_QUICK_EXIT), as waiting
 * for it would hold up all others. All signals are blocked in it, so that a connection that is
 * closed while it is written to raises none in the program.
 *
 * States of a transfer: new, running (registry_loop_start()), over (`over` was called; the loop
 * does not touch it any more). Whoever started it waits for that before the memory goes.
 *
 * Threads: registry_loop_start(), _wake() and _stop() may be called by any thread.
 */
#pragma once

#include "err.h"

#include <curl/curl.h>
#include <stdbool.h>

struct registry_loop;

/* Part of whoever's transfer it is; zeroed but for the first three. */
struct registry_transfer {
    CURL *curl; /* CURLOPT_PRIVATE is the loop's */
    /* On the loop's thread. After each round in which the transfer asked for it by
     * registry_loop_note(): bytes have come. */
    void (*round)(struct registry_transfer *transfer);
    /* On the loop's thread: the transfer is over, and not touched again. */
    void (*over)(struct registry_transfer *transfer, CURLcode code);

    /* The loop's own; guarded by its lock. */
    bool running;
    unsigned int orders;
    struct registry_transfer *next_order;
    /* The loop's thread alone. */
    struct registry_loop *loop;
    struct registry_transfer *next_noted;
    bool noted;
};

/* Starts the thread. */
int registry_loop_open(struct registry_loop **ret, struct err *err);
/* Ends it and closes all connections. No transfer runs any more. NULL is fine. */
void registry_loop_close(struct registry_loop *loop);

void registry_loop_start(struct registry_loop *loop, struct registry_transfer *transfer);
/* Goes on with a transfer that a callback has paused. Nothing when it is over. */
void registry_loop_wake(struct registry_loop *loop, struct registry_transfer *transfer);
/* Ends it; `over` is called with CURLE_ABORTED_BY_CALLBACK. Nothing when it is over. */
void registry_loop_stop(struct registry_loop *loop, struct registry_transfer *transfer);

/* From a callback of curl: `round` is to be called at the end of this round. */
void registry_loop_note(struct registry_transfer *transfer);
