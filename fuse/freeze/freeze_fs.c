/* A mounted file system, by FIFREEZE. */
#include "freeze_ops.h"

#include "mountinfo.h"
#include "volume_frozen.h"
#include "volume_fs.h"

#include <errno.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

static int fs_open(const struct freeze_record *record, int *ret_fd, struct err *err)
{
    int fd = volume_fs_open(record->path, record->device, err);
    if (fd < 0)
        return fd;
    *ret_fd = fd;
    return 0;
}

/* Of the file system, whatever the mount at its path is. Waits for nobody, and nothing is tried on
 * it: a freeze of one that is read-only cannot be told from somebody else's. */
static int is_unwritable(const struct freeze_record *record, struct err *err)
{
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    int rc = mountinfo_open("self", &info, err);
    while (rc == 0 && (rc = mountinfo_next(&info, &entry, err)) > 0) {
        if (makedev(entry.dev_major, entry.dev_minor) == record->device)
            return mountinfo_has_option(entry.super_options, "ro");
        rc = 0;
    }
    return rc < 0 ? rc : err_fail(err, ERR_NOT_FOUND, "nothing is mounted at %s", record->path);
}

static int fs_look(const struct freeze_record *record, int fd, struct err *err)
{
    int rc = is_unwritable(record, err);
    if (rc != 0)
        return rc < 0 ? rc : FREEZE_UNWRITABLE;
    rc = volume_frozen_look(fd, record->device, err);
    return rc > 0 ? FREEZE_BY_OTHERS : rc;
}

static int fs_freeze(const struct freeze_record *record, int fd, int64_t until_ns, struct err *err)
{
    (void)until_ns; /* nothing interrupts it */
    if (ioctl(fd, FIFREEZE, 0) == 0)
        return 0;
    return errno == EBUSY
               ? FREEZE_BY_OTHERS
               : err_errno(err, errno, "cannot freeze what is mounted at %s", record->path);
}

static int fs_stands(const struct freeze_record *record, int fd, bool others, struct err *err)
{
    int rc = others ? fs_look(record, fd, err) : 1;
    return rc == 0 ? freeze_record_fail_gone(err) : rc < 0 ? rc : 0;
}

static int fs_thaw(const struct freeze_record *record, int fd, enum freeze_state state, bool again,
                   bool *ret_gone, struct err *err)
{
    (void)state, (void)again;
    if (ioctl(fd, FITHAW, 0) == 0)
        return 0;
    if (errno != EINVAL)
        return err_errno(err, errno, "cannot thaw what is mounted at %s", record->path);
    *ret_gone = true;
    return 0;
}

const struct freeze_ops freeze_fs = {
    .open = fs_open, .look = fs_look, .freeze = fs_freeze, .stands = fs_stands, .thaw = fs_thaw};
