/* ext4_super.h - a look at an ext4 superblock before the kernel gets it (docs/FORMAT.md, "ext4").
 *
 * A volume can come from another node. The kernel's ext4 has many features that nobody here uses
 * and each is a way to attack it, or to have a file system mounted with options that the bytes
 * choose. So exactly what mke2fs was told to make is accepted: features, block size, size,
 * journal inside, no mount options. What is in the rest of the file system is e2fsck's and the
 * kernel's business.
 *
 * A parser of 1,024 bytes without state. ERR_DAMAGED: no superblock, a wrong checksum, values that
 * contradict each other or the volume. ERR_UNSUPPORTED: features (by their names) or settings that
 * varve does not make.
 */
#pragma once

#include "err.h"
#include "volume_format.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    EXT4_SUPER_AT = 1024, /* in the file system */
    EXT4_SUPER_BYTES = 1024,
};

struct ext4_super {
    uint64_t blocks;       /* of VOLUME_BLOCK bytes; at most those of the volume */
    uint64_t group_inodes; /* in each group */
    uint64_t reserved;     /* blocks for descriptors of later groups, beside each copy of them */
    uint8_t uuid[VOLUME_UUID_LEN];
    bool needs_recovery; /* the journal holds what is not in its place yet: not cleanly unmounted */
    bool has_errors;     /* the kernel has noted an error: e2fsck -p before the next mount */
};

/* Checks the superblock of a volume with this UUID (NULL: the caller looks at it himself) and size.
 */
int ext4_super_check(const uint8_t bytes[EXT4_SUPER_BYTES], const uint8_t uuid[VOLUME_UUID_LEN],
                     uint64_t size, struct ext4_super *ret, struct err *err);
/* The same of one that is mounted, as the kernel has it in memory: it writes the checksum only when
 * it writes the superblock, so that is not compared. */
int ext4_super_check_mounted(const uint8_t bytes[EXT4_SUPER_BYTES],
                             const uint8_t uuid[VOLUME_UUID_LEN], uint64_t size,
                             struct ext4_super *ret, struct err *err);
/* What they say of another UUID. */
int ext4_super_fail_uuid(struct err *err);
/* Reads it from the beginning of a file or device and checks it, `mounted` or not. Reading a device
 * can wait for its worker: see volume_fs_look(). */
int ext4_super_read(int fd, const uint8_t uuid[VOLUME_UUID_LEN], uint64_t size, bool mounted,
                    struct ext4_super *ret, struct err *err);
/* How many blocks ext4's tools make of a device of `size` bytes, when it is made or grown with this
 * superblock's geometry: all, but for those of a last group in which little more than its own
 * tables would have room (a few MiB). The kernel, which grows a mounted one, may make more. */
uint64_t ext4_super_blocks_of(const struct ext4_super *super, uint64_t size);
