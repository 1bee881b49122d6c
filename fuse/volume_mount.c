#include "volume_mount.h"

#include "cleanup.h"
#include "deadline_child.h"
#include "fdio.h"
#include "mount_context.h"
#include "mountinfo.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

static const char hint[] = "the volume's worker may be stopped";

static int open_fuse(struct err *err)
{
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd >= 0)
        return fd;
    if (errno == ENOENT || errno == ENODEV || errno == ENXIO) {
        int rc = err_fail(err, ERR_UNSUPPORTED, "there is no /dev/fuse");
        err_hint(err, "load the kernel module fuse; in a container, give it the device");
        return rc;
    }
    int rc = err_errno(err, errno, "cannot open /dev/fuse");
    if (rc == -EPERM || rc == -EACCES)
        err_hint(err, "in a container, allow it the device (character 10:229)");
    return rc;
}

static int fail_context(int context, int num, const char *path, struct err *err)
{
    char messages[MOUNT_CONTEXT_TEXT_MAX];
    mount_context_messages(context, messages);
    return messages[0] == '\0' ? err_errno(err, num, "cannot mount FUSE at %s", path)
                               : err_errno(err, num, "cannot mount FUSE at %s: %s", path, messages);
}

static int set(int context, const char *key, const char *value)
{
    return fsconfig(context, FSCONFIG_SET_STRING, key, value, 0) < 0 ? -errno : 0;
}

/* The mount, attached nowhere. Returns a descriptor of it, or -errno. */
static int make_detached(int fuse_fd, const char *path, struct err *err)
{
    char number[16];
    snprintf(number, sizeof number, "%d", fuse_fd);
    cleanup_fd int context = fsopen("fuse", FSOPEN_CLOEXEC);
    if (context < 0 && errno == ENODEV)
        return err_fail(err, ERR_UNSUPPORTED, "this kernel has no file system fuse");
    if (context < 0)
        return err_errno(err, errno, "cannot use the file system fuse");
    int rc = set(context, "source", VOLUME_MOUNT_SOURCE);
    if (rc == 0)
        rc = set(context, "subtype", VOLUME_MOUNT_SOURCE);
    if (rc == 0)
        rc = set(context, "fd", number);
    if (rc == 0)
        rc = set(context, "rootmode", "40000");
    if (rc == 0)
        rc = set(context, "user_id", "0");
    if (rc == 0)
        rc = set(context, "group_id", "0");
    if (rc == 0 && fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        rc = -errno;
    int fd = rc < 0 ? rc
                    : fsmount(context, FSMOUNT_CLOEXEC,
                              MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    return fd < 0 ? fail_context(context, rc < 0 ? rc : errno, path, err) : fd;
}

int volume_mount_make(const char *path, struct err *err)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS};
    dev_t device;
    int rc = volume_mount_look(path, &device, err);
    if (rc > 0)
        rc = err_fail(err, ERR_CONFLICT, "a volume is mounted at %s already", path);
    if (rc < 0)
        return rc;
    cleanup_fd int target = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    if (target < 0)
        return err_errno(err, errno, "cannot open %s", path);
    cleanup_fd int fuse = open_fuse(err);
    if (fuse < 0)
        return fuse;
    cleanup_fd int mount = make_detached(fuse, path, err);
    if (mount < 0)
        return mount;
    if (move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return err_errno(err, errno, "cannot attach the FUSE mount at %s", path);
    return steal_fd(&fuse);
}

/* The mount with this ID: 1 ours, 0 another one, or -errno. */
static int is_ours(uint64_t id, struct err *err)
{
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    int rc = mountinfo_open("self", &info, err);
    while (rc >= 0 && (rc = mountinfo_next(&info, &entry, err)) > 0)
        if (entry.id == id)
            return strcmp(entry.type, VOLUME_MOUNT_TYPE) == 0 &&
                   strcmp(entry.source, VOLUME_MOUNT_SOURCE) == 0;
    return rc;
}

int volume_mount_look(const char *path, dev_t *ret_device, struct err *err)
{
    struct statx stx;
    /* FUSE answers this from what it knows. */
    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
              STATX_MNT_ID, &stx) < 0)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot stat %s", path);
    if (!(stx.stx_attributes & STATX_ATTR_MOUNT_ROOT))
        return 0;
    int rc = is_ours(stx.stx_mnt_id, err);
    if (rc == 0)
        rc = err_fail(err, ERR_CONFLICT, "something else than a volume is mounted at %s", path);
    if (rc > 0)
        *ret_device = makedev(stx.stx_dev_major, stx.stx_dev_minor);
    return rc;
}

/* A mount of its own, as the host may have none. */
int volume_mount_control(struct err *err)
{
    cleanup_fd int context = fsopen("fusectl", FSOPEN_CLOEXEC);
    if (context < 0 || fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return err_errno(err, errno, "cannot use the file system fusectl");
    int root = fsmount(context, FSMOUNT_CLOEXEC, 0);
    return root < 0 ? err_errno(err, errno, "cannot mount the file system fusectl") : root;
}

int volume_mount_waiting(int control_fd, dev_t device)
{
    char name[32];
    char text[32] = "";
    snprintf(name, sizeof name, "%u/waiting", minor(device));
    cleanup_fd int fd = openat(control_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fdio_read_full(fd, text, sizeof text - 1) < 0)
        return -errno;
    long count = strtol(text, NULL, 10);
    return count < 0 || count > INT_MAX ? INT_MAX : (int)count;
}

int volume_mount_abort(dev_t device, struct err *err)
{
    char name[32];
    snprintf(name, sizeof name, "%u/abort", minor(device));
    cleanup_fd int root = volume_mount_control(err);
    if (root < 0)
        return root;
    cleanup_fd int fd = openat(root, name, O_WRONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    int rc = fd < 0 ? -errno : fdio_write_full(fd, "1", 1);
    return rc < 0 ? err_errno(err, rc, "cannot abort a FUSE connection") : 0;
}

struct remove_args {
    const char *path;
    bool lazy;
};

static int call_remove(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct remove_args *args = arg;
    (void)result;
    (void)ret_fd;
    if (umount2(args->path, UMOUNT_NOFOLLOW | (args->lazy ? MNT_DETACH : 0)) == 0)
        return 0;
    return errno == EBUSY
               ? err_fail(err, ERR_CONFLICT, "the FUSE mount at %s is in use", args->path)
               : err_errno(err, errno, "cannot unmount %s", args->path);
}

int volume_mount_remove(const char *path, bool lazy, int wait_ms, struct err *err)
{
    dev_t device;
    struct remove_args args = {.path = path, .lazy = lazy};
    const struct deadline_child child = {.what = "unmount the FUSE mount of a volume",
                                         .object = path,
                                         .wait_ms = wait_ms,
                                         .hint = hint};
    int rc = volume_mount_look(path, &device, err);
    return rc <= 0 ? rc : deadline_child_run(&child, call_remove, &args, NULL, 0, NULL, err);
}
