#include "unpack_tar.h"

#include "path_text.h"
#include "unpack_entry.h"
#include "unpack_marker.h"
#include "unpack_member.h"
#include "unpack_stream.h"

#include <archive.h>
#include <archive_entry.h>
#include <limits.h>
#include <string.h>

enum {
    BLOCK = 512, /* bytes of a tar block */
};

struct reader {
    const struct unpack_tar *tar;
    struct archive *archive; /* owned */
    struct unpack_stream stream;
    struct unpack_markers markers;
    struct err err; /* of the stream, noticed inside libarchive */
    uint64_t entries;
    int64_t data_end; /* position in the tar after the last member */
};

static void reader_close(struct reader *reader)
{
    archive_read_free(reader->archive);
    unpack_stream_close(&reader->stream);
    unpack_markers_free(&reader->markers);
}
#define cleanup_reader cleanup_with(reader_close)

static la_ssize_t feed(struct archive *archive, void *arg, const void **ret)
{
    struct reader *reader = arg;
    ssize_t n = unpack_stream_read(&reader->stream, ret, &reader->err);
    if (n < 0)
        archive_set_error(archive, EIO, "cannot read");
    return n < 0 ? -1 : n;
}

/* What libarchive could not do. The stream's own failure is the better sentence. */
static int archive_failed(struct reader *reader, const char *what, struct err *err)
{
    if (reader->err.code != ERR_NONE) {
        if (err)
            *err = reader->err;
        return -reader->err.num;
    }
    const char *why = archive_error_string(reader->archive);
    if (archive_errno(reader->archive) == ENOMEM)
        return err_fail(err, ERR_TOO_LARGE, "%s needs more memory than unpacking may use", what);
    /* No format yet: not one header was recognized. */
    if (archive_format(reader->archive) == 0)
        return err_fail(err, ERR_DAMAGED,
                        "%s is no tar, plain or packed by gzip, zstd, xz or bzip2", what);
    return err_fail(err, ERR_DAMAGED, "%s is damaged or ends early: %s", what,
                    path_text(why ? why : "no reason given").s);
}

static ssize_t next_data(void *arg, const void **ret_bytes, uint64_t *ret_offset, struct err *err)
{
    struct reader *reader = arg;
    size_t len;
    la_int64_t offset;
    for (;;) {
        int rc = archive_read_data_block(reader->archive, ret_bytes, &len, &offset);
        if (rc == ARCHIVE_EOF)
            return 0;
        if (rc != ARCHIVE_OK)
            return archive_failed(reader, "the archive", err);
        if (offset < 0 || len > SSIZE_MAX)
            return err_fail(err, ERR_DAMAGED, "its data has an impossible offset");
        *ret_offset = (uint64_t)offset;
        if (len > 0)
            return (ssize_t)len;
    }
}

/* Reads what a member has of data and is not used. */
static int skip_data(struct reader *reader, struct err *err)
{
    const void *bytes;
    uint64_t offset;
    ssize_t n;
    do
        n = next_data(reader, &bytes, &offset, err);
    while (n > 0);
    return (int)n;
}

/* A name that is not UTF-8 is given as it is, with this remark (3.6.2). */
static bool is_harmless(struct archive *archive)
{
    const char *why = archive_error_string(archive);
    return why && strstr(why, "can't be converted from UTF-8") != NULL;
}

/* The next header: 1, or 0 at the end-of-archive marker. */
static int next_header(struct reader *reader, struct archive_entry **ret, struct err *err)
{
    int rc = archive_read_next_header(reader->archive, ret);
    if (rc == ARCHIVE_EOF)
        return 0;
    if (rc == ARCHIVE_OK || (rc == ARCHIVE_WARN && is_harmless(reader->archive)))
        return 1;
    return archive_failed(reader, "the archive", err);
}

/* One member that is no marker. */
static int make_member(struct reader *reader, struct archive_entry *entry, const char *path,
                       struct err *err)
{
    struct unpack_member_store store;
    struct unpack_member member;
    int rc = unpack_member_read(reader->tar->tree, entry, path, &store, &member, err);
    if (rc < 0)
        return rc;
    rc = unpack_entry(reader->tar->tree, &member, next_data, reader, err);
    unpack_attr_free(&member.attr);
    return rc;
}

static int take(struct reader *reader, struct archive_entry *entry, struct err *err)
{
    char path[UNPACK_PATH_MAX];
    enum unpack_marker_kind kind;
    const char *raw = archive_entry_pathname(entry);
    int rc = unpack_path_normalise(raw ? raw : "", path, err);
    if (rc == 0)
        rc = unpack_marker_parse(path, &kind, err);
    if (rc < 0)
        return rc;
    if (kind == UNPACK_MARKER_NONE) {
        rc = make_member(reader, entry, path, err);
    } else if (!reader->tar->tree->is_layer) {
        rc = err_fail(err, ERR_DAMAGED,
                      "member %s is refused: names that begin with .wh. are marks "
                      "of image layers",
                      path_text(path).s);
        err_hint(err, "import the image that this layer belongs to, not the layer");
    } else if (kind != UNPACK_MARKER_IGNORED) {
        rc = unpack_marker_add(&reader->markers, kind, path, err);
    }
    return rc < 0 ? rc : skip_data(reader, err);
}

static int read_members(struct reader *reader, struct err *err)
{
    for (;;) {
        struct archive_entry *entry;
        int rc = next_header(reader, &entry, err);
        if (rc <= 0)
            return rc;
        if (++reader->entries > reader->tar->entries_max)
            return err_fail(err, ERR_TOO_LARGE, "the archive has more than %llu members",
                            (unsigned long long)reader->tar->entries_max);
        rc = take(reader, entry, err);
        if (rc < 0)
            return rc;
        reader->data_end = archive_filter_bytes(reader->archive, 0);
    }
}

/* After the last member libarchive has passed over the padding, less than a block, and the marker,
 * one block or two. */
static bool has_end_marker(const struct reader *reader)
{
    return archive_filter_bytes(reader->archive, 0) - reader->data_end >= BLOCK;
}

static int finish_stream(struct reader *reader, struct err *err)
{
    const void *bytes;
    ssize_t n;
    do
        n = unpack_stream_read(&reader->stream, &bytes, err);
    while (n > 0);
    if (n < 0)
        return (int)n;
    const struct digest *expected = reader->tar->diff_id;
    if (!expected && reader->stream.total == 0)
        return err_fail(err, ERR_DAMAGED, "the archive is empty");
    if (!expected && !has_end_marker(reader))
        return err_fail(err, ERR_DAMAGED, "the archive is cut off: it has no end marker");
    if (!expected)
        return 0;
    struct digest digest;
    int rc = unpack_stream_digest(&reader->stream, &digest, err);
    if (rc < 0 || digest_equal(&digest, expected))
        return rc;
    return err_fail(err, ERR_DIGEST, "the uncompressed layer has digest %s instead of %s",
                    digest_format(&digest).s, digest_format(expected).s);
}

static int reader_open(struct reader *reader, int fd, struct err *err)
{
    const struct unpack_tar *tar = reader->tar;
    int rc = unpack_stream_open(fd, !tar->tree->is_layer, tar->diff_id != NULL, tar->bytes_max,
                                &reader->stream, err);
    if (rc < 0)
        return rc;
    reader->stream.growth_free = tar->growth_free;
    reader->archive = archive_read_new();
    if (!reader->archive)
        return err_errno(err, ENOMEM, "cannot read the archive");
    if (archive_read_support_format_tar(reader->archive) != ARCHIVE_OK ||
        archive_read_support_format_empty(reader->archive) != ARCHIVE_OK ||
        archive_read_open(reader->archive, reader, NULL, feed, NULL) != ARCHIVE_OK)
        return archive_failed(reader, "the archive", err);
    return 0;
}

int unpack_tar_run(const struct unpack_tar *tar, int fd, struct err *err)
{
    cleanup_reader struct reader reader = {.tar = tar, .stream = {.fd = -1}};
    int rc = reader_open(&reader, fd, err);
    if (rc == 0)
        rc = read_members(&reader, err);
    if (rc == 0)
        rc = finish_stream(&reader, err);
    if (rc == 0)
        rc = unpack_marker_apply(&reader.markers, tar->tree, err);
    if (rc == 0)
        rc = unpack_tree_leave(tar->tree, err);
    return rc;
}
