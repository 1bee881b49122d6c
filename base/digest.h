/* digest.h - sha256 digests and digest streams (OpenSSL EVP, the only user of it here).
 *
 * Text form: "sha256:" and 64 lower-case hexadecimal digits (OCI image-spec, descriptor.md,
 * "Digests"). Other algorithms are refused.
 */
#pragma once

#include "cleanup.h"
#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DIGEST_BYTES = 32,
    DIGEST_HEX_LEN = 64,
    DIGEST_TEXT_LEN = 71, /* "sha256:" + hex */
};

struct digest {
    uint8_t bytes[DIGEST_BYTES];
};

/* Room for either text form and the NUL byte. */
struct digest_text {
    char s[DIGEST_TEXT_LEN + 1];
};

struct digest_text digest_format(const struct digest *digest); /* "sha256:..." */
struct digest_text digest_hex(const struct digest *digest);    /* hex alone, a file name */

/* Parses "sha256:<hex>". ERR_UNSUPPORTED for sha512, which the image-spec has too; ERR_INVALID for
 * anything else. */
int digest_parse(const char *text, struct digest *ret, struct err *err);
/* Parses 64 hex digits, as in a file name. */
int digest_parse_hex(const char *hex, struct digest *ret, struct err *err);
bool digest_equal(const struct digest *a, const struct digest *b);

/* Digest of bytes in memory. Fails only without memory. */
int digest_bytes(const void *bytes, size_t len, struct digest *ret, struct err *err);

/* A stream: init, update any number of times, finish once; free in any state. */
struct digest_stream {
    void *ctx; /* owned */
};
int digest_stream_init(struct digest_stream *stream, struct err *err);
int digest_stream_update(struct digest_stream *stream, const void *bytes, size_t len,
                         struct err *err);
int digest_stream_finish(struct digest_stream *stream, struct digest *ret, struct err *err);
void digest_stream_free(struct digest_stream *stream);
#define cleanup_digest_stream cleanup_with(digest_stream_free)
