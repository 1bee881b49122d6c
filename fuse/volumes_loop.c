/* The loop device over RUN/volumes/ID/device. Opening that file, and making or growing the device,
 * wait for the worker; so a child does it. */
#include "volumes_internal.h"

#include "cleanup.h"
#include "deadline_child.h"
#include "log.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

struct attach_call {
    char path[VOLUMES_PATH_MAX]; /* of `device` */
    char name[32];
};

struct made {
    char path[LOOP_DEVICE_PATH_MAX];
    dev_t device;
    bool unlimited; /* its queue could not be set */
};

struct grow_call {
    char path[VOLUMES_PATH_MAX]; /* of `device` */
    int device_fd;
};

/* deadline_child_call */
static int attach_in_child(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct attach_call *call = arg;
    struct made *made = result;
    struct loop_device loop;
    int file = open(call->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0)
        return err_errno(err, errno, "cannot open %s", call->path);
    const struct loop_device_options options = {
        .autoclear = true, .direct = LOOP_DEVICE_DIRECT_REQUIRED, .name = call->name};
    int device = loop_device_attach(file, &options, &loop, err);
    if (device < 0)
        return device;
    /* Else writes that wait for room on the host's disk would leave no way for reads
     * (volume_queue.h). */
    const struct loop_device_queue queue = {.max_kb = VOLUME_MAX_WRITE / 1024,
                                            .requests = VOLUME_LOOP_REQUESTS,
                                            .scheduler = "mq-deadline",
                                            .others = VOLUME_LOOP_OTHERS};
    made->unlimited = loop_device_tune(loop.number, &queue) > 0;
    memcpy(made->path, loop.path, sizeof made->path);
    made->device = loop.device;
    *ret_fd = device;
    return 0;
}

/* deadline_child_call. Linux before 6.18 takes the size that it has cached, so the file is looked
 * at before. */
static int grow_in_child(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct grow_call *call = arg;
    struct statx st;
    (void)ret_fd;
    if (statx(AT_FDCWD, call->path, AT_SYMLINK_NOFOLLOW | AT_STATX_FORCE_SYNC, STATX_SIZE, &st) < 0)
        return err_errno(err, errno, "cannot stat %s", call->path);
    return loop_device_grow(call->device_fd, result, err);
}

static void set_device(struct volumes *volumes, struct volume *volume, const struct made *loop,
                       int fd)
{
    (void)pthread_mutex_lock(&volumes->table);
    if (loop)
        memcpy(volume->device, loop->path, sizeof volume->device);
    else
        volume->device[0] = '\0';
    volume->device_dev = loop ? loop->device : 0;
    if (fd >= 0)
        volume->loop_fd = fd;
    (void)pthread_mutex_unlock(&volumes->table);
}

struct finding {
    char path[VOLUMES_PATH_MAX];
    struct made made;
    bool found;
};

/* By the name that the file has now: after the mount below it was taken away, as abandon does it,
 * that is another one. */
bool volume_loop_is(const struct loop_device *loop, const char *path)
{
    size_t len = strlen(path);
    return strncmp(loop->backing, path, len) == 0 &&
           (loop->backing[len] == '\0' || strcmp(loop->backing + len, " (deleted)") == 0);
}

/* loop_device_take */
static int find_one(void *arg, const struct loop_device *loop, struct err *err)
{
    struct finding *finding = arg;
    (void)err;
    if (finding->found || !volume_loop_is(loop, finding->path))
        return 0;
    memcpy(finding->made.path, loop->path, sizeof finding->made.path);
    finding->made.device = loop->device;
    finding->found = true;
    return 0;
}

static int find(const struct volumes *volumes, const char *id, struct finding *ret, struct err *err)
{
    *ret = (struct finding){.found = false};
    volume_device_path(volumes, id, ret->path);
    int rc = loop_device_each(ret->path, find_one, ret, err);
    return rc < 0 ? rc : ret->found;
}

int volume_loop_look(struct volumes *volumes, struct volume *volume, struct err *err)
{
    struct finding finding;
    int rc = find(volumes, volume->id, &finding, err);
    if (rc >= 0)
        set_device(volumes, volume, rc > 0 ? &finding.made : NULL, -1);
    return rc;
}

int volume_loop_find(const struct volumes *volumes, const char *id, dev_t *ret, struct err *err)
{
    struct finding finding;
    int rc = find(volumes, id, &finding, err);
    if (rc >= 0)
        *ret = rc > 0 ? finding.made.device : 0;
    return rc;
}

bool volume_loop_keep(const struct volumes *volumes, const struct volume *volume, int *ret_fd)
{
    char path[VOLUMES_PATH_MAX];
    struct loop_device loop;
    int number = loop_device_number(volume->device, NULL);
    cleanup_fd int fd = number < 0 ? -1 : loop_device_open(number, false, NULL);
    volume_device_path(volumes, volume->id, path);
    if (number < 0 || loop_device_look(number, &loop, NULL) < 0 || !volume_loop_is(&loop, path))
        return false;
    *ret_fd = fd < 0 ? -1 : steal_fd(&fd);
    return true;
}

static int attach(struct volumes *volumes, struct volume *volume, struct err *err)
{
    struct attach_call call;
    volume_device_path(volumes, volume->id, call.path);
    (void)snprintf(call.name, sizeof call.name, "varve %s", volume->id);
    char what[64];
    (void)snprintf(what, sizeof what, "make a loop device for volume %s", volume->id);
    const struct deadline_child child = {.what = what,
                                         .object = call.path,
                                         .wait_ms = VOLUMES_STEP_MS,
                                         .hint = "its worker does not answer"};
    struct made made;
    int fd = -1;
    int rc = deadline_child_run(&child, attach_in_child, &call, &made, sizeof made, &fd, err);
    if (rc < 0)
        return rc;
    if (fd < 0)
        return err_fail(err, ERR_INTERNAL, "%s came without its descriptor", made.path);
    if (made.unlimited)
        log_event(LOG_WARN, "loop-device-not-limited", "device", made.path, NULL);
    set_device(volumes, volume, &made, fd);
    return 0;
}

/* One that a resize which was cut short has left behind. 1, or -errno. */
static int check_size(struct volumes *volumes, struct volume *volume, struct err *err)
{
    struct loop_device loop;
    uint64_t size = atomic_load(&volume->live.header->size);
    int number = loop_device_number(volume->device, err);
    int rc = number < 0 ? number : loop_device_look(number, &loop, err);
    if (rc == 0 && loop.size != size)
        rc = volume_loop_grow(volumes, volume, size, err);
    return rc < 0 ? rc : 1;
}

/* Opens the one that is there, so that it stays. */
static int hold(struct volumes *volumes, struct volume *volume, struct err *err)
{
    int number = loop_device_number(volume->device, err);
    int fd = number < 0 ? number : loop_device_open(number, true, err);
    if (fd < 0)
        return fd;
    (void)pthread_mutex_lock(&volumes->table);
    volume->loop_fd = fd;
    (void)pthread_mutex_unlock(&volumes->table);
    /* It may have gone, or become somebody else's, before it was open. */
    char before[LOOP_DEVICE_PATH_MAX];
    memcpy(before, volume->device, sizeof before);
    int rc = volume_loop_look(volumes, volume, err);
    if (rc > 0 && strcmp(before, volume->device) == 0)
        return check_size(volumes, volume, err);
    volume_loop_release(volumes, volume);
    return rc < 0 ? rc : 0;
}

int volume_loop_ensure(struct volumes *volumes, struct volume *volume, struct err *err)
{
    if (volume->loop_fd >= 0)
        return 0;
    int rc = volume_loop_look(volumes, volume, err);
    if (rc > 0)
        rc = hold(volumes, volume, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    return attach(volumes, volume, err);
}

void volume_loop_release(struct volumes *volumes, struct volume *volume)
{
    (void)pthread_mutex_lock(&volumes->table);
    int fd = volume->loop_fd;
    volume->loop_fd = -1;
    (void)pthread_mutex_unlock(&volumes->table);
    if (fd >= 0)
        (void)close(fd);
}

int volume_loop_grow(struct volumes *volumes, struct volume *volume, uint64_t size, struct err *err)
{
    int number = loop_device_number(volume->device, err);
    cleanup_fd int fd = number < 0 ? number : loop_device_open(number, true, err);
    if (fd < 0)
        return fd;
    struct grow_call call = {.device_fd = fd};
    volume_device_path(volumes, volume->id, call.path);
    const struct deadline_child child = {.what = "grow a loop device",
                                         .object = call.path,
                                         .wait_ms = VOLUMES_STEP_MS,
                                         .hint = "its worker does not answer",
                                         .keep = &call.device_fd,
                                         .keep_count = 1};
    uint64_t now;
    int rc = deadline_child_run(&child, grow_in_child, &call, &now, sizeof now, NULL, err);
    if (rc < 0)
        return rc;
    if (now != size)
        return err_fail(err, ERR_IO, "%s has %llu bytes after it was grown to %llu", volume->device,
                        (unsigned long long)now, (unsigned long long)size);
    return 0;
}
