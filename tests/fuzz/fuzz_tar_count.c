/* Any bytes as a layer's tar stream, cut anywhere.
 *
 * Almost every change to a header breaks its checksum, so each input runs a second time with the
 * checksums made right.
 */
#include "tar_count.h"

#include "cleanup.h"
#include "fuzz_check.h"

enum {
    AT_CHECKSUM = 148,
    AT_MAGIC = 257,
};

struct outcome {
    int rc;
    uint64_t entries;
    uint64_t bytes;
};

/* Feeds the stream in pieces of at most `step` bytes; 0: at once. */
static struct outcome count(const uint8_t *bytes, size_t len, size_t step)
{
    cleanup_with(tar_count_free) struct tar_count tar;
    tar_count_init(&tar);
    struct err err = ERR_INIT;
    int rc = 0;
    for (size_t at = 0; at < len && rc == 0;) {
        size_t n = step == 0 || step > len - at ? len - at : step;
        rc = tar_count_feed(&tar, bytes + at, n, &err);
        at += n;
        CHECK(rc < 0 || tar.offset == at);
    }
    if (rc == 0)
        rc = tar_count_finish(&tar, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(err.code == ERR_DAMAGED);
    } else {
        /* Every entry has a header, and all content was in the stream. */
        CHECK(len >= 1024 && tar.entries <= (len - 1024) / TAR_COUNT_BLOCK);
        CHECK(tar.bytes + tar.entries * TAR_COUNT_BLOCK + 1024 <= len && len % 512 == 0);
    }
    return (struct outcome){rc, tar.entries, tar.bytes};
}

/* One bit of the first header changed, outside of the checksum itself, is never overlooked. */
static void check_bit(const uint8_t *bytes, size_t len)
{
    size_t bit = 0; /* depends on the input alone */
    for (size_t i = 0; i < len; i++)
        bit = bit * 31 + bytes[i];
    size_t at = bit / 8 % TAR_COUNT_BLOCK;
    if (at >= AT_CHECKSUM && at < AT_CHECKSUM + 8)
        return;
    cleanup_free char *copy = fuzz_text(bytes, len);
    copy[at] = (char)(copy[at] ^ 1 << bit % 8);
    CHECK(count((const uint8_t *)copy, len, 0).rc < 0);
}

static void check(const uint8_t *bytes, size_t len)
{
    static const size_t steps[] = {1, 7, 511, 512, 513, 1000};
    struct outcome whole = count(bytes, len, 0);
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        struct outcome cut = count(bytes, len, steps[i]);
        CHECK(cut.rc == whole.rc && cut.entries == whole.entries && cut.bytes == whole.bytes);
    }
    if (whole.rc < 0)
        return;
    CHECK(count(bytes, len - 1, 0).rc < 0); /* a stream that ends early is never taken */
    if (whole.entries > 0)
        check_bit(bytes, len);
}

static void mend_checksums(uint8_t *bytes, size_t len)
{
    for (uint8_t *block = bytes; len >= TAR_COUNT_BLOCK; block += 512, len -= TAR_COUNT_BLOCK) {
        if (memcmp(block + AT_MAGIC, "ustar", 6) != 0)
            continue;
        unsigned sum = 0;
        memset(block + AT_CHECKSUM, ' ', 8);
        for (size_t i = 0; i < TAR_COUNT_BLOCK; i++)
            sum += block[i];
        char digits[8];
        snprintf(digits, sizeof digits, "%06o", sum);
        memcpy(block + AT_CHECKSUM, digits, 7);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    check(bytes, len);
    cleanup_free char *copy = fuzz_text(bytes, len);
    mend_checksums((uint8_t *)copy, len);
    check((const uint8_t *)copy, len);
    return 0;
}
