#include "volume_fs.h"

#include "cleanup.h"
#include "deadline_child.h"
#include "volume_frozen.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

/* After the headers of the C library, whose sys/mount.h has the same names as linux/mount.h. */
#include <sys/mount.h>

#define EXT4_MAGIC 0xef53U
#ifndef EXT4_IOC_SHUTDOWN
#define EXT4_IOC_SHUTDOWN _IOR('X', 125, uint32_t)
#endif

enum {
    LOOK_MS = 3000, /* for a path that is looked up and an answer from memory */
    EACH_MS = 1000, /* the same, of many */

    GOING_DEFAULT = 0, /* EXT4_GOING_FLAGS_ */
    GOING_NOLOGFLUSH = 2,
};

static const char hint[] = "the volume's worker may be stopped";

/* For the arguments of calls. */
struct fs_args {
    const char *device_path;
    const char *path;
    const char *at; /* of an unmount: the path's last component */
    dev_t device;
    bool flag; /* read_only or lazy */
    uint64_t from;
    uint64_t len;
    const uint8_t *uuid;
};

static int run(const char *what, int wait_ms, deadline_child_call *call, struct fs_args *args,
               void *result, size_t result_len, struct err *err)
{
    const struct deadline_child child = {.what = what,
                                         .object = args->path ? args->path : args->device_path,
                                         .wait_ms = wait_ms,
                                         .hint = hint};
    return deadline_child_run(&child, call, args, result, result_len, NULL, err);
}

static int call_look(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct fs_args *args = arg;
    (void)ret_fd;
    cleanup_fd int fd = open(args->device_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s", args->device_path);
    /* Before and after, as it may begin or end in between. */
    bool lives = volume_fs_lives(args->device_path);
    struct ext4_super super;
    int rc = ext4_super_read(fd, args->uuid, args->len, lives, &super, err);
    if (rc < 0 && !lives && volume_fs_lives(args->device_path)) {
        err_clear(err);
        rc = ext4_super_read(fd, args->uuid, args->len, true, &super, err);
        lives = true;
    }
    if (rc < 0)
        return rc;
    memcpy(result, &super, sizeof super);
    return lives;
}

bool volume_fs_lives(const char *device_path)
{
    char path[64];
    struct stat st;
    const char *slash = strrchr(device_path, '/');
    (void)snprintf(path, sizeof path, "/sys/fs/ext4/%.32s", slash ? slash + 1 : device_path);
    return stat(path, &st) == 0;
}

int volume_fs_look(const char *device_path, const uint8_t uuid[VOLUME_UUID_LEN], uint64_t size,
                   int wait_ms, struct ext4_super *ret, struct err *err)
{
    struct fs_args args = {.device_path = device_path, .uuid = uuid, .len = size};
    return run("read the superblock of a volume", wait_ms, call_look, &args, ret, sizeof *ret, err);
}

static int fail_other(const char *path, struct err *err)
{
    int rc = err_fail(err, ERR_CONFLICT, "something else than the volume is mounted at %s", path);
    err_hint(err, "unmount that first");
    return rc;
}

/* Looking a path up can wait too, for what lies above the mount: another volume, a network. */
static int look_mounted(const char *at, const char *path, dev_t device, struct err *err)
{
    struct statx stx;
    if (statx(AT_FDCWD, at, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, 0, &stx) <
        0)
        return errno == ENOENT || errno == ENOTDIR ? 0
                                                   : err_errno(err, errno, "cannot stat %s", path);
    if (!(stx.stx_attributes & STATX_ATTR_MOUNT_ROOT))
        return 0;
    return makedev(stx.stx_dev_major, stx.stx_dev_minor) == device ? 1 : fail_other(path, err);
}

static int call_mounted(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct fs_args *args = arg;
    (void)result;
    (void)ret_fd;
    return look_mounted(args->path, args->path, args->device, err);
}

int volume_fs_mounted(const char *path, dev_t device, struct err *err)
{
    struct fs_args args = {.path = path, .device = device};
    return run("look for a mount", LOOK_MS, call_mounted, &args, NULL, 0, err);
}

/* Where nothing is mounted this is a failure. */
static int must_be_mounted(const char *path, dev_t device, struct err *err)
{
    int rc = look_mounted(path, path, device, err);
    return rc == 0 ? err_fail(err, ERR_NOT_FOUND, "no volume is mounted at %s", path) : rc;
}

/* The root directory of the mount, which may have changed since the look. */
static int open_root(const char *path, dev_t device, int flags, struct err *err)
{
    struct stat st;
    int rc = must_be_mounted(path, device, err);
    if (rc < 0)
        return rc;
    cleanup_fd int fd = open(path, flags | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s", path);
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot stat %s", path);
    return st.st_dev == device ? steal_fd(&fd) : fail_other(path, err);
}

int volume_fs_open(const char *path, dev_t device, struct err *err)
{
    return open_root(path, device, O_RDONLY, err);
}

/* Goes to the directory that the mount is in, and on no way that a symbolic link is on: who owns a
 * directory there could lead one look to our mount and the next one, which takes it away, to
 * another. 1; 0: there is no such directory. */
static int enter_parent(const char *path, const char **ret_at, struct err *err)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS};
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash || slash[1] == '\0')
        return err_fail(err, ERR_INVALID, "nothing of ours can be mounted at '%s'", path);
    (void)snprintf(parent, sizeof parent, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    cleanup_fd int fd = (int)syscall(SYS_openat2, AT_FDCWD, parent, &how, sizeof how);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    if (fd < 0 && errno == ELOOP) {
        int rc = err_fail(err, ERR_CONFLICT, "%s leads elsewhere now", path);
        err_hint(err, "a directory on the way has become a symbolic link");
        return rc;
    }
    if (fd < 0 || fchdir(fd) < 0)
        return err_errno(err, errno, "cannot enter %s", parent);
    *ret_at = slash + 1;
    return 1;
}

static int take_away(const struct fs_args *args, struct err *err)
{
    if (umount2(args->at, UMOUNT_NOFOLLOW | (args->flag ? MNT_DETACH : 0)) == 0)
        return 0;
    return errno == EBUSY ? err_fail(err, ERR_CONFLICT, "%s is in use", args->path)
                          : err_errno(err, errno, "cannot unmount %s", args->path);
}

/* Another mount of it, at no path, shows whether it was frozen just before, and is put back then:
 * nobody could thaw it any more. */
static int take_away_thawed(const struct fs_args *args, struct err *err)
{
    cleanup_fd int other =
        open_tree(AT_FDCWD, args->at,
                  OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT);
    if (other < 0)
        return err_errno(err, errno, "cannot unmount %s: cannot copy the mount", args->path);
    int rc = take_away(args, err);
    if (rc < 0)
        return rc;
    cleanup_fd int root = openat(other, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rc = root < 0 ? 0 : volume_frozen_look(root, args->device, NULL);
    if (rc <= 0)
        return 0; /* with the last descriptor of it the file system goes */
    if (move_mount(other, "", AT_FDCWD, args->at, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return err_errno(err, errno, "%s was frozen and is unmounted; cannot mount it again",
                         args->path);
    return volume_frozen_fail(args->path, err);
}

static int call_unmount(void *arg, void *result, int *ret_fd, struct err *err)
{
    struct fs_args *args = arg;
    (void)result;
    (void)ret_fd;
    int rc = enter_parent(args->path, &args->at, err);
    if (rc > 0)
        rc = look_mounted(args->at, args->path, args->device, err);
    if (rc <= 0)
        return rc;
    return args->flag ? take_away(args, err) : take_away_thawed(args, err);
}

int volume_fs_unmount(const char *path, dev_t device, bool lazy, int wait_ms, struct err *err)
{
    struct fs_args args = {.path = path, .device = device, .flag = lazy};
    return run("unmount a volume", wait_ms, call_unmount, &args, NULL, 0, err);
}

static int call_sync(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct fs_args *args = arg;
    (void)result;
    (void)ret_fd;
    cleanup_fd int fd = volume_fs_open(args->path, args->device, err);
    if (fd < 0)
        return fd;
    return syncfs(fd) < 0 ? err_errno(err, errno, "cannot sync %s", args->path) : 0;
}

int volume_fs_sync(const char *path, dev_t device, int wait_ms, struct err *err)
{
    struct fs_args args = {.path = path, .device = device};
    return run("sync a volume", wait_ms, call_sync, &args, NULL, 0, err);
}

/* What the kernel counts for the file system in sysfs; 0 where it does not. */
uint64_t volume_fs_errors(dev_t device)
{
    char path[96];
    char target[256];
    uint64_t count = 0;
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u", major(device), minor(device));
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n <= 0)
        return 0;
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    snprintf(path, sizeof path, "/sys/fs/ext4/%.32s/errors_count", slash ? slash + 1 : target);
    cleanup_file FILE *file = fopen(path, "re");
    return file && fscanf(file, "%" SCNu64, &count) == 1 ? count : 0;
}

static int call_space(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct fs_args *args = arg;
    (void)ret_fd;
    cleanup_fd int fd = open_root(args->path, args->device, O_PATH, err);
    if (fd < 0)
        return fd;
    return fstatfs(fd, result) < 0
               ? err_errno(err, errno, "cannot ask %s for its space", args->path)
               : 0;
}

static struct volume_fs_space space_of(const struct statfs *fs)
{
    uint64_t unit = (uint64_t)fs->f_frsize;
    return (struct volume_fs_space){.size = (uint64_t)fs->f_blocks * unit,
                                    .used = (uint64_t)(fs->f_blocks - fs->f_bfree) * unit,
                                    .free = (uint64_t)fs->f_bavail * unit,
                                    .inodes = (uint64_t)fs->f_files,
                                    .inodes_used = (uint64_t)(fs->f_files - fs->f_ffree),
                                    .read_only = ((unsigned long)fs->f_flags & ST_RDONLY) != 0};
}

int volume_fs_space(const char *path, dev_t device, struct volume_fs_space *ret, struct err *err)
{
    struct statfs fs;
    struct fs_args args = {.path = path, .device = device};
    int rc = run("ask a volume for its space", LOOK_MS, call_space, &args, &fs, sizeof fs, err);
    if (rc < 0)
        return rc;
    *ret = space_of(&fs);
    return 0;
}

/* deadline_child_item */
static int call_each_space(void *arg, size_t i, void *result)
{
    const struct volume_fs_place *places = arg;
    struct fs_args args = {.path = places[i].path, .device = places[i].device};
    int no_fd = -1;
    return call_space(&args, result, &no_fd, NULL);
}

int volume_fs_spaces(const struct volume_fs_place *places, size_t count,
                     struct volume_fs_space *ret, bool *ret_known, struct err *err)
{
    static const struct deadline_child child = {.what = "ask volumes for their space",
                                                .wait_ms = EACH_MS};
    cleanup_free const char **objects = calloc(count + 1, sizeof *objects);
    cleanup_free struct statfs *fs = calloc(count + 1, sizeof *fs);
    cleanup_free int *rcs = calloc(count + 1, sizeof *rcs);
    if (!objects || !fs || !rcs)
        return err_errno(err, ENOMEM, "cannot %s", child.what);
    for (size_t i = 0; i < count; i++)
        objects[i] = places[i].path;
    int rc = deadline_child_each(&child, objects, count, call_each_space, (void *)places, fs,
                                 sizeof *fs, rcs, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < count; i++) {
        ret_known[i] = rcs[i] >= 0;
        if (ret_known[i])
            ret[i] = space_of(&fs[i]);
    }
    return 0;
}

static int call_trim(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct fs_args *args = arg;
    struct fstrim_range range = {.start = args->from, .len = args->len};
    (void)ret_fd;
    cleanup_fd int fd = volume_fs_open(args->path, args->device, err);
    if (fd < 0)
        return fd;
    if (ioctl(fd, FITRIM, &range) < 0)
        return errno == EOPNOTSUPP
                   ? err_fail(err, ERR_UNSUPPORTED, "the device of %s discards nothing", args->path)
                   : err_errno(err, errno, "cannot trim %s", args->path);
    uint64_t trimmed = range.len;
    memcpy(result, &trimmed, sizeof trimmed);
    return 0;
}

int volume_fs_trim(const char *path, dev_t device, uint64_t from, uint64_t len, int wait_ms,
                   uint64_t *ret, struct err *err)
{
    struct fs_args args = {.path = path, .device = device, .from = from, .len = len};
    return run("trim a volume", wait_ms, call_trim, &args, ret, sizeof *ret, err);
}

/* As in fs/ext4/ext4.h. */
struct ext4_fsuuid {
    uint32_t len;
    uint32_t flags;
    uint8_t uuid[VOLUME_UUID_LEN];
};
struct ext4_fsuuid_head {
    uint32_t len;
    uint32_t flags;
};
#define EXT4_IOC_SETFSUUID _IOW('f', 44, struct ext4_fsuuid_head)
#ifndef EXT4_IOC_CHECKPOINT
#define EXT4_IOC_CHECKPOINT _IOW('f', 43, uint32_t)
#endif

static int call_set_uuid(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct fs_args *args = arg;
    struct ext4_fsuuid fsuuid = {.len = VOLUME_UUID_LEN};
    (void)result;
    (void)ret_fd;
    memcpy(fsuuid.uuid, args->uuid, sizeof fsuuid.uuid);
    cleanup_fd int fd = volume_fs_open(args->path, args->device, err);
    if (fd < 0)
        return fd;
    uint32_t flags = 0;
    /* The journal is written home, so that no copy of the device has one UUID in its superblock and
     * the other one in its journal. */
    if (ioctl(fd, EXT4_IOC_SETFSUUID, &fsuuid) == 0)
        return ioctl(fd, EXT4_IOC_CHECKPOINT, &flags) < 0
                   ? err_errno(err, errno, "cannot write the journal of %s home", args->path)
                   : 0;
    if (errno == ENOTTY || errno == EOPNOTSUPP)
        return err_fail(err, ERR_UNSUPPORTED, "the kernel cannot change the UUID of %s",
                        args->path);
    return err_errno(err, errno, "cannot change the UUID of the file system at %s", args->path);
}

int volume_fs_set_uuid(const char *path, dev_t device, const uint8_t uuid[VOLUME_UUID_LEN],
                       int wait_ms, struct err *err)
{
    struct fs_args args = {.path = path, .device = device, .uuid = uuid};
    return run("give a volume its UUID", wait_ms, call_set_uuid, &args, NULL, 0, err);
}

static int call_shutdown(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct fs_args *args = arg;
    uint32_t flag = GOING_DEFAULT;
    (void)result;
    (void)ret_fd;
    cleanup_fd int fd = volume_fs_open(args->path, args->device, err);
    if (fd < 0)
        return fd;
    /* The default freezes the device for the time of the call, and where the file system is frozen
     * already, Linux 6.18 leaves it so for ever: nothing on it can be mounted again. All that was
     * written is on it then. */
    if (volume_frozen_look(fd, args->device, NULL) > 0)
        flag = GOING_NOLOGFLUSH;
    return ioctl(fd, EXT4_IOC_SHUTDOWN, &flag) < 0
               ? err_errno(err, errno, "cannot shut down the file system at %s", args->path)
               : 0;
}

int volume_fs_shutdown(const char *path, dev_t device, int wait_ms, struct err *err)
{
    struct fs_args args = {.path = path, .device = device};
    return run("shut down a volume", wait_ms, call_shutdown, &args, NULL, 0, err);
}
