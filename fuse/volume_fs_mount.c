/* The mount of a volume's ext4.
 *
 * Whoever serves the device may answer each read with something else. So the superblock is looked
 * at where ext4 will find it: in the page cache of the device, in a page that is held there until
 * the mount is made. Blocks of the device have the size of ext4's, so ext4 does not have them read
 * again. What it has in memory afterwards is looked at too, before the mount gets its place. */
#include "volume_fs.h"

#include "cleanup.h"
#include "deadline_child.h"
#include "mount_context.h"
#include "mountinfo.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

/* After the headers of the C library, whose sys/mount.h has the same names as linux/mount.h. */
#include <sys/mount.h>

#define EXT4_MAGIC 0xef53U

static const char hint[] = "the volume's worker may be stopped";
static const char errors_option[] = "errors=remount-ro";

struct mount_args {
    const struct volume_fs_source *source;
    const char *path;
    bool read_only;
};

/* What the child tells. */
struct mounted {
    uint64_t id;  /* of the mount */
    dev_t device; /* of the file system */
};

static int fail_context(int context, int num, const struct mount_args *args, struct err *err)
{
    char messages[MOUNT_CONTEXT_TEXT_MAX];
    const char *device = args->source->device_path;
    mount_context_messages(context, messages);
    if (num == EBUSY)
        return err_fail(err, ERR_CONFLICT, "%s is in use, it cannot be mounted", device);
    return messages[0] == '\0' ? err_errno(err, num, "cannot mount %s", device)
                               : err_errno(err, num, "cannot mount %s: %s", device, messages);
}

const uint8_t *volume_fs_hold_first_block(const char *device_path, struct err *err)
{
    uint8_t byte;
    cleanup_fd int fd = open(device_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        (void)err_errno(err, errno, "cannot open %s", device_path);
        return NULL;
    }
    /* So that a failure is an error: reading through a mapping it would be a signal. */
    ssize_t n = pread(fd, &byte, 1, EXT4_SUPER_AT);
    void *block = n == 1 ? mmap(NULL, VOLUME_BLOCK, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (block == MAP_FAILED) {
        (void)err_errno(err, n == 0 ? EINVAL : errno, "cannot read the superblock of %s",
                        device_path);
        return NULL;
    }
    /* The call itself: AddressSanitizer's mlock() does nothing. Where it is refused, that the page
     * is in use keeps it as well, unless memory is short; then the second look decides. */
    (void)syscall(SYS_mlock, block, (size_t)VOLUME_BLOCK);
    return block;
}

/* The mount, attached nowhere. Returns a descriptor of it, or -errno. */
static int make_detached(const struct mount_args *args, struct err *err)
{
    unsigned attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME |
                          (args->read_only ? MOUNT_ATTR_RDONLY : 0U);
    cleanup_fd int context = fsopen("ext4", FSOPEN_CLOEXEC);
    if (context < 0 && errno == ENODEV)
        return err_fail(err, ERR_UNSUPPORTED, "this kernel has no file system ext4");
    if (context < 0)
        return err_errno(err, errno, "cannot use the file system ext4");
    if (fsconfig(context, FSCONFIG_SET_STRING, "source", args->source->device_path, 0) < 0 ||
        fsconfig(context, FSCONFIG_SET_STRING, "errors", "remount-ro", 0) < 0 ||
        (args->read_only && fsconfig(context, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0) ||
        fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return fail_context(context, errno, args, err);
    int fd = fsmount(context, FSMOUNT_CLOEXEC, attributes);
    return fd < 0 ? fail_context(context, errno, args, err) : fd;
}

/* The same between two looks at the superblock. */
static int make_looked_at(const struct mount_args *args, struct err *err)
{
    const struct volume_fs_source *source = args->source;
    struct ext4_super super;
    const uint8_t *block = volume_fs_hold_first_block(source->device_path, err);
    if (!block)
        return err->num ? -err->num : -EIO;
    /* The kernel gives a further mount of one that lives, and looks at no checksum for it. */
    int rc = volume_fs_lives(source->device_path)
                 ? ext4_super_check_mounted(block + EXT4_SUPER_AT, source->uuid, source->size,
                                            &super, err)
                 : ext4_super_check(block + EXT4_SUPER_AT, source->uuid, source->size, &super, err);
    cleanup_fd int mount = rc < 0 ? rc : make_detached(args, err);
    if (mount < 0)
        return mount;
    /* ext4's own by now, wherever it came from. */
    rc = ext4_super_check_mounted(block + EXT4_SUPER_AT, source->uuid, source->size, &super, err);
    return rc < 0 ? err_wrap(err, rc, "%s has shown the kernel something else than before",
                             source->device_path)
                  : steal_fd(&mount);
}

/* Whether it is what was asked for. */
static int check_mount(int mount_fd, const struct mount_args *args, struct mounted *ret,
                       struct err *err)
{
    const unsigned long wanted =
        ST_NOSUID | ST_NODEV | ST_NOATIME | (args->read_only ? (unsigned long)ST_RDONLY : 0UL);
    struct statfs fs;
    struct statx stx;
    if (fstatfs(mount_fd, &fs) < 0 ||
        statx(mount_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &stx) < 0)
        return err_errno(err, errno, "cannot stat the mounted volume");
    unsigned long found = (unsigned long)fs.f_flags;
    if ((uint32_t)fs.f_type != EXT4_MAGIC)
        return err_fail(err, ERR_INTERNAL, "the volume was mounted as another file system");
    if ((found & wanted) != wanted || (!args->read_only && (found & ST_RDONLY)))
        return err_fail(err, ERR_UNSUPPORTED,
                        "the kernel did not mount %s as it was told to (flags 0x%lx)",
                        args->source->device_path, found);
    *ret = (struct mounted){.id = stx.stx_mnt_id,
                            .device = makedev(stx.stx_dev_major, stx.stx_dev_minor)};
    return 0;
}

static int open_target(const char *path, struct err *err)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS};
    struct statx stx;
    cleanup_fd int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    if (fd < 0 && errno == ELOOP)
        return err_fail(err, ERR_INVALID, "there is a symbolic link in %s", path);
    if (fd < 0)
        return err_errno(err, errno, "cannot open the directory %s", path);
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &stx) < 0)
        return err_errno(err, errno, "cannot stat %s", path);
    if (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT)
        return err_fail(err, ERR_CONFLICT, "something is mounted at %s already", path);
    return steal_fd(&fd);
}

/* Where this is killed it is before the mount has a place, and it goes with the descriptor. */
static int call_mount(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct mount_args *args = arg;
    struct mounted mounted = {.id = 0};
    (void)ret_fd;
    cleanup_fd int target = open_target(args->path, err);
    if (target < 0)
        return target;
    cleanup_fd int mount = make_looked_at(args, err);
    int rc = mount < 0 ? mount : check_mount(mount, args, &mounted, err);
    if (rc < 0)
        return rc;
    if (move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return err_errno(err, errno, "cannot attach the mounted volume at %s", args->path);
    memcpy(result, &mounted, sizeof mounted);
    return 0;
}

/* What the file system does about errors: stands only in mountinfo. */
static int check_options(uint64_t id, const char *path, struct err *err)
{
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    int rc = mountinfo_open("self", &info, err);
    while (rc >= 0 && (rc = mountinfo_next(&info, &entry, err)) > 0) {
        if (entry.id != id)
            continue;
        if (mountinfo_has_option(entry.super_options, errors_option))
            return 0;
        return err_fail(err, ERR_UNSUPPORTED, "the kernel mounted %s without %s (options %.200s)",
                        path, errors_option, entry.super_options);
    }
    return rc < 0 ? rc : err_fail(err, ERR_INTERNAL, "the mount at %s is not listed", path);
}

int volume_fs_mount(const struct volume_fs_source *source, const char *path, bool read_only,
                    int wait_ms, struct err *err)
{
    struct mount_args args = {.source = source, .path = path, .read_only = read_only};
    struct mounted mounted;
    const struct deadline_child child = {
        .what = "mount a volume", .object = path, .wait_ms = wait_ms, .hint = hint};
    int rc = deadline_child_run(&child, call_mount, &args, &mounted, sizeof mounted, NULL, err);
    if (rc < 0)
        return rc;
    rc = check_options(mounted.id, path, err);
    if (rc < 0)
        (void)volume_fs_unmount(path, mounted.device, true, wait_ms, NULL);
    return rc;
}
