#include "volumes_internal.h"

#include "cleanup.h"
#include "fault.h"
#include "live_map_load.h"
#include "log.h"
#include "map_log.h"
#include "spawn.h"
#include "volume_mount.h"
#include "wait_stop.h"
#include "worker_client.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum {
    LOCK_MS = 3000, /* a worker that was killed lets go after its last write */
    LEFT_MS = 500,  /* a loop device that nobody uses any more takes to go */
};

/* --- what lies on the disk --- */

/* Opens `data` and gets its lock, which the worker will hold: whoever has it now still writes. */
static int open_data(int dir_fd, const char *id, struct err *err)
{
    cleanup_fd int fd = openat(dir_fd, "data", O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return err_fail(err, ERR_DAMAGED, "the file 'data' of volume %s is missing", id);
    if (fd < 0)
        return err_errno(err, errno, "cannot open the file 'data' of volume %s", id);
    int64_t until = clock_now_ms() + LOCK_MS;
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_errno(err, errno, "cannot lock the file 'data' of volume %s", id);
        if (clock_now_ms() >= until) {
            int rc = err_fail(err, ERR_CONFLICT, "the file 'data' of volume %s is locked", id);
            err_hint(err, "another program uses it: a worker that has not ended, or a copy");
            return rc;
        }
        volumes_sleep_ms(VOLUMES_POLL_MS);
    }
    return steal_fd(&fd);
}

/* What root has copied without owners is root's, and so would its worker be. */
static int give_away(const struct volumes *volumes, int dir_fd, const char *id, struct err *err)
{
    static const char *const names[] = {VOLUME_JSON_NAME, "data", MAP_LOG_NAME};
    struct stat st;
    if (fstat(dir_fd, &st) < 0)
        return err_errno(err, errno, "cannot look at the directory of volume %s", id);
    if (st.st_uid != 0 || volumes->uid == 0)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (fchownat(dir_fd, names[i], volumes->uid, volumes->gid, AT_SYMLINK_NOFOLLOW) < 0 &&
            errno != ENOENT)
            return err_errno(err, errno, "cannot give %s of volume %s to its user", names[i], id);
    if (fchown(dir_fd, volumes->uid, volumes->gid) < 0)
        return err_errno(err, errno, "cannot give the directory of volume %s to its user", id);
    log_event(LOG_WARN, "volume-given-away", "volume", id, "why", "it was root's", NULL);
    return 0;
}

/* The last step of a resize whose worker ended in between. */
static int finish_resize(int dir_fd, int data_fd, struct volume_json *json, uint64_t have,
                         struct err *err)
{
    if (have == json->previous_size &&
        (ftruncate(data_fd, (off_t)json->size) < 0 || fsync(data_fd) < 0))
        return err_errno(err, errno, "cannot make volume %s %llu bytes large", json->id,
                         (unsigned long long)json->size);
    int rc = FAULT_POINT("volume-attach.grown", err);
    if (rc < 0)
        return rc;
    json->previous_size = 0;
    return volume_json_write(dir_fd, json, err);
}

static int check_data(int dir_fd, struct volume_json *json, struct err *err)
{
    struct stat st;
    cleanup_fd int fd = open_data(dir_fd, json->id, err);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot stat the file 'data' of volume %s", json->id);
    uint64_t have = (uint64_t)st.st_size;
    bool known = have == json->size || (json->previous_size && have == json->previous_size);
    if (!S_ISREG(st.st_mode) || !known)
        return err_fail(err, ERR_DAMAGED,
                        "the file 'data' of volume %s is no file of %llu bytes, it has %llu",
                        json->id, (unsigned long long)json->size, (unsigned long long)have);
    return json->previous_size ? finish_resize(dir_fd, fd, json, have, err) : 0;
}

/* What is brought of a volume that has no checkpoint of its own is as its base has it. */
static void begin_clean(struct live_map_header *header, const struct volume_base *base)
{
    static const uint8_t unknown[sizeof header->clean_of];
    if (base->lineage[0] != '\0' && memcmp(header->clean_of, unknown, sizeof unknown) == 0)
        memcpy(header->clean_of, base->checkpoint.bytes, sizeof header->clean_of);
}

/* What is local counts as touched: nobody knows what was trimmed since it was written. Nothing is
 * freed on the host by a trim of what is absent. */
static int settle_words(int live_fd, const struct volume_base *base, struct err *err)
{
    struct live_map live;
    int rc = live_map_open(live_fd, false, &live, err);
    if (rc < 0)
        return rc;
    begin_clean(live.header, base);
    uint64_t chunks = atomic_load(&live.header->size) / VOLUME_CHUNK;
    for (uint64_t i = 0; i < chunks; i++) {
        uint32_t word = atomic_load_explicit(&live.words[i], memory_order_relaxed);
        if ((word & LIVE_WORD_MASK) != 0)
            (void)atomic_fetch_or(&live.words[i], LIVE_WORD_TOUCHED);
    }
    live_map_close(&live);
    return 0;
}

/* Makes the live map of the disk map. Returns a descriptor. */
static int read_map(int dir_fd, const struct volume_json *json, struct err *err)
{
    struct live_map_loaded loaded;
    int rc = live_map_load(dir_fd, json->id, json->uuid, json->size, &loaded, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot read the map of volume %s", json->id);
    cleanup_fd int fd = loaded.fd;
    if (loaded.absent > 0 && json->base.lineage[0] == '\0')
        return err_fail(err, ERR_DAMAGED,
                        "volume %s has chunks that only a remote has, and does not say where",
                        json->id);
    if (loaded.torn)
        log_event(LOG_WARN, "volume-map-torn", "volume", json->id, "what",
                  "its last flush was incomplete and is dropped", NULL);
    rc = settle_words(fd, &json->base, err);
    return rc < 0 ? rc : steal_fd(&fd);
}

/* --- what is made for it --- */

static int open_program(struct err *err)
{
    char path[4096];
    int rc = spawn_find("varve-volume", path, err);
    if (rc < 0)
        return rc;
    int fd = open(path, O_PATH | O_CLOEXEC);
    return fd >= 0 ? fd : err_errno(err, errno, "cannot open %s", path);
}

static int mount_fuse(struct volumes *volumes, struct volume *volume, struct volume_fds *fds,
                      struct err *err)
{
    char path[VOLUMES_PATH_MAX];
    dev_t device = 0;
    volume_mount_path(volumes, volume->id, path);
    if (mkdirat(volumes->mounts_fd, volume->id, 0700) < 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot make %s", path);
    fds->fuse = volume_mount_make(path, err);
    if (fds->fuse < 0)
        return fds->fuse;
    int rc = FAULT_POINT("volume-attach.mounted", err);
    if (rc == 0)
        rc = volume_mount_look(path, &device, err);
    if (rc < 0)
        return rc;
    (void)pthread_mutex_lock(&volumes->table);
    volume->fuse_dev = device;
    (void)pthread_mutex_unlock(&volumes->table);
    return 0;
}

static int make_parts(struct volumes *volumes, struct volume *volume, struct err *err)
{
    cleanup_volume_fds struct volume_fds fds = VOLUME_FDS_NONE;
    struct volume_json json;
    cleanup_fd int dir = volume_open_dir(volumes, volume->id, err);
    if (dir < 0)
        return dir;
    int rc = volumes_check_disk(volumes, err);
    if (rc == 0)
        rc = give_away(volumes, dir, volume->id, err);
    if (rc == 0)
        rc = volume_json_read(dir, volume->id, &json, err);
    if (rc == 0)
        rc = check_data(dir, &json, err);
    if (rc == 0)
        rc = fds.live = read_map(dir, &json, err);
    if (rc >= 0)
        rc = fds.program = open_program(err);
    if (rc >= 0)
        rc = mount_fuse(volumes, volume, &fds, err);
    if (rc >= 0)
        rc = fds.listen = worker_client_listen(volumes->workers_fd, volume->id, err);
    if (rc >= 0)
        rc = FAULT_POINT("volume-attach.listening", err);
    return rc < 0 ? rc : volume_take_fds(volumes, volume, &fds, err);
}

/* From the descriptors on: what is there already is found. */
static int serve(struct volumes *volumes, struct volume *volume, struct err *err)
{
    int rc = volumes_keeper_start(volumes, volume, err);
    if (rc == 0)
        rc = FAULT_POINT("volume-attach.started", err);
    if (rc == 0)
        rc = volume_worker_wait(volumes, volume, err);
    if (rc == 0)
        rc = FAULT_POINT("volume-attach.serving", err);
    if (rc == 0)
        rc = volume_loop_ensure(volumes, volume, err);
    return rc < 0 ? rc : FAULT_POINT("volume-attach.looped", err);
}

/* --- what is there already --- */

static bool is_fenced(const struct volume *volume)
{
    return (atomic_load(&volume->live.header->orders) & LIVE_ORDER_FENCED) != 0;
}

/* 1: it is attached; 0: nothing of it is there any more. */
static int look(struct volumes *volumes, struct volume *volume, struct err *err)
{
    if (volume_is_held(volume) && !volume->detaching && !volume->dead &&
        !volume_is_cut(volumes, volume) && !is_fenced(volume))
        return 1;
    /* Dead, never quite attached, not quite detached, or of no use; or nothing at all. */
    return volume_detach(volumes, volume, LEFT_MS, err);
}

static int attach(struct volumes *volumes, struct volume *volume, struct err *err)
{
    int rc = look(volumes, volume, err);
    if (rc != 0)
        return rc < 0 ? rc : serve(volumes, volume, err);
    rc = make_parts(volumes, volume, err);
    if (rc == 0)
        rc = serve(volumes, volume, err);
    if (rc < 0) {
        struct err more = ERR_INIT;
        cleanup_wait_stop struct wait_stop nobody = {.ask = NULL};
        wait_stop_begin(&nobody);
        if (volume_take_down(volumes, volume, &more) < 0)
            err_hint(err, "what was made is not gone yet: %s", more.text);
    }
    return rc;
}

int volumes_attach(struct volumes *volumes, const char *id, struct err *err)
{
    struct volume *volume;
    int rc = volume_enter(volumes, id, &volume, err);
    if (rc < 0)
        return rc;
    rc = attach(volumes, volume, err);
    volume_leave(volumes, volume);
    volumes_wake(volumes);
    return rc < 0 ? err_wrap(err, rc, "cannot attach volume %s", id) : 0;
}
