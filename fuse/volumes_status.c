#include "volumes_internal.h"

#include "cleanup.h"
#include "log.h"
#include "mountinfo.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define NS_PER_MS UINT64_C(1000000)

enum {
    ERRNO_MAX = 4095,
};

static uint64_t since(uint64_t then)
{
    uint64_t now = (uint64_t)clock_now_ns();
    return then == 0 || then > now ? 0 : now - then;
}

static uint64_t at_most(uint64_t value, uint64_t bound)
{
    return value < bound ? value : bound;
}

/* The worker's own count begins with its start. */
static uint64_t waits_since(const struct live_map_header *header)
{
    uint64_t own = atomic_load(&header->held_since_ns);
    uint64_t all = atomic_load(&header->waits_since_ns);
    if (atomic_load(&header->held) == 0 || own == 0)
        return all;
    return all == 0 || own < all ? own : all;
}

/* Of one that is attached. Memory alone, and a worker's word: what others reckon with is bounded.
 */
static void from_live(const struct live_map_header *header, struct volume_status *ret)
{
    uint32_t facts = atomic_load(&header->facts);
    ret->size = at_most(atomic_load(&header->size), VOLUME_SIZE_MAX);
    ret->local =
        at_most(atomic_load(&header->local_chunks), ret->size / VOLUME_CHUNK) * VOLUME_CHUNK;
    ret->absent = at_most(atomic_load(&header->absent_chunks), ret->size / VOLUME_CHUNK);
    ret->absent_waits = at_most(atomic_load(&header->absent), VOLUME_MAX_BACKGROUND);
    ret->held = at_most(atomic_load(&header->held), VOLUME_MAX_BACKGROUND);
    ret->held_ns = since(waits_since(header));
    ret->silent_ns = since(atomic_load(&header->heartbeat_ns));
    ret->starts = at_most(atomic_load(&header->starts), INT64_MAX);
    ret->reads = atomic_load(&header->reads);
    ret->writes = atomic_load(&header->writes);
    ret->read_bytes = atomic_load(&header->read_bytes);
    ret->write_bytes = atomic_load(&header->write_bytes);
    ret->resends = (facts & LIVE_FACT_RESENDS) != 0;
    ret->locked = atomic_load(&header->residency) != 0;
    ret->locked_bytes = at_most(atomic_load(&header->locked_bytes), INT64_MAX);
    ret->direct = atomic_load(&header->data_mode) == LIVE_DATA_DIRECT;
    ret->fenced = (atomic_load(&header->orders) & LIVE_ORDER_FENCED) != 0;
    ret->failed = (facts & LIVE_FACT_FAILED) != 0;
    ret->failed_num = (int)at_most(atomic_load(&header->failed_num), ERRNO_MAX);
    ret->worker = (pid_t)atomic_load(&header->pid);
    live_map_text(header, ret->text);
}
_Static_assert(sizeof((struct volume_status){0}.text) == LIVE_MAP_TEXT_MAX, "the same text");

/* Of one that isn't, or whose live map is gone. */
static int from_disk(const struct volumes *volumes, const char *id, struct volume_status *ret,
                     struct err *err)
{
    struct volume_json json;
    struct stat st;
    cleanup_fd int dir = volume_open_dir(volumes, id, err);
    if (dir < 0)
        return dir;
    int rc = volume_json_read(dir, id, &json, err);
    if (rc < 0)
        return rc;
    if (fstatat(dir, "data", &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_errno(err, errno, "cannot stat the file 'data' of volume %s", id);
    ret->size = json.size;
    ret->base = json.base;
    ret->local = (uint64_t)st.st_blocks * 512;
    return 0;
}

int volumes_record(struct volumes *volumes, const char *id, uint64_t *ret_size,
                   uint64_t *ret_stored, struct err *err)
{
    struct volume_status status = {0};
    int rc = volume_json_check_id(id, err);
    if (rc == 0)
        rc = from_disk(volumes, id, &status, err);
    if (rc < 0)
        return rc;
    *ret_size = status.size;
    *ret_stored = status.local;
    return 0;
}

/* Who unmounts by hand, without us, makes it go. */
static bool loop_is_ours(const struct volumes *volumes, const char *id, const char *device)
{
    char path[VOLUMES_PATH_MAX];
    struct loop_device loop;
    int number = loop_device_number(device, NULL);
    volume_device_path(volumes, id, path);
    return number >= 0 && loop_device_look(number, &loop, NULL) == 0 && volume_loop_is(&loop, path);
}

int volumes_status(struct volumes *volumes, const char *id, struct volume_status *ret,
                   struct err *err)
{
    struct volume_status status = {.attached = false};
    int rc = volume_json_check_id(id, err);
    if (rc < 0)
        return rc;
    struct volume *volume = volume_peek(volumes, id);
    bool held = false;
    if (volume) {
        (void)pthread_mutex_lock(&volumes->table);
        held = volume_is_held(volume);
        status.attached = (held && !volume->dead) || volume->lost;
        status.detaching = volume->detaching && !volume->dead;
        status.dead = volume->dead;
        (void)snprintf(status.device, sizeof status.device, "%s", volume->device);
        status.device_dev = volume->device_dev;
        status.suspected = volume->suspected;
        status.lost = volume->lost;
        status.unsynced_num = volume->unsynced_num;
        status.life = volume->ending ? 0 : volume->life;
        if (volume->unserved_ms > 0)
            status.unserved_ns = since((uint64_t)volume->unserved_ms * NS_PER_MS);
        status.base = volume->base;
        if (held)
            from_live(volume->live.header, &status);
        (void)pthread_mutex_unlock(&volumes->table);
        volume_unpeek(volumes, volume);
    }
    if (!held)
        rc = from_disk(volumes, id, &status, err);
    if (rc < 0)
        return rc;
    if (!volume_worker_runs(status.worker))
        status.worker = 0;
    if (!loop_is_ours(volumes, id, status.device)) {
        status.device[0] = '\0';
        status.device_dev = 0;
    }
    *ret = status;
    return 0;
}

/* --- many --- */

/* An ext4 that met an error is "emergency_ro" since Linux 6.15, and "ro" before. */
static bool takes_writes(const char *super_options)
{
    return !mountinfo_has_option(super_options, "ro") &&
           !mountinfo_has_option(super_options, "emergency_ro");
}

static int find_mounts(struct volumes_place *places, size_t count, struct err *err)
{
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    int rc = mountinfo_open("self", &info, err);
    while (rc >= 0 && (rc = mountinfo_next(&info, &entry, err)) > 0) {
        dev_t device = makedev(entry.dev_major, entry.dev_minor);
        for (size_t i = 0; i < count; i++)
            if (places[i].device_dev == device && strcmp(places[i].path, entry.point) == 0) {
                places[i].mounted = true;
                places[i].read_only = !takes_writes(entry.super_options);
            }
    }
    return rc;
}

/* Of those that are mounted. */
static int find_spaces(struct volumes_place *places, size_t count, struct err *err)
{
    cleanup_free struct volume_fs_place *asked = calloc(count + 1, sizeof *asked);
    cleanup_free struct volume_fs_space *spaces = calloc(count + 1, sizeof *spaces);
    cleanup_free bool *known = calloc(count + 1, sizeof *known);
    size_t n = 0;
    if (!asked || !spaces || !known)
        return err_errno(err, ENOMEM, "cannot look at the mounted volumes");
    for (size_t i = 0; i < count; i++)
        if (places[i].mounted)
            asked[n++] =
                (struct volume_fs_place){.path = places[i].path, .device = places[i].device_dev};
    int rc = n > 0 ? volume_fs_spaces(asked, n, spaces, known, err) : 0;
    n = 0;
    for (size_t i = 0; i < count && rc == 0; i++)
        if (places[i].mounted) {
            places[i].known = known[n];
            places[i].space = spaces[n++];
        }
    return rc;
}

int volumes_look(struct volumes *volumes, struct volumes_place *places, size_t count,
                 struct err *err)
{
    struct err why = ERR_INIT;
    (void)volumes;
    for (size_t i = 0; i < count; i++)
        places[i].mounted = places[i].known = places[i].read_only = false;
    int rc = count > 0 ? find_mounts(places, count, err) : 0;
    /* Without figures the rest is still worth telling. */
    if (rc == 0 && find_spaces(places, count, &why) < 0)
        log_event(LOG_WARN, "volumes-space-unknown", "why", why.text, NULL);
    return rc;
}
