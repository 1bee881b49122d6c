#include "volume_frozen.h"

#include "cleanup.h"
#include "deadline_child.h"
#include "volume_fs.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

/* After the headers of the C library, whose sys/mount.h has the same names as linux/mount.h. */
#include <sys/mount.h>

#ifndef EXT4_IOC_SHUTDOWN
#define EXT4_IOC_SHUTDOWN _IOR('X', 125, uint32_t)
#endif

enum {
    /* Of ext4's superblock. */
    SUPER_AT = 1024,
    SUPER_MAGIC_AT = 56,
    SUPER_INCOMPAT_AT = 96,
    SUPER_BYTES = 100,
    INCOMPAT_RECOVER = 0x4,
    GOING_NOLOGFLUSH = 2, /* EXT4_GOING_FLAGS_NOLOGFLUSH */

    WAITS_MS = 300, /* after which a change that needs no device waits for a thaw */
    THAWS_MAX = 64, /* freezes may be nested */
    LEN_TOO_LONG = 300,
    NAME_BYTES = 32, /* "loop12" */
};

/* --- the device --- */

/* The kernel's name of a block device. */
static int device_name(dev_t device, char ret[NAME_BYTES], struct err *err)
{
    char path[64];
    char target[256];
    (void)snprintf(path, sizeof path, "/sys/dev/block/%u:%u", major(device), minor(device));
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0 && errno == ENOENT)
        return err_fail(err, ERR_NOT_FOUND, "there is no block device %u:%u", major(device),
                        minor(device));
    if (n < 0)
        return err_errno(err, errno, "cannot look for block device %u:%u", major(device),
                         minor(device));
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    const char *name = slash ? slash + 1 : target;
    if (strlen(name) >= NAME_BYTES)
        return err_fail(err, ERR_UNSUPPORTED, "block device %u:%u has a long name", major(device),
                        minor(device));
    (void)snprintf(ret, NAME_BYTES, "%s", name);
    return 0;
}

/* Whether the superblock, as the kernel has it in memory, says that the journal is in use. */
static int needs_recovery(dev_t device, struct err *err)
{
    char name[NAME_BYTES];
    char path[64];
    unsigned char bytes[SUPER_BYTES];
    int rc = device_name(device, name, err);
    if (rc < 0)
        return rc;
    (void)snprintf(path, sizeof path, "/dev/%s", name);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s", path);
    ssize_t n = pread(fd, bytes, sizeof bytes, SUPER_AT);
    if (n != sizeof bytes)
        return err_errno(err, n < 0 ? errno : EIO, "cannot read the superblock of %s", path);
    if (bytes[SUPER_MAGIC_AT] != 0x53 || bytes[SUPER_MAGIC_AT + 1] != 0xef)
        return err_fail(err, ERR_DAMAGED, "there is no ext4 on %s", path);
    return (bytes[SUPER_INCOMPAT_AT] & INCOMPAT_RECOVER) != 0;
}

/* --- looking --- */

/* Whether a change of this file system has to wait. It is asked for by a process of its own, which
 * ends at the thaw, when it has to. */
static int change_waits(int root_fd, struct err *err)
{
    char name[LEN_TOO_LONG + 1];
    int ends[2];
    memset(name, 'x', LEN_TOO_LONG);
    name[LEN_TOO_LONG] = '\0';
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    cleanup_fd int mine = ends[0];
    pid_t pid = fork();
    if (pid == 0) {
        /* The kernel waits for the thaw before it looks the name up. */
        (void)unlinkat(root_fd, name, 0);
        _exit(0);
    }
    int num = errno;
    (void)close(ends[1]);
    if (pid < 0)
        return err_errno(err, num, "cannot make a process");
    struct pollfd at = {.fd = mine, .events = POLLIN};
    int n = poll(&at, 1, WAITS_MS);
    (void)kill(pid, SIGKILL);
    if (n > 0)
        (void)waitpid(pid, NULL, 0);
    return n == 0;
}

static int look_writable(int root_fd, dev_t device, struct err *err)
{
    int rc = needs_recovery(device, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (fsync(root_fd) < 0)
        return change_waits(root_fd, err);
    rc = needs_recovery(device, err); /* thawed meanwhile? */
    return rc < 0 ? rc : !rc;
}

static int look_read_only(int root_fd, struct err *err)
{
    if (ioctl(root_fd, FIFREEZE, 0) < 0)
        return errno == EBUSY ? 1 : err_errno(err, errno, "cannot ask a file system for a freeze");
    (void)ioctl(root_fd, FITHAW, 0);
    return 0;
}

int volume_frozen_look(int root_fd, dev_t device, struct err *err)
{
    struct statvfs fs;
    struct stat st;
    if (fstatvfs(root_fd, &fs) < 0 || fstat(root_fd, &st) < 0)
        return err_errno(err, errno, "cannot stat the mounted volume");
    /* Before anything else is touched. */
    if (st.st_dev != device)
        return err_fail(err, ERR_CONFLICT, "something else than the volume is mounted");
    /* Of the mount alone, perhaps; then its file system says that it is in use. */
    if ((fs.f_flag & ST_RDONLY) == 0)
        return look_writable(root_fd, device, err);
    int rc = needs_recovery(device, err);
    return rc != 0 ? (rc < 0 ? rc : 0) : look_read_only(root_fd, err);
}

struct look_args {
    const char *path;
    dev_t device;
    uint64_t diskseq;
};

/* deadline_child_call */
static int call_look(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct look_args *args = arg;
    (void)result;
    (void)ret_fd;
    cleanup_fd int fd = volume_fs_open(args->path, args->device, err);
    return fd < 0 ? fd : volume_frozen_look(fd, args->device, err);
}

static int run(const char *what, int wait_ms, deadline_child_call *call, struct look_args *args,
               struct err *err)
{
    char object[32];
    (void)snprintf(object, sizeof object, "frozen %u:%u", major(args->device), minor(args->device));
    const struct deadline_child child = {.what = what,
                                         .object = object,
                                         .wait_ms = wait_ms,
                                         .hint = "the volume's worker may be stopped"};
    return deadline_child_run(&child, call, args, NULL, 0, NULL, err);
}

int volume_frozen_at(const char *path, dev_t device, int wait_ms, struct err *err)
{
    struct look_args args = {.path = path, .device = device};
    return run("look whether a volume is frozen", wait_ms, call_look, &args, err);
}

int volume_frozen_fail(const char *path, struct err *err)
{
    int rc = err_fail(err, ERR_CONFLICT, "the file system at %s is frozen (fsfreeze)", path);
    err_hint(err, "thaw it with `fsfreeze -u %s`, or have whoever froze it do so, and try again",
             path);
    return rc;
}

/* --- one that may be mounted nowhere --- */

/* A mount of the file system that lives on the device, at no path. */
static int mount_again(const char *name, bool read_only, struct err *err)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/dev/%s", name);
    cleanup_fd int context = fsopen("ext4", FSOPEN_CLOEXEC);
    if (context < 0)
        return err_errno(err, errno, "cannot use the file system ext4");
    if (fsconfig(context, FSCONFIG_SET_STRING, "source", path, 0) < 0 ||
        (read_only && fsconfig(context, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0) ||
        fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return err_errno(err, errno, "cannot reach the file system on %s", path);
    int fd = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    return fd < 0 ? err_errno(err, errno, "cannot mount %s again", path) : fd;
}

/* Its root directory. ERR_NOT_FOUND: there is none. Read-only first: the kernel refuses to have
 * another one than the one that lives, and this one writes nothing, should that have gone. */
static int reach(dev_t device, struct err *err)
{
    char name[NAME_BYTES];
    struct err first = ERR_INIT;
    char path[64];
    int rc = device_name(device, name, err);
    if (rc < 0)
        return rc;
    if (!volume_fs_lives(name))
        return err_fail(err, ERR_NOT_FOUND, "no file system lives on /dev/%s", name);
    /* Should it end before it is mounted again, the kernel gets the superblock that it had, and
     * nothing that whoever serves the device shows it now. */
    (void)snprintf(path, sizeof path, "/dev/%s", name);
    if (!volume_fs_hold_first_block(path, err))
        return err && err->num ? -err->num : -EIO;
    if (!volume_fs_lives(name))
        return err_fail(err, ERR_NOT_FOUND, "no file system lives on %s", path);
    cleanup_fd int ro = mount_again(name, true, &first);
    cleanup_fd int rw = ro < 0 ? mount_again(name, false, err) : -1;
    int mount = ro >= 0 ? ro : rw;
    if (mount < 0)
        return mount;
    int fd = openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? err_errno(err, errno, "cannot open the file system on /dev/%s", name) : fd;
}

/* The same: 1, or 0 where there is none, which is no failure. */
static int reach_any(dev_t device, int *ret_fd, struct err *err)
{
    *ret_fd = reach(device, err);
    if (*ret_fd == -ENOENT)
        err_clear(err);
    return *ret_fd >= 0 ? 1 : *ret_fd == -ENOENT ? 0 : *ret_fd;
}

/* deadline_child_call */
static int call_hidden(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct look_args *args = arg;
    (void)result;
    (void)ret_fd;
    cleanup_fd int fd = -1;
    int rc = reach_any(args->device, &fd, err);
    return rc <= 0 ? rc : volume_frozen_look(fd, args->device, err);
}

int volume_frozen_hidden(dev_t device, int wait_ms, struct err *err)
{
    struct look_args args = {.device = device};
    return run("look whether a volume is frozen", wait_ms, call_hidden, &args, err);
}

uint64_t volume_frozen_diskseq(dev_t device)
{
    char path[64];
    char text[32];
    (void)snprintf(path, sizeof path, "/sys/dev/block/%u:%u/diskseq", major(device), minor(device));
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    return strtoull(text, NULL, 10);
}

/* deadline_child_call */
static int call_thaw(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct look_args *args = arg;
    (void)result;
    (void)ret_fd;
    cleanup_fd int fd = -1;
    int rc = reach_any(args->device, &fd, err);
    if (rc <= 0)
        return rc;
    /* Now that it is held: else the number could be another device's a moment later. */
    if (args->diskseq != 0 && volume_frozen_diskseq(args->device) != args->diskseq)
        return 0;
    if (ioctl(fd, FITHAW, 0) < 0 && errno != EINVAL)
        return err_errno(err, errno, "cannot thaw a file system");
    return 0;
}

int volume_frozen_thaw(dev_t device, uint64_t diskseq, int wait_ms, struct err *err)
{
    struct look_args args = {.device = device, .diskseq = diskseq};
    return run("thaw a file system", wait_ms, call_thaw, &args, err);
}

/* deadline_child_call */
static int call_end(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct look_args *args = arg;
    uint32_t flag = GOING_NOLOGFLUSH; /* the default freezes, and would leave the device so */
    (void)result;
    (void)ret_fd;
    cleanup_fd int fd = -1;
    int rc = reach_any(args->device, &fd, err);
    if (rc <= 0)
        return rc;
    if (ioctl(fd, EXT4_IOC_SHUTDOWN, &flag) < 0)
        return err_errno(err, errno, "cannot shut down a file system that is given up");
    for (int i = 0; i < THAWS_MAX && ioctl(fd, FITHAW, 0) == 0; i++)
        ;
    return 0;
}

int volume_frozen_end(dev_t device, int wait_ms, struct err *err)
{
    struct look_args args = {.device = device};
    return run("give a file system up", wait_ms, call_end, &args, err);
}
