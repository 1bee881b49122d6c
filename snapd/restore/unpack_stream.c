#include "unpack_stream.h"

#include "fdio.h"
#include "unpack.h"

#include <string.h>
#include <sys/stat.h>

static ssize_t plain_read(struct unpack_stream *stream, void *buf, size_t cap, struct err *err)
{
    int rc = unpack_stream_fill(stream, 1, err);
    if (rc < 0)
        return rc;
    size_t n = stream->in_len - stream->in_pos;
    if (n > cap)
        n = cap;
    memcpy(buf, stream->in + stream->in_pos, n);
    stream->in_pos += n;
    return (ssize_t)n;
}

static const struct unpack_codec codec_plain = {.name = "tar", .read = plain_read};

static const struct {
    const char *magic;
    size_t len;
    const struct unpack_codec *codec;
    bool only_any; /* not a packing of OCI layers */
} magics[] = {
    {"\x1f\x8b", 2, &unpack_codec_gzip, false},
    {"\x28\xb5\x2f\xfd", 4, &unpack_codec_zstd, false},
    {"\xfd"
     "7zXZ\0",
     6, &unpack_codec_other, true},
    {"BZh", 3, &unpack_codec_other, true},
};

/* A zstd skippable frame (RFC 8878, 3.1.2) may come first. */
static bool is_skippable(const char *bytes, size_t len)
{
    return len >= 4 && ((unsigned char)bytes[0] & 0xF0) == 0x50 &&
           memcmp(bytes + 1, "\x2a\x4d\x18", 3) == 0;
}

static int choose_codec(struct unpack_stream *stream, bool any_codec, struct err *err)
{
    const char *bytes = stream->in + stream->in_pos;
    size_t len = stream->in_len - stream->in_pos;
    stream->codec = is_skippable(bytes, len) ? &unpack_codec_zstd : &codec_plain;
    for (size_t i = 0; i < ARRAY_SIZE(magics); i++) {
        if (len < magics[i].len || memcmp(bytes, magics[i].magic, magics[i].len) != 0)
            continue;
        if (magics[i].only_any && !any_codec) {
            int rc = err_fail(err, ERR_UNSUPPORTED,
                              "the layer is packed with xz or bzip2, which OCI layers never are");
            err_hint(err, "layers are plain tar, gzip or zstd");
            return rc;
        }
        stream->codec = magics[i].codec;
    }
    return 0;
}

int unpack_stream_open(int fd, bool any_codec, bool hashing, uint64_t max,
                       struct unpack_stream *ret, struct err *err)
{
    cleanup_unpack_stream struct unpack_stream stream = {
        .fd = fd, .max = max, .growth_free = UNPACK_GROWTH_FREE, .hashing = hashing};
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot stat the archive");
    stream.size = (uint64_t)st.st_size;
    stream.in = malloc(UNPACK_STREAM_CHUNK);
    stream.out = malloc(UNPACK_STREAM_CHUNK);
    if (!stream.in || !stream.out)
        return err_errno(err, ENOMEM, "cannot read the archive");
    if (hashing) {
        int rc = digest_stream_init(&stream.hash, err);
        if (rc < 0)
            return rc;
    }
    int rc = unpack_stream_fill(&stream, 6, err);
    if (rc < 0)
        return rc;
    rc = choose_codec(&stream, any_codec, err);
    if (rc < 0)
        return rc;
    if (stream.codec->open) {
        rc = stream.codec->open(&stream, err);
        if (rc < 0)
            return rc;
    }
    *ret = stream;
    stream = (struct unpack_stream){.fd = -1};
    return 0;
}

int unpack_stream_fill(struct unpack_stream *stream, size_t want, struct err *err)
{
    if (stream->in_len - stream->in_pos >= want || stream->in_end)
        return 0;
    memmove(stream->in, stream->in + stream->in_pos, stream->in_len - stream->in_pos);
    stream->in_len -= stream->in_pos;
    stream->in_pos = 0;
    size_t room = UNPACK_STREAM_CHUNK - stream->in_len;
    ssize_t n = fdio_read_full(stream->fd, stream->in + stream->in_len, room);
    if (n < 0)
        return err_errno(err, (int)n, "cannot read the archive");
    stream->in_end = (size_t)n < room;
    stream->in_len += (size_t)n;
    return 0;
}

int unpack_stream_truncated(const struct unpack_stream *stream, struct err *err)
{
    return err_fail(err, ERR_DAMAGED, "the archive ends in the middle of its %s data",
                    stream->codec->name);
}

int unpack_stream_check_padding(struct unpack_stream *stream, struct err *err)
{
    for (;;) {
        int rc = unpack_stream_fill(stream, 1, err);
        if (rc < 0)
            return rc;
        if (stream->in_pos == stream->in_len)
            return 0;
        for (; stream->in_pos < stream->in_len; stream->in_pos++)
            if (stream->in[stream->in_pos] != 0)
                return err_fail(err, ERR_DAMAGED,
                                "the archive is damaged: its %s data is followed by other bytes",
                                stream->codec->name);
    }
}

static int check_limits(const struct unpack_stream *stream, struct err *err)
{
    if (stream->total > stream->max)
        return err_fail(err, ERR_TOO_LARGE, "the archive holds more than %llu bytes of data",
                        (unsigned long long)stream->max);
    if (unpack_grows_too_much(stream->total, stream->size, stream->growth_free))
        return err_fail(err, ERR_TOO_LARGE,
                        "the archive grows to more than %d times its size, like one that is made "
                        "to fill disks",
                        UNPACK_GROWTH_MAX);
    return 0;
}

ssize_t unpack_stream_read(struct unpack_stream *stream, const void **ret_bytes, struct err *err)
{
    if (stream->end)
        return 0;
    ssize_t n = stream->codec->read(stream, stream->out, UNPACK_STREAM_CHUNK, err);
    if (n < 0)
        return n;
    stream->end = n == 0;
    stream->total += (uint64_t)n;
    int rc = check_limits(stream, err);
    if (rc == 0 && stream->hashing)
        rc = digest_stream_update(&stream->hash, stream->out, (size_t)n, err);
    if (rc < 0)
        return rc;
    *ret_bytes = stream->out;
    return n;
}

int unpack_stream_digest(struct unpack_stream *stream, struct digest *ret, struct err *err)
{
    return digest_stream_finish(&stream->hash, ret, err);
}

void unpack_stream_close(struct unpack_stream *stream)
{
    if (stream->codec && stream->codec->close && stream->state)
        stream->codec->close(stream);
    if (stream->hashing)
        digest_stream_free(&stream->hash);
    free(stream->in);
    free(stream->out);
    *stream = (struct unpack_stream){.fd = -1};
}
