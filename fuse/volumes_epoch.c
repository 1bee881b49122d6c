#include "volumes_epoch.h"

#include "cleanup.h"
#include "log.h"
#include "volume_fs.h"
#include "volumes_internal.h"
#include "worker_client.h"

#include <fcntl.h>

enum {
    RESCUE_MS = 1000, /* for an answer of a worker that holds up a freeze */
};

int volume_must_be_attached(struct volumes *volumes, const struct volume *volume, struct err *err)
{
    if (volume_is_held(volume) && !volume->dead && !volume->detaching &&
        !volume_is_cut(volumes, volume))
        return 0;
    int rc = err_fail(err, ERR_CONFLICT, "it is not attached");
    err_hint(err, "it was unmounted or has died meanwhile: try again; `varve recover` brings back "
                  "what has died");
    return rc;
}

/* Those who release (jobs, the pass of the fetches) do so at once, without `busy`. */
static int empty_slots(struct volume *volume, struct live_map *live, struct err *err)
{
    (void)pthread_mutex_lock(&volume->slots);
    int rc = epoch_slots_empty(live, err);
    (void)pthread_mutex_unlock(&volume->slots);
    return rc;
}

int volume_end_checkpoints(struct volumes *volumes, struct volume *volume, uint64_t but_token,
                           uint64_t but_number, struct err *err)
{
    const struct live_map_header *header = volume->live.header;
    int rc = 0;
    for (unsigned i = 0; i < LIVE_MAP_SLOTS && rc == 0; i++) {
        const struct live_slot *slot = &header->slots[i];
        if (atomic_load(&slot->state) == LIVE_SLOT_OPEN &&
            (atomic_load(&slot->uses) & LIVE_USE_CHECKPOINT) &&
            atomic_load(&slot->token) != but_token && atomic_load(&slot->number) != but_number)
            rc = worker_client_release(volumes->workers_fd, volume->id, atomic_load(&slot->number),
                                       VOLUMES_STEP_MS, err);
    }
    return rc < 0 ? rc : empty_slots(volume, &volume->live, err);
}

static int sync_path(struct volume *volume, const char *path, int64_t *ret_ns, struct err *err)
{
    int64_t begun = clock_now_ns();
    int rc = volume_fs_sync(path, volume->device_dev, VOLUMES_SYNC_MS, err);
    *ret_ns = clock_now_ns() - begun;
    return rc < 0 ? err_wrap(err, rc, "cannot sync what is mounted at %s", path) : 0;
}

static int cut(struct volumes *volumes, struct volume *volume, uint64_t token, uint32_t uses,
               struct volumes_epoch *epoch, struct err *err)
{
    int64_t begun = clock_now_ns();
    int rc = worker_client_cut(volumes->workers_fd, volume->id, token, uses, VOLUMES_STEP_MS,
                               &epoch->number, err);
    epoch->cut_ns = clock_now_ns() - begun;
    epoch->life = volume->life;
    return rc;
}

static int open_reader(struct volumes *volumes, const struct volume *volume,
                       struct volumes_epoch *epoch, struct err *err)
{
    epoch->live_fd = fcntl(volume->fds.live, F_DUPFD_CLOEXEC, 0);
    if (epoch->live_fd < 0)
        return err_errno(err, errno, "cannot hold the live map");
    epoch->dir_fd = volume_open_dir(volumes, volume->id, err);
    if (epoch->dir_fd < 0)
        return epoch->dir_fd;
    return epoch_reader_open(epoch->dir_fd, epoch->live_fd, epoch->number, &epoch->reader, err);
}

/* How long things took stays, for who tells it. */
static void close_fds(struct volumes_epoch *epoch)
{
    cleanup_fdp(&epoch->dir_fd);
    cleanup_fdp(&epoch->live_fd);
    epoch->dir_fd = epoch->live_fd = -1;
    epoch->number = 0;
}

/* What is to be cut, and how. */
struct wish {
    uint64_t token;
    uint32_t uses;
    const char *path; /* NULL: not synced */
    int budget_ms;    /* of a freeze; 0: not frozen */
};

struct rescue {
    struct volumes *volumes;
    const struct volume *volume;
};

/* freeze_order.rescue: the worker is the suspect. */
static void rescue_frozen(void *arg)
{
    struct rescue *rescue = arg;
    struct err why = ERR_INIT;
    int rc =
        volume_probe(rescue->volumes, rescue->volume->id, rescue->volume->life, RESCUE_MS, &why);
    if (rc != 0)
        log_event(LOG_WARN, rc > 0 ? "worker-silent" : "worker-not-ended", "volume",
                  rescue->volume->id, "why",
                  rc > 0 ? "it held up a freeze and was killed" : why.text, NULL);
}

/* freeze_order.stops */
static bool is_stopping(void *arg)
{
    struct rescue *rescue = arg;
    return atomic_load(&rescue->volumes->stopping);
}

/* A cut that was not frozen all the time is none. */
static int cut_frozen(struct volumes *volumes, struct volume *volume, const struct wish *wish,
                      struct volumes_epoch *epoch, struct err *err)
{
    struct rescue rescue = {volumes, volume};
    const struct freeze_order order = {.volume = volume->id,
                                       .path = wish->path,
                                       .device = volume->device_dev,
                                       .budget_ms = wish->budget_ms,
                                       .rescue = rescue_frozen,
                                       .stops = is_stopping,
                                       .arg = &rescue};
    struct freeze freeze;
    int rc = freeze_begin(volumes->freezes_fd, &order, 1, &freeze, err);
    if (rc < 0)
        return rc;
    rc = cut(volumes, volume, wish->token, wish->uses, epoch, err);
    struct err why = ERR_INIT;
    int ended = freeze_end(&freeze, 1, &epoch->freeze, &why);
    epoch->frozen = true;
    if (rc < 0 || ended == 0)
        return rc;
    (void)worker_client_release(volumes->workers_fd, volume->id, epoch->number, VOLUMES_STEP_MS,
                                NULL);
    return err_pass(err, ended, &why);
}

/* A checkpoint that stores what it has cut goes on beside the cut of a view. */
static int make_way(struct volumes *volumes, struct volume *volume, const struct wish *wish,
                    struct err *err)
{
    return wish->uses & LIVE_USE_CHECKPOINT
               ? volume_end_checkpoints(volumes, volume, wish->token, 0, err)
               : empty_slots(volume, &volume->live, err);
}

static int begin(struct volumes *volumes, struct volume *volume, const struct wish *wish,
                 struct volumes_epoch *ret, struct err *err)
{
    struct volumes_epoch epoch = {.dir_fd = -1, .live_fd = -1};
    int rc = volume_must_be_attached(volumes, volume, err);
    if (rc == 0)
        rc = make_way(volumes, volume, wish, err);
    if (rc == 0 && wish->path)
        rc = sync_path(volume, wish->path, &epoch.synced_ns, err);
    if (rc == 0)
        rc = wish->budget_ms > 0 ? cut_frozen(volumes, volume, wish, &epoch, err)
                                 : cut(volumes, volume, wish->token, wish->uses, &epoch, err);
    if (rc < 0)
        return rc;
    if (wish->uses & LIVE_USE_CHECKPOINT) {
        volume->cut_number = epoch.number;
        volume->cut_life = epoch.life;
    }
    rc = open_reader(volumes, volume, &epoch, err);
    if (rc < 0) {
        (void)worker_client_release(volumes->workers_fd, volume->id, epoch.number, VOLUMES_STEP_MS,
                                    NULL);
        close_fds(&epoch);
        return rc;
    }
    *ret = epoch;
    return 0;
}

static int cut_as(struct volumes *volumes, const char *id, const struct wish *wish,
                  struct volumes_epoch *ret, struct err *err)
{
    struct volume *volume;
    int rc = volume_enter(volumes, id, &volume, err);
    if (rc < 0)
        return rc;
    rc = begin(volumes, volume, wish, ret, err);
    volume_leave(volumes, volume);
    return rc < 0 ? err_wrap(err, rc, "cannot cut volume %s", id) : 0;
}

int volumes_epoch_cut(struct volumes *volumes, const char *id, uint64_t token, uint32_t uses,
                      const char *path, struct volumes_epoch *ret, struct err *err)
{
    const struct wish wish = {token, uses, path, 0};
    return cut_as(volumes, id, &wish, ret, err);
}

int volumes_epoch_cut_frozen(struct volumes *volumes, const char *id, uint64_t token, uint32_t uses,
                             const char *path, int budget_ms, struct volumes_epoch *ret,
                             struct err *err)
{
    const struct wish wish = {token, uses, path, budget_ms};
    int rc = freeze_check_budget(budget_ms, err);
    return rc < 0 ? rc : cut_as(volumes, id, &wish, ret, err);
}

int volumes_thaw_left(struct volumes *volumes, int wait_ms)
{
    return freeze_recover(volumes->freezes_fd, wait_ms);
}

int volumes_epoch_is_whole(struct volumes *volumes, const char *id,
                           const struct volumes_epoch *epoch, struct err *err)
{
    int rc = 0;
    struct volume *volume = volume_pin(volumes, id, epoch->life);
    if (!volume || volume->dead || volume_is_cut(volumes, volume))
        rc = err_fail(err, ERR_CONFLICT, "volume %s was detached or has died meanwhile", id);
    if (volume)
        volume_unpin(volumes, volume);
    return rc < 0 ? rc : epoch_reader_check(&epoch->reader, err);
}

int volumes_epoch_flush(struct volumes *volumes, const char *id, const struct volumes_epoch *epoch,
                        struct err *err)
{
    struct volume *volume = volume_pin(volumes, id, epoch->life);
    if (!volume)
        return err_fail(err, ERR_CONFLICT, "volume %s was detached meanwhile", id);
    int rc = worker_client_flush(volumes->workers_fd, id, VOLUMES_CLOSE_S * 1000, err);
    volume_unpin(volumes, volume);
    return rc < 0 ? err_wrap(err, rc, "cannot flush volume %s", id) : 0;
}

/* The slot that is open under a token, or -1. */
static int find_token(const struct live_map_header *header, uint64_t token)
{
    for (unsigned i = 0; i < LIVE_MAP_SLOTS; i++)
        if (atomic_load(&header->slots[i].state) == LIVE_SLOT_OPEN &&
            atomic_load(&header->slots[i].token) == token)
            return (int)i;
    return -1;
}

/* Pins a volume that has its shared parts, which stay then. NULL: it has none; *ret_lost: somebody
 * has them. */
static struct volume *pin_held(struct volumes *volumes, const char *id, bool *ret_lost)
{
    *ret_lost = false;
    struct volume *volume = volume_pin(volumes, id, VOLUME_ANY_LIFE);
    if (!volume)
        return NULL;
    (void)pthread_mutex_lock(&volumes->table);
    bool held = volume_is_held(volume);
    *ret_lost = volume->lost;
    (void)pthread_mutex_unlock(&volumes->table);
    if (held)
        return volume;
    volume_unpin(volumes, volume);
    return NULL;
}

static bool is_over(struct volumes *volumes, const struct volume *volume)
{
    return volume->dead || volume_is_cut(volumes, volume);
}

static int fail_gone(const char *id, struct err *err)
{
    return err_fail(err, ERR_NOT_FOUND, "what volume %s was at the cut is not kept any more", id);
}

static int open_pinned(struct volumes *volumes, const struct volume *volume, uint64_t token,
                       struct volumes_epoch *ret, struct err *err)
{
    struct volumes_epoch epoch = {.dir_fd = -1, .live_fd = -1, .life = volume->life};
    struct err why = ERR_INIT;
    int slot = is_over(volumes, volume) ? -1 : find_token(volume->live.header, token);
    if (slot < 0)
        return fail_gone(volume->id, err);
    epoch.number = atomic_load(&volume->live.header->slots[slot].number);
    int rc = open_reader(volumes, volume, &epoch, &why);
    if (rc < 0)
        close_fds(&epoch);
    else
        *ret = epoch;
    return err_pass(err, rc, &why);
}

int volumes_epoch_open(struct volumes *volumes, const char *id, uint64_t token,
                       struct volumes_epoch *ret, struct err *err)
{
    bool lost;
    struct volume *volume = pin_held(volumes, id, &lost);
    if (!volume && lost)
        return err_fail(err, ERR_UNREACHABLE, "nobody answers for volume %s now", id);
    if (!volume)
        return fail_gone(id, err);
    int rc = open_pinned(volumes, volume, token, ret, err);
    volume_unpin(volumes, volume);
    return rc;
}

void volumes_epoch_leave(struct volumes_epoch *epoch)
{
    if (epoch->number == 0)
        return;
    epoch_reader_close(&epoch->reader);
    close_fds(epoch);
}

int volumes_epoch_release(struct volumes *volumes, const char *id, uint64_t token, int wait_ms,
                          struct err *err)
{
    int rc = 0;
    bool lost;
    struct volume *volume = pin_held(volumes, id, &lost);
    if (!volume)
        return 0;
    int slot = is_over(volumes, volume) ? -1 : find_token(volume->live.header, token);
    if (slot >= 0)
        rc = worker_client_release(volumes->workers_fd, id,
                                   atomic_load(&volume->live.header->slots[slot].number), wait_ms,
                                   err);
    if (slot >= 0 && rc == 0)
        rc = empty_slots(volume, &volume->live, err);
    volume_unpin(volumes, volume);
    return rc;
}

unsigned volumes_epoch_views(struct volumes *volumes, const char *id,
                             uint64_t ret_tokens[LIVE_MAP_SLOTS])
{
    unsigned count = 0;
    bool lost;
    struct volume *volume = pin_held(volumes, id, &lost);
    if (!volume)
        return 0;
    for (unsigned i = 0; i < LIVE_MAP_SLOTS; i++) {
        const struct live_slot *slot = &volume->live.header->slots[i];
        if (atomic_load(&slot->state) == LIVE_SLOT_OPEN &&
            epoch_is_of_view(atomic_load(&slot->uses)))
            ret_tokens[count++] = atomic_load(&slot->token);
    }
    volume_unpin(volumes, volume);
    return count;
}

void volumes_epoch_clean(struct volumes *volumes, const char *id, const struct volumes_epoch *epoch)
{
    struct volume *volume = volume_pin(volumes, id, epoch->life);
    if (!volume)
        return;
    struct live_map_header *header = epoch->reader.live.header;
    uint64_t now = atomic_load(&header->clean_epoch);
    /* Else another checkpoint is under way, which needs what is dirty in it to stay so. */
    const bool is_open = epoch_slot_find(header, epoch->number) >= 0;
    while (is_open && now < epoch->number &&
           !atomic_compare_exchange_weak(&header->clean_epoch, &now, epoch->number))
        ;
    volume_unpin(volumes, volume);
}

/* The reader's mapping of the live map is of the life that it is of. */
static void release(struct volumes *volumes, const char *id, struct volumes_epoch *epoch,
                    struct err *err)
{
    struct volume *volume = volume_pin(volumes, id, epoch->life);
    if (!volume)
        return;
    int rc = worker_client_release(volumes->workers_fd, id, epoch->number, VOLUMES_STEP_MS, err);
    if (rc == 0)
        (void)empty_slots(volume, &epoch->reader.live, err);
    volume_unpin(volumes, volume);
}

int volumes_epoch_end_left(struct volumes *volumes, const char *id, struct err *err)
{
    struct volume *volume;
    int rc = volume_enter(volumes, id, &volume, err);
    if (rc < 0)
        return rc;
    uint64_t own = volume->cut_life == volume->life ? volume->cut_number : 0;
    if (volume_must_be_attached(volumes, volume, NULL) == 0)
        rc = volume_end_checkpoints(volumes, volume, 0, own, err);
    volume_leave(volumes, volume);
    return rc < 0 ? err_wrap(err, rc, "cannot end an epoch of volume %s", id) : 0;
}

void volumes_epoch_end(struct volumes *volumes, const char *id, struct volumes_epoch *epoch)
{
    struct err why = ERR_INIT;
    if (epoch->number == 0)
        return;
    release(volumes, id, epoch, &why);
    if (why.code != ERR_NONE)
        log_event(LOG_WARN, "epoch-not-ended", "volume", id, "why", why.text, NULL);
    volumes_epoch_leave(epoch);
}
