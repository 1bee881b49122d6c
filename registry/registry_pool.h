/* registry_pool.h - the node's one transport to all registries: a thread on libcurl's multi
 * interface, and what the jobs of one registry share.
 *
 * Job: runs the curl handles of registry_exchange.c. All connections are in one multi handle, so
 * whoever asks next finds one that is ready; HTTP/2 is used where a server offers it.
 *
 * Origins: a registry is its scheme, host and port. Each has
 *   - a budget: at most `connections` exchanges at a time, however many jobs and threads ask. An
 *     exchange with another origin (an object store that a download is redirected to) counts for
 *     that one. Nobody waits for a slot while holding one;
 *   - a share of the budget that bulk transfers never take, a quarter and at least one slot: a blob
 *     may hold its slot for hours, and somebody may stand still until a question is answered or a
 *     few bytes of a volume are read. Slots are given out in order of arrival among those who may
 *     have the next one. A budget of one slot has no such share;
 *   - a time before which nothing is asked, which a 429 or 503 with Retry-After sets for all;
 *   - traits: what was learned about the server and is not to be found out with each blob. They
 *     are forgotten after REGISTRY_POOL_TRAITS_MS, as they may come from one odd answer of
 *     something in between, and servers change.
 *
 * The transport's thread (registry_loop.h) never runs a caller's code: bytes of bodies go through a
 * registry_pipe to and from the thread that asked.
 *
 * Threads: everything here may be called by several threads at once, but for opening and closing.
 * curl is told to leave signals alone, so the program ignores SIGPIPE.
 */
#pragma once

#include "registry_offset.h"
#include "remote.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    REGISTRY_POOL_CONNECTIONS = 8, /* default of the budget */
    REGISTRY_POOL_CONNECTIONS_MAX = 64,
    REGISTRY_POOL_TRAITS_MS = 3600 * 1000,
    REGISTRY_POOL_ASK_MS = 250,       /* whoever waits is asked so often whether to go on */
    REGISTRY_POOL_ORIGINS_MAX = 1024, /* idle ones beyond are forgotten, oldest first */
};

struct registry_pool;

struct registry_pool_options {
    long connections;      /* for each origin; 0: the default */
    const char *auth_file; /* see registry_credentials.h; NULL: the usual places */
};

/* Starts the thread. Copies the options. */
int registry_pool_open(const struct registry_pool_options *options, struct registry_pool **ret,
                       struct err *err);
/* Ends the thread and closes all connections. Nobody may be in a call. NULL is fine. */
void registry_pool_close(struct registry_pool *pool);

/* Who waits, and may be asked to stop (remote.h); `progress` may be NULL. */
struct registry_waiter {
    remote_progress progress;
    void *arg;
    uint64_t done; /* what it is told while nothing moves */
    uint64_t total;
};

/* Asks the waiter (NULL: nobody) once: 0, or ERR_CANCELLED. */
int registry_pool_ask(const struct registry_waiter *waiter, struct err *err);

/* A slot of an origin's budget. */
struct registry_origin;
struct registry_slot {
    struct registry_origin *origin;
    bool bulk;
};

/* Waits until the origin of `url` has a free slot and its pause is over, and takes the slot. `bulk`
 * is for what may be long on its way. ERR_CANCELLED when the waiter asks for the end. */
int registry_pool_enter(struct registry_pool *pool, const char *url, bool bulk,
                        const struct registry_waiter *waiter, struct registry_slot *ret,
                        struct err *err);
void registry_pool_leave(struct registry_pool *pool, const struct registry_slot *slot);

/* Nothing is asked of this origin for `ms`, unless a longer pause is set already. */
void registry_pool_pause(struct registry_pool *pool, const char *url, int64_t ms);
/* Sleeps, asking the waiter. 0, or ERR_CANCELLED. */
int registry_pool_sleep(int64_t ms, const struct registry_waiter *waiter, struct err *err);

/* What is known of a registry. Zero is what is supposed of an unknown one. */
struct registry_traits {
    uint64_t chunk_max; /* taken where more was refused or broke off; 0: no limit is known */
    bool no_whole_put;  /* a PUT with a body is refused */
    bool no_patch;      /* answers PATCH with 404, 405, 411 or 501 */
    bool no_delete;     /* answers DELETE with 405 or UNSUPPORTED */
    bool no_referrers;  /* says of itself that it has no referrers API (405, 501, UNSUPPORTED) */
    bool no_tag_delete; /* deletes by digest only */
    bool no_mount;      /* fails to mount blobs of other repositories (5xx, twice in a row) */
    struct registry_offset_habits offsets;
};
struct registry_traits registry_pool_traits(struct registry_pool *pool, const char *url);
/* Changes the traits of an origin under the lock. */
typedef void registry_traits_change(void *arg, struct registry_traits *traits);
void registry_pool_learn(struct registry_pool *pool, const char *url,
                         registry_traits_change *change, void *arg);
/* After how long traits are forgotten, for tests; before anything is learned. */
void registry_pool_set_traits_ms(struct registry_pool *pool, int64_t ms);

/* The thread with its connections, for registry_exchange.c. */
struct registry_loop *registry_pool_loop(struct registry_pool *pool);

/* Tokens and credentials of the pool (registry_auth.h). */
struct registry_auth *registry_pool_auth(struct registry_pool *pool);
