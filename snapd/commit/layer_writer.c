#include "layer_writer.h"

#include "convert.h"
#include "tar_count.h"

#include <inttypes.h>
#include <string.h>

enum {
    STAGE_BYTES = 256 * 1024, /* small pieces are gathered to so much before they are hashed */
    ZERO_BYTES = 64 * 1024,
};

struct layer_writer {
    struct blob_writer blob;
    struct digest_stream diff;
    struct tar_count count;
    struct layer_zstd zstd;
    unsigned char *stage; /* owned */
    size_t staged;
    struct buf header;
    struct buf records;
    uint64_t left; /* bytes of content that the current entry still needs */
    unsigned pad;  /* zeros that follow it */
    uint64_t tar_size;
    uint64_t entries;
    uint64_t bytes;
};

static const unsigned char zeros[ZERO_BYTES];

int layer_writer_begin(struct blobs *blobs, struct layer_writer **ret, struct err *err)
{
    cleanup_layer_writer struct layer_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return err_errno(err, ENOMEM, "cannot write a layer");
    writer->blob = (struct blob_writer)BLOB_WRITER_INIT;
    writer->header = (struct buf)BUF_INIT(2 * TAR_PAX_MAX);
    writer->records = (struct buf)BUF_INIT(TAR_PAX_MAX);
    tar_count_init(&writer->count);
    writer->stage = malloc(STAGE_BYTES);
    if (!writer->stage)
        return err_errno(err, ENOMEM, "cannot write a layer");
    int rc = layer_zstd_begin(&writer->zstd, err);
    if (rc == 0)
        rc = digest_stream_init(&writer->diff, err);
    if (rc == 0)
        rc = blob_writer_begin(blobs, UINT64_MAX, &writer->blob, err);
    if (rc < 0)
        return rc;
    *ret = steal_ptr(writer);
    return 0;
}

void layer_writer_set_claim(struct layer_writer *writer, blob_claim claim, void *arg)
{
    writer->blob.claim = claim;
    writer->blob.claim_arg = arg;
}

void layer_writer_free(struct layer_writer *writer)
{
    if (!writer)
        return;
    blob_writer_free(&writer->blob);
    digest_stream_free(&writer->diff);
    tar_count_free(&writer->count);
    layer_zstd_free(&writer->zstd);
    free(writer->stage);
    buf_free(&writer->header);
    buf_free(&writer->records);
    free(writer);
}

/* Bytes of the tar, in large pieces. */
static int sink(struct layer_writer *writer, const void *bytes, size_t len, struct err *err)
{
    if (len == 0)
        return 0;
    writer->tar_size += len;
    if (writer->tar_size > CONVERT_BYTES_MAX)
        return err_fail(err, ERR_TOO_LARGE, "a layer of more than %llu bytes cannot be restored",
                        (unsigned long long)CONVERT_BYTES_MAX);
    int rc = digest_stream_update(&writer->diff, bytes, len, err);
    if (rc == 0)
        rc = tar_count_feed(&writer->count, bytes, len, err);
    return rc == 0 ? layer_zstd_write(&writer->zstd, &writer->blob, bytes, len, err) : rc;
}

static int flush_stage(struct layer_writer *writer, struct err *err)
{
    size_t len = writer->staged;
    writer->staged = 0;
    return sink(writer, writer->stage, len, err);
}

/* Bytes of the tar, in pieces of any size. */
static int put(struct layer_writer *writer, const void *bytes, size_t len, struct err *err)
{
    bool large = len > STAGE_BYTES / 2;
    if (large || len > STAGE_BYTES - writer->staged) {
        int rc = flush_stage(writer, err);
        if (rc < 0)
            return rc;
    }
    if (large)
        return sink(writer, bytes, len, err);
    memcpy(writer->stage + writer->staged, bytes, len);
    writer->staged += len;
    return 0;
}

static int check_complete(const struct layer_writer *writer, struct err *err)
{
    if (writer->left == 0)
        return 0;
    return err_fail(err, ERR_INTERNAL, "an entry of the layer lacks %llu bytes of content",
                    (unsigned long long)writer->left);
}

int layer_writer_add(struct layer_writer *writer, const struct tar_entry *entry, struct err *err)
{
    int rc = check_complete(writer, err);
    if (rc < 0)
        return rc;
    if (writer->entries == CONVERT_ENTRIES_MAX)
        return err_fail(err, ERR_TOO_LARGE, "a layer of more than %d entries cannot be restored",
                        CONVERT_ENTRIES_MAX);
    writer->header.len = 0;
    rc = tar_header_add(entry, &writer->records, &writer->header, err);
    if (rc == 0)
        rc = put(writer, writer->header.data, writer->header.len, err);
    if (rc < 0)
        return rc;
    writer->entries++;
    writer->left = entry->type == TAR_FILE ? entry->size : 0;
    writer->pad = (unsigned)(-writer->left % TAR_BLOCK);
    return 0;
}

/* Notes that content was written; the last byte is followed by the padding. */
static int advance(struct layer_writer *writer, uint64_t len, struct err *err)
{
    writer->bytes += len;
    writer->left -= len;
    return writer->left == 0 && len > 0 ? put(writer, zeros, writer->pad, err) : 0;
}

static int check_room(const struct layer_writer *writer, uint64_t len, struct err *err)
{
    if (len <= writer->left)
        return 0;
    return err_fail(err, ERR_INTERNAL, "an entry of the layer has more content than announced");
}

int layer_writer_data(struct layer_writer *writer, const void *bytes, size_t len, struct err *err)
{
    int rc = check_room(writer, len, err);
    if (rc == 0)
        rc = put(writer, bytes, len, err);
    return rc == 0 ? advance(writer, len, err) : rc;
}

int layer_writer_zeros(struct layer_writer *writer, uint64_t len, struct err *err)
{
    int rc = check_room(writer, len, err);
    for (uint64_t left = len; left > 0 && rc == 0;) {
        size_t n = left < ZERO_BYTES ? (size_t)left : ZERO_BYTES;
        rc = put(writer, zeros, n, err);
        left -= n;
    }
    return rc == 0 ? advance(writer, len, err) : rc;
}

/* What was walked, what was written and what an independent reader finds must be the same. */
static int compare_counts(const struct layer_writer *writer, uint64_t entries, uint64_t bytes,
                          struct err *err)
{
    int rc = tar_count_finish(&writer->count, err);
    if (rc < 0)
        return rc;
    const struct {
        const char *who;
        uint64_t entries;
        uint64_t bytes;
    } others[] = {{"were written", writer->entries, writer->bytes},
                  {"are in it", writer->count.entries, writer->count.bytes}};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (others[i].entries != entries || others[i].bytes != bytes)
            return err_fail(err, ERR_DAMAGED,
                            "the layer is not complete: %" PRIu64 " entries with %" PRIu64
                            " bytes were read, %" PRIu64 " entries with %" PRIu64 " bytes %s",
                            entries, bytes, others[i].entries, others[i].bytes, others[i].who);
    return 0;
}

/* More than 128 GiB of almost nothing but zeros or repetition. */
static int check_growth(const struct layer_writer *writer, struct err *err)
{
    if (!convert_grows_too_much(writer->tar_size, writer->blob.size, CONVERT_GROWTH_FREE))
        return 0;
    int rc = err_fail(err, ERR_TOO_LARGE,
                      "a layer that grows from %" PRIu64 " to %" PRIu64
                      " bytes, more than %d times, cannot be restored",
                      writer->blob.size, writer->tar_size, CONVERT_GROWTH_MAX);
    err_hint(err, "remove the large files that hold zeros or one repeated text");
    return rc;
}

int layer_writer_finish(struct layer_writer *writer, uint64_t entries, uint64_t bytes,
                        struct layer_written *ret, struct err *err)
{
    struct layer_written written = {0};
    int rc = check_complete(writer, err);
    if (rc == 0)
        rc = put(writer, zeros, 2 * TAR_BLOCK, err);
    if (rc == 0)
        rc = flush_stage(writer, err);
    if (rc == 0)
        rc = compare_counts(writer, entries, bytes, err);
    if (rc == 0)
        rc = layer_zstd_finish(&writer->zstd, &writer->blob, err);
    if (rc == 0)
        rc = check_growth(writer, err);
    if (rc == 0)
        rc = digest_stream_finish(&writer->diff, &written.diff_id, err);
    if (rc < 0)
        return rc;
    written.size = writer->blob.size;
    written.tar_size = writer->tar_size;
    written.entries = writer->entries;
    written.bytes = writer->bytes;
    rc = blob_writer_commit(&writer->blob, NULL, UINT64_MAX, &written.digest, err);
    if (rc == 0)
        *ret = written;
    return rc;
}
