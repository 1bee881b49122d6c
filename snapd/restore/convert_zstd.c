/* zstd by libzstd, which checks the frames' checksums and passes over skippable frames. */
#include "convert_codec.h"

#include <zstd.h>
#include <zstd_errors.h>

struct zstd_state {
    ZSTD_DCtx *ctx;
    bool between; /* at the end of a frame */
};

static void zstd_close(struct convert_codec *codec)
{
    struct zstd_state *state = codec->state;
    ZSTD_freeDCtx(state->ctx);
    free(state);
}

static int zstd_open(struct convert_codec *codec, struct err *err)
{
    struct zstd_state *state = calloc(1, sizeof *state);
    ZSTD_DCtx *ctx = state ? ZSTD_createDCtx() : NULL;
    if (!ctx) {
        free(state);
        return err_errno(err, ENOMEM, "cannot read zstd data");
    }
    size_t rc = ZSTD_DCtx_setParameter(ctx, ZSTD_d_windowLogMax, CONVERT_CODEC_ZSTD_WINDOW_LOG_MAX);
    if (ZSTD_isError(rc)) {
        ZSTD_freeDCtx(ctx);
        free(state);
        return err_fail(err, ERR_INTERNAL, "cannot limit the zstd window: %s",
                        ZSTD_getErrorName(rc));
    }
    state->ctx = ctx;
    codec->state = state;
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

/* One step: 1, or 0 at the end of the source. */
static int unpack_some(struct convert_codec *codec, ZSTD_outBuffer *out, struct err *err)
{
    struct convert_source *source = codec->source;
    struct zstd_state *state = codec->state;
    int rc = convert_source_fill(source, 1, err);
    if (rc < 0)
        return rc;
    ZSTD_inBuffer in = {.src = source->in, .size = source->in_len, .pos = source->in_pos};
    if (in.pos == in.size && state->between)
        return 0;
    const size_t in_before = in.pos;
    const size_t out_before = out->pos;
    size_t left = ZSTD_decompressStream(state->ctx, out, &in);
    if (ZSTD_isError(left))
        return report(left, err);
    source->in_pos = in.pos;
    state->between = left == 0;
    /* Without new input the decoder may still have output; when it has neither, the data ended
     * too early. */
    if (in.pos == in_before && out->pos == out_before && in.pos == in.size && !state->between)
        return convert_source_truncated("zstd", err);
    return 1;
}

static ssize_t zstd_read(struct convert_codec *codec, void *buf, size_t cap, struct err *err)
{
    ZSTD_outBuffer out = {.dst = buf, .size = cap};
    while (out.pos < cap && (out.pos == 0 || convert_source_is_ready(codec->source))) {
        int rc = unpack_some(codec, &out, err);
        if (rc < 0)
            return rc;
        if (rc == 0)
            break;
    }
    return (ssize_t)out.pos;
}

const struct convert_codec_kind convert_codec_zstd = {
    .name = "zstd", .open = zstd_open, .read = zstd_read, .close = zstd_close};
