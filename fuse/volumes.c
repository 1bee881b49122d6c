#include "volumes_internal.h"

#include "cleanup.h"
#include "deadline_child.h"
#include "fault.h"
#include "fdio.h"
#include "local_disk.h"
#include "publish.h"
#include "tree.h"
#include "volume_create.h"
#include "volume_mount.h"
#include "wait_stop.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

enum {
    BUSY_LOOK_MS = 200, /* how often one who waits asks whether he should */
};

#define SUFFIX_MAX 64 /* "/volumes/0123456789ab/device" and NUL */

void volumes_sleep_ms(int ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

static int init_locks(struct volumes *volumes, struct err *err)
{
    pthread_condattr_t attr;
    if (pthread_mutex_init(&volumes->table, NULL) != 0 ||
        pthread_mutex_init(&volumes->keeper_lock, NULL) != 0 || pthread_condattr_init(&attr) != 0)
        return err_fail(err, ERR_INTERNAL, "cannot make a lock");
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int rc = pthread_cond_init(&volumes->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    return rc == 0 ? 0 : err_errno(err, rc, "cannot make a condition variable");
}

static int open_parts(struct volumes *volumes, struct err *err)
{
    volumes->mounts_fd = fdio_open_dir(volumes->run_fd, "volumes", 0700, err);
    if (volumes->mounts_fd < 0)
        return err_wrap(err, volumes->mounts_fd, "cannot make %s/volumes", volumes->run_path);
    volumes->workers_fd = fdio_open_dir(volumes->run_fd, "workers", 0700, err);
    if (volumes->workers_fd < 0)
        return err_wrap(err, volumes->workers_fd, "cannot make %s/workers", volumes->run_path);
    volumes->freezes_fd = fdio_open_dir(volumes->run_fd, "freezes", 0700, err);
    if (volumes->freezes_fd < 0)
        return err_wrap(err, volumes->freezes_fd, "cannot make %s/freezes", volumes->run_path);
    const struct keeper_client_options options = {.run_fd = volumes->run_fd,
                                                  .run_path = volumes->run_path};
    int rc = keeper_client_open(&options, &volumes->keeper, err);
    /* What was begun and never had a name of its own: a creation, a removal, a freeze. */
    if (rc == 0)
        rc = publish_sweep(volumes->freezes_fd, err);
    return rc < 0 ? rc : publish_sweep(volumes->data_fd, err);
}

int volumes_open(const struct volumes_options *options, struct volumes **ret, struct err *err)
{
    if (strlen(options->data_path) + SUFFIX_MAX > VOLUMES_PATH_MAX ||
        strlen(options->run_path) + SUFFIX_MAX > VOLUMES_PATH_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the name of the data or run directory is too long");
    struct volumes *volumes = calloc(1, sizeof *volumes);
    if (!volumes)
        return err_errno(err, ENOMEM, "cannot open the volumes");
    *volumes = (struct volumes){.data_fd = options->data_fd,
                                .run_fd = options->run_fd,
                                .uid = options->uid,
                                .gid = options->gid,
                                .workers_fd = -1,
                                .mounts_fd = -1,
                                .freezes_fd = -1,
                                .control_fd = -1,
                                .room_ms = VOLUMES_ROOM_MS};
    volumes->data_path = strdup(options->data_path);
    volumes->run_path = strdup(options->run_path);
    volumes->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = init_locks(volumes, err);
    if (rc == 0 && (!volumes->data_path || !volumes->run_path || volumes->wake_fd < 0))
        rc = err_errno(err, ENOMEM, "cannot open the volumes");
    if (rc == 0)
        rc = open_parts(volumes, err);
    if (rc < 0) {
        volumes_close(volumes);
        return rc;
    }
    *ret = volumes;
    return 0;
}

static void free_volume(struct volume *volume)
{
    live_map_close(&volume->live);
    volume_fds_close(&volume->fds);
    if (volume->loop_fd >= 0)
        (void)close(volume->loop_fd);
    (void)pthread_mutex_destroy(&volume->slots);
    free(volume);
}

void volumes_close(struct volumes *volumes)
{
    if (!volumes)
        return;
    while (volumes->first) {
        struct volume *volume = volumes->first;
        volumes->first = volume->next;
        free_volume(volume);
    }
    keeper_client_close(volumes->keeper);
    cleanup_fdp(&volumes->workers_fd);
    cleanup_fdp(&volumes->mounts_fd);
    cleanup_fdp(&volumes->freezes_fd);
    cleanup_fdp(&volumes->wake_fd);
    cleanup_fdp(&volumes->control_fd);
    (void)pthread_cond_destroy(&volumes->changed);
    (void)pthread_mutex_destroy(&volumes->keeper_lock);
    (void)pthread_mutex_destroy(&volumes->table);
    free(volumes->data_path);
    free(volumes->run_path);
    free(volumes);
}

/* --- names --- */

void volume_mount_path(const struct volumes *volumes, const char *id, char *ret)
{
    (void)snprintf(ret, VOLUMES_PATH_MAX, "%s/volumes/%.12s", volumes->run_path, id);
}

void volume_device_path(const struct volumes *volumes, const char *id, char *ret)
{
    (void)snprintf(ret, VOLUMES_PATH_MAX, "%s/volumes/%.12s/%s", volumes->run_path, id,
                   VOLUME_DEVICE_NAME);
}

void volume_data_path(const struct volumes *volumes, const char *id, char *ret)
{
    (void)snprintf(ret, VOLUMES_PATH_MAX, "%s/%.12s", volumes->data_path, id);
}

int volume_open_dir(const struct volumes *volumes, const char *id, struct err *err)
{
    int fd = openat(volumes->data_fd, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return err_fail(err, ERR_NOT_FOUND, "there is no volume %s", id);
    return fd >= 0 ? fd : err_errno(err, errno, "cannot open the directory of volume %s", id);
}

/* --- the table --- */

static struct volume *find_locked(struct volumes *volumes, const char *id)
{
    for (struct volume *volume = volumes->first; volume; volume = volume->next)
        if (strcmp(volume->id, id) == 0)
            return volume;
    return NULL;
}

static struct volume *make_locked(struct volumes *volumes, const char *id)
{
    struct volume *volume = calloc(1, sizeof *volume);
    if (!volume)
        return NULL;
    *volume = (struct volume){
        .next = volumes->first, .fds = VOLUME_FDS_NONE, .live = {.fd = -1}, .loop_fd = -1};
    (void)pthread_mutex_init(&volume->slots, NULL);
    (void)snprintf(volume->id, sizeof volume->id, "%s", id);
    volumes->first = volume;
    return volume;
}

/* Nothing to remember, nobody there. */
static void forget_locked(struct volumes *volumes, struct volume *volume)
{
    if (volume->users > 0 || volume_is_held(volume) || volume->dead || volume->lost)
        return;
    struct volume **at = &volumes->first;
    while (*at != volume)
        at = &(*at)->next;
    *at = volume->next;
    free_volume(volume);
}

static int enter(struct volumes *volumes, const char *id, int wait_s, struct volume **ret,
                 struct err *err)
{
    int rc = volume_json_check_id(id, err);
    if (rc < 0)
        return rc;
    int64_t until_ms = clock_now_ms() + wait_s * INT64_C(1000);
    (void)pthread_mutex_lock(&volumes->table);
    struct volume *volume = find_locked(volumes, id);
    if (!volume)
        volume = make_locked(volumes, id);
    if (!volume) {
        (void)pthread_mutex_unlock(&volumes->table);
        return err_errno(err, ENOMEM, "cannot work on volume %s", id);
    }
    volume->users++;
    volume->waits++;
    while (volume->busy && rc == 0 && clock_now_ms() < until_ms) {
        struct timespec look = clock_in_ms(BUSY_LOOK_MS);
        (void)pthread_cond_timedwait(&volumes->changed, &volumes->table, &look);
        rc = wait_stop_ask(err);
    }
    volume->waits--;
    bool taken = !volume->busy && rc == 0;
    if (taken)
        volume->busy = true;
    else
        volume->users--;
    (void)pthread_mutex_unlock(&volumes->table);
    if (rc < 0)
        return rc;
    if (!taken)
        return err_fail(err, ERR_CONFLICT, "something else has worked on volume %s for %d seconds",
                        id, wait_s);
    *ret = volume;
    return 0;
}

int volume_enter(struct volumes *volumes, const char *id, struct volume **ret, struct err *err)
{
    return enter(volumes, id, VOLUMES_BUSY_S, ret, err);
}

int volume_try_enter(struct volumes *volumes, const char *id, struct volume **ret)
{
    return enter(volumes, id, 0, ret, NULL);
}

void volume_leave(struct volumes *volumes, struct volume *volume)
{
    (void)pthread_mutex_lock(&volumes->table);
    volume->busy = false;
    volume->users--;
    forget_locked(volumes, volume);
    (void)pthread_cond_broadcast(&volumes->changed);
    (void)pthread_mutex_unlock(&volumes->table);
}

struct volume *volume_peek(struct volumes *volumes, const char *id)
{
    (void)pthread_mutex_lock(&volumes->table);
    struct volume *volume = find_locked(volumes, id);
    if (volume)
        volume->users++;
    (void)pthread_mutex_unlock(&volumes->table);
    return volume;
}

void volume_unpeek(struct volumes *volumes, struct volume *volume)
{
    (void)pthread_mutex_lock(&volumes->table);
    volume->users--;
    forget_locked(volumes, volume);
    (void)pthread_mutex_unlock(&volumes->table);
}

struct volume *volume_pin(struct volumes *volumes, const char *id, uint64_t life)
{
    (void)pthread_mutex_lock(&volumes->table);
    struct volume *volume = find_locked(volumes, id);
    if (volume && (volume->ending || (life != VOLUME_ANY_LIFE && volume->life != life)))
        volume = NULL;
    if (volume) {
        volume->users++;
        volume->pins++;
    }
    (void)pthread_mutex_unlock(&volumes->table);
    return volume;
}

void volume_unpin(struct volumes *volumes, struct volume *volume)
{
    (void)pthread_mutex_lock(&volumes->table);
    volume->pins--;
    volume->users--;
    forget_locked(volumes, volume);
    (void)pthread_cond_broadcast(&volumes->changed);
    (void)pthread_mutex_unlock(&volumes->table);
}

struct volume **volumes_peek_all(struct volumes *volumes, size_t *ret_count)
{
    (void)pthread_mutex_lock(&volumes->table);
    size_t count = 0;
    for (struct volume *volume = volumes->first; volume; volume = volume->next)
        count++;
    struct volume **all = calloc(count + 1, sizeof *all);
    *ret_count = 0;
    for (struct volume *volume = all ? volumes->first : NULL; volume; volume = volume->next) {
        volume->users++;
        all[(*ret_count)++] = volume;
    }
    (void)pthread_mutex_unlock(&volumes->table);
    return all;
}

bool volumes_hold_any(struct volumes *volumes)
{
    bool any = false;
    (void)pthread_mutex_lock(&volumes->table);
    for (struct volume *volume = volumes->first; volume && !any; volume = volume->next)
        any = volume_is_held(volume);
    (void)pthread_mutex_unlock(&volumes->table);
    return any;
}

bool volume_is_awaited(struct volumes *volumes, const struct volume *volume)
{
    (void)pthread_mutex_lock(&volumes->table);
    bool awaited = volume->waits > 0;
    (void)pthread_mutex_unlock(&volumes->table);
    return awaited;
}

/* --- the connection --- */

bool volume_is_cut(struct volumes *volumes, const struct volume *volume)
{
    (void)pthread_mutex_lock(&volumes->table);
    struct pollfd at = {.fd = volume->fds.fuse};
    bool cut = at.fd >= 0 && poll(&at, 1, 0) == 1 && (at.revents & POLLERR) != 0;
    (void)pthread_mutex_unlock(&volumes->table);
    return cut;
}

void volume_cut(struct volumes *volumes, const struct volume *volume)
{
    char path[VOLUMES_PATH_MAX];
    dev_t device;
    (void)pthread_mutex_lock(&volumes->table);
    dev_t ours = volume->fuse_dev;
    (void)pthread_mutex_unlock(&volumes->table);
    volume_mount_path(volumes, volume->id, path);
    /* Somebody may have mounted another one there, or over it. */
    if (volume_mount_look(path, &device, NULL) > 0 && device == ours)
        (void)volume_mount_abort(device, NULL);
}

/* --- small ones --- */

int volumes_check_disk(struct volumes *volumes, struct err *err)
{
    if (atomic_load(&volumes->disk_is_fit))
        return 0;
    int rc = local_disk_check(volumes->data_fd, volumes->data_path, err);
    if (rc == 0)
        atomic_store(&volumes->disk_is_fit, true);
    return rc;
}

int volumes_create(struct volumes *volumes, const char *id, uint64_t size, struct err *err)
{
    struct volume *volume;
    int rc = volumes_check_disk(volumes, err);
    if (rc == 0)
        rc = volume_enter(volumes, id, &volume, err);
    if (rc < 0)
        return rc;
    rc = volume_create(volumes->data_fd, id, size, volumes->uid, volumes->gid, err);
    volume_leave(volumes, volume);
    return rc;
}

int volumes_create_from(struct volumes *volumes, const char *id, uint64_t size,
                        const struct volume_base *base, volume_create_give *give, void *arg,
                        struct err *err)
{
    struct volume *volume;
    int rc = volumes_check_disk(volumes, err);
    if (rc == 0)
        rc = volume_enter(volumes, id, &volume, err);
    if (rc < 0)
        return rc;
    rc = volume_create_from(volumes->data_fd, id, size, base, give, arg, volumes->uid, volumes->gid,
                            err);
    volume_leave(volumes, volume);
    return rc;
}

/* Nothing of it may be there, in the table or on the host. */
static int check_detached(struct volumes *volumes, const struct volume *volume, struct err *err)
{
    char path[VOLUMES_PATH_MAX];
    dev_t device;
    volume_mount_path(volumes, volume->id, path);
    int mounted = volume_mount_look(path, &device, err);
    if (mounted < 0)
        return mounted;
    if (mounted == 0 && !volume_is_held(volume))
        return 0;
    int rc = err_fail(err, ERR_CONFLICT, "volume %s is attached", volume->id);
    err_hint(err, "unmount it first");
    return rc;
}

/* A directory under its own name is complete (I1), so first that goes. What a kill leaves under the
 * other one, publish_sweep() finds. */
static int remove_dir(struct volumes *volumes, const char *id, struct err *err)
{
    char temp[32];
    (void)snprintf(temp, sizeof temp, ".tmp-rm-%.12s", id);
    int rc = tree_remove(volumes->data_fd, temp, err);
    if (rc < 0)
        return rc;
    if (renameat(volumes->data_fd, id, volumes->data_fd, temp) < 0)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot rename its directory");
    if (fsync(volumes->data_fd) < 0)
        return err_errno(err, errno, "cannot sync %s", volumes->data_path);
    rc = FAULT_POINT("volume-remove.renamed", err);
    return rc < 0 ? rc : tree_remove(volumes->data_fd, temp, err);
}

int volumes_replace_from(struct volumes *volumes, const char *id, uint64_t size,
                         const struct volume_base *base, volume_create_give *give, void *arg,
                         struct err *err)
{
    struct volume *volume;
    int rc = volume_enter(volumes, id, &volume, err);
    if (rc < 0)
        return rc;
    rc = check_detached(volumes, volume, err);
    if (rc == 0)
        rc = volume_create_replace(volumes->data_fd, id, size, base, give, arg, volumes->uid,
                                   volumes->gid, err);
    volume_leave(volumes, volume);
    return rc;
}

int volumes_remove(struct volumes *volumes, const char *id, struct err *err)
{
    struct volume *volume;
    int rc = volume_enter(volumes, id, &volume, err);
    if (rc < 0)
        return rc;
    rc = check_detached(volumes, volume, err);
    if (rc == 0)
        rc = remove_dir(volumes, id, err);
    if (rc == 0)
        rc = volume_create_sweep(volumes->data_fd, id, err);
    volume_leave(volumes, volume);
    return rc < 0 ? err_wrap(err, rc, "cannot remove volume %s", id) : 0;
}

void volumes_limit(struct volumes *volumes, const char *id, uint64_t bytes, uint64_t ops)
{
    (void)pthread_mutex_lock(&volumes->table);
    struct volume *volume = find_locked(volumes, id);
    if (volume && volume_is_held(volume)) {
        atomic_store(&volume->live.header->limit_bytes, bytes);
        atomic_store(&volume->live.header->limit_ops, ops);
    }
    (void)pthread_mutex_unlock(&volumes->table);
}

void volumes_stop(struct volumes *volumes)
{
    atomic_store(&volumes->stopping, true);
    deadline_child_stop();
    volumes_wake(volumes);
}

void volumes_wake(struct volumes *volumes)
{
    uint64_t one = 1;
    ssize_t ignored = write(volumes->wake_fd, &one, sizeof one);
    (void)ignored;
}
