/* Finding again what is attached, after a start of varved: from keeper, from the workers, and by
 * looking at names. */
#include "volumes_internal.h"

#include "cleanup.h"
#include "fdio.h"
#include "log.h"
#include "volume_mount.h"
#include "worker_client.h"

#include <dirent.h>
#include <string.h>

enum {
    THAW_MS = 3000, /* for what a dead varved had frozen: its holders thaw it by themselves */
    ASK_MS = 1500,  /* all workers, at start; watched ones are asked again */
};

/* Descriptors have come: what they mean. */
static int found(struct volumes *volumes, struct volume *volume, struct volume_fds *fds,
                 struct err *err)
{
    char path[VOLUMES_PATH_MAX];
    dev_t device = 0;
    int rc = volume_take_fds(volumes, volume, fds, err);
    if (rc < 0)
        return rc;
    volume_mount_path(volumes, volume->id, path);
    rc = volume_mount_look(path, &device, err);
    if (rc >= 0)
        rc = volume_loop_look(volumes, volume, err);
    bool cut = volume_is_cut(volumes, volume) || volume_is_orphan(volumes, volume);
    (void)pthread_mutex_lock(&volumes->table);
    uint32_t facts = atomic_load(&volume->live.header->facts);
    volume->fuse_dev = device;
    volume->dead = cut;
    /* Without its mount, or closed: somebody was about to take it down. */
    volume->detaching = device == 0 || (facts & LIVE_FACT_CLOSED) != 0;
    volume->wanted = !cut && !volume->detaching;
    volume->seen_starts = atomic_load(&volume->live.header->starts);
    (void)pthread_mutex_unlock(&volumes->table);
    log_event(LOG_INFO, "volume-adopted", "volume", volume->id, "state",
              cut                 ? "dead"
              : volume->detaching ? "detaching"
                                  : "attached",
              NULL);
    return rc < 0 ? rc : 0;
}

/* Takes the descriptors unless the volume has some already. */
static int adopt(struct volumes *volumes, const char *id, struct volume_fds *fds, struct err *err)
{
    struct volume *volume;
    int rc = volume_enter(volumes, id, &volume, err);
    if (rc < 0)
        return rc;
    if (!volume_is_held(volume))
        rc = found(volumes, volume, fds, err);
    volume_leave(volumes, volume);
    return rc;
}

/* keeper_held_take */
static int take_held(void *arg, struct keeper_held *held, struct err *err)
{
    struct err why = ERR_INIT;
    (void)err;
    if (adopt(arg, held->id, &held->fds, &why) < 0)
        log_event(LOG_ERROR, "volume-not-adopted", "volume", held->id, "why", why.text, NULL);
    return 0;
}

static void from_keeper(struct volumes *volumes)
{
    struct err why = ERR_INIT;
    int rc = volumes_keeper_find(volumes, volumes_silence_ms(), &why);
    if (rc > 0)
        rc = keeper_client_list(volumes->keeper, take_held, volumes, volumes_silence_ms(), &why);
    if (rc < 0)
        log_event(LOG_WARN, "keeper-not-asked", "why", why.text, NULL);
}

/* --- workers --- */

/* Whether its FUSE mount is there, and what is. */
static bool look_at_mount(struct volumes *volumes, struct volume *volume)
{
    char path[VOLUMES_PATH_MAX];
    dev_t device;
    volume_mount_path(volumes, volume->id, path);
    bool mounted = volume_mount_look(path, &device, NULL) > 0;
    if (mounted)
        (void)volume_loop_look(volumes, volume, NULL);
    (void)pthread_mutex_lock(&volumes->table);
    volume->fuse_dev = mounted ? device : 0;
    (void)pthread_mutex_unlock(&volumes->table);
    return mounted;
}

static bool is_served(struct volumes *volumes, const struct volume *volume)
{
    cleanup_fd int pidfd = volume_worker_pidfd(volumes, volume);
    return pidfd >= 0;
}

/* One whose descriptors keeper hadn't. `asked` as for worker_client_attach(). */
static int hear_worker(struct volumes *volumes, struct volume *volume, int asked, int wait_ms)
{
    struct err why = ERR_INIT;
    cleanup_volume_fds struct volume_fds fds = VOLUME_FDS_NONE;
    int rc = worker_client_attach(volumes->workers_fd, volume->id, asked, wait_ms, &fds, &why);
    if (rc == 0)
        rc = found(volumes, volume, &fds, &why);
    if (rc == 0)
        return 0;
    /* Somebody listens who does not answer: a worker that is stopped. Or his socket is gone, or
     * what he has is not understood; as long as he lives the volume does. */
    bool lost =
        !volume_is_held(volume) && (why.code == ERR_UNREACHABLE || is_served(volumes, volume));
    if (lost) /* who gives it up ends this connection */
        (void)look_at_mount(volumes, volume);
    (void)pthread_mutex_lock(&volumes->table);
    bool told = volume->lost || volume->dead;
    volume->lost = lost && !volume->dead;
    (void)pthread_mutex_unlock(&volumes->table);
    if (why.code != ERR_NOT_FOUND && !told)
        log_event(LOG_WARN, "volume-not-adopted", "volume", volume->id, "why", why.text, NULL);
    return rc;
}

/* A mount that nobody serves. */
static void look_dead(struct volumes *volumes, struct volume *volume)
{
    bool mounted = look_at_mount(volumes, volume);
    (void)pthread_mutex_lock(&volumes->table);
    volume->dead = mounted;
    (void)pthread_mutex_unlock(&volumes->table);
    if (mounted)
        log_event(LOG_WARN, "volume-dead", "volume", volume->id, NULL);
}

/* --- names --- */

struct names {
    char (*ids)[VOLUME_ID_LEN + 1]; /* owned */
    size_t count;
    size_t room;
};

static int add_name(struct names *names, const char *name, size_t len, struct err *err)
{
    char id[VOLUME_ID_LEN + 1];
    if (len != VOLUME_ID_LEN)
        return 0;
    memcpy(id, name, len);
    id[len] = '\0';
    if (volume_json_check_id(id, NULL) < 0)
        return 0;
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->ids[i], id) == 0)
            return 0;
    if (names->count == names->room) {
        size_t room = names->room ? 2 * names->room : 64;
        void *ids = realloc(names->ids, room * sizeof *names->ids);
        if (!ids)
            return err_errno(err, ENOMEM, "cannot list volumes");
        names->ids = ids;
        names->room = room;
    }
    memcpy(names->ids[names->count++], id, sizeof id);
    return 0;
}

/* Entries "ID<ending>" of a directory. */
static int add_entries(struct names *names, int dir_fd, const char *ending, struct err *err)
{
    cleanup_dir DIR *dir = fdio_list(dir_fd, ".");
    if (!dir)
        return err_errno(err, errno, "cannot list the attached volumes");
    const struct dirent *entry;
    int rc = 0;
    while (rc == 0 && (entry = readdir(dir)) != NULL) {
        size_t len = strlen(entry->d_name);
        size_t end = strlen(ending);
        if (len > end && strcmp(entry->d_name + len - end, ending) == 0)
            rc = add_name(names, entry->d_name, len - end, err);
    }
    return rc;
}

static int list_names(struct volumes *volumes, struct names *ret, struct err *err)
{
    int rc = 0;
    (void)pthread_mutex_lock(&volumes->table);
    for (struct volume *volume = volumes->first; volume && rc == 0; volume = volume->next)
        if (volume_is_held(volume) || volume->dead || volume->lost)
            rc = add_name(ret, volume->id, strlen(volume->id), err);
    (void)pthread_mutex_unlock(&volumes->table);
    if (rc == 0)
        rc = add_entries(ret, volumes->mounts_fd, "", err);
    return rc == 0 ? add_entries(ret, volumes->workers_fd, ".sock", err) : rc;
}

int volumes_each(struct volumes *volumes, volumes_take *take, void *arg, struct err *err)
{
    struct names names = {.count = 0};
    int rc = list_names(volumes, &names, err);
    for (size_t i = 0; i < names.count && rc == 0; i++)
        rc = take(arg, names.ids[i], err);
    free(names.ids);
    return rc;
}

/* --- those without descriptors --- */

/* All are asked before the answer of one is waited for: those who are stopped cost the time once,
 * not each. A volume that somebody works on is left out if `lost`. */
static void ask_all(struct volumes *volumes, const struct names *names, bool lost, int wait_ms)
{
    int64_t until = clock_now_ms() + wait_ms;
    cleanup_free int *asked = calloc(names->count + 1, sizeof *asked);
    for (size_t i = 0; asked && i < names->count; i++)
        asked[i] = worker_client_attach_ask(volumes->workers_fd, names->ids[i]);
    for (size_t i = 0; i < names->count; i++) {
        struct volume *volume;
        int64_t left = until - clock_now_ms();
        cleanup_fd int connection = asked ? asked[i] : -1;
        int rc = lost ? volume_try_enter(volumes, names->ids[i], &volume)
                      : volume_enter(volumes, names->ids[i], &volume, NULL);
        if (rc < 0)
            continue;
        if (!volume_is_held(volume) && (!lost || volume->lost) &&
            hear_worker(volumes, volume, steal_fd(&connection), left > 0 ? (int)left : 0) < 0 &&
            !volume->lost && !volume_is_held(volume))
            look_dead(volumes, volume);
        volume_leave(volumes, volume);
    }
}

void volumes_find_lost(struct volumes *volumes, int wait_ms)
{
    struct names names = {.count = 0};
    (void)pthread_mutex_lock(&volumes->table);
    for (struct volume *volume = volumes->first; volume; volume = volume->next)
        if (volume->lost)
            (void)add_name(&names, volume->id, strlen(volume->id), NULL);
    (void)pthread_mutex_unlock(&volumes->table);
    if (names.count > 0)
        ask_all(volumes, &names, true, wait_ms);
    free(names.ids);
}

/* Those that keeper did not know of. */
static int from_workers(struct volumes *volumes, struct err *err)
{
    struct names all = {.count = 0};
    struct names names = {.count = 0};
    int rc = list_names(volumes, &all, err);
    for (size_t i = 0; i < all.count && rc == 0; i++) {
        struct volume *volume = volume_peek(volumes, all.ids[i]);
        if (!volume || !volume_is_held(volume))
            rc = add_name(&names, all.ids[i], strlen(all.ids[i]), err);
        if (volume)
            volume_unpeek(volumes, volume);
    }
    if (rc == 0)
        ask_all(volumes, &names, false, ASK_MS);
    free(all.ids);
    free(names.ids);
    return rc;
}

/* --- all of it --- */

int volumes_adopt(struct volumes *volumes, struct err *err)
{
    from_keeper(volumes);
    int rc = from_workers(volumes, err);
    (void)volumes_thaw_left(volumes, THAW_MS);
    if (rc < 0)
        return err_wrap(err, rc, "cannot find the attached volumes");
    rc = volumes_hold_any(volumes) ? volumes_keeper_ensure(volumes, err) : 0;
    return rc < 0 ? err_wrap(err, rc, "cannot hand the attached volumes to keeper") : 0;
}
