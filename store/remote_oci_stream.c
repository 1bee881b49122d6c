/* A blob that goes into a shared layout while it is being made: a temporary file until the end. */

#include "remote_oci_internal.h"
#include "remote_stream.h"

struct oci_stream {
    struct remote_stream stream; /* first, so that the pointers are the same */
    struct blob_writer writer;
};

static int op_append(struct remote_stream *stream, const void *bytes, size_t len, struct err *err)
{
    struct oci_stream *oci = (struct oci_stream *)stream;
    int rc = blob_writer_write(&oci->writer, bytes, len, err);
    if (rc == 0 && stream->progress && stream->progress(stream->arg, oci->writer.size, 0) != 0)
        rc = err_fail(err, ERR_CANCELLED, "the upload was cancelled");
    return rc;
}

static int op_finish(struct remote_stream *stream, const struct digest *digest, struct err *err)
{
    struct oci_stream *oci = (struct oci_stream *)stream;
    struct digest found;
    return blob_writer_commit(&oci->writer, digest, stream->size, &found, err);
}

static void op_free(struct remote_stream *stream)
{
    struct oci_stream *oci = (struct oci_stream *)stream;
    blob_writer_free(&oci->writer);
    free(oci);
}

int remote_oci_blob_stream(struct remote *remote, const char *repository, remote_progress progress,
                           void *arg, struct remote_stream **ret, struct err *err)
{
    static const struct remote_stream_ops ops = {
        .append = op_append, .finish = op_finish, .free = op_free};
    (void)repository, (void)progress, (void)arg;
    struct oci_stream *oci = calloc(1, sizeof *oci);
    if (!oci)
        return err_errno(err, ENOMEM, "cannot begin an upload");
    *oci = (struct oci_stream){.stream = {.ops = &ops}, .writer = BLOB_WRITER_INIT};
    int rc = blob_writer_begin(remote_oci_blobs(remote), UINT64_MAX, &oci->writer, err);
    if (rc < 0) {
        op_free(&oci->stream);
        return rc;
    }
    *ret = &oci->stream;
    return 0;
}
