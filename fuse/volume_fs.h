/* volume_fs.h - the ext4 on a volume's loop device: mount, unmount, sync, check, grow, trim, shut
 * down.
 *
 * Each of these waits for the device, hence for the worker, which may be stopped. So all of them
 * run in a child process with a deadline of `wait_ms` (deadline_child.h), and say with
 * ERR_UNREACHABLE that the time is over. What was begun then may still happen later, so a caller
 * that goes on looks first (volume_fs_mounted() never waits); only a mount does not appear later.
 *
 * Functions with `path` and `device` do nothing to what is mounted at the path unless it is
 * a file system on this device: ERR_NOT_FOUND when nothing is mounted there, ERR_CONFLICT when it
 * is something else.
 */
#pragma once

#include "err.h"
#include "ext4_super.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    VOLUME_FS_TEXT_MAX = 1024,
};

/* ext4_super_read() of a device. */
int volume_fs_look(const char *device_path, const uint8_t uuid[VOLUME_UUID_LEN], uint64_t size,
                   int wait_ms, struct ext4_super *ret, struct err *err);

/* e2fsck -p. 0: nothing to do, the journal replayed perhaps. 1: something was mended, `ret_said`
 * tells what. ERR_DAMAGED: it takes a person (e2fsck's status has 4); ERR_CONFLICT: the device is
 * in use. */
int volume_fs_check(const char *device_path, int wait_ms, char ret_said[VOLUME_FS_TEXT_MAX],
                    struct err *err);

/* Mounts the device at `path` (absolute, a directory, no symbolic link anywhere), nosuid, nodev,
 * noatime, errors=remount-ro, and reads back that it is so. `read_only`: the mount and the file
 * system in it; a journal is replayed all the same. Something mounted at `path` is ERR_CONFLICT. */
int volume_fs_mount(const char *device_path, const char *path, bool read_only, int wait_ms,
                    struct err *err);
/* Whether the topmost mount at `path` is a file system on the device: 1; 0 when nothing is mounted
 * there or there is no such path; ERR_CONFLICT for another one. Never waits for the device. */
int volume_fs_mounted(const char *path, dev_t device, struct err *err);
/* ERR_CONFLICT: it is in use (volume_holders.h says by whom). `lazy` as in volume_mount_remove().
 * Nothing mounted is no failure. */
int volume_fs_unmount(const char *path, dev_t device, bool lazy, int wait_ms, struct err *err);
/* syncfs(2). */
int volume_fs_sync(const char *path, dev_t device, int wait_ms, struct err *err);

struct volume_fs_space {
    uint64_t size; /* bytes */
    uint64_t used;
    uint64_t free;
    uint64_t inodes;
    uint64_t inodes_used;
    bool read_only; /* asked for, or because of an error */
};
int volume_fs_space(const char *path, dev_t device, int wait_ms, struct volume_fs_space *ret,
                    struct err *err);

/* Grows the mounted file system to `size` bytes of its device (EXT4_IOC_RESIZE_FS). It is larger or
 * as large already: nothing is done. */
int volume_fs_grow(const char *path, dev_t device, uint64_t size, int wait_ms, struct err *err);
/* FITRIM over a range of the device's bytes; how many were discarded in *ret. */
int volume_fs_trim(const char *path, dev_t device, uint64_t from, uint64_t len, int wait_ms,
                   uint64_t *ret, struct err *err);
/* EXT4_IOC_SHUTDOWN with the default flag: what was written is kept, later writes fail with EIO.
 * One that is shut down already is no failure. */
int volume_fs_shutdown(const char *path, dev_t device, int wait_ms, struct err *err);
