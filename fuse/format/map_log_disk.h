/* map_log_disk.h - the blocks of a disk map, byte by byte (docs/FORMAT.md, "Disk map").
 *
 * All numbers are little endian, used as they are on little-endian hosts. An internal header of
 * map_log.
 */
#pragma once

#include "map_log.h"

#include <assert.h>
#include <endian.h>

static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "on-disk structures are used as they are");

#define MAP_LOG_MAGIC       "VRVMAP01"
#define MAP_LOG_BLOCK_MAGIC "VRVB"
enum {
    MAP_LOG_VERSION = 1,
    MAP_LOG_CLOSED = 1, /* flags */
};

struct map_log_header {
    char magic[8];
    uint32_t crc; /* map_log_crc() */
    uint32_t version;
    uint8_t uuid[VOLUME_UUID_LEN];
    uint64_t generation;
    uint64_t size;
    uint32_t base_blocks;
    uint32_t flags;
    uint8_t clean_of[MAP_LOG_DIGEST];
    uint8_t zeros[VOLUME_BLOCK - 88];
};
static_assert(sizeof(struct map_log_header) == VOLUME_BLOCK, "as on disk");

struct map_log_block {
    char magic[4];
    uint32_t crc; /* map_log_crc() */
    uint64_t generation;
    uint64_t number;
    uint64_t first; /* of the flush */
    uint16_t count;
    uint8_t zeros[6];
    struct map_record records[MAP_LOG_RECORDS];
};
static_assert(sizeof(struct map_log_block) == VOLUME_BLOCK, "as on disk");

/* The checksum of a block whose own field for it is at `field` (4 bytes, taken as 0). */
uint32_t map_log_crc(const void *block, size_t field);
/* map_log_open() of an open file, without the sync. `fd` becomes that of `ret` on success. */
int map_log_read(int fd, const uint8_t uuid[VOLUME_UUID_LEN], uint64_t size, map_log_take *take,
                 void *arg, struct map_log *ret, struct err *err);
/* Blocks of base that the largest volume can need. */
#define MAP_LOG_BASE_MAX ((VOLUME_SIZE_MAX / VOLUME_CHUNK + MAP_LOG_RECORDS - 1) / MAP_LOG_RECORDS)
