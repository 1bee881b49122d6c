/* gzip by zlib, which checks each member's CRC and length (RFC 1952). */
#include "unpack_stream.h"

#include <string.h>
#include <zlib.h>

enum {
    GZIP_WINDOW_BITS = 15 + 16, /* largest window; gzip headers only */
};

struct gzip_state {
    z_stream z;
    bool between; /* at the end of a member */
};

static int gzip_open(struct unpack_stream *stream, struct err *err)
{
    struct gzip_state *state = calloc(1, sizeof *state);
    if (!state || inflateInit2(&state->z, GZIP_WINDOW_BITS) != Z_OK) {
        free(state);
        return err_errno(err, ENOMEM, "cannot read gzip data");
    }
    stream->state = state;
    return 0;
}

static void gzip_close(struct unpack_stream *stream)
{
    struct gzip_state *state = stream->state;
    inflateEnd(&state->z);
    free(state);
}

/* Between two members: 1 when another begins, 0 at the end. */
static int next_member(struct unpack_stream *stream, struct err *err)
{
    struct gzip_state *state = stream->state;
    int rc = unpack_stream_fill(stream, 2, err);
    if (rc < 0)
        return rc;
    const char *in = stream->in + stream->in_pos;
    if (stream->in_len - stream->in_pos < 2 || memcmp(in, "\x1f\x8b", 2) != 0)
        return unpack_stream_check_padding(stream, err);
    if (inflateReset(&state->z) != Z_OK)
        return err_fail(err, ERR_INTERNAL, "cannot begin the next gzip member");
    state->between = false;
    return 1;
}

static int inflate_some(struct unpack_stream *stream, struct err *err)
{
    struct gzip_state *state = stream->state;
    int rc = unpack_stream_fill(stream, 1, err);
    if (rc < 0)
        return rc;
    size_t have = stream->in_len - stream->in_pos;
    if (have == 0)
        return unpack_stream_truncated(stream, err);
    state->z.next_in = (Bytef *)stream->in + stream->in_pos;
    state->z.avail_in = (uInt)have;
    int z = inflate(&state->z, Z_NO_FLUSH);
    stream->in_pos = stream->in_len - state->z.avail_in;
    if (z == Z_STREAM_END)
        state->between = true;
    else if (z == Z_MEM_ERROR)
        return err_errno(err, ENOMEM, "cannot read gzip data");
    else if (z != Z_OK && z != Z_BUF_ERROR)
        return err_fail(err, ERR_DAMAGED, "the archive's gzip data is damaged: %s",
                        state->z.msg ? state->z.msg : "no valid gzip data");
    return 0;
}

static ssize_t gzip_read(struct unpack_stream *stream, void *buf, size_t cap, struct err *err)
{
    struct gzip_state *state = stream->state;
    state->z.next_out = buf;
    state->z.avail_out = (uInt)cap;
    while (state->z.avail_out == cap) {
        int rc = state->between ? next_member(stream, err) : 1;
        if (rc <= 0)
            return rc;
        rc = inflate_some(stream, err);
        if (rc < 0)
            return rc;
    }
    return (ssize_t)(cap - state->z.avail_out);
}

const struct unpack_codec unpack_codec_gzip = {
    .name = "gzip", .open = gzip_open, .read = gzip_read, .close = gzip_close};
