#include "overlay.h"

#include "cleanup.h"
#include "mountinfo.h"
#include "overlay_internal.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <time.h>

enum {
    /* A sandbox that just ended holds the mount until the kernel has taken its mount namespace
     * down, a little after the last process was reaped. */
    BUSY_TRIES = 50,
    BUSY_WAIT_MS = 20,
};

const struct overlay_option overlay_options[OVERLAY_OPTIONS] = {
    {"index", "off"},      {"metacopy", "off"}, {"redirect_dir", "off"},
    {"nfs_export", "off"}, {"xino", "on"},
};

static bool can_stand_in_option(const char *path, size_t max)
{
    return path[0] == '/' && strlen(path) <= max && strpbrk(path, ",:\\") == NULL;
}

void overlay_option_path(const char *path, int fd, size_t max, char ret[4096])
{
    if (can_stand_in_option(path, max))
        snprintf(ret, 4096, "%s", path);
    else
        snprintf(ret, 4096, "/proc/self/fd/%d", fd);
}

static int open_directory(const char *path, const char *what, struct err *err)
{
    if (path[0] != '/')
        return err_fail(err, ERR_INTERNAL, "the %s directory '%s' is not an absolute path", what,
                        path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot open the %s directory %s", what, path);
    return fd;
}

/* Upper and work directory must be on one filesystem that keeps trusted.* attributes, without
 * which a directory that replaces one of the image would show the old content again. Tried on the
 * work directory, whose attributes nobody sees. */
static int check_upper(const struct overlay_plan *plan, struct err *err)
{
    static const char probe[] = "trusted.varve.probe";
    const char *upper = plan->mount->upper;
    struct statfs fs;
    struct statx upper_stx;
    struct statx work_stx;
    if (fstatfs(plan->upper_fd, &fs) < 0 ||
        statx(plan->upper_fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &upper_stx) < 0 ||
        statx(plan->work_fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &work_stx) < 0)
        return err_errno(err, errno, "cannot stat the upper directory %s", upper);
    int rc = 0;
    if (fs.f_type == OVERLAYFS_SUPER_MAGIC)
        rc = err_fail(err, ERR_UNSUPPORTED,
                      "%s is on an overlay filesystem itself, which cannot hold the writable layer "
                      "of another one",
                      upper);
    else if (upper_stx.stx_mnt_id != work_stx.stx_mnt_id)
        rc = err_fail(err, ERR_INVALID, "%s and %s are not on the same mount", upper,
                      plan->mount->work);
    else if (fsetxattr(plan->work_fd, probe, "y", 1, 0) < 0)
        rc = err_errno(err, errno, "the filesystem of %s cannot hold trusted.* attributes", upper);
    else if (fremovexattr(plan->work_fd, probe) < 0)
        rc = err_errno(err, errno, "cannot remove an attribute from %s", plan->mount->work);
    if (rc < 0)
        err_hint(err, "put the data directory on ext4, xfs, btrfs or another filesystem of a disk");
    return rc;
}

/* What the kernel made of an option, when it shows it: it leaves out what is its default. */
static int check_option(const char *options, const struct overlay_option *option, struct err *err)
{
    size_t len = strlen(option->key);
    for (const char *at = options; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, option->key, len) != 0 || at[len] != '=')
            continue;
        const char *value = at + len + 1;
        size_t value_len = strcspn(value, ",");
        if (value_len != strlen(option->value) || memcmp(value, option->value, value_len) != 0)
            return err_fail(err, ERR_UNSUPPORTED, "the kernel mounted with %s=%.*s instead of %s",
                            option->key, (int)value_len, value, option->value);
    }
    return 0;
}

int overlay_check_entry(const struct mountinfo_entry *entry, struct err *err)
{
    if (strcmp(entry->type, "overlay") != 0)
        return err_fail(err, ERR_INTERNAL, "a filesystem of type %s lies there", entry->type);
    if (!mountinfo_has_option(entry->options, "rw") ||
        !mountinfo_has_option(entry->super_options, "rw"))
        return err_fail(err, ERR_UNSUPPORTED,
                        "the kernel mounted it read-only, as it does for an upper directory that "
                        "it cannot write to");
    if (!mountinfo_has_option(entry->options, "nodev"))
        return err_fail(err, ERR_UNSUPPORTED, "the kernel did not take the option nodev");
    for (size_t i = 0; i < OVERLAY_OPTIONS; i++) {
        int rc = check_option(entry->super_options, &overlay_options[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Reads back what the kernel made of the options (an idmapped upper, for one, mounts read-only
 * without an error). */
static int check_mount(const char *target, struct err *err)
{
    struct statx stx;
    if (statx(AT_FDCWD, target, AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, &stx) < 0)
        return err_errno(err, errno, "cannot stat %s", target);
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    int rc = mountinfo_open("self", &info, err);
    while (rc >= 0 && (rc = mountinfo_next(&info, &entry, err)) > 0)
        if (entry.id == stx.stx_mnt_id)
            return overlay_check_entry(&entry, err);
    if (rc < 0)
        return rc;
    return err_fail(err, ERR_INTERNAL, "the mount is not listed in /proc/self/mountinfo");
}

static int mount_planned(const struct overlay_plan *plan, enum overlay_way way, struct err *err)
{
    int rc = check_upper(plan, err);
    if (rc < 0)
        return rc;
    rc = way == OVERLAY_CLASSIC ? OVERLAY_TRY_CLASSIC : overlay_context_mount(plan, err);
    if (rc == OVERLAY_TRY_CLASSIC && way == OVERLAY_CONTEXT)
        return err_fail(err, ERR_UNSUPPORTED, "this kernel has no option lowerdir+");
    if (rc == OVERLAY_TRY_CLASSIC)
        rc = overlay_classic_mount(plan, err);
    if (rc < 0)
        return rc;
    rc = check_mount(plan->mount->target, err);
    if (rc < 0)
        (void)overlay_unmount(plan->mount->target, NULL);
    return rc;
}

int overlay_mount_by(const struct overlay_mount *mount, enum overlay_way way, struct err *err)
{
    if (mount->lower_count == 0)
        return err_fail(err, ERR_INTERNAL, "an overlay needs a lower directory");
    cleanup_fd int upper = open_directory(mount->upper, "upper", err);
    cleanup_fd int work = upper < 0 ? -1 : open_directory(mount->work, "work", err);
    cleanup_fd int target = work < 0 ? -1 : open_directory(mount->target, "target", err);
    int rc = upper < 0 ? upper : work < 0 ? work : target;
    struct overlay_plan plan = {
        .mount = mount, .upper_fd = upper, .work_fd = work, .target_fd = target};
    if (rc >= 0)
        rc = mount_planned(&plan, way, err);
    return rc < 0 ? err_wrap(err, rc, "cannot mount an overlay on %s", mount->target) : 0;
}

int overlay_mount(const struct overlay_mount *mount, struct err *err)
{
    return overlay_mount_by(mount, OVERLAY_ANY, err);
}

/* Fails when something is mounted below, which no waiting and no scan for processes would find. */
static int check_nothing_below(const char *target, struct err *err)
{
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    size_t len = strlen(target);
    int rc = mountinfo_open("self", &info, err);
    while (rc >= 0 && (rc = mountinfo_next(&info, &entry, err)) > 0) {
        if (strncmp(entry.point, target, len) != 0 || entry.point[len] != '/')
            continue;
        rc = err_fail(err, ERR_CONFLICT, "cannot unmount %s: %s is mounted below it", target,
                      entry.point);
        err_hint(err, "unmount %s first", entry.point);
    }
    return rc;
}

enum mounted {
    MOUNTED_NOTHING,
    MOUNTED_OVERLAY,
    MOUNTED_OTHER,
};

/* What the topmost mount at exactly this path is: an enum mounted, or -errno. */
static int look(const char *target, struct err *err)
{
    cleanup_fd int fd = open(target, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return MOUNTED_NOTHING;
    struct statx stx;
    struct statfs fs;
    if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &stx) < 0 || fstatfs(fd, &fs) < 0)
        return err_errno(err, errno, "cannot find out what is mounted on %s", target);
    if (!(stx.stx_attributes & STATX_ATTR_MOUNT_ROOT))
        return MOUNTED_NOTHING;
    return fs.f_type == OVERLAYFS_SUPER_MAGIC ? MOUNTED_OVERLAY : MOUNTED_OTHER;
}

int overlay_unmount(const char *target, struct err *err)
{
    for (int busy = 0; busy < BUSY_TRIES;) {
        int mounted = look(target, err);
        if (mounted < 0 || mounted == MOUNTED_NOTHING)
            return mounted;
        if (mounted == MOUNTED_OTHER)
            return err_fail(err, ERR_CONFLICT,
                            "cannot unmount %s: something that is not a run is mounted over it",
                            target);
        if (umount2(target, UMOUNT_NOFOLLOW) == 0)
            continue; /* another one may lie below it */
        if (errno != EBUSY)
            return err_errno(err, errno, "cannot unmount %s", target);
        int rc = check_nothing_below(target, err);
        if (rc < 0)
            return rc;
        busy++;
        nanosleep(&(struct timespec){.tv_nsec = BUSY_WAIT_MS * 1000000L}, NULL);
    }
    return err_fail(err, ERR_CONFLICT, "cannot unmount %s: it is in use", target);
}

int overlay_detach(const char *target, struct err *err)
{
    for (;;) {
        int mounted = look(target, err);
        if (mounted < 0 || mounted == MOUNTED_NOTHING)
            return mounted;
        if (umount2(target, UMOUNT_NOFOLLOW | MNT_DETACH) < 0)
            return err_errno(err, errno, "cannot unmount %s", target);
    }
}

int overlay_is_mounted(const char *target, struct err *err)
{
    int mounted = look(target, err);
    return mounted < 0 ? mounted : mounted == MOUNTED_OVERLAY;
}
