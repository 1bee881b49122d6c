#include "loop_device.h"

#include "cleanup.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

enum {
    TRIES = 100, /* others may take a free device first */
    PAUSE_MS = 2,
    SECTOR = 512, /* unit of sizes in sysfs */
    LOOP_MAJOR = 7,
};
#define CONTROL "/dev/loop-control"

/* Of a node of /dev that cannot be opened. */
static int fail_open(const char *path, int num, struct err *err)
{
    if (num == ENOENT || num == ENXIO || num == ENODEV) {
        int rc = err_fail(err, ERR_UNSUPPORTED, "there is no %s", path);
        if (strcmp(path, CONTROL) == 0)
            err_hint(err, "load the kernel module loop; in a container, give it loop devices");
        else
            err_hint(err, "the kernel has the device, so mount devtmpfs on /dev or make the node");
        return rc;
    }
    int rc = err_errno(err, num, "cannot open %s", path);
    if (num == EACCES || num == EPERM)
        err_hint(err, "in a container, allow it loop devices (block 7:*, character 10:237)");
    return rc;
}

int loop_device_open(int number, bool write, struct err *err)
{
    char path[LOOP_DEVICE_PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "/dev/loop%d", number);
    cleanup_fd int fd = open(path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return fail_open(path, errno, err);
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot stat %s", path);
    if (!S_ISBLK(st.st_mode) || major(st.st_rdev) != LOOP_MAJOR)
        return err_fail(err, ERR_UNSUPPORTED, "%s is not a loop device", path);
    return steal_fd(&fd);
}

/* Reads /sys/block/loopN/NAME as one line. 0 or -errno. */
static int read_attr(int number, const char *name, char *ret, size_t size)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/block/loop%d/%s", number, name);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, ret, size - 1);
    if (n < 0)
        return -errno;
    if (n > 0 && ret[n - 1] == '\n')
        n--;
    ret[n] = '\0';
    return 0;
}

static int read_flag(int number, const char *name, bool *ret)
{
    char text[8];
    int rc = read_attr(number, name, text, sizeof text);
    if (rc == 0)
        *ret = text[0] == '1';
    return rc;
}

int loop_device_look(int number, struct loop_device *ret, struct err *err)
{
    struct loop_device loop = {.number = number};
    char text[32];
    unsigned dev_major = 0;
    unsigned dev_minor = 0;
    uint64_t sectors = 0;
    snprintf(loop.path, sizeof loop.path, "/dev/loop%d", number);
    int rc = read_attr(number, "loop/backing_file", loop.backing, sizeof loop.backing);
    if (rc == 0)
        rc = read_attr(number, "dev", text, sizeof text);
    if (rc == 0 && sscanf(text, "%u:%u", &dev_major, &dev_minor) != 2)
        rc = -EBADMSG;
    if (rc == 0)
        rc = read_attr(number, "size", text, sizeof text);
    if (rc == 0 && sscanf(text, "%" SCNu64, &sectors) != 1)
        rc = -EBADMSG;
    if (rc == 0)
        rc = read_flag(number, "ro", &loop.read_only);
    if (rc == 0)
        rc = read_flag(number, "loop/autoclear", &loop.autoclear);
    if (rc == 0)
        rc = read_flag(number, "loop/dio", &loop.direct);
    /* The folder `loop` leaves with the backing file, and then its files say ENODEV. */
    if (rc == -ENOENT || rc == -ENODEV || rc == -ENXIO)
        return err_fail(err, ERR_NOT_FOUND, "%s has no backing file", loop.path);
    if (rc < 0)
        return err_errno(err, rc, "cannot read what %s is", loop.path);
    loop.device = makedev(dev_major, dev_minor);
    loop.size = sectors * SECTOR;
    *ret = loop;
    return 0;
}

/* The number in "loop12"; -1 for another name. */
static int number_of(const char *name)
{
    char *end;
    if (strncmp(name, "loop", 4) != 0 || !isdigit((unsigned char)name[4]))
        return -1;
    errno = 0;
    long number = strtol(name + 4, &end, 10);
    return errno == 0 && *end == '\0' && number <= 1 << 20 ? (int)number : -1;
}

int loop_device_number(const char *path, struct err *err)
{
    static const char dev[] = "/dev/";
    int number = strncmp(path, dev, sizeof dev - 1) == 0 ? number_of(path + sizeof dev - 1) : -1;
    return number >= 0 ? number : err_fail(err, ERR_INVALID, "'%s' is no loop device", path);
}

/* One file of sysfs instead of six, for the many devices that are others'. What cannot be read now
 * is told by who looks at all of it. */
static bool is_below(int number, const char *prefix)
{
    char backing[LOOP_DEVICE_BACKING_MAX];
    return read_attr(number, "loop/backing_file", backing, sizeof backing) < 0 ||
           strncmp(backing, prefix, strlen(prefix)) == 0;
}

int loop_device_each(const char *prefix, loop_device_take *take, void *arg, struct err *err)
{
    cleanup_dir DIR *dir = opendir("/sys/block");
    if (!dir)
        return err_errno(err, errno, "cannot list block devices in /sys/block");
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry)
            return errno ? err_errno(err, errno, "cannot list block devices") : 0;
        int number = number_of(entry->d_name);
        struct loop_device loop;
        struct err failure = ERR_INIT;
        if (number < 0 || !is_below(number, prefix))
            continue;
        int rc = loop_device_look(number, &loop, &failure);
        if (rc < 0 && failure.code == ERR_NOT_FOUND)
            continue;
        if (rc == 0)
            rc = take(arg, &loop, &failure);
        if (rc < 0)
            return err_pass(err, rc, &failure);
    }
}

/* Configures a device: 0, -EBUSY when somebody else was faster, or -errno. */
static int configure(int device, int file_fd, const struct loop_device_options *options)
{
    struct loop_config config = {
        .fd = (uint32_t)file_fd,
        .block_size = LOOP_DEVICE_BLOCK,
        .info = {.lo_flags = (options->read_only ? LO_FLAGS_READ_ONLY : 0U) |
                             (options->autoclear ? LO_FLAGS_AUTOCLEAR : 0U) |
                             (options->direct != LOOP_DEVICE_BUFFERED ? LO_FLAGS_DIRECT_IO : 0U)}};
    snprintf((char *)config.info.lo_file_name, LO_NAME_SIZE, "%s",
             options->name ? options->name : "");
    if (ioctl(device, LOOP_CONFIGURE, &config) == 0)
        return 0;
    if (errno == EBUSY || options->direct != LOOP_DEVICE_DIRECT_WANTED)
        return -errno;
    /* The file's file system may have no direct I/O, or not for blocks of this size. */
    config.info.lo_flags &= ~(uint32_t)LO_FLAGS_DIRECT_IO;
    return ioctl(device, LOOP_CONFIGURE, &config) == 0 ? 0 : -errno;
}

static int fail_configure(const char *path, int num, struct err *err)
{
    int rc = num == -ENOTTY || num == -EINVAL
                 ? err_fail(err, ERR_UNSUPPORTED, "cannot set up %s for this file: %s", path,
                            num == -ENOTTY ? "this kernel has no LOOP_CONFIGURE (Linux 5.8)"
                                           : "the kernel refuses block size or file")
                 : err_errno(err, num, "cannot set up %s", path);
    if (num == -EACCES || num == -EPERM)
        err_hint(err, "in a container, allow it loop devices (block 7:*)");
    return rc;
}

/* What was asked for and what has become of it. */
static int check(const struct loop_device *loop, const struct loop_device_options *options,
                 struct err *err)
{
    if (options->direct == LOOP_DEVICE_DIRECT_REQUIRED && !loop->direct) {
        int rc = err_fail(err, ERR_UNSUPPORTED,
                          "the kernel does not use direct I/O on %s, though it was asked to",
                          loop->path);
        err_hint(err, "the file lies on a file system without direct I/O in blocks of %d bytes",
                 LOOP_DEVICE_BLOCK);
        return rc;
    }
    if (loop->read_only != options->read_only || loop->autoclear != options->autoclear)
        return err_fail(err, ERR_UNSUPPORTED, "the kernel did not set up %s as it was told to",
                        loop->path);
    return 0;
}

/* Opens and configures a free device. Returns a descriptor or -errno; *ret_busy says that another
 * one may be free. */
static int take_free(int control, int file_fd, const struct loop_device_options *options,
                     struct loop_device *ret, bool *ret_busy, struct err *err)
{
    char path[LOOP_DEVICE_PATH_MAX];
    *ret_busy = false;
    int number = ioctl(control, LOOP_CTL_GET_FREE);
    if (number < 0)
        return err_errno(err, errno, "cannot find a free loop device");
    snprintf(path, sizeof path, "/dev/loop%d", number);
    cleanup_fd int device = loop_device_open(number, !options->read_only, err);
    if (device < 0)
        return device;
    int rc = configure(device, file_fd, options);
    *ret_busy = rc == -EBUSY;
    if (rc < 0)
        return *ret_busy ? rc : fail_configure(path, rc, err);
    struct loop_device loop;
    rc = loop_device_look(number, &loop, err);
    if (rc == 0)
        rc = check(&loop, options, err);
    if (rc < 0) {
        (void)ioctl(device, LOOP_CLR_FD);
        return rc;
    }
    *ret = loop;
    return steal_fd(&device);
}

int loop_device_attach(int file_fd, const struct loop_device_options *options,
                       struct loop_device *ret, struct err *err)
{
    cleanup_fd int control = open(CONTROL, O_RDWR | O_CLOEXEC);
    if (control < 0)
        return fail_open(CONTROL, errno, err);
    for (int i = 0; i < TRIES; i++) {
        bool busy;
        int device = take_free(control, file_fd, options, ret, &busy, err);
        if (!busy)
            return device;
        (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    }
    return err_fail(err, ERR_CONFLICT, "every loop device that is free was taken by others");
}

/* Writes /sys/block/loopN/queue/NAME. Not created, not truncated: it is no file. */
static bool write_attr(int number, const char *name, const char *text)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/block/loop%d/queue/%s", number, name);
    cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

/* Writes a number and reads back whether it is so. */
static bool set_number(int number, const char *name, unsigned value)
{
    char text[16];
    char path[48];
    char found[16] = "";
    snprintf(text, sizeof text, "%u", value);
    snprintf(path, sizeof path, "queue/%s", name);
    return write_attr(number, name, text) && read_attr(number, path, found, sizeof found) == 0 &&
           strcmp(found, text) == 0;
}

/* The kernel takes any word; the one in force stands in brackets. */
static bool set_scheduler(int number, const char *name)
{
    char wanted[40];
    char found[256] = "";
    snprintf(wanted, sizeof wanted, "[%.32s]", name);
    return write_attr(number, "scheduler", name) &&
           read_attr(number, "queue/scheduler", found, sizeof found) == 0 && strstr(found, wanted);
}

int loop_device_tune(int number, const struct loop_device_queue *queue)
{
    int failed = 0;
    /* The scheduler first: a change of it sets the number of requests anew. */
    if (queue->scheduler && !set_scheduler(number, queue->scheduler))
        failed++;
    if (queue->requests > 0 && !set_number(number, "nr_requests", queue->requests))
        failed++;
    if (queue->max_kb > 0 && !set_number(number, "max_sectors_kb", queue->max_kb))
        failed++;
    if (queue->others > 0 && !set_number(number, "iosched/async_depth", queue->others))
        failed++;
    return failed;
}

int loop_device_grow(int device_fd, uint64_t *ret, struct err *err)
{
    uint64_t size;
    if (ioctl(device_fd, LOOP_SET_CAPACITY) < 0)
        return err_errno(err, errno, "cannot give the loop device the new size of its file");
    if (ioctl(device_fd, BLKGETSIZE64, &size) < 0)
        return err_errno(err, errno, "cannot read the size of the loop device");
    *ret = size;
    return 0;
}

int loop_device_clear(int device_fd, struct err *err)
{
    if (ioctl(device_fd, LOOP_CLR_FD) < 0 && errno != ENXIO)
        return err_errno(err, errno, "cannot detach the loop device from its file");
    return 0;
}
