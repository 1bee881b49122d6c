/* Any bytes as a digest, and any bytes into the hash. */
#include "digest.h"

#include "fuzz_check.h"

/* What the parsers said must be the one text form or nothing. */
static void check_text(const char *text)
{
    struct digest digest;
    memset(&digest, 0xA5, sizeof digest);
    const struct digest untouched = digest;
    struct err err = ERR_INIT;
    int rc = digest_parse(text, &digest, &err);
    if (rc == 0) {
        struct digest again;
        CHECK(strcmp(digest_format(&digest).s, text) == 0);
        CHECK(digest_parse_hex(text + strlen("sha256:"), &again, NULL) == 0);
        CHECK(digest_equal(&digest, &again));
        CHECK(strcmp(digest_hex(&digest).s, text + strlen("sha256:")) == 0);
        return;
    }
    fuzz_check_failure(rc, &err);
    CHECK(err.code == ERR_INVALID || err.code == ERR_UNSUPPORTED);
    CHECK(digest_equal(&digest, &untouched));
}

static void check_hex(const char *text)
{
    struct digest digest;
    memset(&digest, 0xA5, sizeof digest);
    const struct digest untouched = digest;
    struct err err = ERR_INIT;
    int rc = digest_parse_hex(text, &digest, &err);
    if (rc == 0) {
        CHECK(strcmp(digest_hex(&digest).s, text) == 0);
        return;
    }
    fuzz_check_failure(rc, &err);
    CHECK(digest_equal(&digest, &untouched));
}

/* Where a stream is cut makes no difference. */
static void check_stream(const uint8_t *bytes, size_t len)
{
    struct digest whole;
    struct digest in_pieces;
    CHECK(digest_bytes(bytes, len, &whole, NULL) == 0);
    cleanup_digest_stream struct digest_stream stream = {.ctx = NULL};
    CHECK(digest_stream_init(&stream, NULL) == 0);
    for (size_t at = 0; at < len;) {
        size_t n = (size_t)bytes[at] % 17 + 1;
        n = n < len - at ? n : len - at;
        CHECK(digest_stream_update(&stream, bytes + at, n, NULL) == 0);
        at += n;
    }
    CHECK(digest_stream_finish(&stream, &in_pieces, NULL) == 0);
    CHECK(digest_equal(&whole, &in_pieces));
    check_text(digest_format(&whole).s);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    cleanup_free char *text = fuzz_text(bytes, len);
    check_text(text);
    check_hex(text);
    check_stream(bytes, len);
    return 0;
}
