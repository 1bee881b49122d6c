#include "volumes_internal.h"

#include "cleanup.h"
#include "fault.h"
#include "volume_create.h"
#include "volume_frozen.h"
#include "volume_fs.h"
#include "worker_client.h"

enum {
    FROZEN_MS = 3000,
    SLICE_MS = 3000,
};

static int remap(struct volumes *volumes, struct volume *volume, uint64_t size, struct err *err)
{
    (void)pthread_mutex_lock(&volumes->table);
    int rc = live_map_remap(&volume->live, size, err);
    (void)pthread_mutex_unlock(&volumes->table);
    return rc;
}

/* In slices, as it may be given up meanwhile. A worker that has done it says so again. */
static int ask_worker(struct volumes *volumes, const struct volume *volume, uint64_t size,
                      struct err *err)
{
    int64_t until = clock_now_ms() + VOLUMES_RESIZE_MS;
    for (;;) {
        struct err why = ERR_INIT;
        int rc = worker_client_resize(volumes->workers_fd, volume->id, size, SLICE_MS, &why);
        if (rc == 0)
            return 0;
        if (volume->dead)
            return err_fail(err, ERR_CONFLICT, "its connection has ended");
        if (atomic_load(&volumes->stopping))
            return err_fail(err, ERR_INTERRUPTED, "it has not grown yet");
        if (why.code != ERR_UNREACHABLE || clock_now_ms() >= until ||
            !volume_has_socket(volumes, volume->id))
            return err_pass(err, rc, &why);
        volumes_sleep_ms(VOLUMES_POLL_MS); /* where nobody listens the answer comes at once */
    }
}

/* The files, up to json->size. `data` and the size in the live map are the worker's. */
static int grow_files(struct volumes *volumes, struct volume *volume, int dir_fd,
                      struct volume_json *json, struct err *err)
{
    int rc = remap(volumes, volume, json->size, err);
    if (rc == 0)
        rc = FAULT_POINT("volume-resize.extended", err);
    if (rc == 0)
        rc = ask_worker(volumes, volume, json->size, err);
    if (rc == 0)
        rc = FAULT_POINT("volume-resize.grown", err);
    if (rc < 0)
        return rc;
    json->previous_size = 0;
    rc = volume_json_write(dir_fd, json, err);
    return rc < 0 ? rc : FAULT_POINT("volume-resize.published", err);
}

static int begin(int dir_fd, struct volume_json *json, uint64_t size, struct err *err)
{
    json->previous_size = json->size;
    json->size = size;
    int rc = volume_json_write(dir_fd, json, err);
    return rc < 0 ? rc : FAULT_POINT("volume-resize.begun", err);
}

static int resize_files(struct volumes *volumes, struct volume *volume, uint64_t size,
                        struct err *err)
{
    struct volume_json json;
    cleanup_fd int dir = volume_open_dir(volumes, volume->id, err);
    if (dir < 0)
        return dir;
    int rc = volume_json_read(dir, volume->id, &json, err);
    if (rc < 0)
        return rc;
    if (size < json.size)
        return err_fail(err, ERR_INVALID, "it has %llu bytes, volumes only grow",
                        (unsigned long long)json.size);
    /* What was begun with another size is finished first. */
    if (json.previous_size)
        rc = grow_files(volumes, volume, dir, &json, err);
    if (rc == 0 && size > json.size) {
        rc = begin(dir, &json, size, err);
        if (rc == 0)
            rc = grow_files(volumes, volume, dir, &json, err);
    }
    return rc;
}

/* --- the file system --- */

/* Whether it is as large as it can be. */
static int is_grown(const struct volume *volume, uint64_t size, struct err *err)
{
    struct ext4_super super;
    int rc = volume_look(volume, size, &super, err);
    return rc < 0 ? rc : super.blocks >= ext4_super_blocks_of(&super, size);
}

/* 1: this host may not grow a mounted ext4. It is not unmounted for that, whoever uses it by name
 * would meet the directory below. */
static int grow_fs(const struct volume *volume, uint64_t size, const char *path, struct err *err)
{
    struct err why = ERR_INIT;
    int rc = volume_fs_mounted(path, volume->device_dev, err);
    if (rc <= 0)
        return rc;
    rc = is_grown(volume, size, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = volume_fs_grow(path, volume->device_dev, size, VOLUMES_FS_MS, &why);
    if (rc < 0)
        return why.code == ERR_DENIED ? 1 : err_pass(err, rc, &why);
    rc = is_grown(volume, size, err);
    return rc == 0  ? err_fail(err, ERR_IO, "the kernel has not grown the file system at %s", path)
           : rc < 0 ? rc
                    : 0;
}

/* ext4 would grow at the thaw, and whoever asked would wait for that. */
static int check_thawed(struct volumes *volumes, struct volume *volume, const char *path,
                        struct err *err)
{
    int rc = path ? volume_loop_look(volumes, volume, err) : 0;
    if (rc > 0)
        rc = volume_frozen_at(path, volume->device_dev, FROZEN_MS, NULL);
    return rc > 0 ? volume_frozen_fail(path, err) : 0;
}

static int resize(struct volumes *volumes, struct volume *volume, uint64_t size, const char *path,
                  struct err *err)
{
    int rc = volume_must_be_attached(volumes, volume, err);
    if (rc == 0)
        rc = check_thawed(volumes, volume, path, err);
    if (rc == 0)
        rc = resize_files(volumes, volume, size, err);
    /* Without a loop device the next one has the size. */
    if (rc == 0)
        rc = volume_loop_look(volumes, volume, err);
    if (rc <= 0)
        return rc;
    rc = volume_loop_grow(volumes, volume, size, err);
    if (rc == 0)
        rc = FAULT_POINT("volume-resize.loop", err);
    return rc < 0 || !path ? rc : grow_fs(volume, size, path, err);
}

int volumes_resize(struct volumes *volumes, const char *id, uint64_t size, const char *path,
                   struct err *err)
{
    struct volume *volume;
    int rc = volume_create_size(size, &size, err);
    if (rc == 0)
        rc = volume_enter(volumes, id, &volume, err);
    if (rc < 0)
        return rc;
    volume_wait_begin(volume);
    rc = resize(volumes, volume, size, path, err);
    volume_wait_end();
    volume_leave(volumes, volume);
    return rc < 0 ? err_wrap(err, rc, "cannot resize volume %s", id) : rc;
}
