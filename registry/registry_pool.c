#include "registry_pool.h"

#include "clock.h"
#include "registry_auth.h"
#include "registry_loop.h"
#include "registry_url.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

/* Somebody who waits for a slot, in order of arrival. */
struct turn {
    bool bulk;
    pthread_cond_t come; /* signalled under the pool's lock */
    struct turn *next;
};

/* One registry. All fields but `name` are guarded by the pool's lock. */
struct registry_origin {
    char *name; /* "scheme://host:port" */
    long busy;  /* slots that are taken */
    long bulk;  /* those of them that bulk transfers have */
    struct turn *first;
    struct turn **last;
    int64_t paused_until_ms; /* monotonic */
    uint64_t used;           /* when it was last asked for, by the count of the pool */
    struct registry_traits traits;
    int64_t traits_until_ms; /* monotonic; of no meaning while nothing was learned */
    struct registry_origin *next;
};

struct registry_pool {
    long connections;
    long bulk_max; /* of them */
    int64_t traits_ms;
    struct registry_auth *auth;
    struct registry_loop *loop;
    pthread_mutex_t lock;
    struct registry_origin *origins; /* guarded by lock, as are the next two */
    size_t origin_count;
    uint64_t uses;
};

static void origin_free(struct registry_origin *origin)
{
    free(origin->name);
    free(origin);
}

/* What bulk transfers may take of a budget. */
static long bulk_share(long connections)
{
    long kept = connections < 8 ? 1 : connections / 4;
    return connections > kept ? connections - kept : connections;
}

int registry_pool_open(const struct registry_pool_options *options, struct registry_pool **ret,
                       struct err *err)
{
    static const struct registry_pool_options none = {0};
    if (!options)
        options = &none;
    if (options->connections < 0 || options->connections > REGISTRY_POOL_CONNECTIONS_MAX)
        return err_fail(err, ERR_INVALID, "connections to a registry are 1 to %d, not %ld",
                        REGISTRY_POOL_CONNECTIONS_MAX, options->connections);
    struct registry_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return err_errno(err, ENOMEM, "cannot start the transport to registries");
    (void)pthread_mutex_init(&pool->lock, NULL);
    pool->traits_ms = REGISTRY_POOL_TRAITS_MS;
    pool->connections = options->connections ? options->connections : REGISTRY_POOL_CONNECTIONS;
    pool->bulk_max = bulk_share(pool->connections);
    int rc = registry_auth_open(options->auth_file, &pool->auth, err);
    if (rc == 0)
        rc = registry_loop_open(&pool->loop, err);
    if (rc < 0) {
        registry_pool_close(pool);
        return rc;
    }
    *ret = pool;
    return 0;
}

void registry_pool_close(struct registry_pool *pool)
{
    if (!pool)
        return;
    registry_loop_close(pool->loop);
    for (struct registry_origin *origin = pool->origins; origin;) {
        struct registry_origin *next = origin->next;
        origin_free(origin);
        origin = next;
    }
    (void)pthread_mutex_destroy(&pool->lock);
    registry_auth_close(pool->auth);
    free(pool);
}

struct registry_loop *registry_pool_loop(struct registry_pool *pool)
{
    return pool->loop;
}

struct registry_auth *registry_pool_auth(struct registry_pool *pool)
{
    return pool->auth;
}

int registry_pool_ask(const struct registry_waiter *waiter, struct err *err)
{
    if (!waiter || !waiter->progress ||
        waiter->progress(waiter->arg, waiter->done, waiter->total) == 0)
        return 0;
    return err_fail(err, ERR_CANCELLED, "the transfer was cancelled");
}

static bool is_idle(const struct registry_origin *origin)
{
    return origin->busy == 0 && !origin->first && origin->paused_until_ms <= clock_now_ms();
}

/* Under the lock. Forgets the idle origin that was not asked for the longest. */
static void forget_oldest(struct registry_pool *pool)
{
    struct registry_origin **oldest = NULL;
    for (struct registry_origin **at = &pool->origins; *at; at = &(*at)->next)
        if (is_idle(*at) && (!oldest || (*at)->used < (*oldest)->used))
            oldest = at;
    if (!oldest)
        return;
    struct registry_origin *origin = *oldest;
    *oldest = origin->next;
    pool->origin_count--;
    origin_free(origin);
}

static struct registry_origin *new_origin(char *name)
{
    struct registry_origin *origin = calloc(1, sizeof *origin);
    if (!origin)
        return NULL;
    origin->name = name;
    origin->last = &origin->first;
    return origin;
}

/* Under the lock. Takes the name, if it returns an origin that is new. */
static struct registry_origin *find_origin(struct registry_pool *pool, char **name)
{
    struct registry_origin *origin = pool->origins;
    while (origin && strcmp(origin->name, *name) != 0)
        origin = origin->next;
    if (!origin) {
        if (pool->origin_count >= REGISTRY_POOL_ORIGINS_MAX)
            forget_oldest(pool);
        origin = new_origin(*name);
        if (!origin)
            return NULL;
        *name = NULL;
        origin->next = pool->origins;
        pool->origins = origin;
        pool->origin_count++;
    }
    origin->used = ++pool->uses;
    return origin;
}

/* Takes the lock and finds the origin of a URL; on failure the lock is not held. */
static int lock_origin(struct registry_pool *pool, const char *url, struct registry_origin **ret,
                       struct err *err)
{
    cleanup_free char *name = NULL;
    int rc = registry_url_origin(url, &name, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&pool->lock);
    *ret = find_origin(pool, &name);
    if (*ret)
        return 0;
    pthread_mutex_unlock(&pool->lock);
    return err_errno(err, ENOMEM, "cannot talk to a registry");
}

/* Under the lock. Who gets the next slot: the first who may have it; NULL: nobody. */
static struct turn *next_turn(const struct registry_pool *pool,
                              const struct registry_origin *origin)
{
    struct turn *turn = origin->busy < pool->connections ? origin->first : NULL;
    while (turn && turn->bulk && origin->bulk >= pool->bulk_max)
        turn = turn->next;
    return turn;
}

/* Under the lock. Lets the next one in, if there is a slot. */
static void call_next(struct registry_pool *pool, struct registry_origin *origin)
{
    struct turn *turn = next_turn(pool, origin);
    if (turn)
        pthread_cond_signal(&turn->come);
}

static void join_queue(struct registry_origin *origin, struct turn *turn)
{
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&turn->come, &attr);
    (void)pthread_condattr_destroy(&attr);
    turn->next = NULL;
    *origin->last = turn;
    origin->last = &turn->next;
}

static void leave_queue(struct registry_origin *origin, struct turn *turn)
{
    struct turn **at = &origin->first;
    while (*at != turn)
        at = &(*at)->next;
    *at = turn->next;
    if (!*at)
        origin->last = at;
    (void)pthread_cond_destroy(&turn->come);
}

/* Under the lock. How long this one cannot take a slot for sure; 0: it can. */
static int64_t wait_ms(const struct registry_pool *pool, const struct registry_origin *origin,
                       const struct turn *turn)
{
    int64_t pause = origin->paused_until_ms - clock_now_ms();
    if (next_turn(pool, origin) != turn)
        return REGISTRY_POOL_ASK_MS;
    if (pause <= 0)
        return 0;
    return pause < REGISTRY_POOL_ASK_MS ? pause : REGISTRY_POOL_ASK_MS;
}

/* Under the lock, which is given up while waiting and asking. */
static int wait_for_turn(struct registry_pool *pool, struct registry_origin *origin,
                         struct turn *turn, const struct registry_waiter *waiter, struct err *err)
{
    int64_t asked = clock_now_ms();
    for (int64_t ms; (ms = wait_ms(pool, origin, turn)) > 0;) {
        struct timespec until = clock_in_ms(ms);
        (void)pthread_cond_timedwait(&turn->come, &pool->lock, &until);
        if (clock_now_ms() - asked < REGISTRY_POOL_ASK_MS)
            continue;
        pthread_mutex_unlock(&pool->lock);
        int rc = registry_pool_ask(waiter, err);
        pthread_mutex_lock(&pool->lock);
        if (rc < 0)
            return rc;
        asked = clock_now_ms();
    }
    return 0;
}

int registry_pool_enter(struct registry_pool *pool, const char *url, bool bulk,
                        const struct registry_waiter *waiter, struct registry_slot *ret,
                        struct err *err)
{
    struct registry_origin *origin;
    int rc = lock_origin(pool, url, &origin, err);
    if (rc < 0)
        return rc;
    struct turn turn = {.bulk = bulk};
    join_queue(origin, &turn);
    rc = wait_for_turn(pool, origin, &turn, waiter, err);
    if (rc == 0) {
        origin->busy++;
        origin->bulk += bulk;
        *ret = (struct registry_slot){.origin = origin, .bulk = bulk};
    }
    leave_queue(origin, &turn);
    call_next(pool, origin);
    pthread_mutex_unlock(&pool->lock);
    return rc;
}

void registry_pool_leave(struct registry_pool *pool, const struct registry_slot *slot)
{
    struct registry_origin *origin = slot->origin;
    pthread_mutex_lock(&pool->lock);
    origin->busy--;
    origin->bulk -= slot->bulk;
    call_next(pool, origin);
    pthread_mutex_unlock(&pool->lock);
}

void registry_pool_pause(struct registry_pool *pool, const char *url, int64_t ms)
{
    struct registry_origin *origin;
    if (lock_origin(pool, url, &origin, NULL) < 0)
        return;
    int64_t until = clock_now_ms() + ms;
    if (until > origin->paused_until_ms)
        origin->paused_until_ms = until;
    pthread_mutex_unlock(&pool->lock);
}

int registry_pool_sleep(int64_t ms, const struct registry_waiter *waiter, struct err *err)
{
    int64_t until = clock_now_ms() + ms;
    for (int64_t left = ms; left > 0; left = until - clock_now_ms()) {
        int rc = registry_pool_ask(waiter, err);
        if (rc < 0)
            return rc;
        int64_t part = left < REGISTRY_POOL_ASK_MS ? left : REGISTRY_POOL_ASK_MS;
        const struct timespec pause = {.tv_sec = part / 1000, .tv_nsec = part % 1000 * 1000 * 1000};
        (void)nanosleep(&pause, NULL);
    }
    return registry_pool_ask(waiter, err);
}

void registry_pool_set_traits_ms(struct registry_pool *pool, int64_t ms)
{
    pool->traits_ms = ms;
}

/* Under the lock: what is still believed. */
static struct registry_traits *traits_of(struct registry_origin *origin)
{
    if (clock_now_ms() >= origin->traits_until_ms)
        origin->traits = (struct registry_traits){0};
    return &origin->traits;
}

struct registry_traits registry_pool_traits(struct registry_pool *pool, const char *url)
{
    struct registry_traits traits = {0};
    struct registry_origin *origin;
    if (lock_origin(pool, url, &origin, NULL) < 0)
        return traits;
    traits = *traits_of(origin);
    pthread_mutex_unlock(&pool->lock);
    return traits;
}

void registry_pool_learn(struct registry_pool *pool, const char *url,
                         registry_traits_change *change, void *arg)
{
    struct registry_origin *origin;
    if (lock_origin(pool, url, &origin, NULL) < 0)
        return;
    /* From the first on, as a trait keeps what would refute it from being seen. */
    struct registry_traits *traits = traits_of(origin);
    if (clock_now_ms() >= origin->traits_until_ms)
        origin->traits_until_ms = clock_now_ms() + pool->traits_ms;
    change(arg, traits);
    pthread_mutex_unlock(&pool->lock);
}
