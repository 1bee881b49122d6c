/* Any bytes as an ext4 superblock: as they are, and with the checksum and UUID that they should
 * have, as otherwise little would come further than these. */
#include "crc32c.h"
#include "ext4_super.h"

#include "fuzz_check.h"

#include <endian.h>

enum {
    UUID_AT = 0x68,
    CHECKSUM_AT = 0x3fc,
};

static uint32_t get32(const uint8_t *bytes, int at)
{
    uint32_t value;
    memcpy(&value, bytes + at, sizeof value);
    return le32toh(value);
}

/* What was accepted is what varve makes; written by hand here, from docs/FORMAT.md. */
static void check_accepted(const uint8_t *bytes, uint64_t size, const struct ext4_super *super)
{
    uint64_t blocks = (uint64_t)get32(bytes, 0x150) << 32 | get32(bytes, 0x4);
    CHECK(super->blocks == blocks && blocks > 0 && blocks <= size / 4096);
    CHECK(get32(bytes, 0x5c) == 0x3c);
    CHECK((get32(bytes, 0x60) & ~4U) == 0x22c2);
    CHECK(super->needs_recovery == ((get32(bytes, 0x60) & 4) != 0));
    CHECK(get32(bytes, 0x64) == 0x46b);
    CHECK(get32(bytes, 0x18) == 2 && get32(bytes, 0xe4) == 0 && bytes[0x200] == 0);
    CHECK(get32(bytes, CHECKSUM_AT) == crc32c_update(UINT32_MAX, bytes, CHECKSUM_AT));
}

static void look(const uint8_t *bytes, const uint8_t *uuid, uint64_t size)
{
    struct err err = ERR_INIT;
    struct ext4_super super = {.blocks = 42};
    int rc = ext4_super_check(bytes, uuid, size, &super, &err);
    if (rc == 0) {
        check_accepted(bytes, size, &super);
        CHECK(memcmp(uuid, bytes + UUID_AT, VOLUME_UUID_LEN) == 0);
        return;
    }
    fuzz_check_failure(rc, &err);
    CHECK(err.code == ERR_DAMAGED || err.code == ERR_UNSUPPORTED);
    CHECK(super.blocks == 42);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    uint8_t super[EXT4_SUPER_BYTES] = {0};
    uint8_t uuid[VOLUME_UUID_LEN] = {1};
    if (len > 0)
        memcpy(super, bytes, len < sizeof super ? len : sizeof super);
    look(super, uuid, VOLUME_SIZE_MIN);
    uint32_t sum = htole32(crc32c_update(UINT32_MAX, super, CHECKSUM_AT));
    memcpy(super + CHECKSUM_AT, &sum, sizeof sum);
    look(super, super + UUID_AT, VOLUME_SIZE_MIN);
    look(super, super + UUID_AT, VOLUME_SIZE_MAX);
    return 0;
}
