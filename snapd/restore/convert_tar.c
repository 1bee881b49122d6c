#include "convert_tar.h"

#include "path_text.h"

#include <archive.h>
#include <archive_entry.h>
#include <limits.h>
#include <string.h>

enum {
    BLOCK = 512, /* bytes of a tar block */
};

struct convert_tar {
    struct convert_stream *stream; /* borrowed */
    struct archive *archive;       /* owned */
    struct err err;                /* of the stream, noticed inside libarchive */
    uint64_t members;
    uint64_t data;     /* bytes of data that the current member has given */
    uint64_t data_end; /* position in the tar behind the data of the last member */
    uint64_t end;      /* the same with its padding */
    bool padded;       /* the last block was filled up with zeros */
    /* The last bytes that libarchive got: what it has now, and what came before that. */
    const char *piece; /* borrowed from the stream */
    size_t piece_len;
    char tail[2 * BLOCK];
    size_t tail_len;
};

static void tar_close(struct convert_tar *tar)
{
    archive_read_free(tar->archive);
}
#define cleanup_tar cleanup_with(tar_close)

/* Moves the end of the piece that is given back into the tail. */
static void keep_tail(struct convert_tar *tar)
{
    size_t take = tar->piece_len < sizeof tar->tail ? tar->piece_len : sizeof tar->tail;
    size_t keep = sizeof tar->tail - take < tar->tail_len ? sizeof tar->tail - take : tar->tail_len;
    memmove(tar->tail, tar->tail + tar->tail_len - keep, keep);
    if (take > 0)
        memcpy(tar->tail + keep, tar->piece + tar->piece_len - take, take);
    tar->tail_len = keep + take;
    tar->piece_len = 0;
}

/* libarchive does not read a last block that is not whole. */
static ssize_t fill_up(struct convert_tar *tar, const void **ret)
{
    static const char zeros[BLOCK];
    size_t missing = (BLOCK - convert_stream_bytes(tar->stream) % BLOCK) % BLOCK;
    if (missing == 0 || tar->padded || !convert_stream_has_expected(tar->stream))
        return 0;
    tar->padded = true;
    *ret = zeros;
    return (ssize_t)missing;
}

static la_ssize_t feed(struct archive *archive, void *arg, const void **ret)
{
    struct convert_tar *tar = arg;
    keep_tail(tar);
    ssize_t n = convert_stream_read(tar->stream, ret, &tar->err);
    if (n == 0)
        n = fill_up(tar, ret);
    if (n < 0) {
        archive_set_error(archive, EIO, "cannot read");
        return -1;
    }
    tar->piece = *ret;
    tar->piece_len = (size_t)n;
    return n;
}

/* What libarchive could not do. The stream's own failure is the better sentence. */
static int archive_failed(struct convert_tar *tar, struct err *err)
{
    if (tar->err.code != ERR_NONE) {
        if (err)
            *err = tar->err;
        return -tar->err.num;
    }
    const char *why = archive_error_string(tar->archive);
    if (archive_errno(tar->archive) == ENOMEM)
        return err_fail(err, ERR_TOO_LARGE, "the archive needs more memory than unpacking may use");
    /* No format yet: not one header was recognized. */
    if (archive_format(tar->archive) == 0)
        return err_fail(err, ERR_DAMAGED,
                        "the archive is no tar, plain or packed by gzip, zstd, xz or bzip2");
    return err_fail(err, ERR_DAMAGED, "the archive is damaged or ends early: %s",
                    path_text(why ? why : "no reason given").s);
}

ssize_t convert_tar_data(void *arg, const void **ret_bytes, uint64_t *ret_offset, struct err *err)
{
    struct convert_tar *tar = arg;
    size_t len;
    la_int64_t offset;
    for (;;) {
        int rc = archive_read_data_block(tar->archive, ret_bytes, &len, &offset);
        if (rc == ARCHIVE_EOF)
            return 0;
        if (rc != ARCHIVE_OK)
            return archive_failed(tar, err);
        if (offset < 0 || len > SSIZE_MAX)
            return err_fail(err, ERR_DAMAGED, "its data has an impossible offset");
        *ret_offset = (uint64_t)offset;
        tar->data += len;
        if (len > 0)
            return (ssize_t)len;
    }
}

/* Reads what a member has of data and is not used. */
static int skip_data(struct convert_tar *tar, struct err *err)
{
    const void *bytes;
    uint64_t offset;
    ssize_t n;
    do
        n = convert_tar_data(tar, &bytes, &offset, err);
    while (n > 0);
    return (int)n;
}

/* A name that cannot be brought from UTF-8 to the locale is given as it is, with this remark
 * (3.6.2). Which is what is wanted of all names, so the locale is left at "C": in one with UTF-8,
 * libarchive composes letters and accents (Unicode's form C), and the file has another name. */
static bool is_harmless(struct archive *archive)
{
    const char *why = archive_error_string(archive);
    return why && strstr(why, "can't be converted from UTF-8") != NULL;
}

/* Whether the member has given all the data that its size, or the map of a sparse file, tells of.
 * libarchive takes what is missing for zeros. A file may be one hole without a map. */
static int check_data(const struct convert_tar *tar, struct archive_entry *entry, struct err *err)
{
    if (archive_entry_hardlink(entry) || archive_entry_filetype(entry) != AE_IFREG)
        return 0;
    const int pieces = archive_entry_sparse_reset(entry);
    uint64_t expected = pieces == 0 ? (uint64_t)archive_entry_size(entry) : 0;
    la_int64_t offset;
    la_int64_t len;
    for (int i = 0; i < pieces; i++)
        if (archive_entry_sparse_next(entry, &offset, &len) == ARCHIVE_OK)
            expected += (uint64_t)len;
    if (tar->data >= expected || (tar->data == 0 && pieces == 0))
        return 0;
    return err_fail(
        err, ERR_DAMAGED,
        "member %s of the archive is damaged: it has %llu bytes of data instead of %llu",
        path_text(archive_entry_pathname(entry)).s, (unsigned long long)tar->data,
        (unsigned long long)expected);
}

/* The next header: 1, or 0 at the end-of-archive marker. */
static int next_header(struct convert_tar *tar, struct archive_entry **ret, struct err *err)
{
    int rc = archive_read_next_header(tar->archive, ret);
    if (rc == ARCHIVE_EOF)
        return 0;
    if (rc == ARCHIVE_OK || (rc == ARCHIVE_WARN && is_harmless(tar->archive)))
        return 1;
    return archive_failed(tar, err);
}

static int read_members(struct convert_tar *tar, uint64_t members_max, convert_tar_take *take,
                        void *arg, struct err *err)
{
    for (;;) {
        struct archive_entry *entry;
        int rc = next_header(tar, &entry, err);
        if (rc <= 0)
            return rc;
        if (++tar->members > members_max)
            return err_fail(err, ERR_TOO_LARGE, "the archive has more than %llu members",
                            (unsigned long long)members_max);
        tar->data = 0;
        rc = take(arg, tar, entry, err);
        if (rc == 0)
            rc = skip_data(tar, err);
        if (rc == 0)
            rc = check_data(tar, entry, err);
        if (rc < 0)
            return rc;
        /* libarchive has passed over the padding. */
        tar->end = (uint64_t)archive_filter_bytes(tar->archive, 0);
        tar->data_end = tar->end - (BLOCK - tar->data % BLOCK) % BLOCK;
    }
}

/* Whether libarchive has stopped at an end-of-archive marker, and not for want of bytes: then the
 * block before its position, behind the last member, is all zeros. */
static bool has_end_marker(const struct convert_tar *tar)
{
    uint64_t given = convert_stream_bytes(tar->stream);
    if (tar->padded)
        given += BLOCK - given % BLOCK;
    uint64_t piece_begin = given - tar->piece_len;
    uint64_t at = (uint64_t)archive_filter_bytes(tar->archive, 0);
    if (at < tar->end + BLOCK || at > given || at - BLOCK + tar->tail_len < piece_begin)
        return false;
    for (uint64_t i = at - BLOCK; i < at; i++) {
        char byte = i >= piece_begin ? tar->piece[i - piece_begin]
                                     : tar->tail[tar->tail_len - (piece_begin - i)];
        if (byte != 0)
            return false;
    }
    return true;
}

static int finish(struct convert_tar *tar, struct err *err)
{
    bool has_marker = has_end_marker(tar);
    const void *bytes;
    ssize_t n;
    do
        n = convert_stream_read(tar->stream, &bytes, err);
    while (n > 0);
    if (n < 0)
        return (int)n;
    uint64_t total = convert_stream_bytes(tar->stream);
    if (has_marker)
        return 0;
    if (convert_stream_has_expected(tar->stream)) {
        if (total >= tar->data_end && total <= tar->end)
            return 0;
        return err_fail(err, ERR_DAMAGED, "the archive ends in the middle of a member");
    }
    if (total == 0)
        return err_fail(err, ERR_DAMAGED, "the archive is empty");
    return err_fail(err, ERR_DAMAGED, "the archive is cut off: it has no end marker");
}

int convert_tar_read(struct convert_stream *stream, uint64_t members_max, convert_tar_take *take,
                     void *arg, struct err *err)
{
    cleanup_tar struct convert_tar tar = {.stream = stream, .archive = archive_read_new()};
    if (!tar.archive)
        return err_errno(err, ENOMEM, "cannot read the archive");
    if (archive_read_support_format_tar(tar.archive) != ARCHIVE_OK ||
        archive_read_support_format_empty(tar.archive) != ARCHIVE_OK ||
        archive_read_open(tar.archive, &tar, NULL, feed, NULL) != ARCHIVE_OK)
        return archive_failed(&tar, err);
    int rc = read_members(&tar, members_max, take, arg, err);
    return rc < 0 ? rc : finish(&tar, err);
}
