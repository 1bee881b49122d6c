#include "convert_codec.h"

#include <string.h>

static ssize_t plain_read(struct convert_codec *codec, void *buf, size_t cap, struct err *err)
{
    return convert_source_read(codec->source, buf, cap, err);
}

static const struct convert_codec_kind codec_plain = {.name = "tar", .read = plain_read};

enum {
    MAGIC_MAX = 6, /* bytes of the longest */
};

static const struct {
    const char *magic;
    size_t len;
    const struct convert_codec_kind *kind;
} magics[] = {
    {"\x1f\x8b", 2, &convert_codec_gzip},
    {"\x28\xb5\x2f\xfd", 4, &convert_codec_zstd},
    {"\xfd"
     "7zXZ\0",
     6, &convert_codec_other},
};

/* Letters and a digit, with which the first name of a tar may begin too, so the beginning of a
 * block (or of the end) belongs to it. */
static bool is_bzip2(const char *bytes, size_t len)
{
    return len >= 6 && memcmp(bytes, "BZh", 3) == 0 && bytes[3] >= '1' && bytes[3] <= '9' &&
           (memcmp(bytes + 4, "\x31\x41", 2) == 0 || memcmp(bytes + 4, "\x17\x72", 2) == 0);
}

static int refuse_other(struct err *err)
{
    int rc = err_fail(err, ERR_UNSUPPORTED,
                      "the layer is packed with xz or bzip2, which OCI layers never are");
    err_hint(err, "layers are plain tar, gzip or zstd");
    return rc;
}

/* A zstd skippable frame (RFC 8878, 3.1.2) may come first. */
static bool is_skippable(const char *bytes, size_t len)
{
    return len >= 4 && ((unsigned char)bytes[0] & 0xF0) == 0x50 &&
           memcmp(bytes + 1, "\x2a\x4d\x18", 3) == 0;
}

static int choose(const struct convert_source *source, bool any_codec,
                  const struct convert_codec_kind **ret, struct err *err)
{
    const char *bytes = source->in + source->in_pos;
    size_t len = source->in_len - source->in_pos;
    *ret = is_skippable(bytes, len) ? &convert_codec_zstd
           : is_bzip2(bytes, len)   ? &convert_codec_other
                                    : &codec_plain;
    for (size_t i = 0; i < ARRAY_SIZE(magics); i++) {
        if (len >= magics[i].len && memcmp(bytes, magics[i].magic, magics[i].len) == 0)
            *ret = magics[i].kind;
    }
    return *ret == &convert_codec_other && !any_codec ? refuse_other(err) : 0;
}

int convert_codec_open(struct convert_source *source, bool any_codec, struct convert_codec *ret,
                       struct err *err)
{
    struct convert_codec codec = {.source = source};
    int rc = convert_source_fill(source, MAGIC_MAX, err);
    if (rc == 0)
        rc = choose(source, any_codec, &codec.kind, err);
    if (rc == 0 && codec.kind->open)
        rc = codec.kind->open(&codec, err);
    if (rc == 0)
        *ret = codec;
    return rc;
}

ssize_t convert_codec_read(struct convert_codec *codec, void *buf, size_t cap, struct err *err)
{
    return codec->kind->read(codec, buf, cap, err);
}

void convert_codec_close(struct convert_codec *codec)
{
    if (codec->kind && codec->kind->close && codec->state)
        codec->kind->close(codec);
    *codec = (struct convert_codec){.kind = NULL};
}
