/* zstd by libzstd, which checks the frames' checksums and passes over skippable frames. */
#include "unpack_stream.h"

#include <zstd.h>
#include <zstd_errors.h>

struct zstd_state {
    ZSTD_DCtx *ctx;
    bool between; /* at the end of a frame */
};

static void zstd_close(struct unpack_stream *stream)
{
    struct zstd_state *state = stream->state;
    ZSTD_freeDCtx(state->ctx);
    free(state);
}

static int zstd_open(struct unpack_stream *stream, struct err *err)
{
    struct zstd_state *state = calloc(1, sizeof *state);
    ZSTD_DCtx *ctx = state ? ZSTD_createDCtx() : NULL;
    if (!ctx) {
        free(state);
        return err_errno(err, ENOMEM, "cannot read zstd data");
    }
    state->ctx = ctx;
    stream->state = state;
    size_t rc = ZSTD_DCtx_setParameter(ctx, ZSTD_d_windowLogMax, UNPACK_STREAM_ZSTD_WINDOW_LOG_MAX);
    if (ZSTD_isError(rc))
        return err_fail(err, ERR_INTERNAL, "cannot limit the zstd window: %s",
                        ZSTD_getErrorName(rc));
    return 0;
}

static int report(size_t code, struct err *err)
{
    switch (ZSTD_getErrorCode(code)) {
    case ZSTD_error_frameParameter_windowTooLarge: {
        int rc = err_fail(err, ERR_TOO_LARGE,
                          "the archive's zstd data needs a window of more than 128 MiB");
        err_hint(err, "compress it without --long, or with --long=27 at most");
        return rc;
    }
    case ZSTD_error_memory_allocation:
        return err_errno(err, ENOMEM, "cannot read zstd data");
    default:
        return err_fail(err, ERR_DAMAGED, "the archive's zstd data is damaged: %s",
                        ZSTD_getErrorName(code));
    }
}

static ssize_t zstd_read(struct unpack_stream *stream, void *buf, size_t cap, struct err *err)
{
    struct zstd_state *state = stream->state;
    ZSTD_outBuffer out = {.dst = buf, .size = cap};
    while (out.pos == 0) {
        int rc = unpack_stream_fill(stream, 1, err);
        if (rc < 0)
            return rc;
        ZSTD_inBuffer in = {.src = stream->in, .size = stream->in_len, .pos = stream->in_pos};
        if (in.pos == in.size && state->between)
            return 0;
        size_t before = in.pos;
        size_t left = ZSTD_decompressStream(state->ctx, &out, &in);
        if (ZSTD_isError(left))
            return report(left, err);
        stream->in_pos = in.pos;
        state->between = left == 0;
        /* Without new input the decoder may still have output; when it has neither, the data
         * ended too early. */
        if (in.pos == before && out.pos == 0 && in.pos == in.size && stream->in_end &&
            !state->between)
            return unpack_stream_truncated(stream, err);
    }
    return (ssize_t)out.pos;
}

const struct unpack_codec unpack_codec_zstd = {
    .name = "zstd", .open = zstd_open, .read = zstd_read, .close = zstd_close};
