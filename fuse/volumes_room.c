/* What a check or a mount has to write, when the host's disk has no room for it. */
#include "volumes_internal.h"

#include "log.h"
#include "volume_holders.h"

enum {
    LOOK_MS = 100,
};

/* Another mount namespace may have it mounted: then others' writes wait too, for longer. */
static bool is_used_elsewhere(const struct room_guard *guard)
{
    struct volume_holders holders = {.namespaces = 0};
    return volume_holders_find(guard->volume->device_dev, &holders, NULL) < 0 ||
           holders.namespaces > 0;
}

/* Until it is time to look again. False: it has ended. */
static bool rest(struct room_guard *guard)
{
    const struct timespec until = clock_in_ms(LOOK_MS);
    int num = 0;
    pthread_mutex_lock(&guard->lock);
    while (!guard->stop && num == 0)
        num = pthread_cond_timedwait(&guard->stopped, &guard->lock, &until);
    bool stop = guard->stop;
    pthread_mutex_unlock(&guard->lock);
    return !stop;
}

static void *watch(void *arg)
{
    struct room_guard *guard = arg;
    struct live_map_header *header = guard->volume->live.header;
    int64_t since = 0; /* of writes that wait; 0: none do */
    do {
        int64_t now = clock_now_ms();
        bool waits = atomic_load(&header->held) > 0;
        if (!waits || since == 0)
            since = waits ? now : 0;
        if (since != 0 && now - since >= guard->wait_ms && !is_used_elsewhere(guard)) {
            atomic_store(&guard->fired, true);
            (void)atomic_fetch_or(&header->orders, LIVE_ORDER_FENCED);
            break;
        }
    } while (rest(guard));
    return NULL;
}

void room_guard_begin(const struct volumes *volumes, struct volume *volume,
                      struct room_guard *guard)
{
    *guard = (struct room_guard){.volume = volume, .wait_ms = volumes->room_ms};
    pthread_mutex_init(&guard->lock, NULL); /* cannot fail without attributes */
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&guard->stopped, &monotonic);
    pthread_condattr_destroy(&monotonic);
    guard->started = pthread_create(&guard->thread, NULL, watch, guard) == 0;
    if (!guard->started) /* it waits for as long as its deadline says */
        log_event(LOG_WARN, "volume-not-guarded", "volume", volume->id, NULL);
}

int room_guard_end(struct room_guard *guard, int rc, struct err *err)
{
    pthread_mutex_lock(&guard->lock);
    guard->stop = true;
    pthread_cond_signal(&guard->stopped);
    pthread_mutex_unlock(&guard->lock);
    if (guard->started)
        (void)pthread_join(guard->thread, NULL);
    guard->started = false;
    pthread_cond_destroy(&guard->stopped);
    pthread_mutex_destroy(&guard->lock);
    if (!atomic_load(&guard->fired))
        return rc;
    log_event(LOG_WARN, "volume-without-room", "volume", guard->volume->id, "why",
              err && rc < 0 ? err->text : "it went on too late", NULL);
    err_clear(err);
    rc = err_fail(err, ERR_NO_SPACE,
                  "the host's disk has no room for what has to be written to it first (%d s were "
                  "waited)",
                  guard->wait_ms / 1000);
    err_hint(err, "free space there, then try again");
    return rc;
}
