#include "memory_stream.h"

#include <stdlib.h>
#include <string.h>

struct convert_stream {
    const char *bytes; /* borrowed */
    size_t len;
    size_t piece;
    size_t at;
    char *copy; /* of the last piece, so that reading beyond it is noticed; owned */
    bool has_expected;
    struct digest expected;
    struct digest digest;
};

struct convert_stream *memory_stream_open(const void *bytes, size_t len, size_t piece,
                                          const struct digest *expected)
{
    struct convert_stream *stream = calloc(1, sizeof *stream);
    if (!stream || digest_bytes(bytes, len, &stream->digest, NULL) < 0)
        abort();
    stream->bytes = bytes;
    stream->len = len;
    stream->piece = piece == 0 ? len : piece;
    stream->has_expected = expected != NULL;
    if (expected)
        stream->expected = *expected;
    return stream;
}

ssize_t convert_stream_read(struct convert_stream *stream, const void **ret_bytes, struct err *err)
{
    free(stream->copy);
    stream->copy = NULL;
    if (stream->at == stream->len) {
        if (!stream->has_expected || digest_equal(&stream->digest, &stream->expected))
            return 0;
        return err_fail(err, ERR_DIGEST, "the uncompressed layer has digest %s instead of %s",
                        digest_format(&stream->digest).s, digest_format(&stream->expected).s);
    }
    size_t n = stream->len - stream->at;
    if (n > stream->piece)
        n = stream->piece;
    stream->copy = malloc(n);
    if (!stream->copy)
        abort();
    memcpy(stream->copy, stream->bytes + stream->at, n);
    stream->at += n;
    *ret_bytes = stream->copy;
    return (ssize_t)n;
}

uint64_t convert_stream_bytes(const struct convert_stream *stream)
{
    return stream->at;
}

bool convert_stream_has_expected(const struct convert_stream *stream)
{
    return stream->has_expected;
}

const struct digest *convert_stream_digest(const struct convert_stream *stream)
{
    return &stream->digest;
}

void convert_stream_close(struct convert_stream *stream)
{
    if (!stream)
        return;
    free(stream->copy);
    free(stream);
}
