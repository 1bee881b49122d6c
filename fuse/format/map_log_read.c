/* map_log_open(): reads and checks a disk map. */
#include "cleanup.h"
#include "fdio.h"
#include "map_log.h"
#include "map_log_disk.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum {
    READ_BLOCKS = 64, /* at once */
};

struct reading {
    struct map_log *log;
    uint64_t size;   /* of the volume */
    uint64_t blocks; /* of the file */
    map_log_take *take;
    void *arg;
    uint64_t at;                  /* number of the block */
    bool ended;                   /* the log's end was met */
    uint64_t first;               /* of the flush that the last valid block belongs to */
    struct map_log_block *buffer; /* READ_BLOCKS */
};

static int damaged(const struct reading *reading, const char *what, struct err *err)
{
    return err_fail(err, ERR_DAMAGED, "block %llu of the disk map %s",
                    (unsigned long long)reading->at, what);
}

static int check_header(const struct map_log_header *header, const struct map_log *log,
                        uint64_t size, uint64_t blocks, struct err *err)
{
    if (memcmp(header->magic, MAP_LOG_MAGIC, sizeof header->magic) != 0)
        return err_fail(err, ERR_DAMAGED, "the disk map does not begin with its magic number");
    if (header->crc != map_log_crc(header, offsetof(struct map_log_header, crc)))
        return err_fail(err, ERR_DAMAGED, "the header of the disk map has a wrong checksum");
    if (header->version != MAP_LOG_VERSION)
        return err_fail(err, ERR_TOO_NEW, "the disk map has version %u, this program knows %u",
                        header->version, (unsigned)MAP_LOG_VERSION);
    if (memcmp(header->uuid, log->uuid, sizeof header->uuid) != 0)
        return err_fail(err, ERR_DAMAGED, "the disk map is that of another volume");
    if (header->flags & ~(uint32_t)MAP_LOG_CLOSED)
        return err_fail(err, ERR_DAMAGED, "the disk map has unknown flags 0x%x", header->flags);
    if (header->size > size)
        return err_fail(err, ERR_DAMAGED,
                        "the disk map is of a volume of %llu bytes, and this one has %llu",
                        (unsigned long long)header->size, (unsigned long long)size);
    if (header->base_blocks > MAP_LOG_BASE_MAX || header->base_blocks >= blocks)
        return err_fail(err, ERR_DAMAGED, "the disk map ends in the middle of its base");
    return 0;
}

static int read_header(struct reading *reading, struct err *err)
{
    struct map_log *log = reading->log;
    struct stat st;
    if (fstat(log->fd, &st) < 0)
        return err_errno(err, errno, "cannot stat the disk map");
    if (!S_ISREG(st.st_mode))
        return err_fail(err, ERR_DAMAGED, "the disk map is no regular file");
    reading->blocks = (uint64_t)st.st_size / VOLUME_BLOCK;
    if (reading->blocks < 1 || reading->blocks > MAP_LOG_BLOCKS_MAX)
        return err_fail(err, ERR_DAMAGED, "a file of %lld bytes is no disk map",
                        (long long)st.st_size);
    ssize_t got = pread(log->fd, reading->buffer, VOLUME_BLOCK, 0);
    if (got != VOLUME_BLOCK)
        return err_errno(err, got < 0 ? errno : EIO, "cannot read the disk map");
    const struct map_log_header *header = (const void *)reading->buffer;
    int rc = check_header(header, log, reading->size, reading->blocks, err);
    if (rc < 0)
        return rc;
    log->generation = header->generation;
    log->size = header->size;
    memcpy(log->clean_of, header->clean_of, sizeof log->clean_of);
    log->base_blocks = header->base_blocks;
    log->closed = (header->flags & MAP_LOG_CLOSED) != 0;
    log->next_block = log->stale_end = log->base_blocks + 1;
    log->ahead = reading->blocks;
    return 0;
}

static bool record_is_valid(const struct map_record *record, uint64_t chunks)
{
    if (record->chunk >= chunks || record->reserved != 0)
        return false;
    switch (record->state) {
    case VOLUME_ZERO:
        return record->mask == 0;
    case VOLUME_ABSENT:
        return true;
    case VOLUME_CLEAN:
    case VOLUME_CHANGED:
        return record->mask == VOLUME_MASK_ALL;
    default:
        return false;
    }
}

static int take_records(struct reading *reading, const struct map_log_block *block, struct err *err)
{
    for (unsigned i = 0; i < block->count; i++) {
        if (!record_is_valid(&block->records[i], reading->size / VOLUME_CHUNK))
            return damaged(reading, "has a record that this volume cannot have", err);
        int rc = reading->take ? reading->take(reading->arg, &block->records[i], err) : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* A block that was written as the one at this place. */
static bool block_is_whole(const struct reading *reading, const struct map_log_block *block)
{
    return memcmp(block->magic, MAP_LOG_BLOCK_MAGIC, sizeof block->magic) == 0 &&
           block->crc == map_log_crc(block, offsetof(struct map_log_block, crc)) &&
           block->generation == reading->log->generation && block->number == reading->at &&
           block->count >= 1 && block->count <= MAP_LOG_RECORDS;
}

static int read_base_block(struct reading *reading, const struct map_log_block *block,
                           struct err *err)
{
    if (!block_is_whole(reading, block) || block->first != 1)
        return damaged(reading, "is damaged", err);
    return take_records(reading, block, err);
}

/* Only the last flush can be incomplete, as each is synced before the next one begins. It is the
 * one that `end` belongs to: it begins there, or went on there. */
static int read_behind_end(struct reading *reading, const struct map_log_block *block,
                           struct err *err)
{
    struct map_log *log = reading->log;
    if (!block_is_whole(reading, block))
        return 0;
    if (block->first != log->next_block && block->first != reading->first)
        return damaged(reading, "lies behind a block that is damaged", err);
    log->torn = true;
    log->stale_end = reading->at + 1;
    return 0;
}

static int read_log_block(struct reading *reading, const struct map_log_block *block,
                          struct err *err)
{
    struct map_log *log = reading->log;
    if (!reading->ended && block_is_whole(reading, block) &&
        (block->first == reading->at || block->first == reading->first)) {
        reading->first = block->first;
        log->next_block = log->stale_end = reading->at + 1;
        return take_records(reading, block, err);
    }
    reading->ended = true;
    return read_behind_end(reading, block, err);
}

static int read_blocks(struct reading *reading, struct err *err)
{
    for (uint64_t from = 1; from < reading->blocks; from += READ_BLOCKS) {
        uint64_t count =
            reading->blocks - from < READ_BLOCKS ? reading->blocks - from : READ_BLOCKS;
        ssize_t wanted = (ssize_t)count * VOLUME_BLOCK;
        ssize_t got =
            pread(reading->log->fd, reading->buffer, (size_t)wanted, (off_t)(from * VOLUME_BLOCK));
        if (got != wanted)
            return err_errno(err, got < 0 ? errno : EIO, "cannot read the disk map");
        for (uint64_t i = 0; i < count; i++) {
            reading->at = from + i;
            const struct map_log_block *block = &reading->buffer[i];
            int rc = reading->at <= reading->log->base_blocks ? read_base_block(reading, block, err)
                                                              : read_log_block(reading, block, err);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

int map_log_read(int fd, const uint8_t uuid[VOLUME_UUID_LEN], uint64_t size, map_log_take *take,
                 void *arg, struct map_log *ret, struct err *err)
{
    cleanup_free struct map_log_block *buffer =
        aligned_alloc(VOLUME_BLOCK, (size_t)READ_BLOCKS * VOLUME_BLOCK);
    cleanup_free void *block = aligned_alloc(VOLUME_BLOCK, VOLUME_BLOCK);
    if (!buffer || !block)
        return err_errno(err, ENOMEM, "cannot read the disk map");
    struct map_log log = {.dir_fd = -1, .fd = fd};
    memcpy(log.uuid, uuid, sizeof log.uuid);
    struct reading reading = {
        .log = &log, .size = size, .take = take, .arg = arg, .first = UINT64_MAX, .buffer = buffer};
    int rc = read_header(&reading, err);
    if (rc == 0)
        rc = read_blocks(&reading, err);
    if (rc < 0)
        return rc;
    log.closed = log.closed && log.next_block == log.base_blocks + 1 && !log.torn;
    log.block = steal_ptr(block);
    *ret = log;
    return 0;
}

int map_log_open(int dir_fd, const uint8_t uuid[VOLUME_UUID_LEN], uint64_t size, map_log_take *take,
                 void *arg, struct map_log *ret, struct err *err)
{
    cleanup_fd int fd = fdio_open_beneath(dir_fd, MAP_LOG_NAME, O_RDWR | O_NOFOLLOW, 0);
    if (fd < 0)
        return err_errno(err, fd, "cannot open the disk map");
    struct map_log log;
    int rc = map_log_read(fd, uuid, size, take, arg, &log, err);
    if (rc < 0)
        return rc;
    log.dir_fd = dir_fd;
    /* A writer that was killed may have synced nothing of what was read here, nor that this file
     * has the name: a later flush on top of it would look like damage after a power cut, or be lost
     * with the file. */
    if (fdatasync(fd) < 0 || fsync(dir_fd) < 0) {
        rc = err_errno(err, errno, "cannot sync the disk map");
        free(log.block);
        return rc;
    }
    (void)steal_fd(&fd);
    *ret = log;
    return 0;
}
