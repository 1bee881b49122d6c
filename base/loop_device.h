/* loop_device.h - loop devices: the one owner of <linux/loop.h>.
 *
 * A device is taken free, configured in one step (LOOP_CONFIGURE, Linux 5.8) and read back, as the
 * kernel grants some wishes silently or not at all. Blocks have 4,096 bytes. With autoclear the
 * device goes away with its last user, so a crash leaves none behind; whoever wants to keep it
 * keeps the descriptor or a mount.
 *
 * Others may take a device between "this one is free" and its configuration; then the next one is
 * tried. A backing file is shown by the path that it has now, which is asked of nobody; whose file
 * that is, the caller knows.
 *
 * Opening a loop device reads nothing, but closing the last descriptor of one that was written to,
 * and every read, waits for its backing file.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    LOOP_DEVICE_BLOCK = 4096,
    LOOP_DEVICE_PATH_MAX = 32,
    LOOP_DEVICE_BACKING_MAX = 4096, /* a page of sysfs */
};

enum loop_device_direct {
    LOOP_DEVICE_BUFFERED,
    LOOP_DEVICE_DIRECT_WANTED,   /* direct I/O where the file can */
    LOOP_DEVICE_DIRECT_REQUIRED, /* ERR_UNSUPPORTED where it cannot */
};

struct loop_device_options {
    bool read_only;
    bool autoclear;
    enum loop_device_direct direct;
    const char *name; /* what `losetup -l` may show; at most 63 bytes; not for finding it again */
};

/* What sysfs says of a device; nobody is asked for it. */
struct loop_device {
    int number;
    char path[LOOP_DEVICE_PATH_MAX]; /* "/dev/loop3" */
    dev_t device;                    /* of the block device */
    uint64_t size;                   /* bytes */
    bool read_only;
    bool autoclear;
    bool direct;
    char backing[LOOP_DEVICE_BACKING_MAX]; /* path of the file now, as seen from here; ends in
                                              " (deleted)" for one without a name */
};

/* Attaches the file to a free device. Returns a descriptor of the device (the caller owns it), or
 * -errno. ERR_UNSUPPORTED with a hint: no loop devices here, or no direct I/O. ERR_DENIED. */
int loop_device_attach(int file_fd, const struct loop_device_options *options,
                       struct loop_device *ret, struct err *err);
/* N of "/dev/loopN". ERR_INVALID: it is no such path. */
int loop_device_number(const char *path, struct err *err);
/* Opens /dev/loopN (after a look at what the node is) for reading or for both. */
int loop_device_open(int number, bool write, struct err *err);
/* What device `number` is. ERR_NOT_FOUND: there is none, or it has no backing file. */
int loop_device_look(int number, struct loop_device *ret, struct err *err);

/* Calls `take` with every device that has a backing file whose path begins with `prefix` ("": all
 * that have one). Ends with the first failure of it. */
typedef int loop_device_take(void *arg, const struct loop_device *loop, struct err *err);
int loop_device_each(const char *prefix, loop_device_take *take, void *arg, struct err *err);

struct loop_device_queue {
    unsigned max_kb;       /* of one request; 0: as it is */
    unsigned requests;     /* that are under way at once; 0: as it is */
    const char *scheduler; /* "mq-deadline"; NULL: as it is */
    unsigned others;       /* of the requests, for all but reads that somebody waits for, so that
                              writes leave those a way; mq-deadline knows it; 0: as it is */
};
/* Sets the block queue of a device up, as far as the kernel and sysfs allow. Waits for requests
 * that are under way, so this belongs directly behind the attach. Returns how many of these could
 * not be set. The kernel keeps them for whoever gets the device next. */
int loop_device_tune(int number, const struct loop_device_queue *queue);

/* Takes over the new size of the backing file; the size that the device has then in *ret
 * (BLKGETSIZE64). Linux before 6.18 believes the size that it has cached for the file, so the
 * caller has the file looked at before. */
int loop_device_grow(int device_fd, uint64_t *ret, struct err *err);
/* Lets go of the backing file: at once, or, while others use the device, when the last one has
 * closed it. A device without one is no failure. */
int loop_device_clear(int device_fd, struct err *err);
