#include "sandbox_view.h"

#include "cleanup.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static const struct device {
    const char *path;
    unsigned int major;
    unsigned int minor;
} devices[] = {
    {"/dev/null", 1, 3},   {"/dev/zero", 1, 5},    {"/dev/full", 1, 7},
    {"/dev/random", 1, 8}, {"/dev/urandom", 1, 9}, {"/dev/tty", 5, 0},
};

/* A copy of a mount, with what is mounted below it, that has no place yet. */
static int copy_mount(const char *path, struct err *err)
{
    unsigned int flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE;
    int fd = open_tree(AT_FDCWD, path, flags);
    return fd < 0 ? err_errno(err, errno, "cannot copy the mount of %s", path) : fd;
}

static int place_mount(int fd, const char *path, struct err *err)
{
    if (move_mount(fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return err_errno(err, errno, "cannot place the mount of %s", path);
    return 0;
}

static int make_read_only(struct err *err)
{
    struct mount_attr set = {.attr_set = MOUNT_ATTR_RDONLY};
    struct mount_attr clear = {.attr_clr = MOUNT_ATTR_RDONLY};
    /* Who sees only a read-only procfs may not mount one that can be written: the kernel's rule
     * for user namespaces. bubblewrap has to mount the sandbox's. */
    if (mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &set, sizeof set) == 0 &&
        mount_setattr(AT_FDCWD, "/proc", 0, &clear, sizeof clear) == 0)
        return 0;
    if (errno == ENOSYS)
        return err_fail(err, ERR_UNSUPPORTED,
                        "this kernel cannot make mounts read-only together (5.12 or later can)");
    return err_errno(err, errno, "cannot make the sandbox's view of the host read-only");
}

static int make_dev(int console_fd, struct err *err)
{
    if (mount("varve-dev", "/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755,size=64k") < 0)
        return err_errno(err, errno, "cannot mount a private /dev");
    mode_t mask = umask(0);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(devices); i++)
        if (mknod(devices[i].path, S_IFCHR | 0666, makedev(devices[i].major, devices[i].minor)) < 0)
            rc = err_errno(err, errno, "cannot make a private %s", devices[i].path);
    if (rc == 0 && console_fd >= 0 && mknod("/dev/console", S_IFREG | 0600, 0) < 0)
        rc = err_errno(err, errno, "cannot make a private /dev/console");
    umask(mask);
    if (rc == 0 && console_fd >= 0)
        rc = place_mount(console_fd, "/dev/console", err);
    return rc;
}

/* bubblewrap follows a link at /proc each time it puts something there. A process of another
 * sandbox on the same run could turn the link between two of these times, and the new sandbox's
 * procfs would be left without its covers. A directory stays what it is: every sandbox has its own
 * procfs mounted on it, and what is mounted on can be neither renamed nor removed. */
static int check_proc(int root_fd, const char *rootfs, struct err *err)
{
    struct stat st;
    if (fstatat(root_fd, "proc", &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot look at %s/proc", rootfs);
    if (!S_ISLNK(st.st_mode))
        return 0;
    int rc = err_fail(err, ERR_DENIED, "%s/proc is a symbolic link", rootfs);
    err_hint(err, "make it a directory: the sandbox's processes are shown there");
    return rc;
}

/* Takes RUN with the mounts of all other runs out of the view; `rootfs` is RUN/runs/ID/rootfs. RUN
 * is a mount of its own on itself, so the path is still there. One that is none (a client of a
 * daemon that has ended, on another view of the host) stays: it is read-only like the rest. */
static int drop_other_runs(const char *rootfs, struct err *err)
{
    enum {
        LEVELS = 3
    };
    char run_dir[PATH_MAX];
    struct statx stx;
    size_t len = strlen(rootfs);
    if (len >= sizeof run_dir)
        return err_fail(err, ERR_INVALID, "the path %.100s... is too long", rootfs);
    memcpy(run_dir, rootfs, len + 1);
    for (int level = 0; level < LEVELS; level++) {
        char *slash = strrchr(run_dir, '/');
        if (!slash || slash == run_dir)
            return 0;
        *slash = '\0';
    }
    if (statx(AT_FDCWD, run_dir, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &stx) < 0)
        return err_errno(err, errno, "cannot look at %s", run_dir);
    if (!(stx.stx_attributes & STATX_ATTR_MOUNT_ROOT))
        return 0;
    if (umount2(run_dir, MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
        return err_errno(err, errno, "cannot take the other runs out of the sandbox's view");
    return 0;
}

int sandbox_view_enter(const char *rootfs, const char *console, struct err *err)
{
    if (unshare(CLONE_NEWNS) < 0)
        return err_errno(err, errno, "cannot make a mount namespace");
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return err_errno(err, errno, "cannot part the sandbox's mounts from the host's");
    cleanup_fd int root_fd = copy_mount(rootfs, err);
    if (root_fd < 0)
        return root_fd;
    int rc = check_proc(root_fd, rootfs, err);
    if (rc < 0)
        return rc;
    cleanup_fd int console_fd = console ? copy_mount(console, err) : -1;
    if (console && console_fd < 0)
        return console_fd;
    rc = drop_other_runs(rootfs, err);
    if (rc == 0)
        rc = make_read_only(err);
    if (rc == 0)
        rc = make_dev(console_fd, err);
    if (rc == 0)
        rc = place_mount(root_fd, rootfs, err);
    return rc;
}
