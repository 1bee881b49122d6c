/* Looking after keeper and the workers, from one thread. */
#include "volumes_internal.h"

#include "cleanup.h"
#include "log.h"
#include "volume_fs.h"

#include <poll.h>
#include <string.h>

#define NS_PER_MS UINT64_C(1000000)

enum {
    HELLO_MS = 1000, /* for keeper; it is not replaced before volumes_silence_ms() */
    LOST_MS = 200,   /* for all workers that did not answer at start */
    WORKER_SILENT_S = KEEPER_SILENCE_S + 2,
    RESENT_MS = 3000, /* after which a successor has got again what the dead one had not answered */
};

struct telling {
    volumes_event *take;
    void *arg;
};

static void tell(const struct telling *telling, const char *id, const char *event,
                 const char *detail)
{
    telling->take(telling->arg, id, event, detail);
}

/* --- volumes --- */

/* What one look shows; told afterwards, without a lock. */
struct look {
    char id[VOLUME_ID_LEN + 1];
    uint64_t life;
    bool held, lost, dead, detaching, failed, refused;
    bool io_errors; /* requests got errors, and it is not fenced */
    dev_t device;
    uint64_t starts;
    uint64_t heartbeat_ns;
    uint64_t steps; /* starts since the last look */
    pid_t worker;
    char text[LIVE_MAP_TEXT_MAX];
};

/* Since when requests wait for the host's disk: a worker that dies takes its own count with it, and
 * what waited is waiting again when the next one has got it. In the live map, so that it outlives
 * varved too. `held` is read first: a worker says who it is before it counts. */
static void note_waiting(struct volume *volume)
{
    struct live_map_header *header = volume->live.header;
    uint64_t now = (uint64_t)clock_now_ms() * NS_PER_MS;
    bool waits = atomic_load(&header->held) > 0;
    uint64_t own = atomic_load(&header->held_since_ns);
    uint64_t all = atomic_load(&header->waits_since_ns);
    uint64_t starts = atomic_load(&header->starts);
    pid_t worker = (pid_t)atomic_load(&header->pid);
    if (starts != volume->waits_starts || worker != volume->waits_worker) {
        volume->waits_starts = starts;
        volume->waits_worker = worker;
        volume->waits_ns = now;
    }
    if (waits) {
        if (own == 0 || own > now)
            own = now;
        if (all == 0 || own < all)
            atomic_store(&header->waits_since_ns, own);
    } else if (all != 0 && now - volume->waits_ns >= RESENT_MS * NS_PER_MS &&
               atomic_load(&header->heartbeat_ns) + RESENT_MS * NS_PER_MS >= now) {
        atomic_store(&header->waits_since_ns, 0);
    }
}

static void look_locked(struct volume *volume, struct look *ret)
{
    *ret = (struct look){.life = volume->life,
                         .held = volume_is_held(volume),
                         .lost = volume->lost,
                         .device = volume->device_dev,
                         .dead = volume->dead,
                         .detaching = volume->detaching};
    memcpy(ret->id, volume->id, sizeof ret->id);
    if (!ret->held)
        return;
    const struct live_map_header *header = volume->live.header;
    note_waiting(volume);
    uint32_t facts = atomic_load(&header->facts);
    ret->failed = (facts & LIVE_FACT_FAILED) != 0;
    ret->refused = (facts & LIVE_FACT_REFUSED) != 0;
    ret->io_errors = atomic_load(&header->errors) > 0 && !ret->failed && !ret->dead &&
                     (atomic_load(&header->orders) & LIVE_ORDER_FENCED) == 0;
    ret->starts = atomic_load(&header->starts);
    ret->heartbeat_ns = atomic_load(&header->heartbeat_ns);
    ret->worker = (pid_t)atomic_load(&header->pid);
    live_map_text(header, ret->text);
    /* The first start is no restart. */
    uint64_t seen = volume->seen_starts ? volume->seen_starts : 1;
    ret->steps = ret->starts > seen ? ret->starts - seen : 0;
    volume->seen_starts = ret->starts;
}

/* What was told of another life is to be told of this one, too. */
static void begin_telling(struct volume *volume, uint64_t life)
{
    volume->told_life = life;
    volume->told_silent = volume->told_dead = volume->told_refused = false;
    volume->told_failed = volume->told_unserved = volume->told_lost = false;
    volume->told_io = volume->told_fs = false;
}

/* True the first time that `now` is true after it was false. */
static bool turned(bool *told, bool now)
{
    bool turned = now && !*told;
    *told = now;
    return turned;
}

/* Whether a worker has begun to serve since there were that many; NULL: since it was noted that
 * none does. With the table's lock. */
static bool is_served_since(const struct volume *volume, const uint64_t *starts)
{
    if (!starts && volume->unserved_ms == 0)
        return true;
    if (!volume_is_held(volume))
        return !volume->lost;
    return atomic_load(&volume->live.header->starts) !=
           (starts ? *starts : volume->unserved_starts);
}

/* Nobody will serve it: requests end with an error instead of waiting for ever. False: the life
 * that was looked at has ended meanwhile, and another one may have begun; or somebody serves it.
 * `starts`: see above. */
static bool make_dead(struct volumes *volumes, const char *id, uint64_t life,
                      const uint64_t *starts)
{
    struct volume *volume = volume_pin(volumes, id, life);
    if (!volume)
        return false;
    (void)pthread_mutex_lock(&volumes->table);
    bool dies = !is_served_since(volume, starts);
    if (dies) {
        volume->dead = true;
        volume->lost = false;
    }
    (void)pthread_mutex_unlock(&volumes->table);
    if (dies)
        volume_cut(volumes, volume);
    volume_unpin(volumes, volume);
    return dies;
}

static bool is_taken_down(struct volumes *volumes, const struct volume *volume)
{
    (void)pthread_mutex_lock(&volumes->table);
    bool down = !volume_is_held(volume) || !volume->wanted || volume->detaching;
    (void)pthread_mutex_unlock(&volumes->table);
    return down;
}

/* Since when a volume that was served has no worker that serves: each that is started ends before
 * it does. One that does counts its start. One that is lost counts as such a volume until whoever
 * wants to give it up has found that it answers (volumes_answers()). */
static bool note_unserved(struct volumes *volumes, struct volume *volume, const struct look *look)
{
    bool missing = look->lost && !look->dead;
    missing |= look->held && look->starts > 0 && !look->dead &&
               (look->text[0] != '\0' || !volume_worker_runs(look->worker)) &&
               !is_taken_down(volumes, volume);
    (void)pthread_mutex_lock(&volumes->table);
    if (look->dead || (!look->lost && (!look->held || volume->unserved_starts != look->starts)))
        volume->unserved_ms = 0;
    if (missing && volume->unserved_ms == 0) {
        volume->unserved_ms = clock_now_ms();
        volume->unserved_starts = look->starts;
    }
    bool unserved = volume->unserved_ms != 0;
    (void)pthread_mutex_unlock(&volumes->table);
    return unserved;
}

int volumes_give_up(struct volumes *volumes, const char *id, uint64_t life)
{
    bool dead = make_dead(volumes, id, life, NULL);
    volumes_wake(volumes);
    return dead;
}

/* As it is now: nobody serves it, and the last one who was to has refused. */
static bool is_refused(struct volumes *volumes, const struct volume *volume)
{
    pid_t worker = 0;
    (void)pthread_mutex_lock(&volumes->table);
    bool refused = volume_is_held(volume) &&
                   (atomic_load(&volume->live.header->facts) & LIVE_FACT_REFUSED) != 0;
    if (refused)
        worker = (pid_t)atomic_load(&volume->live.header->pid);
    (void)pthread_mutex_unlock(&volumes->table);
    return refused && !volume_worker_runs(worker);
}

/* Why nobody will serve it any more; NULL. */
static const char *why_dead(struct volumes *volumes, const struct volume *volume,
                            const struct look *look)
{
    if (look->dead || is_taken_down(volumes, volume))
        return NULL;
    if (volume_is_orphan(volumes, volume))
        return "its worker died, and this kernel does not send requests again";
    if (look->held && volume_is_cut(volumes, volume))
        return "its connection has ended";
    if (look->starts > 0 && is_refused(volumes, volume))
        return "its worker died, and others refuse to serve it";
    return NULL;
}

static void tell_why_unserved(struct volumes *volumes, struct volume *volume,
                              const struct look *look, const struct telling *telling)
{
    bool said = look->held && look->text[0] != '\0';
    bool unserved = note_unserved(volumes, volume, look);
    if (turned(&volume->told_lost, look->lost))
        tell(telling, look->id, "worker-silent", "it has not answered since varved was started");
    if (turned(&volume->told_refused, said && look->refused))
        tell(telling, look->id, "worker-refused", look->text);
    if (turned(&volume->told_unserved, said && unserved && !look->refused))
        tell(telling, look->id, "worker-failed", look->text);
}

/* What the kernel tells only who looks: reads and writes that got errors, and an ext4 that takes no
 * more writes since. */
static void tell_errors(struct volume *volume, const struct look *look,
                        const struct telling *telling)
{
    bool lives = look->held && !look->dead && !look->detaching && look->device != 0;
    uint64_t errors = lives && !volume->told_fs ? volume_fs_errors(look->device) : 0;
    if (errors > 0) {
        volume->told_fs = volume->told_io = true;
        tell(telling, look->id, "volume-read-only",
             "its file system has met an error and takes no more writes");
    }
    if (!volume->told_io && look->io_errors) {
        volume->told_io = true;
        tell(telling, look->id, "volume-errors", "reads or writes of it got errors");
    }
}

static void watch_volume(struct volumes *volumes, struct volume *volume,
                         const struct telling *telling)
{
    struct look look;
    char detail[96];
    (void)pthread_mutex_lock(&volumes->table);
    look_locked(volume, &look);
    (void)pthread_mutex_unlock(&volumes->table);
    if (volume->told_life != look.life)
        begin_telling(volume, look.life);
    if (look.steps > 0) {
        (void)snprintf(detail, sizeof detail, "pid %d, start %llu", (int)look.worker,
                       (unsigned long long)look.starts);
        tell(telling, look.id, "worker-restarted", detail);
    }
    volume_probe_note(volumes, volume);
    tell_why_unserved(volumes, volume, &look, telling);
    /* Now, as to tell can take a while. */
    const char *why = why_dead(volumes, volume, &look);
    if (why && make_dead(volumes, look.id, look.life, &look.starts))
        look.dead = true;
    /* Who abandons it knows. */
    if (turned(&volume->told_dead, look.dead && !look.detaching))
        tell(telling, look.id, "volume-dead", why ? why : "its connection has ended");
    if (!look.failed)
        tell_errors(volume, &look, telling);
    if (turned(&volume->told_failed, look.failed))
        tell(telling, look.id, "volume-sync-failed",
             "the host's disk did not take what was to be synced; nothing later is kept");
    uint64_t now = (uint64_t)clock_now_ms() * NS_PER_MS;
    uint64_t silent =
        look.held && look.heartbeat_ns && now > look.heartbeat_ns ? now - look.heartbeat_ns : 0;
    if (turned(&volume->told_silent, !look.dead && silent / 1000000000 >= WORKER_SILENT_S))
        tell(telling, look.id, "worker-silent", "no sign of life for 12 seconds");
}

static void watch_volumes(struct volumes *volumes, const struct telling *telling)
{
    size_t count;
    volumes_find_lost(volumes, LOST_MS);
    cleanup_free struct volume **all = volumes_peek_all(volumes, &count);
    for (size_t i = 0; all && i < count; i++) {
        watch_volume(volumes, all[i], telling);
        volume_unpeek(volumes, all[i]);
    }
}

/* --- keeper --- */

/* A dead one is started again, and gets everything. */
static void mend_keeper(struct volumes *volumes, const struct telling *telling)
{
    if (!volumes_hold_any(volumes) || volumes->keeper_silent_ms != 0)
        return;
    struct err why = ERR_INIT;
    bool first = keeper_client_pid(volumes->keeper) == 0;
    int rc = volumes_keeper_ensure(volumes, &why);
    if (rc < 0)
        log_event(LOG_ERROR, "keeper-missing", "why", why.text, NULL);
    else if (rc > 0 && !first)
        tell(telling, NULL, "keeper-restarted", "it had ended");
}

/* After a question without an answer there is no connection, so the next one begins with that. */
static int hello(struct volumes *volumes, struct err *err)
{
    return keeper_client_is_connected(volumes->keeper)
               ? keeper_client_hello(volumes->keeper, NULL, HELLO_MS, err)
               : volumes_keeper_find(volumes, HELLO_MS, err);
}

/* One that is there and does not answer. */
static void ask_keeper(struct volumes *volumes, const struct telling *telling)
{
    struct err why = ERR_INIT;
    int64_t now = clock_now_ms();
    bool silent = volumes->keeper_silent_ms != 0;
    if (!volumes_hold_any(volumes) || (!silent && !keeper_client_is_connected(volumes->keeper)))
        return;
    if (hello(volumes, &why) >= 0 || why.code != ERR_UNREACHABLE) {
        volumes->keeper_silent_ms = 0;
        return;
    }
    if (!silent)
        volumes->keeper_silent_ms = now;
    if (clock_now_ms() - volumes->keeper_silent_ms < volumes_silence_ms())
        return;
    tell(telling, NULL, "keeper-silent", why.text);
    volumes->keeper_silent_ms = 0;
    if (volumes_keeper_replace(volumes, &why) >= 0)
        tell(telling, NULL, "keeper-restarted", "it did not answer");
}

/* What keeper did to workers. Restarts are seen in the live maps, so that none is missed. */
static void take_event(const struct keeper_client_event *event, const struct telling *telling)
{
    char text[96];
    if (event->lost > 0) {
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)event->lost);
        log_event(LOG_WARN, "keeper-events-lost", "count", text, NULL);
    }
    (void)snprintf(text, sizeof text, "pid %d, %llu", (int)event->worker,
                   (unsigned long long)event->value);
    if (event->event == KEEPER_SILENT)
        tell(telling, event->id, "worker-silent", text);
    else if (event->event == KEEPER_NO_START)
        log_event(LOG_ERROR, "worker-not-started", "volume", event->id, "what", text, NULL);
    else if (event->event == KEEPER_DIED)
        log_event(LOG_WARN, "worker-died", "volume", event->id, "what", text, NULL);
}

/* False: keeper has ended. */
static bool take_events(struct volumes *volumes, const struct telling *telling)
{
    struct keeper_client_event event;
    int rc;
    while ((rc = keeper_client_event(volumes->keeper, &event, NULL)) > 0)
        take_event(&event, telling);
    return rc == 0;
}

void volumes_watch(struct volumes *volumes, int timeout_ms, volumes_event *take, void *arg)
{
    const struct telling telling = {take, arg};
    int64_t until = clock_now_ms() + timeout_ms;
    mend_keeper(volumes, &telling);
    ask_keeper(volumes, &telling);
    watch_volumes(volumes, &telling);
    for (;;) {
        int64_t left = until - clock_now_ms();
        struct pollfd at[2] = {{.fd = volumes->wake_fd, .events = POLLIN},
                               {.fd = keeper_client_event_fd(volumes->keeper), .events = POLLIN}};
        int n = poll(at, ARRAY_SIZE(at), left > 0 ? (int)left : 0);
        if (n <= 0)
            return;
        if (at[0].revents) {
            uint64_t count;
            ssize_t ignored = read(volumes->wake_fd, &count, sizeof count);
            (void)ignored;
            return;
        }
        if (!take_events(volumes, &telling)) {
            mend_keeper(volumes, &telling);
            watch_volumes(volumes, &telling);
        }
    }
}
