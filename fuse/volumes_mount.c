#include "volumes_internal.h"

#include "cleanup.h"
#include "fault.h"
#include "log.h"
#include "mountinfo.h"
#include "volume_frozen.h"
#include "volume_fs.h"
#include "volume_holders.h"
#include "wait_stop.h"

#include <string.h>
#include <sys/sysmacros.h>

enum {
    BUSY_TRIES = 5, /* of an unmount that is busy with nobody */
    BUSY_MS = 300,
    OWN_MS = 30000, /* for calls of varved's own that hang */
    GONE_MS = 200,  /* a loop device takes to go after the last unmount */
    LOOK_MS = 3000,
};

dev_t volume_device(struct volumes *volumes, const struct volume *volume)
{
    (void)pthread_mutex_lock(&volumes->table);
    dev_t device = volume->device_dev;
    (void)pthread_mutex_unlock(&volumes->table);
    return device;
}

/* The first mount of the device, at `path` when that is not NULL. */
static int find_mount(dev_t device, const char *path, char *ret, struct err *err)
{
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    int rc = mountinfo_open("self", &info, err);
    while (rc == 0 && (rc = mountinfo_next(&info, &entry, err)) > 0) {
        if (makedev(entry.dev_major, entry.dev_minor) == device &&
            (!path || strcmp(entry.point, path) == 0)) {
            (void)snprintf(ret, VOLUMES_POINT_MAX, "%s", entry.point);
            return 1;
        }
        rc = 0;
    }
    return rc;
}

int volume_mounted_at(dev_t device, char *ret, struct err *err)
{
    return find_mount(device, NULL, ret, err);
}

int volumes_is_mounted(struct volumes *volumes, const char *id, const char *path, bool *ret,
                       struct err *err)
{
    char at[VOLUMES_POINT_MAX];
    int rc = volume_json_check_id(id, err);
    if (rc < 0)
        return rc;
    dev_t device;
    rc = volume_loop_find(volumes, id, &device, err);
    if (rc > 0)
        rc = find_mount(device, path, at, err);
    if (rc < 0)
        return rc;
    *ret = rc > 0;
    return 0;
}

/* --- mount --- */

static int check_attached(struct volumes *volumes, const struct volume *volume, struct err *err)
{
    const char *why = !volume_is_held(volume)                          ? "is not attached"
                      : volume->dead || volume_is_cut(volumes, volume) ? "is dead"
                      : volume->detaching                              ? "is being detached"
                                                                       : NULL;
    return why ? err_fail(err, ERR_CONFLICT, "volume %s %s", volume->id, why) : 0;
}

static int check_fs(const struct volume *volume, bool replays, struct volumes_mended *ret,
                    struct err *err)
{
    int rc = volume_fs_check(volume->device, VOLUMES_CHECK_MS, ret->said, err);
    if (rc >= 0)
        ret->replayed = replays;
    return rc < 0 ? rc : 0;
}

/* A host that has lost its e2fsprogs can use what is there, until it has them again. */
static int grow_device(const struct volume *volume, struct volumes_mended *ret, struct err *err)
{
    struct err why = ERR_INIT;
    char said[VOLUME_FS_TEXT_MAX];
    int rc = volume_fs_grow_device(volume->device, VOLUMES_CHECK_MS, said, &why);
    if (rc > 0 && ret->said[0] == '\0')
        memcpy(ret->said, said, sizeof said);
    if (rc >= 0)
        return 0;
    if (why.code == ERR_UNSUPPORTED) {
        log_event(LOG_WARN, "volume-not-grown", "volume", volume->id, "why", why.text, NULL);
        return 0;
    }
    if (err && err->code == ERR_NONE)
        *err = why;
    return rc;
}

/* The superblock, before the kernel sees it. An ext4 that a resize has left behind is grown, as not
 * every host may do that to a mounted one. */
static int prepare_fs(const struct volume *volume, bool read_only, bool check,
                      struct volumes_mended *ret, struct ext4_super *ret_super, struct err *err)
{
    const struct live_map_header *header = volume->live.header;
    uint64_t size = atomic_load(&header->size);
    struct ext4_super super;
    int rc = volume_look(volume, size, &super, err);
    if (rc > 0)
        *ret_super = super;
    if (rc != 0) /* what lives has its journal in use, and nothing to be mended by others */
        return rc < 0 ? rc : 0;
    /* An unclean end: of an abandoned one nobody knows what else is wrong. */
    if (check || super.has_errors || super.needs_recovery)
        rc = check_fs(volume, super.needs_recovery, ret, err);
    if (rc == 0 && !read_only && super.blocks < ext4_super_blocks_of(&super, size))
        rc = grow_device(volume, ret, err);
    if (ret->said[0])
        log_event(LOG_WARN, "volume-mended", "volume", volume->id, "what", ret->said, NULL);
    /* What the tools have written is looked at too. */
    if (rc == 0)
        rc = volume_look(volume, size, &super, err);
    if (rc >= 0)
        *ret_super = super;
    return rc < 0 ? rc : 0;
}

/* `super` is what was looked at: the kernel gets one with the same UUID. */
static int mount_source(const struct volume *volume, const struct ext4_super *super,
                        const char *path, bool read_only, struct err *err)
{
    const struct live_map_header *header = volume->live.header;
    struct volume_fs_source source = {.device_path = volume->device,
                                      .size = atomic_load(&header->size)};
    memcpy(source.uuid, super->uuid, sizeof source.uuid);
    return volume_fs_mount(&source, path, read_only, VOLUMES_FS_MS, err);
}

/* Sets nothing: the device is held by volume->loop_fd, and afterwards by the mount. */
static int mount_guarded(const struct volumes *volumes, struct volume *volume, const char *path,
                         bool read_only, bool check, struct volumes_mended *ret, struct err *err)
{
    struct room_guard guard;
    struct ext4_super super;
    room_guard_begin(volumes, volume, &guard);
    int rc = prepare_fs(volume, read_only, check, ret, &super, err);
    if (rc == 0)
        rc = mount_source(volume, &super, path, read_only, err);
    bool mounted = rc == 0;
    if (mounted && !read_only)
        volume_give_uuid(volume, path, super.uuid);
    rc = room_guard_end(&guard, rc, err);
    cleanup_wait_stop struct wait_stop nobody = {.ask = NULL};
    wait_stop_begin(&nobody);
    if (rc < 0 && mounted) /* in the moment in which it was fenced */
        (void)volume_fs_unmount(path, volume->device_dev, false, VOLUMES_FS_MS, NULL);
    return rc;
}

/* That writes nothing, and whoever uses it must not be fenced for it. */
static int mount_living(const struct volume *volume, const char *path, bool read_only,
                        struct err *err)
{
    struct ext4_super super;
    int rc = volume_look(volume, atomic_load(&volume->live.header->size), &super, err);
    return rc < 0 ? rc : mount_source(volume, &super, path, read_only, err);
}

/* One that lives, in another mount namespace or in use without a path, is mounted once more. */
static int mount_fs(const struct volumes *volumes, struct volume *volume, const char *path,
                    bool read_only, bool check, struct volumes_mended *ret, struct err *err)
{
    char other[VOLUMES_POINT_MAX];
    int rc = volume_mounted_at(volume->device_dev, other, err);
    if (rc != 0)
        return rc < 0 ? rc : err_fail(err, ERR_CONFLICT, "it is mounted at %s", other);
    rc = volume_fs_lives(volume->device)
             ? mount_living(volume, path, read_only, err)
             : mount_guarded(volumes, volume, path, read_only, check, ret, err);
    return rc < 0 ? rc : FAULT_POINT("volume-mount.mounted", err);
}

static int mount(struct volumes *volumes, struct volume *volume, const char *path, bool read_only,
                 bool check, struct volumes_mended *ret, struct err *err)
{
    int rc = check_attached(volumes, volume, err);
    if (rc == 0)
        rc = volume_loop_ensure(volumes, volume, err);
    if (rc < 0)
        return rc;
    char at[VOLUMES_POINT_MAX];
    rc = find_mount(volume->device_dev, path, at, err);
    if (rc == 0)
        rc = mount_fs(volumes, volume, path, read_only, check, ret, err);
    /* From here on the mount keeps it; without one there is no use for it. */
    volume_loop_release(volumes, volume);
    return rc < 0 ? rc : 0;
}

int volumes_mount(struct volumes *volumes, const char *id, const char *path, bool read_only,
                  bool check, struct volumes_mended *ret, struct err *err)
{
    struct volume *volume;
    struct volumes_mended mended = {.replayed = false};
    int rc = volume_enter(volumes, id, &volume, err);
    if (rc < 0)
        return rc;
    volume_wait_begin(volume);
    rc = mount(volumes, volume, path, read_only, check, &mended, err);
    volume_wait_end();
    volume_leave(volumes, volume);
    if (rc < 0)
        return err_wrap(err, rc, "cannot mount volume %s at %s", id, path);
    if (ret)
        *ret = mended;
    return 0;
}

/* --- unmount --- */

/* The first mount on something that lies in the file system at `path`, or over it, or "". */
static void find_mount_on(dev_t device, const char *path, char *ret)
{
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    size_t len = strlen(path);
    ret[0] = '\0';
    if (mountinfo_open("self", &info, NULL) < 0)
        return;
    while (!ret[0] && mountinfo_next(&info, &entry, NULL) > 0) {
        bool other = makedev(entry.dev_major, entry.dev_minor) != device;
        if (strncmp(entry.point, path, len) == 0 &&
            (entry.point[len] == '/' || (entry.point[len] == '\0' && other)))
            (void)snprintf(ret, VOLUMES_POINT_MAX, "%s", entry.point);
    }
}

enum user {
    USER_UNKNOWN,
    USER_OWN, /* a call of varved's own, which has not ended */
    USER_KNOWN,
};

static int in_use(dev_t device, const char *path, enum user *ret_user, struct err *err)
{
    struct volume_holders holders = {.text = ""};
    char on[VOLUMES_POINT_MAX];
    int rc;
    err_clear(err);
    find_mount_on(device, path, on);
    if (on[0]) {
        rc = err_fail(err, ERR_CONFLICT, "%s is in use by what is mounted at %s", path, on);
        err_hint(err, "unmount that first");
        *ret_user = USER_KNOWN;
        return rc;
    }
    (void)volume_holders_find(device, &holders, NULL);
    bool known = holders.open > 0 || holders.kernel > 0; /* namespaces keep nothing busy here */
    if (!known && holders.own > 0) {
        rc = err_fail(err, ERR_CONFLICT, "%s is in use by %d calls of varved's own that hang", path,
                      holders.own);
        err_hint(err, "its worker or the host's disk does not answer; unmount it again later");
        *ret_user = USER_OWN;
        return rc;
    }
    *ret_user = known ? USER_KNOWN : USER_UNKNOWN;
    rc = err_fail(err, ERR_CONFLICT, "%s is in use%s%s", path,
                  known             ? " by "
                  : holders.text[0] ? "; it is "
                                    : "",
                  holders.text);
    if (!known)
        err_hint(err, "nothing is seen that uses it; unmount it again later");
    if (holders.open == 0)
        err_hint(err, "let go of that (losetup -d, swapoff), then unmount it again");
    err_hint(err, "end these processes%s, then unmount it again",
             holders.kernel > 0 ? " and let go of the rest (losetup -d, swapoff)" : "");
    return rc;
}

/* Nothing that is written now would be kept, and somebody has been told: it is fenced, or the
 * host's disk has failed. */
static bool is_given_up(const struct volume *volume)
{
    const struct live_map_header *header = volume->live.header;
    return header && ((atomic_load(&header->orders) & LIVE_ORDER_FENCED) != 0 ||
                      (atomic_load(&header->facts) & LIVE_FACT_FAILED) != 0);
}

/* What the disk or ext4 says of what was written. The kernel says it once. */
static bool is_loss(const struct err *why)
{
    return why->num == EIO || why->num == ENOSPC || why->num == EDQUOT || why->num == EROFS ||
           why->num == EUCLEAN;
}

/* What fails here would be lost without a word in the unmount. Asked again the kernel would say
 * that all is well. */
static int sync_fs(struct volumes *volumes, struct volume *volume, const char *path,
                   struct err *err)
{
    struct err why = ERR_INIT;
    int rc = volume_fs_sync(path, volume->device_dev, VOLUMES_SYNC_MS, &why);
    bool told = is_given_up(volume);
    bool late =
        why.code == ERR_UNREACHABLE || why.code == ERR_INTERRUPTED || why.code == ERR_CANCELLED;
    if (rc < 0 && (late || (!told && !is_loss(&why))))
        return err_pass(err, rc, &why);
    (void)pthread_mutex_lock(&volumes->table);
    volume->unsynced_num = rc < 0 && !told ? why.num : 0;
    (void)pthread_mutex_unlock(&volumes->table);
    if (rc == 0)
        return 0;
    log_event(LOG_WARN, "volume-not-synced", "volume", volume->id, "why", why.text, NULL);
    return 0;
}

/* Who has frozen it is told before anything waits for him. Where that can't be seen in time,
 * volume_fs_unmount() looks once more. */
static int check_thawed(dev_t device, const char *path, struct err *err)
{
    return volume_frozen_at(path, device, LOOK_MS, NULL) > 0 ? volume_frozen_fail(path, err) : 0;
}

/* Frozen and unmounted by somebody: as long as the workspace is to be there, a mount reaches it. */
static int check_not_hidden(dev_t device, const char *path, struct err *err)
{
    char at[VOLUMES_POINT_MAX];
    if (find_mount(device, NULL, at, NULL) != 0 || volume_frozen_hidden(device, LOOK_MS, NULL) <= 0)
        return 0;
    int rc =
        err_fail(err, ERR_CONFLICT,
                 "the file system of %s is frozen (fsfreeze) and was unmounted by somebody", path);
    err_hint(err, "mount the workspace there again, thaw it with `fsfreeze -u %s`, then unmount it",
             path);
    return rc;
}

/* Who used it and has gone a moment later is not worth a failure. Calls of ours that waited for the
 * writes of a volume that was fenced, and were given up for that, end when these have: on a busy
 * host not at once. */
static int unmount_fs(dev_t device, const char *path, struct err *err)
{
    char at[VOLUMES_POINT_MAX];
    enum user user;
    int64_t until = clock_now_ms() + OWN_MS;
    for (int unknown = 0;;) {
        int rc = volume_fs_unmount(path, device, false, VOLUMES_FS_MS, err);
        if (rc != -EBUSY || find_mount(device, path, at, NULL) <= 0)
            return rc;
        err_clear(err);
        rc = check_thawed(device, path, err);
        if (rc < 0)
            return rc;
        rc = in_use(device, path, &user, err);
        unknown += user == USER_UNKNOWN;
        if (user == USER_KNOWN || unknown > BUSY_TRIES ||
            (user == USER_OWN && clock_now_ms() >= until))
            return rc;
        err_clear(err);
        volumes_sleep_ms(BUSY_MS);
    }
}

static int unmount(struct volumes *volumes, struct volume *volume, const char *path,
                   struct err *err)
{
    char at[VOLUMES_POINT_MAX];
    int rc = volume_loop_look(volumes, volume, err);
    dev_t device = volume->device_dev;
    if (rc <= 0)
        return rc;
    rc = find_mount(device, path, at, err);
    if (rc <= 0)
        return rc < 0 ? rc : check_not_hidden(device, path, err);
    rc = check_thawed(device, path, err);
    /* Here, so that what an unmount does at its end is short. */
    if (rc == 0)
        rc = sync_fs(volumes, volume, path, err);
    if (rc == 0)
        rc = FAULT_POINT("volume-unmount.synced", err);
    if (rc == 0)
        rc = wait_stop_decide(err);
    if (rc == 0)
        rc = unmount_fs(device, path, err);
    if (rc == 0)
        rc = FAULT_POINT("volume-unmount.unmounted", err);
    for (int64_t until = clock_now_ms() + GONE_MS; rc == 0 && clock_now_ms() < until;) {
        if (volume->loop_fd >= 0 || volume_loop_look(volumes, volume, NULL) <= 0)
            break;
        volumes_sleep_ms(VOLUMES_POLL_MS);
    }
    return rc;
}

int volumes_unmount(struct volumes *volumes, const char *id, const char *path, struct err *err)
{
    struct volume *volume;
    int rc = volume_enter(volumes, id, &volume, err);
    if (rc < 0)
        return rc;
    volume_wait_begin(volume);
    rc = unmount(volumes, volume, path, err);
    volume_wait_end();
    volume_leave(volumes, volume);
    return rc < 0 ? err_wrap(err, rc, "cannot unmount volume %s from %s", id, path) : 0;
}
