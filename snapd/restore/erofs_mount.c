#include "erofs_mount.h"

#include "cleanup.h"
#include "erofs_mount_internal.h"
#include "mount_context.h"

#include <endian.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

enum {
    TRY_LOOP = 1, /* the kernel cannot mount from this file */
    SUPERBLOCK_AT = 1024,
    SUPERBLOCK_BYTES = 128,
};
#define EROFS_MAGIC 0xE0F5E1E2U

static int fail_mount(int context, int num, struct err *err)
{
    char messages[MOUNT_CONTEXT_TEXT_MAX];
    mount_context_messages(context, messages);
    int rc = messages[0] == '\0'
                 ? err_errno(err, num, "the kernel refused the layer image")
                 : err_errno(err, num, "the kernel refused the layer image: %s", messages);
    err_hint(err, "the kernel log may say more");
    return rc;
}

/* A mount with a file or a device as its source. Returns a descriptor, TRY_LOOP with err untouched
 * (when `may_retry`), or -errno. */
static int mount_source(const char *source, bool may_retry, int *ret, struct err *err)
{
    cleanup_fd int context = fsopen("erofs", FSOPEN_CLOEXEC);
    if (context < 0 && errno == ENODEV) {
        int rc = err_fail(err, ERR_UNSUPPORTED, "this kernel has no file system erofs");
        err_hint(err, "load the kernel module erofs");
        return rc;
    }
    if (context < 0)
        return err_errno(err, errno, "cannot use the file system erofs");
    if (fsconfig(context, FSCONFIG_SET_STRING, "source", source, 0) < 0 ||
        fsconfig(context, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0)
        return fail_mount(context, errno, err);
    if (fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0) {
        /* EINVAL: a file whose file system has no page cache, or a damaged image; the loop device
         * finds out which. */
        if (may_retry && (errno == ENOTBLK || errno == EINVAL || errno == EOPNOTSUPP))
            return TRY_LOOP;
        return fail_mount(context, errno, err);
    }
    int fd =
        fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID);
    if (fd < 0)
        return fail_mount(context, errno, err);
    *ret = fd;
    return 0;
}

static int mount_file(int image_fd, bool may_retry, int *ret, struct err *err)
{
    char source[MOUNT_CONTEXT_VALUE_MAX + 1];
    mount_context_path(image_fd, source);
    return mount_source(source, may_retry, ret, err);
}

/* The mount keeps the device; when there is none, closing it here frees it. */
static int mount_loop(int image_fd, int *ret, struct err *err)
{
    char path[32];
    cleanup_fd int device = erofs_mount_loop(image_fd, path, err);
    return device < 0 ? device : mount_source(path, false, ret, err);
}

/* Whether it is what was asked for. */
static int check_mount(int root_fd, struct err *err)
{
    const unsigned long wanted = ST_RDONLY | ST_NODEV | ST_NOSUID;
    struct statfs fs;
    if (fstatfs(root_fd, &fs) < 0)
        return err_errno(err, errno, "cannot stat the mounted layer image");
    if ((uint32_t)fs.f_type != EROFS_MAGIC)
        return err_fail(err, ERR_INTERNAL, "the layer image was mounted as another file system");
    if (((unsigned long)fs.f_flags & wanted) != wanted)
        return err_fail(err, ERR_UNSUPPORTED,
                        "the kernel did not mount the layer image read-only, nodev and nosuid");
    return 0;
}

#ifdef VARVE_FAULT_POINTS
static enum erofs_mount_way wanted_way(void)
{
    const char *way = getenv("VARVE_EROFS_WAY");
    if (way && strcmp(way, "loop") == 0)
        return EROFS_MOUNT_LOOP;
    return way && strcmp(way, "file") == 0 ? EROFS_MOUNT_FILE : EROFS_MOUNT_ANY;
}
#else
static enum erofs_mount_way wanted_way(void)
{
    return EROFS_MOUNT_ANY;
}
#endif

int erofs_mount_by(int image_fd, enum erofs_mount_way way, struct err *err)
{
    cleanup_fd int fd = -1;
    int rc = TRY_LOOP;
    if (way != EROFS_MOUNT_LOOP)
        rc = mount_file(image_fd, way == EROFS_MOUNT_ANY, &fd, err);
    if (rc == TRY_LOOP)
        rc = mount_loop(image_fd, &fd, err);
    if (rc == 0)
        rc = check_mount(fd, err);
    return rc < 0 ? rc : steal_fd(&fd);
}

int erofs_mount_detached(int image_fd, struct err *err)
{
    cleanup_fd int mount = erofs_mount_by(image_fd, wanted_way(), err);
    if (mount < 0)
        return mount;
    /* What fsmount(2) gives is good for paths alone. The mount leaves with it, but a directory that
     * is open stays what it is. */
    int fd = openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? err_errno(err, errno, "cannot open the mounted layer image") : fd;
}

int erofs_mount_attach(int image_fd, int target_fd, struct err *err)
{
    cleanup_fd int fd = erofs_mount_by(image_fd, wanted_way(), err);
    if (fd < 0)
        return fd;
    if (move_mount(fd, "", target_fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return err_errno(err, errno, "cannot attach the mounted layer image");
    return 0;
}

static uint32_t get32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

static uint64_t get64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

/* How the kernel folds a UUID into the 64 bits of statfs(2). */
static uint64_t fsid_of(const uint8_t uuid[16])
{
    return get64(uuid) ^ get64(uuid + 8);
}

int erofs_mount_is_of(int root_fd, int image_fd, struct err *err)
{
    uint8_t super[SUPERBLOCK_BYTES];
    struct statfs fs;
    struct statx stx;
    if (fstatfs(root_fd, &fs) < 0 || statx(root_fd, "", AT_EMPTY_PATH, STATX_TYPE, &stx) < 0)
        return err_errno(err, errno, "cannot stat what is mounted as a layer image");
    ssize_t n = pread(image_fd, super, sizeof super, SUPERBLOCK_AT);
    if (n < 0)
        return err_errno(err, errno, "cannot read the superblock of a layer image");
    if (n != sizeof super || get32(super) != EROFS_MAGIC)
        return err_fail(err, ERR_DAMAGED, "a layer image has no superblock");
    if (!(stx.stx_attributes & STATX_ATTR_MOUNT_ROOT) || check_mount(root_fd, NULL) < 0)
        return 0;
    uint64_t fsid;
    _Static_assert(sizeof fs.f_fsid == sizeof fsid, "f_fsid has 64 bits");
    memcpy(&fsid, &fs.f_fsid, sizeof fsid);
    /* The kernel writes the low half first. */
    fsid = le64toh(fsid);
    return fsid == fsid_of(super + 48) && fs.f_blocks == get32(super + 36) &&
           (uint64_t)(fs.f_files - fs.f_ffree) == get64(super + 16);
}
