#include "blobs_layout.h"
#include "fdio.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/file.h>
#include <sys/stat.h>

int blob_writer_begin(struct blobs *blobs, uint64_t size_max, struct blob_writer *ret,
                      struct err *err)
{
    assert(blobs->temp_fd >= 0); /* not a reader */
    cleanup_blob_writer struct blob_writer writer = BLOB_WRITER_INIT;
    writer.blobs = blobs;
    writer.size_max = size_max;
    int rc = publish_begin(blobs->temp_fd, 0444, &writer.publish, err);
    if (rc == 0)
        rc = digest_stream_init(&writer.stream, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot write a blob in %s", blobs->path);
    /* Keeps blobs_sweep_stale() of other daemons off. Where the file system has no locks, the age
     * alone does. */
    (void)flock(writer.publish.fd, LOCK_EX | LOCK_NB);
    *ret = writer;
    writer = (struct blob_writer)BLOB_WRITER_INIT;
    return 0;
}

static int write_bytes(struct blob_writer *writer, const void *bytes, size_t len, struct err *err)
{
    if (len > writer->size_max - writer->size)
        return err_fail(err, ERR_TOO_LARGE, "a blob is larger than the limit of %" PRIu64 " bytes",
                        writer->size_max);
    int rc = digest_stream_update(&writer->stream, bytes, len, err);
    if (rc < 0)
        return rc;
    rc = fdio_write_full(writer->publish.fd, bytes, len);
    if (rc < 0)
        return err_errno(err, rc, "cannot write a blob in %s", writer->blobs->path);
    writer->size += len;
    return 0;
}

int blob_writer_write(struct blob_writer *writer, const void *bytes, size_t len, struct err *err)
{
    int rc = write_bytes(writer, bytes, len, err);
    writer->broken = writer->broken || rc < 0;
    return rc;
}

int blob_writer_open_reader(const struct blob_writer *writer, struct err *err)
{
    const struct publish *publish = &writer->publish;
    int fd = openat(publish->temp_dir, publish->temp, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_errno(err, errno, "cannot read a blob in %s", writer->blobs->path) : fd;
}

static int check_expected(const struct blob_writer *writer, const struct digest *found,
                          const struct digest *expected, uint64_t expected_size, struct err *err)
{
    struct digest_text found_text = digest_format(found);
    bool size_fits = expected_size == UINT64_MAX || expected_size == writer->size;
    if (expected && !digest_equal(expected, found)) {
        char wanted_size[48] = "";
        if (!size_fits)
            snprintf(wanted_size, sizeof wanted_size, " of %" PRIu64 " bytes", expected_size);
        return err_fail(err, ERR_DIGEST,
                        "the bytes are not blob %s%s: they are %" PRIu64 " bytes with the digest "
                        "%s",
                        digest_format(expected).s, wanted_size, writer->size, found_text.s);
    }
    if (!size_fits)
        return err_fail(err, ERR_DIGEST,
                        "blob %s has %" PRIu64 " bytes, but %" PRIu64 " were announced",
                        found_text.s, writer->size, expected_size);
    return 0;
}

int blob_writer_commit(struct blob_writer *writer, const struct digest *expected,
                       uint64_t expected_size, struct digest *ret, struct err *err)
{
    struct blobs *blobs = writer->blobs;
    struct digest found;
    if (writer->broken)
        return err_fail(err, ERR_INTERNAL, "a blob is not stored in %s, as a write of it failed",
                        blobs->path);
    int rc = digest_stream_finish(&writer->stream, &found, err);
    if (rc == 0)
        rc = check_expected(writer, &found, expected, expected_size, err);
    if (rc == 0 && writer->claim)
        rc = writer->claim(writer->claim_arg, &found, err);
    if (rc == 0 && !writer->replace)
        rc = blobs_settle(blobs, &found, writer->size, err);
    if (rc < 0)
        return rc;
    if (rc == 0) {
        /* (I1) PUBLISH_REPLACE: whatever has the name now is damaged, or the same bytes. */
        rc = publish_commit(&writer->publish, blobs->blobs_fd, digest_hex(&found).s,
                            PUBLISH_REPLACE, err);
        if (rc < 0)
            return err_wrap(err, rc, "cannot store blob %s in %s", digest_format(&found).s,
                            blobs->path);
    }
    *ret = found;
    return 0;
}

void blob_writer_free(struct blob_writer *writer)
{
    if (!writer->blobs)
        return;
    digest_stream_free(&writer->stream);
    publish_abort(&writer->publish);
    writer->blobs = NULL;
}
