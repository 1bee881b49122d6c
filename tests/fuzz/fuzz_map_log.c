/* Any bytes as the file of a disk map. What was accepted holds only records that the volume can
 * have, and goes on: after one more flush it reads as before, with that flush behind it.
 *
 * Almost every change breaks a checksum, so each input runs a second time with all of them made
 * right.
 */
#include "map_log.h"

#include "cleanup.h"
#include "fuzz_check.h"
#include "map_log_disk.h"

#include <sys/mman.h>

#define SIZE (UINT64_C(64) << 20)

struct seen {
    size_t count;
    uint64_t sum; /* of all records in order */
    uint64_t before_last;
};

static int take(void *arg, const struct map_record *record, struct err *err)
{
    struct seen *seen = arg;
    (void)err;
    CHECK(record->chunk < SIZE / VOLUME_CHUNK);
    CHECK(record->state <= VOLUME_CHANGED && record->reserved == 0);
    CHECK(record->state != VOLUME_ZERO || record->mask == 0);
    CHECK(record->state < VOLUME_CLEAN || record->mask == VOLUME_MASK_ALL);
    uint64_t value =
        ((uint64_t)record->chunk << 24) ^ ((uint64_t)record->mask << 8) ^ record->state;
    seen->count++;
    seen->before_last = seen->sum;
    seen->sum = seen->sum * UINT64_C(0x9E3779B97F4A7C15) + value;
    return 0;
}

static int give_one(void *arg, struct map_record *ret)
{
    bool *given = arg;
    if (*given)
        return 0;
    *given = true;
    *ret = (struct map_record){.chunk = 77, .state = VOLUME_CHANGED, .mask = VOLUME_MASK_ALL};
    return 1;
}

static void mend(uint8_t *bytes, size_t len)
{
    for (size_t at = 0; at + VOLUME_BLOCK <= len; at += VOLUME_BLOCK) {
        struct map_log_header *header = (void *)(bytes + at);
        struct map_log_block *block = (void *)(bytes + at);
        if (at == 0)
            header->crc = map_log_crc(header, offsetof(struct map_log_header, crc));
        else
            block->crc = map_log_crc(block, offsetof(struct map_log_block, crc));
    }
}

static void go_on(int fd, const uint8_t *uuid, struct map_log *log, const struct seen *seen)
{
    bool given = false;
    struct err err = ERR_INIT;
    int rc = map_log_append(log, give_one, &given, &err);
    if (rc == -ENOSPC)
        return; /* the longest that a map may be */
    CHECK(rc == 0);
    struct map_log again;
    struct seen later = {0};
    CHECK(map_log_read(fd, uuid, SIZE, take, &later, &again, &err) == 0);
    CHECK(later.count == seen->count + 1 && later.before_last == seen->sum);
    CHECK(!again.torn && !again.closed && again.next_block == log->next_block);
    free(again.block);
}

static void run(const uint8_t *bytes, size_t len)
{
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("fuzz-map", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, 0) == 0);
    CHECK(pwrite(fd, bytes, len, 0) == (ssize_t)len);
    uint8_t uuid[VOLUME_UUID_LEN] = {0};
    if (len >= 32)
        memcpy(uuid, bytes + offsetof(struct map_log_header, uuid), sizeof uuid);
    struct err err = ERR_INIT;
    struct map_log log;
    struct seen seen = {0};
    int rc = map_log_read(fd, uuid, SIZE, take, &seen, &log, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(err.code == ERR_DAMAGED || err.code == ERR_TOO_NEW);
        return;
    }
    CHECK(log.next_block <= len / VOLUME_BLOCK && log.stale_end <= len / VOLUME_BLOCK);
    go_on(fd, uuid, &log, &seen);
    free(log.block);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    run(bytes, len);
    cleanup_free uint8_t *mended =
        aligned_alloc(VOLUME_BLOCK, (len / VOLUME_BLOCK + 1) * VOLUME_BLOCK);
    CHECK(mended);
    memcpy(mended, bytes, len);
    mend(mended, len);
    run(mended, len);
    return 0;
}
