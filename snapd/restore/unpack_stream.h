/* unpack_stream.h - the uncompressed tar stream of a blob, hashed to its last byte.
 *
 * The packing is told by the first bytes, whatever a media type said: gzip, zstd, xz, bzip2, else
 * the bytes are the tar itself. Several gzip members or zstd frames, skippable ones too, are one
 * stream. A stream that ends inside a member, that fails a checksum of its format, or that is
 * followed by anything but zero bytes is ERR_DAMAGED. zstd windows above 128 MiB are refused.
 *
 * Limits: the caller's number of uncompressed bytes, and the growth that unpack.h allows, measured
 * by the size of the whole blob. gzip cannot pass that (its best is about 1,032); zstd, which needs
 * four bytes for 128 KiB of one value, can.
 */
#pragma once

#include "cleanup.h"
#include "digest.h"
#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    UNPACK_STREAM_CHUNK = 256 * 1024, /* bytes of each of the two buffers */
    UNPACK_STREAM_ZSTD_WINDOW_LOG_MAX = 27,
};

struct unpack_stream;

/* One way of packing. `read` writes up to `cap` bytes and returns their number, 0 at the end of
 * the stream, or -errno. It takes its input through unpack_stream_fill(). */
struct unpack_codec {
    const char *name; /* for messages */
    int (*open)(struct unpack_stream *stream, struct err *err);
    ssize_t (*read)(struct unpack_stream *stream, void *buf, size_t cap, struct err *err);
    void (*close)(struct unpack_stream *stream); /* NULL when there is nothing to free */
};

extern const struct unpack_codec unpack_codec_gzip;
extern const struct unpack_codec unpack_codec_zstd;
/* xz and bzip2, through libarchive's own decoders; no program is ever started. */
extern const struct unpack_codec unpack_codec_other;

struct unpack_stream {
    int fd; /* borrowed */
    const struct unpack_codec *codec;
    void *state; /* the codec's; owned */
    char *in;    /* owned */
    size_t in_pos;
    size_t in_len; /* input is in[in_pos .. in_len) */
    bool in_end;   /* nothing comes after it */
    uint64_t size; /* of the blob */
    char *out;     /* owned */
    bool end;
    uint64_t total; /* uncompressed bytes so far */
    uint64_t max;
    uint64_t growth_free; /* UNPACK_GROWTH_FREE until the caller sets another */
    bool hashing;
    struct digest_stream hash;
};

/* Opens the blob at the position of `fd`. `any_codec` also accepts xz and bzip2. `hashing` asks for
 * the digest. */
int unpack_stream_open(int fd, bool any_codec, bool hashing, uint64_t max,
                       struct unpack_stream *ret, struct err *err);
/* The next bytes of the tar, borrowed until the next call. Returns their number, 0 at the end. */
ssize_t unpack_stream_read(struct unpack_stream *stream, const void **ret_bytes, struct err *err);
/* Digest of everything, once the end was reached. */
int unpack_stream_digest(struct unpack_stream *stream, struct digest *ret, struct err *err);
void unpack_stream_close(struct unpack_stream *stream);
#define cleanup_unpack_stream cleanup_with(unpack_stream_close)

/* For codecs: reads until `want` bytes of input are in the buffer, or the input ends. */
int unpack_stream_fill(struct unpack_stream *stream, size_t want, struct err *err);
/* For codecs: the stream ended where it must not. */
int unpack_stream_truncated(const struct unpack_stream *stream, struct err *err);
/* For codecs: 0 when what is left of the input are zero bytes, else ERR_DAMAGED. */
int unpack_stream_check_padding(struct unpack_stream *stream, struct err *err);
