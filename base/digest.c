#include "digest.h"

#include <openssl/evp.h>
#include <string.h>

static void hex_encode(const struct digest *digest, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        out[2 * i] = digits[digest->bytes[i] >> 4];
        out[2 * i + 1] = digits[digest->bytes[i] & 15];
    }
    out[DIGEST_HEX_LEN] = '\0';
}

struct digest_text digest_format(const struct digest *digest)
{
    struct digest_text text = {.s = "sha256:"};
    hex_encode(digest, text.s + 7);
    return text;
}

struct digest_text digest_hex(const struct digest *digest)
{
    struct digest_text text;
    hex_encode(digest, text.s);
    return text;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1; /* capitals are not canonical and would make two names for one blob */
}

int digest_parse_hex(const char *hex, struct digest *ret, struct err *err)
{
    struct digest digest;
    if (strlen(hex) != DIGEST_HEX_LEN)
        return err_fail(err, ERR_INVALID, "digest '%.80s' does not have 64 digits", hex);
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        int high = hex_value(hex[2 * i]);
        int low = hex_value(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return err_fail(err, ERR_INVALID, "digest '%.80s' is not lower-case hexadecimal", hex);
        digest.bytes[i] = (uint8_t)(high << 4 | low);
    }
    *ret = digest;
    return 0;
}

int digest_parse(const char *text, struct digest *ret, struct err *err)
{
    if (strncmp(text, "sha512:", 7) == 0)
        return err_fail(err, ERR_UNSUPPORTED, "digest '%.20s...' is not sha256", text);
    if (strncmp(text, "sha256:", 7) != 0)
        return err_fail(err, ERR_INVALID, "digest '%.80s' does not begin with 'sha256:'", text);
    return digest_parse_hex(text + 7, ret, err);
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
    return memcmp(a->bytes, b->bytes, DIGEST_BYTES) == 0;
}

int digest_bytes(const void *bytes, size_t len, struct digest *ret, struct err *err)
{
    struct digest digest;
    if (EVP_Digest(bytes, len, digest.bytes, NULL, EVP_sha256(), NULL) != 1)
        return err_fail(err, ERR_INTERNAL, "cannot compute a sha256 digest");
    *ret = digest;
    return 0;
}

int digest_stream_init(struct digest_stream *stream, struct err *err)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    if (!ctx || EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(ctx);
        return err_fail(err, ERR_INTERNAL, "cannot start a sha256 digest");
    }
    stream->ctx = ctx;
    return 0;
}

int digest_stream_update(struct digest_stream *stream, const void *bytes, size_t len,
                         struct err *err)
{
    if (EVP_DigestUpdate(stream->ctx, bytes, len) != 1)
        return err_fail(err, ERR_INTERNAL, "cannot go on with a sha256 digest");
    return 0;
}

int digest_stream_finish(struct digest_stream *stream, struct digest *ret, struct err *err)
{
    struct digest digest;
    if (EVP_DigestFinal_ex(stream->ctx, digest.bytes, NULL) != 1)
        return err_fail(err, ERR_INTERNAL, "cannot finish a sha256 digest");
    *ret = digest;
    return 0;
}

void digest_stream_free(struct digest_stream *stream)
{
    EVP_MD_CTX_free(stream->ctx);
    stream->ctx = NULL;
}
