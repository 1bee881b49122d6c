/* volume_fs.h - the ext4 on a volume's loop device: check, mount, unmount, sync, space, grow, trim,
 * shut down.
 *
 * All but the look at what is mounted and how much space there is wait for the device, hence for
 * the worker, which may be stopped. So they run in a child process with a deadline of `wait_ms`
 * (deadline_child.h), and say with ERR_UNREACHABLE that the time is over. What was begun then may
 * still happen later, so a caller that goes on looks first; only a mount does not appear later. A
 * sync, trim or shutdown that was left behind holds on to the mount; an unmount that was has taken
 * the name away already.
 *
 * Functions with `path` and `device` do nothing to what is mounted at the path unless it is a file
 * system on this device: ERR_NOT_FOUND when nothing is mounted there (or there is no such path),
 * ERR_CONFLICT when it is something else.
 *
 * e2fsck and resize2fs get no configuration of the host. One that was left behind keeps the device
 * claimed, so nothing is mounted under it.
 */
#pragma once

#include "err.h"
#include "ext4_super.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Whether there is an ext4 on this device, mounted anywhere: also in another mount namespace, or
 * nowhere any more but in use. What lives is never checked or grown by a program: it needs none,
 * and they would refuse it. */
bool volume_fs_lives(const char *device_path);
/* ext4_super_read() of a device (`uuid` may be NULL). 1: it lives, so the checksum, which ext4
 * changes under its feet, is not looked at; 0: it does not. */
int volume_fs_look(const char *device_path, const uint8_t uuid[VOLUME_UUID_LEN], uint64_t size,
                   int wait_ms, struct ext4_super *ret, struct err *err);

enum {
    VOLUME_FS_TEXT_MAX = 1024,
};
/* e2fsck -p. 0: nothing to do; a journal was replayed perhaps. 1: something was mended, and
 * `ret_said` tells what, in one line (it may be NULL). ERR_DAMAGED: it takes a person.
 * ERR_CONFLICT: the device is in use. ERR_UNSUPPORTED: e2fsck is not installed. */
int volume_fs_check(const char *device_path, int wait_ms, char ret_said[VOLUME_FS_TEXT_MAX],
                    struct err *err);

/* What is mounted, and what its superblock has to say. */
struct volume_fs_source {
    const char *device_path;
    uint8_t uuid[VOLUME_UUID_LEN];
    uint64_t size; /* bytes */
};
/* Mounts the device at `path` (absolute, a directory, no symbolic link anywhere), nosuid, nodev,
 * noatime, errors=remount-ro, and reads back that it is so. The superblock is looked at as by
 * volume_fs_look(), in the very memory that ext4 reads it from, and once more in the mounted file
 * system: whoever serves the device gets no other one mounted by showing it at the second read.
 * `read_only`: the mount and the file system in it; a journal is replayed all the same. Something
 * mounted at `path` is ERR_CONFLICT. */
int volume_fs_mount(const struct volume_fs_source *source, const char *path, bool read_only,
                    int wait_ms, struct err *err);
/* The first block of the device, mapped and locked until the process ends, or NULL: what is mounted
 * from it meanwhile has the superblock that is in it now. For calls of deadline children, which end
 * soon. */
const uint8_t *volume_fs_hold_first_block(const char *device_path, struct err *err);
/* Whether the topmost mount at `path` is a file system on the device: 1; 0 when nothing is mounted
 * there or there is no such path; ERR_CONFLICT for another one. Never waits for the device. */
int volume_fs_mounted(const char *path, dev_t device, struct err *err);
/* Opens the root directory of what volume_fs_mounted() finds; for calls of deadline children. */
int volume_fs_open(const char *path, dev_t device, struct err *err);
/* Takes the mount away, which writes what is not written yet; what fails then is told by
 * volume_fs_sync() alone, so that comes first. ERR_CONFLICT: it is in use (volume_holders.h says by
 * whom), or frozen, and stays mounted (volume_frozen.h). `lazy` as in volume_mount_remove(), and
 * then nobody looks whether it is frozen. Nothing mounted is no failure. */
int volume_fs_unmount(const char *path, dev_t device, bool lazy, int wait_ms, struct err *err);
/* Gives the mounted file system another UUID, everywhere in it (EXT4_IOC_SETFSUUID, Linux 6.0).
 * ERR_UNSUPPORTED: the kernel cannot. */
int volume_fs_set_uuid(const char *path, dev_t device, const uint8_t uuid[VOLUME_UUID_LEN],
                       int wait_ms, struct err *err);
/* syncfs(2). */
int volume_fs_sync(const char *path, dev_t device, int wait_ms, struct err *err);

struct volume_fs_space {
    uint64_t size; /* bytes, without ext4's own structures */
    uint64_t used;
    uint64_t free;
    uint64_t inodes;
    uint64_t inodes_used;
    bool read_only;
};
/* Never waits for the device, but for what lies above the path it may. */
int volume_fs_space(const char *path, dev_t device, struct volume_fs_space *ret, struct err *err);

/* How many errors the kernel has noted in the ext4 that lives on the device; e2fsck sets that back.
 * Asks nobody who may not answer. */
uint64_t volume_fs_errors(dev_t device);

struct volume_fs_place {
    const char *path;
    dev_t device;
};
/* The same of many, by one child (deadline_child_each()). ret_known[i] says whether it is known. */
int volume_fs_spaces(const struct volume_fs_place *places, size_t count,
                     struct volume_fs_space *ret, bool *ret_known, struct err *err);

/* Grows the mounted file system to `size` bytes of its device (as large already is no failure).
 * ERR_DENIED: the kernel wants CAP_SYS_RESOURCE for it; unmounted it can be grown. */
int volume_fs_grow(const char *path, dev_t device, uint64_t size, int wait_ms, struct err *err);
/* Grows the file system of a device that is not mounted to all of the device
 * (ext4_super_blocks_of()): e2fsck -f -p, as resize2fs wants it, then that. Large enough already is
 * no failure. 1 and `ret_said` as volume_fs_check(). */
int volume_fs_grow_device(const char *device_path, int wait_ms, char ret_said[VOLUME_FS_TEXT_MAX],
                          struct err *err);

/* FITRIM over a range of the device's bytes; how many were discarded in *ret. */
int volume_fs_trim(const char *path, dev_t device, uint64_t from, uint64_t len, int wait_ms,
                   uint64_t *ret, struct err *err);
/* EXT4_IOC_SHUTDOWN with the default flag, or what is the same for one that is frozen: what was
 * written is kept, later writes fail with EIO. One that is shut down already is no failure. */
int volume_fs_shutdown(const char *path, dev_t device, int wait_ms, struct err *err);
