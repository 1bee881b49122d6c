#include "map_log.h"

#include "cleanup.h"
#include "crc32c.h"
#include "fault.h"
#include "map_log_disk.h"
#include "publish.h"

#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>

/* Nobody but the writer makes it, so what a killed one left under this name is known again. */
#define TEMP_NAME ".tmp-map"

uint32_t map_log_crc(const void *block, size_t field)
{
    static const uint8_t zeros[sizeof(uint32_t)];
    const uint8_t *bytes = block;
    size_t rest = field + sizeof zeros;
    uint32_t crc = crc32c_update(UINT32_MAX, bytes, field);
    crc = crc32c_update(crc, zeros, sizeof zeros);
    return ~crc32c_update(crc, bytes + rest, VOLUME_BLOCK - rest);
}

static int write_blocks(int fd, const void *block, uint64_t at, unsigned count, struct err *err)
{
    struct iovec iov[MAP_LOG_AHEAD];
    for (unsigned i = 0; i < count; i++)
        iov[i] = (struct iovec){.iov_base = (void *)block, .iov_len = VOLUME_BLOCK};
    ssize_t wanted = (ssize_t)count * VOLUME_BLOCK;
    ssize_t got = pwritev(fd, iov, (int)count, (off_t)(at * VOLUME_BLOCK));
    if (got < 0)
        return err_errno(err, errno, "cannot write block %llu of the disk map",
                         (unsigned long long)at);
    /* Room ran out in the middle; the caller writes the whole place again. */
    return got == wanted ? 0
                         : err_errno(err, ENOSPC, "cannot write block %llu of the disk map",
                                     (unsigned long long)at);
}

/* Fills the staging buffer with the next records. Returns how many. */
static int fill_block(struct map_log_block *block, map_log_give *give, void *arg)
{
    memset(block, 0, sizeof *block);
    int count = 0;
    while (count < MAP_LOG_RECORDS) {
        int rc = give(arg, &block->records[count]);
        if (rc < 0)
            return rc;
        if (rc == 0)
            break;
        count++;
    }
    return count;
}

/* Writes the staging buffer, with `count` records in it, as block `at`. */
static int put_block(int fd, struct map_log_block *block, uint64_t generation, uint64_t at,
                     uint64_t first, int count, struct err *err)
{
    memcpy(block->magic, MAP_LOG_BLOCK_MAGIC, sizeof block->magic);
    block->generation = generation;
    block->number = at;
    block->first = first;
    block->count = (uint16_t)count;
    block->crc = map_log_crc(block, offsetof(struct map_log_block, crc));
    return write_blocks(fd, block, at, 1, err);
}

/* Zeros over the blocks from `from` on, up to `end`. */
static int put_zeros(int fd, void *block, uint64_t from, uint64_t end, struct err *err)
{
    memset(block, 0, VOLUME_BLOCK);
    while (from < end) {
        uint64_t count = end - from < MAP_LOG_AHEAD ? end - from : MAP_LOG_AHEAD;
        int rc = write_blocks(fd, block, from, (unsigned)count, err);
        if (rc < 0)
            return rc;
        from += count;
    }
    return 0;
}

/* The pages that could not be written may be gone from the cache as if they had been: trying again
 * would succeed and mean nothing. */
static int sync_log(struct map_log *log, struct err *err)
{
    int rc = FAULT_POINT("volume.sync-map", NULL);
    if (rc == 0)
        rc = fdatasync(log->fd) < 0 ? -errno : 0;
    if (rc == 0)
        return 0;
    log->broken = true;
    return err_errno(err, rc == -ENOSPC || rc == -EDQUOT ? EIO : rc, "cannot sync the disk map");
}

static int no_give(void *arg, struct map_record *ret)
{
    (void)arg;
    (void)ret;
    return 0;
}

/* Header, base and the first zeros into an empty file. */
static int write_file(int fd, struct map_log *log, bool closed, map_log_give *give, void *arg,
                      struct err *err)
{
    uint64_t at = 1;
    for (;;) {
        int count = fill_block(log->block, give, arg);
        if (count < 0)
            return err_errno(err, count, "cannot collect the records of the disk map");
        if (count == 0)
            break;
        if (at > MAP_LOG_BASE_MAX)
            return err_fail(err, ERR_INTERNAL, "more records than chunks");
        int rc = put_block(fd, log->block, log->generation, at, 1, count, err);
        if (rc < 0)
            return rc;
        at++;
        if (count < MAP_LOG_RECORDS)
            break;
    }
    log->base_blocks = at - 1;
    log->next_block = log->stale_end = at;
    log->ahead = at + MAP_LOG_AHEAD;
    int rc = put_zeros(fd, log->block, at, log->ahead, err);
    if (rc < 0)
        return rc;
    struct map_log_header *header = log->block;
    memcpy(header->magic, MAP_LOG_MAGIC, sizeof header->magic);
    header->version = MAP_LOG_VERSION;
    memcpy(header->uuid, log->uuid, sizeof header->uuid);
    header->generation = log->generation;
    header->size = log->size;
    header->base_blocks = (uint32_t)log->base_blocks;
    header->flags = closed ? MAP_LOG_CLOSED : 0;
    memcpy(header->clean_of, log->clean_of, sizeof header->clean_of);
    header->crc = map_log_crc(header, offsetof(struct map_log_header, crc));
    log->closed = closed;
    return write_blocks(fd, header, 0, 1, err);
}

/* Publishes a file of `log`'s values, and gives it the descriptor. `ret_renamed` is also set on
 * failure. */
static int publish_file(struct map_log *log, bool closed, map_log_give *give, void *arg,
                        bool *ret_renamed, struct err *err)
{
    cleanup_publish struct publish publish = PUBLISH_INIT;
    int rc = publish_begin_as(log->dir_fd, TEMP_NAME, 0600, &publish, err);
    if (rc == 0)
        rc = write_file(publish.fd, log, closed, give, arg, err);
    if (rc == 0)
        rc = publish_commit(&publish, log->dir_fd, MAP_LOG_NAME, PUBLISH_REPLACE, err);
    *ret_renamed = publish.fd >= 0 && publish.temp[0] == '\0';
    if (*ret_renamed)
        log->fd = steal_fd(&publish.fd);
    return rc;
}

int map_log_create(int dir_fd, const uint8_t uuid[VOLUME_UUID_LEN], uint64_t size, bool closed,
                   map_log_give *give, void *arg, struct err *err)
{
    cleanup_free void *block = aligned_alloc(VOLUME_BLOCK, VOLUME_BLOCK);
    if (!block)
        return err_errno(err, ENOMEM, "cannot write the disk map");
    struct map_log log = {
        .dir_fd = dir_fd, .fd = -1, .generation = 1, .size = size, .block = block};
    memcpy(log.uuid, uuid, sizeof log.uuid);
    bool renamed;
    int rc = publish_file(&log, closed, give ? give : no_give, arg, &renamed, err);
    if (log.fd >= 0)
        (void)close(log.fd);
    return rc < 0 ? err_wrap(err, rc, "cannot write the disk map") : 0;
}

int map_log_rewrite(struct map_log *log, uint64_t size, bool closed, map_log_give *give, void *arg,
                    struct err *err)
{
    struct map_log next = *log;
    next.size = size;
    next.generation = log->generation + 1;
    next.torn = next.broken = false;
    bool renamed;
    int rc = publish_file(&next, closed, give, arg, &renamed, err);
    if (!renamed)
        return err_wrap(err, rc, "cannot write the disk map anew");
    (void)close(log->fd);
    /* Renamed and not synced: after a power cut either file may have the name. */
    next.broken = rc < 0;
    *log = next;
    return rc < 0 ? err_wrap(err, rc, "cannot write the disk map anew") : 0;
}

void map_log_close(struct map_log *log)
{
    if (log->block) {
        (void)close(log->fd);
        free(log->block);
    }
    *log = (struct map_log){.dir_fd = -1, .fd = -1};
}

bool map_log_is_long(const struct map_log *log)
{
    return map_log_length(log) > MAP_LOG_LONG;
}

uint64_t map_log_length(const struct map_log *log)
{
    return log->next_block - 1 - log->base_blocks;
}

/* Block `at` of the file exists, so that writing it changes no metadata and finds room. */
static int reach(struct map_log *log, uint64_t at, struct err *err)
{
    if (at < log->ahead)
        return 0;
    if (at + MAP_LOG_AHEAD > MAP_LOG_BLOCKS_MAX)
        return err_errno(err, ENOSPC, "the disk map has %u blocks, the most that it may have",
                         (unsigned)MAP_LOG_BLOCKS_MAX);
    /* Room is taken before bytes are in the cache: what the cache holds always finds its place. */
    uint64_t end = at + MAP_LOG_AHEAD;
    if (fallocate(log->fd, FALLOC_FL_KEEP_SIZE, (off_t)(at * VOLUME_BLOCK),
                  (off_t)MAP_LOG_AHEAD * VOLUME_BLOCK) < 0 &&
        errno != EOPNOTSUPP)
        return err_errno(err, errno, "cannot make the disk map longer");
    int rc = put_zeros(log->fd, log->block, at, end, err);
    if (rc == 0)
        rc = sync_log(log, err);
    if (rc == 0)
        log->ahead = end;
    return rc;
}

/* What an incomplete flush left behind the end goes before anything new stands there, as blocks of
 * both could make one flush after a power cut. */
static int scrub(struct map_log *log, struct err *err)
{
    if (log->stale_end <= log->next_block)
        return 0;
    int rc = put_zeros(log->fd, log->block, log->next_block, log->stale_end, err);
    if (rc == 0)
        rc = sync_log(log, err);
    if (rc == 0)
        log->stale_end = log->next_block;
    return rc;
}

static int append_blocks(struct map_log *log, map_log_give *give, void *arg, struct err *err)
{
    for (uint64_t first = log->next_block, at = first;; at++) {
        int rc = reach(log, at, err);
        if (rc < 0)
            return rc;
        int count = fill_block(log->block, give, arg);
        if (count < 0)
            return err_errno(err, count, "cannot collect records for the disk map");
        if (count == 0)
            return 0;
        log->stale_end = at + 1;
        rc = put_block(log->fd, log->block, log->generation, at, first, count, err);
        if (rc < 0 || count < MAP_LOG_RECORDS)
            return rc;
        rc = FAULT_POINT("volume.map-block", err);
        if (rc < 0)
            return rc;
    }
}

int map_log_append(struct map_log *log, map_log_give *give, void *arg, struct err *err)
{
    if (log->broken)
        return err_fail(err, ERR_IO, "the disk map could not be synced before");
    int rc = scrub(log, err);
    if (rc == 0)
        rc = append_blocks(log, give, arg, err);
    if (rc < 0 || log->stale_end == log->next_block)
        return rc;
    rc = FAULT_POINT("volume.map-written", err);
    if (rc == 0)
        rc = sync_log(log, err);
    if (rc == 0)
        log->next_block = log->stale_end;
    if (rc == 0)
        log->closed = false;
    return rc;
}
