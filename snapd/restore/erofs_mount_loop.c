#include "cleanup.h"
#include "erofs_mount_internal.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

enum {
    TRIES = 100, /* others may take a free device first */
    PAUSE_MS = 2,
    BLOCK_BYTES = 4096,
    NAME_MAX_LOOP = LO_NAME_SIZE - 1,
};

/* Configures a device: 0, -EBUSY when somebody else was faster, or -errno. */
static int configure(int device, int image_fd)
{
    struct loop_config config = {
        .fd = (uint32_t)image_fd,
        .block_size = BLOCK_BYTES,
        .info = {.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO},
    };
    /* What losetup -l shows beside the file. */
    (void)strncpy((char *)config.info.lo_file_name, "varve layer", NAME_MAX_LOOP);
    if (ioctl(device, LOOP_CONFIGURE, &config) == 0)
        return 0;
    if (errno == EBUSY)
        return -EBUSY;
    /* The file's file system may have no direct I/O, or not for blocks of this size. */
    config.info.lo_flags &= ~(uint32_t)LO_FLAGS_DIRECT_IO;
    return ioctl(device, LOOP_CONFIGURE, &config) == 0 ? 0 : -errno;
}

/* Opens and configures a free device. Returns a descriptor or -errno; *ret_busy says that another
 * one may be free. */
static int take_free(int control, int image_fd, char ret_path[32], bool *ret_busy, struct err *err)
{
    int number = ioctl(control, LOOP_CTL_GET_FREE);
    if (number < 0)
        return err_errno(err, errno, "cannot find a free loop device");
    snprintf(ret_path, 32, "/dev/loop%d", number);
    cleanup_fd int device = open(ret_path, O_RDONLY | O_CLOEXEC);
    if (device < 0)
        return err_errno(err, errno, "cannot open %s", ret_path);
    int rc = configure(device, image_fd);
    *ret_busy = rc == -EBUSY;
    if (*ret_busy)
        return rc;
    return rc < 0 ? err_errno(err, rc, "cannot set up %s", ret_path) : steal_fd(&device);
}

int erofs_mount_loop(int image_fd, char ret_path[32], struct err *err)
{
    cleanup_fd int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0) {
        int rc = err_errno(err, errno, "cannot open /dev/loop-control");
        err_hint(err, "layer images need Linux 6.12 and a data directory that is no overlay, or "
                      "loop devices");
        return rc;
    }
    for (int i = 0; i < TRIES; i++) {
        bool busy = false;
        int device = take_free(control, image_fd, ret_path, &busy, err);
        if (!busy)
            return device;
        (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    }
    return err_fail(err, ERR_CONFLICT, "every loop device that is free was taken by others");
}
