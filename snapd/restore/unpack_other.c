/* xz and bzip2, which users' archives come in, by libarchive's decoders in this process. */
#include "unpack_stream.h"

#include <archive.h>
#include <archive_entry.h>
#include <string.h>

struct other_state {
    struct archive *archive;
    struct err err; /* of the callback */
};

static la_ssize_t feed(struct archive *archive, void *arg, const void **ret)
{
    struct unpack_stream *stream = arg;
    struct other_state *state = stream->state;
    int rc = unpack_stream_fill(stream, 1, &state->err);
    if (rc < 0) {
        archive_set_error(archive, -rc, "cannot read");
        return -1;
    }
    *ret = stream->in + stream->in_pos;
    la_ssize_t n = (la_ssize_t)(stream->in_len - stream->in_pos);
    stream->in_pos = stream->in_len;
    return n;
}

static int report(const struct unpack_stream *stream, struct err *err)
{
    struct other_state *state = stream->state;
    if (state->err.code != ERR_NONE) {
        if (err)
            *err = state->err;
        return -state->err.num;
    }
    const char *why = archive_error_string(state->archive);
    return err_fail(err, ERR_DAMAGED, "the archive's %s data is damaged or ends early: %s",
                    stream->codec->name, why ? why : "no reason given");
}

static void other_close(struct unpack_stream *stream)
{
    struct other_state *state = stream->state;
    archive_read_free(state->archive);
    free(state);
}

/* libarchive borrows the stream by address, so it is opened at the first read, when the stream
 * has its final place. */
static int other_open(struct unpack_stream *stream, struct err *err)
{
    struct other_state *state = calloc(1, sizeof *state);
    struct archive *archive = state ? archive_read_new() : NULL;
    if (!archive) {
        free(state);
        return err_errno(err, ENOMEM, "cannot read compressed data");
    }
    state->archive = archive;
    stream->state = state;
    if (archive_read_support_filter_xz(archive) != ARCHIVE_OK ||
        archive_read_support_filter_bzip2(archive) != ARCHIVE_OK ||
        archive_read_support_format_raw(archive) != ARCHIVE_OK)
        return err_fail(err, ERR_UNSUPPORTED,
                        "this host's libarchive was built without xz or bzip2");
    return 0;
}

static ssize_t other_read(struct unpack_stream *stream, void *buf, size_t cap, struct err *err)
{
    struct other_state *state = stream->state;
    struct archive_entry *entry;
    if (stream->total == 0 && archive_file_count(state->archive) == 0 &&
        (archive_read_open(state->archive, stream, NULL, feed, NULL) != ARCHIVE_OK ||
         archive_read_next_header(state->archive, &entry) != ARCHIVE_OK))
        return report(stream, err);
    ssize_t n = archive_read_data(state->archive, buf, cap);
    if (n < 0)
        return report(stream, err);
    return n;
}

const struct unpack_codec unpack_codec_other = {
    .name = "compressed", .open = other_open, .read = other_read, .close = other_close};
