#include "layers_mount_point.h"

#include "cleanup.h"
#include "erofs_mount.h"
#include "fdio.h"
#include "layers.h"
#include "log.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

enum {
    STACKED_MAX = 16, /* mounts that somebody has put on each other */
};

static char *path_of(const struct node *node, const char *key)
{
    char *path;
    return asprintf(&path, "%s/layers/%s", node->run_dir, key) < 0 ? NULL : path;
}

/* 1 when the directory is the root of a mount, 0 when not. */
static int is_mount_root(int fd, struct err *err)
{
    struct statx stx;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &stx) < 0)
        return err_errno(err, errno, "cannot stat a mount point");
    return (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

/* Unmounts everything at the path: 0 also when there is nothing. */
static int unmount(const char *path, int flags, struct err *err)
{
    for (int i = 0; i < STACKED_MAX; i++) {
        if (umount2(path, UMOUNT_NOFOLLOW | flags) == 0)
            continue;
        if (errno == EINVAL || errno == ENOENT)
            return 0;
        if (errno == EBUSY)
            return err_fail(err, ERR_CONFLICT, "cannot unmount %s: it is in use", path);
        return err_errno(err, errno, "cannot unmount %s", path);
    }
    return err_fail(err, ERR_CONFLICT, "cannot unmount %s: more than %d mounts lie there", path,
                    STACKED_MAX);
}

/* Something that is not the image is mounted there: no run may stand on it. Whoever uses it keeps
 * it, out of sight. */
static int take_away(struct node *node, const char *key, struct err *err)
{
    cleanup_free char *path = path_of(node, key);
    if (!path)
        return err_errno(err, ENOMEM, "cannot unmount layer %s", key);
    log_event(LOG_WARN, "layer-mount-replaced", "path", path, NULL);
    return unmount(path, MNT_DETACH, err);
}

static int open_point(struct node *node, const char *key, struct err *err)
{
    int fd = fdio_open_dir(node->run_layers_fd, key, 0700, NULL);
    return fd < 0
               ? err_errno(err, fd, "cannot open the mount point %s/layers/%s", node->run_dir, key)
               : fd;
}

/* 1 when a mount of the image is there already; 0 when nothing is there any more. */
static int look(struct node *node, const char *key, int image_fd, struct err *err)
{
    cleanup_fd int point = open_point(node, key, err);
    int rc = point < 0 ? point : is_mount_root(point, err);
    if (rc == 1)
        rc = erofs_mount_is_of(point, image_fd, err);
    else if (rc == 0)
        return 0;
    if (rc != 0)
        return rc;
    return take_away(node, key, err);
}

static int make(struct node *node, const char *key, struct err *err)
{
    cleanup_fd int image = layers_open(node, key, err);
    int rc = image < 0 ? image : look(node, key, image, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_fd int point = open_point(node, key, err);
    return point < 0 ? point : erofs_mount_attach(image, point, err);
}

int layers_mount_point_make(struct node *node, const char *key, struct err *err)
{
    int rc = make(node, key, err);
    return rc < 0 ? err_wrap(err, rc, "cannot mount layer %s", key) : 0;
}

int layers_mount_point_clear(struct node *node, const char *key, struct err *err)
{
    cleanup_free char *path = path_of(node, key);
    if (!path)
        return err_errno(err, ENOMEM, "cannot unmount layer %s", key);
    int rc = unmount(path, 0, err);
    if (rc == 0 && unlinkat(node->run_layers_fd, key, AT_REMOVEDIR) < 0 && errno != ENOENT)
        rc = err_errno(err, errno, "cannot remove %s", path);
    return rc;
}

int layers_mount_point_open(struct node *node, const char *key, struct err *err)
{
    cleanup_fd int fd =
        openat(node->run_layers_fd, key, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int rc = fd >= 0 ? is_mount_root(fd, err) : errno == ENOENT ? 0 : -errno;
    if (rc == 0)
        return err_fail(err, ERR_NOT_FOUND, "layer %s is not mounted in %s/layers", key,
                        node->run_dir);
    if (rc < 0)
        return err_wrap(err, rc, "cannot open layer %s in %s/layers", key, node->run_dir);
    return steal_fd(&fd);
}
