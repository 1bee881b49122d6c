/* A mounted file system, by FIFREEZE. */
#include "freeze_ops.h"

#include "volume_frozen.h"
#include "volume_fs.h"

#include <errno.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>

static int fs_open(const struct freeze_record *record, int *ret_fd, struct err *err)
{
    int fd = volume_fs_open(record->path, record->device, err);
    if (fd < 0)
        return fd;
    *ret_fd = fd;
    return 0;
}

/* To look at one that is read-only would freeze it; there the freeze itself tells. */
static int fs_is_others(const struct freeze_record *record, int fd, struct err *err)
{
    struct statvfs fs;
    if (fstatvfs(fd, &fs) < 0)
        return err_errno(err, errno, "cannot stat what is mounted at %s", record->path);
    return fs.f_flag & ST_RDONLY ? 0 : volume_frozen_look(fd, record->device, err);
}

static int fs_freeze(const struct freeze_record *record, int fd, int64_t until_ns, struct err *err)
{
    (void)until_ns; /* nothing interrupts it */
    if (ioctl(fd, FIFREEZE, 0) == 0)
        return 0;
    return errno == EBUSY
               ? 1
               : err_errno(err, errno, "cannot freeze what is mounted at %s", record->path);
}

static int fs_thaw(const struct freeze_record *record, int fd, struct err *err)
{
    if (ioctl(fd, FITHAW, 0) == 0)
        return 0;
    return errno == EINVAL
               ? 1
               : err_errno(err, errno, "cannot thaw what is mounted at %s", record->path);
}

const struct freeze_ops freeze_fs = {
    .open = fs_open, .is_others = fs_is_others, .freeze = fs_freeze, .thaw = fs_thaw};
