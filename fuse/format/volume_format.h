/* volume_format.h - constants of volumes that every program and version shares (docs/FORMAT.md,
 * "Volumes").
 *
 * A worker is replaced by another one in the middle of a request, and by one of another version
 * after an upgrade, so nothing here changes without a new VOLUME_FORMAT.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    VOLUME_FORMAT = 1,       /* in volume.json */
    VOLUME_FORMAT_BASE = 2,  /* of one with `base`, */
    VOLUME_FORMAT_EPOCH = 3, /* and that is an epoch of another volume */
    VOLUME_BLOCK = 4096,
    VOLUME_CHUNK = 65536,
    VOLUME_CHUNK_BLOCKS = VOLUME_CHUNK / VOLUME_BLOCK,
    VOLUME_MASK_ALL = 0xFFFF,
    VOLUME_ID_LEN = 12, /* hex digits */
    VOLUME_UUID_LEN = 16,
    VOLUME_SIZE_UNIT = 1 << 20,
};
#define VOLUME_SIZE_MIN ((uint64_t)64 << 20)
#define VOLUME_SIZE_MAX ((uint64_t)1 << 40)
static inline bool volume_is_size(uint64_t size)
{
    return size >= VOLUME_SIZE_MIN && size <= VOLUME_SIZE_MAX && size % VOLUME_SIZE_UNIT == 0;
}
/* The size that a volume gets when so many bytes are asked for. */
static inline uint64_t volume_round_size(uint64_t size)
{
    return (size + VOLUME_SIZE_UNIT - 1) / VOLUME_SIZE_UNIT * VOLUME_SIZE_UNIT;
}

/* Of a chunk; the numbers stand in the disk map and in the live map. */
enum volume_state {
    VOLUME_ZERO = 0,    /* reads as zeros */
    VOLUME_ABSENT = 1,  /* in the remote, but for the blocks in the mask */
    VOLUME_CLEAN = 2,   /* here and in the remote */
    VOLUME_CHANGED = 3, /* here alone */
};

/* What the worker asks the kernel for at FUSE_INIT, and what it answers with later. */
enum {
    VOLUME_NODE_ROOT = 1,
    VOLUME_NODE_DEVICE = 2,
    VOLUME_NODE_VIEWS = 16, /* and above */
    VOLUME_NODE_GENERATION = 1,
    VOLUME_MAX_WRITE = 128 * 1024,
    VOLUME_MAX_BACKGROUND = 128, /* more than the loop device sends at once */
    VOLUME_CONGESTION = 128,
    VOLUME_STATFS_BSIZE = VOLUME_CHUNK,
    VOLUME_ENTRY_SECONDS = 86400,
};
#define VOLUME_DEVICE_NAME "device"

/* Of the loop device: requests at once, each of at most VOLUME_MAX_WRITE. So each is one request of
 * FUSE, and the worker has a buffer for every one. */
enum {
    VOLUME_LOOP_REQUESTS = 64,
    VOLUME_LOOP_OTHERS = 48, /* of these, for all but reads: writes that wait leave those a way */
};

/* Descriptors that keeper gives to a worker, in this order from 3 on. The worker opens everything
 * else itself, below the directory that its command line names: varve-volume DIRECTORY */
enum {
    VOLUME_FD_FUSE = 3,    /* /dev/fuse, mounted by varved */
    VOLUME_FD_LIVE = 4,    /* the live map */
    VOLUME_FD_LISTEN = 5,  /* bound and listening SOCK_SEQPACKET socket (volume_wire.h) */
    VOLUME_FD_PROGRAM = 6, /* the program itself, to hand on */
};

/* How a worker ends, for keeper. Anything else is a death that a restart mends. */
enum {
    VOLUME_EXIT_STOPPED = 0,  /* it was told to, or the mount is gone: not started again */
    VOLUME_EXIT_REFUSED = 65, /* it will not serve this (another format, another INIT reply,
                                 damage); started again it would say the same */
};
