#include "volumes_internal.h"

#include "cleanup.h"
#include "fault.h"
#include "log.h"
#include "volume_frozen.h"
#include "volume_fs.h"
#include "volume_holders.h"
#include "volume_mount.h"
#include "wait_stop.h"
#include "worker_client.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum {
    SLICE_MS = 3000,   /* after which it is looked whether the worker still can answer */
    MOUNTS_MAX = 16,   /* one over the other */
    ABANDON_MS = 2000, /* for calls that end at once when the connection has been ended */
    DISCARD_MS = 1000, /* for RELEASE after an unmount */
    FROZEN_MS = 3000,
};

/* A detach has begun. It may be found dead meanwhile, and stays so. */
static void set_detaching(struct volumes *volumes, struct volume *volume, bool dead)
{
    (void)pthread_mutex_lock(&volumes->table);
    volume->detaching = true;
    if (dead)
        volume->dead = true;
    (void)pthread_mutex_unlock(&volumes->table);
}

/* Whether RUN/volumes/ID is what the attach has mounted there, and not taken away by somebody. */
static bool has_mount(const struct volumes *volumes, const struct volume *volume)
{
    char path[VOLUMES_PATH_MAX];
    dev_t device;
    volume_mount_path(volumes, volume->id, path);
    return volume_mount_look(path, &device, NULL) > 0 && device == volume->fuse_dev;
}

/* A detach has failed. As long as nothing was taken away whoever holds the volume goes on, so it is
 * attached as before, and looked after. */
static void take_detaching_back(struct volumes *volumes, struct volume *volume)
{
    bool there = has_mount(volumes, volume);
    (void)pthread_mutex_lock(&volumes->table);
    if (there && volume_is_held(volume) && !volume->dead &&
        (atomic_load(&volume->live.header->facts) & LIVE_FACT_CLOSED) == 0)
        volume->detaching = false;
    (void)pthread_mutex_unlock(&volumes->table);
}

/* --- the end --- */

/* Of steps that go on after a failure, the first one counts. `why` is empty for the next. */
static void keep_first(int *rc, struct err *err, int next, struct err *why)
{
    if (next < 0 && *rc == 0)
        *rc = err_pass(err, next, why);
    err_clear(why);
}

/* Ends the connection and takes the mount away, and mounts over it. */
static int remove_mount(struct volumes *volumes, const char *id, struct err *err)
{
    char path[VOLUMES_PATH_MAX];
    dev_t device;
    volume_mount_path(volumes, id, path);
    for (int i = 0; i < MOUNTS_MAX; i++) {
        int rc = volume_mount_look(path, &device, err);
        if (rc <= 0)
            return rc;
        /* Copies in other namespaces would keep it. Without fusectl it ends with the descriptors.
         */
        (void)volume_mount_abort(device, NULL);
        rc = volume_mount_remove(path, true, ABANDON_MS, err);
        if (rc < 0)
            return rc;
    }
    return err_fail(err, ERR_CONFLICT, "more than %d file systems are mounted at %s",
                    (int)MOUNTS_MAX, path);
}

static int remove_names(struct volumes *volumes, const char *id, struct err *err)
{
    int rc = worker_client_unlink(volumes->workers_fd, id, err);
    if (rc < 0)
        return rc;
    if (unlinkat(volumes->mounts_fd, id, AT_REMOVEDIR) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot remove %s/volumes/%s", volumes->run_path, id);
    return 0;
}

/* From here on nobody ends the connection or fences it who meant this life. Who is about to has
 * deadlines. */
static void end_life(struct volumes *volumes, struct volume *volume)
{
    (void)pthread_mutex_lock(&volumes->table);
    volume->ending = true;
    while (volume->pins > 0)
        (void)pthread_cond_wait(&volumes->changed, &volumes->table);
    (void)pthread_mutex_unlock(&volumes->table);
}

int volume_take_down(struct volumes *volumes, struct volume *volume, struct err *err)
{
    int rc = 0;
    struct err why = ERR_INIT;
    cleanup_wait_stop struct wait_stop nobody = {.ask = NULL}; /* ends it in its middle */
    wait_stop_begin(&nobody);
    end_life(volumes, volume);
    volume_loop_release(volumes, volume);
    keep_first(&rc, err, volumes_keeper_stay(volumes, volume, &why), &why);
    keep_first(&rc, err, volume_worker_kill(volumes, volume, ABANDON_MS, &why), &why);
    keep_first(&rc, err, FAULT_POINT("volume-detach.stopped", &why), &why);
    keep_first(&rc, err, remove_mount(volumes, volume->id, &why), &why);
    keep_first(&rc, err, FAULT_POINT("volume-detach.unmounted", &why), &why);
    keep_first(&rc, err, remove_names(volumes, volume->id, &why), &why);
    keep_first(&rc, err, FAULT_POINT("volume-detach.removed", &why), &why);
    keep_first(&rc, err, volumes_keeper_drop(volumes, volume, &why), &why);
    (void)pthread_mutex_lock(&volumes->table);
    volume->fuse_dev = 0;
    volume->device[0] = '\0';
    volume->device_dev = 0;
    volume->detaching = false;
    volume->dead = false;
    volume->lost = false;
    volume->unserved_ms = 0;
    volume->unsynced_num = 0;
    volume->life = 0;
    volume->ending = false;
    (void)pthread_mutex_unlock(&volumes->table);
    return rc;
}

/* --- detach --- */

/* Nobody in our namespace may have the ext4 mounted. */
static int check_unmounted(struct volumes *volumes, struct volume *volume, struct err *err)
{
    char path[VOLUMES_POINT_MAX];
    int rc = volume_loop_look(volumes, volume, err);
    if (rc > 0)
        rc = volume_mounted_at(volume->device_dev, path, err);
    return rc > 0 ? err_fail(err, ERR_CONFLICT, "volume %s is mounted at %s", volume->id, path)
                  : rc;
}

/* Unmounted while it was frozen, or still mounted in another mount namespace. */
static int fail_frozen(const char *id, dev_t device, struct err *err)
{
    int rc = err_fail(err, ERR_CONFLICT,
                      "the file system of volume %s is frozen (fsfreeze), and not mounted here; "
                      "mounted somewhere (/dev/block/%u:%u) it can be thawed with `fsfreeze -u`",
                      id, major(device), minor(device));
    err_hint(err, "thaw it, or give it up with --abandon");
    return rc;
}

static int in_use(struct volumes *volumes, const struct volume *volume, struct err *err)
{
    struct volume_holders holders = {.text = ""};
    dev_t device = volume_device(volumes, volume);
    if (device && volume_frozen_hidden(device, FROZEN_MS, NULL) > 0)
        return fail_frozen(volume->id, device, err);
    if (!device || volume_holders_find(device, &holders, NULL) < 0 || !holders.text[0])
        (void)volume_holders_find(volume->fuse_dev, &holders, NULL);
    const char *who = holders.text[0]   ? holders.text
                      : holders.own > 0 ? "calls of varved's own that hang"
                                        : "something that is no process (a mount of overlayfs "
                                          "with a directory of it, a loop device on a file of it, "
                                          "a mount that was detached)";
    int rc = err_fail(err, ERR_CONFLICT, "volume %s is still in use by %s", volume->id, who);
    err_hint(err, "end these processes, then unmount it again; or give them up with --abandon");
    return rc;
}

static bool is_open(const struct volume *volume)
{
    return (atomic_load(&volume->live.header->facts) & LIVE_FACT_OPEN) != 0;
}

static int cut_off(const struct volume *volume, struct err *err)
{
    int rc = err_fail(err, ERR_CONFLICT, "the connection of volume %s has ended", volume->id);
    err_hint(err, "give it up with --abandon");
    return rc;
}

/* The count of opens can stay too high when the process that opens `device` and the worker are
 * killed together. Then there is no loop device, and the FUSE mount can be taken away, which no
 * open file allows; where somebody has taken it away lazily, nothing is known. 1: so it was, and
 * the mount is gone; everything has been flushed, unless it is not worth it. */
static int release_miscounted(struct volumes *volumes, struct volume *volume, bool flush)
{
    char path[VOLUMES_PATH_MAX];
    volume_mount_path(volumes, volume->id, path);
    return volume_loop_look(volumes, volume, NULL) == 0 && has_mount(volumes, volume) &&
           (!flush || worker_client_flush(volumes->workers_fd, volume->id, SLICE_MS, NULL) == 0) &&
           volume_mount_remove(path, false, SLICE_MS, NULL) == 0;
}

/* Until the worker has seen RELEASE: umount returns before that, and another mount namespace may
 * keep it from coming. 1: see above. */
static int wait_released(struct volumes *volumes, struct volume *volume, bool flush, int wait_ms,
                         struct err *err)
{
    int64_t until = clock_now_ms() + wait_ms;
    while (is_open(volume)) {
        if (volume->dead || volume_is_cut(volumes, volume))
            return cut_off(volume, err);
        int rc = wait_stop_ask(err);
        if (rc < 0)
            return rc;
        if (clock_now_ms() >= until)
            return release_miscounted(volumes, volume, flush) ? 1 : in_use(volumes, volume, err);
        volumes_sleep_ms(VOLUMES_POLL_MS);
    }
    return 0;
}

/* Asks no worker, and a mount point whose connection has ended is there too. */
static bool is_there(int dir_fd, const char *name)
{
    struct statx st;
    return statx(dir_fd, name, AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC, 0, &st) == 0 ||
           errno != ENOENT;
}

bool volume_has_socket(const struct volumes *volumes, const char *id)
{
    char name[VOLUME_ID_LEN + 8];
    (void)snprintf(name, sizeof name, "%.12s.sock", id);
    return is_there(volumes->workers_fd, name);
}

static bool has_names(const struct volumes *volumes, const char *id)
{
    return volume_has_socket(volumes, id) || is_there(volumes->mounts_fd, id);
}

/* What the host's disk says, not what a worker's end or its successor's start looks like: asked
 * again it would say the same. */
static bool is_answer(const struct volumes *volumes, const struct volume *volume, int rc)
{
    if (rc == -ENOSPC || rc == -EDQUOT || rc == -EIO || rc == -EROFS)
        return true;
    /* Somebody took its directory away, or its socket, which only an attach makes. */
    return !is_there(volumes->data_fd, volume->id) || !volume_has_socket(volumes, volume->id);
}

static bool has_failed(const struct volume *volume)
{
    return (atomic_load(&volume->live.header->facts) & LIVE_FACT_FAILED) != 0;
}

/* Why no flush will ever succeed; to ask for one would say less. */
static int sync_failed(const struct volume *volume, struct err *err)
{
    uint32_t num = atomic_load(&volume->live.header->failed_num);
    const char *why = num <= INT_MAX ? strerrordesc_np((int)num) : NULL;
    err_clear(err);
    int rc = err_fail(err, ERR_IO, "the host's disk failed to sync what was written to it%s%s",
                      num > 0 && why ? ": " : "", num > 0 && why ? why : "");
    err_hint(err, "look at that disk, then give up what was not synced with --abandon");
    return rc;
}

/* Flush and final cut. Whoever may end the wait is asked before alone: a worker that was told to
 * close goes on with it, and then nobody may take the volume for attached. In slices: a worker that
 * dies has a successor, if keeper has none it is mended, and one that refuses will never answer.
 * Who does not want to wait gets one slice. */
static int close_map(struct volumes *volumes, struct volume *volume, int wait_ms, struct err *err)
{
    const struct live_map_header *header = volume->live.header;
    int64_t until = clock_now_ms() + (wait_ms > 0 ? VOLUMES_CLOSE_S * 1000 : SLICE_MS);
    if (atomic_load(&header->facts) & LIVE_FACT_CLOSED)
        return 0;
    int stop = wait_stop_ask(err);
    if (stop < 0)
        return stop;
    for (;;) {
        if (has_failed(volume))
            return sync_failed(volume, err);
        int rc = volumes_keeper_start(volumes, volume, err);
        if (rc == 0)
            rc = worker_client_close(volumes->workers_fd, volume->id, false, SLICE_MS, err);
        if (rc == 0)
            return 0;
        if (has_failed(volume))
            continue;
        if (clock_now_ms() >= until)
            return rc;
        if ((rc == -EBUSY && is_open(volume)) || is_answer(volumes, volume, rc))
            return rc;
        if (volume->dead || volume_is_cut(volumes, volume) || volume_is_orphan(volumes, volume)) {
            err_clear(err);
            return cut_off(volume, err);
        }
        if (header->text[0] != '\0')
            return rc;
        err_clear(err);
        if (atomic_load(&volumes->stopping))
            return err_fail(err, ERR_INTERRUPTED, "volume %s is not closed yet", volume->id);
        volumes_sleep_ms(VOLUMES_POLL_MS);
    }
}

static int stop_worker(struct volumes *volumes, struct volume *volume, struct err *err)
{
    int rc = volumes_keeper_stay(volumes, volume, err);
    if (rc == 0)
        rc = FAULT_POINT("volume-detach.stay", err);
    if (rc < 0)
        return rc;
    cleanup_fd int pidfd = volume_worker_pidfd(volumes, volume);
    if (pidfd < 0)
        return 0;
    /* It has nothing left to lose: the map is closed. If it does not end it will be killed. */
    if (worker_client_stop(volumes->workers_fd, volume->id, false, SLICE_MS, NULL) == 0)
        (void)volume_worker_ended(pidfd, SLICE_MS);
    return 0;
}

/* One that nobody serves any more goes when nothing stands on it. */
static int detach_dead(struct volumes *volumes, struct volume *volume, int wait_ms, struct err *err)
{
    if (!volume_is_held(volume) && !has_names(volumes, volume->id))
        return 0;
    int64_t until = clock_now_ms() + wait_ms;
    volume_loop_release(volumes, volume);
    for (;;) {
        int rc = volume_loop_look(volumes, volume, err);
        if (rc < 0)
            return rc;
        if (rc == 0)
            return volume_take_down(volumes, volume, err);
        if (clock_now_ms() >= until)
            return cut_off(volume, err);
        volumes_sleep_ms(VOLUMES_POLL_MS);
    }
}

/* Until nobody has `device` open any more. 0; 1: its mount is gone too; 2: all of it is. */
static int let_go(struct volumes *volumes, struct volume *volume, bool flush, int wait_ms,
                  struct err *err)
{
    if (volume->lost)
        return err_fail(err, ERR_UNREACHABLE, "the worker of volume %s does not answer",
                        volume->id);
    if (!volume_is_held(volume) || volume->dead || volume_is_cut(volumes, volume)) {
        int rc = detach_dead(volumes, volume, wait_ms, err);
        return rc < 0 ? rc : 2;
    }
    int rc = check_unmounted(volumes, volume, err);
    if (rc < 0)
        return rc;
    set_detaching(volumes, volume, false);
    volume_loop_release(volumes, volume);
    return wait_released(volumes, volume, flush, wait_ms, err);
}

/* Up to where only its processes and names are left. 2: these are gone too. */
static int close_volume(struct volumes *volumes, struct volume *volume, int wait_ms,
                        struct err *err)
{
    int rc = let_go(volumes, volume, true, wait_ms, err);
    if (rc == 2)
        return 2;
    bool gone = rc > 0;
    if (rc >= 0)
        rc = FAULT_POINT("volume-detach.released", err);
    if (rc == 0 && !gone)
        rc = close_map(volumes, volume, wait_ms, err);
    if (rc == 0)
        rc = FAULT_POINT("volume-detach.closed", err);
    return rc == 0 ? stop_worker(volumes, volume, err) : rc;
}

int volume_detach(struct volumes *volumes, struct volume *volume, int wait_ms, struct err *err)
{
    int rc = close_volume(volumes, volume, wait_ms, err);
    if (rc < 0)
        take_detaching_back(volumes, volume);
    return rc == 0 ? volume_take_down(volumes, volume, err) : rc < 0 ? rc : 0;
}

int volumes_detach(struct volumes *volumes, const char *id, int wait_ms, struct err *err)
{
    struct volume *volume;
    int rc = volume_enter(volumes, id, &volume, err);
    if (rc < 0)
        return rc;
    rc = volume_detach(volumes, volume, wait_ms, err);
    volume_leave(volumes, volume);
    return rc < 0 ? err_wrap(err, rc, "cannot detach volume %s", id) : 0;
}

int volumes_discard(struct volumes *volumes, const char *id, struct err *err)
{
    struct volume *volume;
    int rc = volume_enter(volumes, id, &volume, err);
    if (rc < 0)
        return rc;
    rc = let_go(volumes, volume, false, DISCARD_MS, err);
    if (rc < 0)
        take_detaching_back(volumes, volume);
    else if (rc < 2)
        rc = volume_take_down(volumes, volume, err);
    volume_leave(volumes, volume);
    return rc < 0 ? err_wrap(err, rc, "cannot detach volume %s", id) : 0;
}

/* --- abandon --- */

/* Everywhere in this namespace. */
static int unmount_lazily(dev_t device, const char *path, struct err *err)
{
    char at[VOLUMES_POINT_MAX];
    for (int i = 0; i < MOUNTS_MAX; i++) {
        int rc = volume_mounted_at(device, at, err);
        if (rc <= 0)
            return rc;
        rc = volume_fs_unmount(path && i == 0 ? path : at, device, true, ABANDON_MS, NULL);
        if (rc < 0)
            rc = volume_fs_unmount(at, device, true, ABANDON_MS, err);
        if (rc < 0)
            return rc;
    }
    return err_fail(err, ERR_CONFLICT, "it is mounted at more than %d places", (int)MOUNTS_MAX);
}

/* Needs no `busy`: whoever has that comes back. */
void volumes_cut(struct volumes *volumes, const char *id)
{
    struct volume *volume = volume_pin(volumes, id, VOLUME_ANY_LIFE);
    if (!volume)
        return; /* it is being taken down, or was never there */
    (void)pthread_mutex_lock(&volumes->table);
    if (volume_is_held(volume) || volume->lost)
        volume->dead = volume->detaching = true;
    (void)pthread_mutex_unlock(&volumes->table);
    volume_cut(volumes, volume);
    (void)volume_worker_kill(volumes, volume, 0, NULL);
    volume_unpin(volumes, volume);
}

/* Whether somebody has frozen it, who then has to thaw it himself. Before `busy`, as the end of the
 * connection is. */
static int check_thawed(struct volumes *volumes, const char *id, struct err *err)
{
    char path[VOLUMES_POINT_MAX];
    dev_t device;
    int rc = volume_loop_find(volumes, id, &device, err);
    if (rc <= 0 || volume_frozen_hidden(device, FROZEN_MS, NULL) <= 0)
        return rc < 0 ? rc : 0;
    if (volume_mounted_at(device, path, NULL) > 0)
        return volume_frozen_fail(path, err);
    return fail_frozen(id, device, err);
}

/* Of the loop device that is there. It stays open meanwhile, as with its last user it would go, and
 * what shuts a file system down or lets go of a file could meet another one with its number. The
 * old one may stay in use; its file is not ours any more. */
static int let_loop_go(struct volumes *volumes, struct volume *volume, const char *path,
                       struct err *err)
{
    struct err why = ERR_INIT;
    cleanup_fd int loop = -1;
    if (!volume_loop_keep(volumes, volume, &loop))
        return 0;
    /* Else a freeze would keep it for ever, with its loop device and at no path. */
    if (volume_frozen_end(volume->device_dev, ABANDON_MS, &why) < 0)
        log_event(LOG_WARN, "volume-not-shut-down", "volume", volume->id, "why", why.text, NULL);
    int rc = unmount_lazily(volume->device_dev, path, err);
    if (rc >= 0)
        rc = FAULT_POINT("volume-abandon.unmounted", err);
    if (rc >= 0 && loop >= 0)
        (void)loop_device_clear(loop, NULL);
    return rc;
}

int volumes_abandon(struct volumes *volumes, const char *id, const char *path, bool frozen,
                    struct err *err)
{
    struct volume *volume;
    int rc = volume_json_check_id(id, err);
    if (rc == 0 && !frozen)
        rc = check_thawed(volumes, id, err);
    if (rc < 0)
        return rc;
    volumes_cut(volumes, id);
    /* It is short, and half of it would be worth nothing. */
    cleanup_wait_stop struct wait_stop nobody = {.ask = NULL};
    wait_stop_begin(&nobody);
    rc = volume_enter(volumes, id, &volume, err);
    if (rc < 0)
        return rc;
    struct err why = ERR_INIT;
    set_detaching(volumes, volume, true);
    rc = volume_loop_look(volumes, volume, err);
    if (rc > 0)
        rc = let_loop_go(volumes, volume, path, err);
    int end = volume_take_down(volumes, volume, &why);
    if (rc >= 0)
        rc = 0;
    keep_first(&rc, err, end, &why);
    volume_leave(volumes, volume);
    return rc < 0 ? err_wrap(err, rc, "cannot give up volume %s", id) : 0;
}
