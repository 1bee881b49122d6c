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

static void *watch(void *arg)
{
    struct room_guard *guard = arg;
    struct live_map_header *header = guard->volume->live.header;
    int64_t since = 0; /* of writes that wait; 0: none do */
    while (!atomic_load(&guard->stop)) {
        int64_t now = clock_now_ms();
        bool waits = atomic_load(&header->held) > 0;
        if (!waits || since == 0)
            since = waits ? now : 0;
        if (since != 0 && now - since >= VOLUMES_ROOM_MS && !is_used_elsewhere(guard)) {
            atomic_store(&guard->fired, true);
            (void)atomic_fetch_or(&header->orders, LIVE_ORDER_FENCED);
            break;
        }
        volumes_sleep_ms(LOOK_MS);
    }
    return NULL;
}

void room_guard_begin(struct volume *volume, struct room_guard *guard)
{
    *guard = (struct room_guard){.volume = volume};
    guard->started = pthread_create(&guard->thread, NULL, watch, guard) == 0;
    if (!guard->started) /* it waits for as long as its deadline says */
        log_event(LOG_WARN, "volume-not-guarded", "volume", volume->id, NULL);
}

int room_guard_end(struct room_guard *guard, int rc, struct err *err)
{
    atomic_store(&guard->stop, true);
    if (guard->started)
        (void)pthread_join(guard->thread, NULL);
    guard->started = false;
    if (rc >= 0 || !atomic_load(&guard->fired))
        return rc;
    log_event(LOG_WARN, "volume-without-room", "volume", guard->volume->id, "why",
              err ? err->text : NULL, NULL);
    err_clear(err);
    rc = err_fail(err, ERR_NO_SPACE,
                  "the host's disk has no room for what has to be written to it first (%d s were "
                  "waited)",
                  VOLUMES_ROOM_MS / 1000);
    err_hint(err, "free space there, then try again");
    return rc;
}
