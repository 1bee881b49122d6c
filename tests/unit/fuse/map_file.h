/* map_file.h - a disk map in a scratch directory, for tests: read, changed, mended block by block.
 */
#pragma once

#include "map_log.h"
#include "map_log_disk.h"
#include "scratch.h"

/* What map_log_open() said. */
struct map_file {
    int rc;
    struct err err;
    bool closed, torn;
    uint64_t base_blocks, next_block;
    size_t count;
    struct map_record records[8192];
};

#define MAP_FILE_SIZE (UINT64_C(1) << 30) /* of the volume: 16,384 chunks */
extern const uint8_t map_file_uuid[VOLUME_UUID_LEN];

void map_file_read(const struct scratch *scratch, struct map_file *ret);
/* The same for a volume of another size. */
void map_file_read_sized(const struct scratch *scratch, uint64_t size, struct map_file *ret);

/* Records of the chunks `from`, `from` + 1 and so on, all changed. */
struct map_file_run {
    uint32_t from;
    uint32_t count;
    uint32_t given;
    enum volume_state state;
};
int map_file_give(void *arg, struct map_record *ret);

void map_file_get(const struct scratch *scratch, uint64_t block, void *ret);
void map_file_put(const struct scratch *scratch, uint64_t block, const void *bytes);
/* Puts the checksum right first. */
void map_file_put_header(const struct scratch *scratch, struct map_log_header *header);
void map_file_put_records(const struct scratch *scratch, uint64_t at, struct map_log_block *block);
