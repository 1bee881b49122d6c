/* convert_stream.h - the uncompressed tar stream of an archive, unpacked and hashed beside its
 * reader.
 *
 * Three threads share the work: one reads the archive as it grows and unpacks it into a ring of
 * buffers, one hashes them, and the caller gets them one after the other. A buffer is filled again
 * when both are through with it, so memory is bounded and the slowest of the three sets the pace.
 *
 *   convert_stream_open()    memory, digest and both threads, which wait
 *   convert_stream_start()   lets them go (after the process has confined itself)
 *   convert_stream_read()    until it returns 0
 *   convert_stream_close()   in any state
 *
 * The packing is told by the first bytes, whatever a media type said: gzip, zstd, with `any_codec`
 * also xz and bzip2, else the bytes are the tar itself. Several gzip members or zstd frames,
 * skippable ones too, are one stream. A stream that ends inside a member, that fails a checksum of
 * its format, or that is followed by other bytes is ERR_DAMAGED; zeros may follow all but zstd.
 * zstd windows above 128 MiB are refused.
 *
 * The end of the stream is the end of the archive, not the tar's end marker: whoever stops at the
 * marker reads on until convert_stream_read() returns 0. It does so only when the archive was whole
 * and its tar had the expected digest.
 *
 * Limits: the caller's number of uncompressed bytes, and the growth that convert.h allows, measured
 * by the size of the whole archive. gzip cannot pass that (its best is about 1,032); zstd, which
 * needs four bytes for 128 KiB of one value, can.
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
    CONVERT_STREAM_BUFFERS = 8,
    CONVERT_STREAM_CHUNK = 512 * 1024, /* bytes of each buffer */
};

struct convert_stream_options {
    int fd; /* the archive, read from offset 0; borrowed while the stream is open */
    /* Where the sizes of a growing archive come from (convert_wire.h), borrowed; -1: the archive is
     * there whole. */
    int growth_fd;
    bool any_codec;
    const struct digest *expected; /* of the tar, or NULL; copied */
    uint64_t archive_size;         /* that the archive will have; for the limit on growth */
    uint64_t bytes_max;
    uint64_t growth_free;
};

struct convert_stream;

int convert_stream_open(const struct convert_stream_options *options, struct convert_stream **ret,
                        struct err *err);
void convert_stream_start(struct convert_stream *stream);
/* The next bytes of the tar, borrowed until the next call. Returns their number, 0 at the end, or
 * -errno; a failure stays. */
ssize_t convert_stream_read(struct convert_stream *stream, const void **ret_bytes, struct err *err);
/* Bytes that convert_stream_read() has given so far. */
uint64_t convert_stream_bytes(const struct convert_stream *stream);
/* Whether a digest is expected, so that the stream's end is proof that the tar is whole. */
bool convert_stream_has_expected(const struct convert_stream *stream);
/* Digest of everything, after convert_stream_read() has returned 0. */
const struct digest *convert_stream_digest(const struct convert_stream *stream);
void convert_stream_close(struct convert_stream *stream); /* NULL is fine */

static inline void convert_stream_closep(struct convert_stream **stream)
{
    convert_stream_close(*stream);
}
#define cleanup_convert_stream cleanup_with(convert_stream_closep)
