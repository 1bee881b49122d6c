/* gzip (RFC 1952). Member headers are read here; ISA-L unpacks the deflate data and checks the CRC
 * and the length behind it. zlib needed more than twice the time (docs/DESIGN.md). */
#include "convert_codec.h"

#include <isa-l/crc.h>
#include <isa-l/igzip_lib.h>
#include <string.h>

enum {
    HEADER_FIXED = 10, /* bytes */
    METHOD_DEFLATE = 8,
    FLAG_HCRC = 0x02,
    FLAG_EXTRA = 0x04,
    FLAG_NAME = 0x08,
    FLAG_COMMENT = 0x10,
    FLAGS_RESERVED = 0xE0,
};

struct gzip_state {
    bool inside; /* of a member's data */
    uint32_t header_crc;
    struct inflate_state isal;
};

/* At most so many bytes can be given back: what ISA-L keeps in its bit buffer. */
_Static_assert(sizeof((struct inflate_state *)0)->read_in <= CONVERT_SOURCE_BACK, "bit buffer");

static int gzip_open(struct convert_codec *codec, struct err *err)
{
    struct gzip_state *state = aligned_alloc(64, (sizeof *state + 63) / 64 * 64);
    if (!state)
        return err_errno(err, ENOMEM, "cannot read gzip data");
    memset(state, 0, sizeof *state);
    codec->state = state;
    return 0;
}

static void gzip_close(struct convert_codec *codec)
{
    free(codec->state);
}

static int damaged(const char *why, struct err *err)
{
    return err_fail(err, ERR_DAMAGED, "the archive's gzip data is damaged: %s", why);
}

/* Header bytes that must be there; borrowed until the next call for the source. */
static int header_bytes(struct convert_codec *codec, size_t len, const uint8_t **ret,
                        struct err *err)
{
    struct convert_source *source = codec->source;
    struct gzip_state *state = codec->state;
    int rc = convert_source_fill(source, len, err);
    if (rc < 0)
        return rc;
    if (source->in_len - source->in_pos < len)
        return convert_source_truncated("gzip", err);
    *ret = (const uint8_t *)source->in + source->in_pos;
    state->header_crc = crc32_gzip_refl(state->header_crc, *ret, len);
    source->in_pos += len;
    return 0;
}

/* A name or comment, of any length, up to its NUL byte. */
static int skip_text(struct convert_codec *codec, struct err *err)
{
    const uint8_t *byte = NULL;
    int rc;
    do
        rc = header_bytes(codec, 1, &byte, err);
    while (rc == 0 && *byte != 0);
    return rc;
}

static int skip_extra(struct convert_codec *codec, struct err *err)
{
    const uint8_t *bytes = NULL;
    int rc = header_bytes(codec, 2, &bytes, err);
    if (rc < 0)
        return rc;
    return header_bytes(codec, (size_t)bytes[0] | (size_t)bytes[1] << 8, &bytes, err);
}

static int check_header_crc(struct convert_codec *codec, struct err *err)
{
    struct gzip_state *state = codec->state;
    const uint32_t crc = state->header_crc & 0xFFFF;
    const uint8_t *bytes = NULL;
    int rc = header_bytes(codec, 2, &bytes, err);
    if (rc < 0)
        return rc;
    return (bytes[0] | (uint32_t)bytes[1] << 8) == crc ? 0 : damaged("wrong header checksum", err);
}

/* A member's header (2.3), whose first two bytes are known to be right. */
static int begin_member(struct convert_codec *codec, struct err *err)
{
    struct gzip_state *state = codec->state;
    state->header_crc = 0;
    const uint8_t *fixed = NULL;
    int rc = header_bytes(codec, HEADER_FIXED, &fixed, err);
    if (rc < 0)
        return rc;
    const unsigned flags = fixed[3];
    if (fixed[2] != METHOD_DEFLATE)
        return damaged("unknown compression method", err);
    if (flags & FLAGS_RESERVED)
        return damaged("unknown header flags", err);
    if (flags & FLAG_EXTRA)
        rc = skip_extra(codec, err);
    if (rc == 0 && (flags & FLAG_NAME))
        rc = skip_text(codec, err);
    if (rc == 0 && (flags & FLAG_COMMENT))
        rc = skip_text(codec, err);
    if (rc == 0 && (flags & FLAG_HCRC))
        rc = check_header_crc(codec, err);
    if (rc < 0)
        return rc;
    isal_inflate_init(&state->isal);
    state->isal.crc_flag = ISAL_GZIP_NO_HDR_VER;
    state->inside = true;
    return 0;
}

/* Between two members: 1 when another begins, 0 at the end. */
static int next_member(struct convert_codec *codec, struct err *err)
{
    struct convert_source *source = codec->source;
    int rc = convert_source_fill(source, 2, err);
    if (rc < 0)
        return rc;
    const char *in = source->in + source->in_pos;
    if (source->in_len - source->in_pos < 2 || memcmp(in, "\x1f\x8b", 2) != 0)
        return convert_source_check_padding(source, "gzip", err);
    rc = begin_member(codec, err);
    return rc < 0 ? rc : 1;
}

static const char *reason(int code)
{
    switch (code) {
    case ISAL_INVALID_BLOCK:
        return "invalid block";
    case ISAL_INVALID_SYMBOL:
        return "invalid symbol";
    case ISAL_INVALID_LOOKBACK:
        return "invalid distance";
    case ISAL_INCORRECT_CHECKSUM:
        return "wrong checksum or length";
    default:
        return "no valid gzip data";
    }
}

static int inflate_some(struct convert_codec *codec, struct err *err)
{
    struct convert_source *source = codec->source;
    struct gzip_state *state = codec->state;
    int rc = convert_source_fill(source, 1, err);
    if (rc < 0)
        return rc;
    const size_t have = source->in_len - source->in_pos;
    const uint32_t room = state->isal.avail_out;
    state->isal.next_in = (uint8_t *)source->in + source->in_pos;
    state->isal.avail_in = (uint32_t)have;
    rc = isal_inflate(&state->isal);
    if (rc != ISAL_DECOMP_OK)
        return damaged(reason(rc), err);
    /* At a member's end ISA-L gives back what is left in its bit buffer, also bytes that an
     * earlier call took. */
    source->in_pos = (size_t)((char *)state->isal.next_in - source->in);
    if (state->isal.block_state == ISAL_BLOCK_FINISH)
        state->inside = false;
    else if (state->isal.avail_out == room && state->isal.avail_in == have)
        return have == 0 ? convert_source_truncated("gzip", err) : damaged(reason(rc), err);
    return 0;
}

static ssize_t gzip_read(struct convert_codec *codec, void *buf, size_t cap, struct err *err)
{
    struct gzip_state *state = codec->state;
    size_t done = 0;
    while (done < cap && (done == 0 || convert_source_is_ready(codec->source))) {
        int rc = state->inside ? 1 : next_member(codec, err);
        if (rc < 0)
            return rc;
        if (rc == 0)
            break;
        state->isal.next_out = (uint8_t *)buf + done;
        state->isal.avail_out = (uint32_t)(cap - done);
        rc = inflate_some(codec, err);
        if (rc < 0)
            return rc;
        done = cap - state->isal.avail_out;
    }
    return (ssize_t)done;
}

const struct convert_codec_kind convert_codec_gzip = {
    .name = "gzip", .open = gzip_open, .read = gzip_read, .close = gzip_close};
