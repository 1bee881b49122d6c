#include "map_file.h"

#include "cleanup.h"

#include <fcntl.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

const uint8_t map_file_uuid[VOLUME_UUID_LEN] = "map-file's uuid";

static int take(void *arg, const struct map_record *record, struct err *err)
{
    struct map_file *file = arg;
    (void)err;
    if (file->count < ARRAY_SIZE(file->records))
        file->records[file->count] = *record;
    file->count++;
    return 0;
}

void map_file_read_sized(const struct scratch *scratch, uint64_t size, struct map_file *ret)
{
    memset(ret, 0, sizeof *ret);
    struct map_log log;
    ret->rc = map_log_open(scratch->fd, map_file_uuid, size, take, ret, &log, &ret->err);
    if (ret->rc < 0)
        return;
    ret->closed = log.closed;
    ret->torn = log.torn;
    ret->base_blocks = log.base_blocks;
    ret->next_block = log.next_block;
    map_log_close(&log);
}

void map_file_read(const struct scratch *scratch, struct map_file *ret)
{
    map_file_read_sized(scratch, MAP_FILE_SIZE, ret);
}

int map_file_give(void *arg, struct map_record *ret)
{
    struct map_file_run *run = arg;
    if (run->given == run->count)
        return 0;
    *ret = (struct map_record){.chunk = run->from + run->given++,
                               .state = (uint8_t)run->state,
                               .mask = run->state == VOLUME_ZERO ? 0 : VOLUME_MASK_ALL};
    return 1;
}

void map_file_get(const struct scratch *scratch, uint64_t block, void *ret)
{
    cleanup_fd int fd = openat(scratch->fd, MAP_LOG_NAME, O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, ret, VOLUME_BLOCK, (off_t)(block * VOLUME_BLOCK)), VOLUME_BLOCK);
}

void map_file_put(const struct scratch *scratch, uint64_t block, const void *bytes)
{
    cleanup_fd int fd = openat(scratch->fd, MAP_LOG_NAME, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, bytes, VOLUME_BLOCK, (off_t)(block * VOLUME_BLOCK)), VOLUME_BLOCK);
}

void map_file_put_header(const struct scratch *scratch, struct map_log_header *header)
{
    header->crc = map_log_crc(header, offsetof(struct map_log_header, crc));
    map_file_put(scratch, 0, header);
}

void map_file_put_records(const struct scratch *scratch, uint64_t at, struct map_log_block *block)
{
    block->crc = map_log_crc(block, offsetof(struct map_log_block, crc));
    map_file_put(scratch, at, block);
}
