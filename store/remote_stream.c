#include "remote_stream.h"

#include "oci_image.h"
#include "remote_internal.h"

#include <string.h>

int remote_stream_begin(struct remote *remote, const char *repository, remote_progress progress,
                        void *arg, struct remote_stream **ret, struct err *err)
{
    cleanup_remote_stream struct remote_stream *stream = NULL;
    int rc = remote_check_repository(repository, err);
    if (rc == 0 && !remote->ops->blob_stream)
        rc = err_fail(err, ERR_UNSUPPORTED, "%s takes no blobs in pieces", remote->url);
    if (rc < 0)
        return rc;
    rc = remote->ops->blob_stream(remote, repository, progress, arg, &stream, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot begin an upload to %s", remote->url);
    stream->remote = remote;
    stream->progress = progress;
    stream->arg = arg;
    stream->repository = strdup(repository);
    if (!stream->repository)
        return err_errno(err, ENOMEM, "cannot begin an upload to %s", remote->url);
    rc = digest_stream_init(&stream->digest, err);
    if (rc < 0)
        return rc;
    *ret = steal_ptr(stream);
    return 0;
}

static int check_open(const struct remote_stream *stream, struct err *err)
{
    if (!stream->closed)
        return 0;
    return err_fail(err, ERR_INTERNAL, "the upload to %s has ended", stream->remote->url);
}

static int append(struct remote_stream *stream, const void *bytes, size_t len, struct err *err)
{
    if (len > (uint64_t)OCI_BLOB_BYTES_MAX - stream->size)
        return err_fail(err, ERR_TOO_LARGE, "a blob has at most %lld bytes",
                        (long long)OCI_BLOB_BYTES_MAX);
    int rc = digest_stream_update(&stream->digest, bytes, len, err);
    if (rc == 0)
        rc = stream->ops->append(stream, bytes, len, err);
    stream->size += len;
    return rc;
}

int remote_stream_append(struct remote_stream *stream, const void *bytes, size_t len,
                         struct err *err)
{
    int rc = check_open(stream, err);
    if (rc < 0 || len == 0)
        return rc;
    rc = append(stream, bytes, len, err);
    if (rc < 0) {
        stream->closed = true;
        err_wrap(err, rc, "cannot upload to %s", stream->remote->url);
    }
    return rc;
}

static int finish(struct remote_stream *stream, struct digest *digest, struct err *err)
{
    int rc = digest_stream_finish(&stream->digest, digest, err);
    if (rc == 0)
        rc = stream->ops->finish(stream, digest, err);
    if (rc == 0)
        rc = remote_prove_sent_blob(stream->remote, stream->repository, digest, stream->size, false,
                                    stream->progress, stream->arg, err);
    return rc;
}

int remote_stream_finish(struct remote_stream *stream, struct digest *ret, uint64_t *ret_size,
                         struct err *err)
{
    struct digest digest;
    int rc = check_open(stream, err);
    if (rc < 0)
        return rc;
    stream->closed = true;
    rc = finish(stream, &digest, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot upload to %s", stream->remote->url);
    *ret = digest;
    *ret_size = stream->size;
    return 0;
}

void remote_stream_free(struct remote_stream *stream)
{
    if (!stream)
        return;
    free(stream->repository);
    digest_stream_free(&stream->digest);
    stream->ops->free(stream);
}
