/* Any bytes as an archive: what the converter's codecs accept is what zlib and libzstd make of the
 * same bytes; and how the bytes arrive makes no difference. */
#include "cleanup.h"
#include "convert_codec.h"
#include "fuzz_check.h"

#include <sys/mman.h>
#include <zlib.h>
#include <zstd.h>

enum {
    OUT_MAX = 4 << 20, /* bytes; what unpacks to more is not looked at any further */
};

/* Unpacks with buffers of `cap` bytes. The number of bytes, OUT_MAX for more, or -errno. */
static ssize_t unpack(int fd, size_t cap, char *out, struct err *err)
{
    struct convert_source source;
    struct convert_codec codec;
    CHECK(convert_source_open(fd, -1, -1, &source, err) == 0);
    ssize_t rc = convert_codec_open(&source, true, &codec, err);
    if (rc < 0) {
        convert_source_close(&source);
        return rc;
    }
    size_t total = 0;
    do {
        rc = convert_codec_read(&codec, out + total, cap < OUT_MAX - total ? cap : OUT_MAX - total,
                                err);
        if (rc > 0)
            total += (size_t)rc;
    } while (rc > 0 && total < OUT_MAX);
    convert_codec_close(&codec);
    convert_source_close(&source);
    return rc < 0 ? rc : (ssize_t)total;
}

/* The whole of it by zlib, zero padding behind the last member included; -1 for a refusal. */
static ssize_t by_zlib(const uint8_t *bytes, size_t len, char *out)
{
    z_stream z = {.next_in = (Bytef *)bytes, .avail_in = (uInt)len};
    z.next_out = (Bytef *)out;
    z.avail_out = OUT_MAX;
    CHECK(inflateInit2(&z, 15 + 16) == Z_OK);
    int rc = Z_OK;
    do {
        rc = inflate(&z, Z_NO_FLUSH);
        if (rc == Z_STREAM_END && z.avail_in >= 2 && z.next_in[0] == 0x1f && z.next_in[1] == 0x8b)
            rc = inflateReset(&z);
    } while (rc == Z_OK && z.avail_out > 0);
    inflateEnd(&z);
    if (rc == Z_STREAM_END)
        for (; z.avail_in > 0 && *z.next_in == 0; z.next_in++)
            z.avail_in--;
    if (z.avail_out == 0)
        return OUT_MAX;
    return rc == Z_STREAM_END && z.avail_in == 0 ? (ssize_t)(OUT_MAX - z.avail_out) : -1;
}

static ssize_t by_zstd(const uint8_t *bytes, size_t len, char *out)
{
    ZSTD_inBuffer in = {.src = bytes, .size = len};
    ZSTD_outBuffer to = {.dst = out, .size = OUT_MAX};
    ZSTD_DCtx *ctx = ZSTD_createDCtx();
    CHECK(ctx);
    size_t left = 1;
    while (in.pos < in.size && to.pos < to.size && !ZSTD_isError(left))
        left = ZSTD_decompressStream(ctx, &to, &in);
    ZSTD_freeDCtx(ctx);
    if (!ZSTD_isError(left) && to.pos == to.size)
        return OUT_MAX;
    return left == 0 ? (ssize_t)to.pos : -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    cleanup_fd int fd = memfd_create("archive", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    static char ours[OUT_MAX];
    static char again[OUT_MAX];
    static char theirs[OUT_MAX];
    struct err err = ERR_INIT;
    ssize_t n = unpack(fd, 1 << 19, ours, &err);
    if (n < 0)
        fuzz_check_failure((int)n, &err);
    err_clear(&err);
    /* In small pieces it is the same. */
    ssize_t m = unpack(fd, 1 + len % 777, again, &err);
    CHECK((n < 0) == (m < 0) || n == OUT_MAX || m == OUT_MAX);
    CHECK(n < 0 || m < 0 || (n == m && memcmp(ours, again, (size_t)n) == 0));
    if (n < 0 || n == OUT_MAX)
        return 0;
    const bool gzip = len >= 2 && memcmp(bytes, "\x1f\x8b", 2) == 0;
    const bool zstd = len >= 4 && memcmp(bytes, "\x28\xb5\x2f\xfd", 4) == 0;
    if (!gzip && !zstd)
        return 0;
    ssize_t want = gzip ? by_zlib(bytes, len, theirs) : by_zstd(bytes, len, theirs);
    CHECK(want == n && memcmp(ours, theirs, (size_t)n) == 0);
    return 0;
}
