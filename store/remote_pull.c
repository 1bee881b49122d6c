#include "oci_image.h"
#include "remote_internal.h"

#include <inttypes.h>

/* A download on its way into the store. */
struct pull {
    struct blob_writer writer;
    uint64_t size; /* UINT64_MAX: any */
    remote_progress progress;
    void *arg;
    const struct remote_watch *watch; /* NULL: nobody */
    int rc; /* of the first failure here, whatever the implementation makes of it */
};

static int on_pull_progress(void *arg, uint64_t done, uint64_t total)
{
    const struct pull *pull = arg;
    (void)done;
    total = pull->size == UINT64_MAX ? 0 : pull->size;
    return pull->progress ? pull->progress(pull->arg, pull->writer.size, total) : 0;
}

static int take(struct pull *pull, const void *bytes, size_t len, struct err *err)
{
    if (pull->size != UINT64_MAX && len > pull->size - pull->writer.size)
        return err_fail(err, ERR_DIGEST, "more than the announced %" PRIu64 " bytes arrive",
                        pull->size);
    int rc = blob_writer_write(&pull->writer, bytes, len, err);
    if (rc == 0 && pull->watch)
        rc = pull->watch->grown(pull->watch->arg, pull->writer.size, err);
    if (rc < 0)
        return rc;
    if (on_pull_progress(pull, 0, 0) != 0)
        return err_fail(err, ERR_CANCELLED, "the download was cancelled");
    return 0;
}

static int pull_sink(void *arg, const void *bytes, size_t len, struct err *err)
{
    struct pull *pull = arg;
    if (pull->rc == 0)
        pull->rc = take(pull, bytes, len, err);
    return pull->rc;
}

static int tell_begun(const struct pull *pull, struct err *err)
{
    if (!pull->watch)
        return 0;
    cleanup_fd int fd = blob_writer_open_reader(&pull->writer, err);
    return fd < 0 ? fd : pull->watch->begun(pull->watch->arg, fd, err);
}

static int download(struct remote *remote, const char *repository, struct blobs *blobs,
                    const struct digest *digest, struct pull *pull, struct err *err)
{
    uint64_t limit = pull->size == UINT64_MAX ? (uint64_t)OCI_BLOB_BYTES_MAX : pull->size;
    int rc = blob_writer_begin(blobs, limit, &pull->writer, err);
    if (rc == 0)
        rc = tell_begun(pull, err);
    if (rc < 0)
        return rc;
    rc = remote->ops->blob_get(remote, repository, digest, pull->size, pull_sink, pull,
                               on_pull_progress, pull, err);
    if (rc >= 0)
        rc = pull->rc;
    struct digest found;
    if (rc == 0)
        rc = blob_writer_commit(&pull->writer, digest, pull->size, &found, err);
    return rc;
}

int remote_pull_blob(struct remote *remote, const char *repository, struct blobs *blobs,
                     const struct digest *digest, uint64_t size, remote_progress progress,
                     void *arg, const struct remote_watch *watch, bool *ret_downloaded,
                     struct err *err)
{
    int rc = remote_check_repository(repository, err);
    if (rc < 0)
        return rc;
    int present = blobs_settle(blobs, digest, size, err);
    if (present < 0)
        return present;
    if (!present) {
        struct pull pull = {.writer = BLOB_WRITER_INIT,
                            .size = size,
                            .progress = progress,
                            .arg = arg,
                            .watch = watch};
        rc = download(remote, repository, blobs, digest, &pull, err);
        blob_writer_free(&pull.writer);
        if (rc < 0)
            return err_wrap(err, rc, "cannot fetch blob %s from %s", digest_format(digest).s,
                            remote->url);
    }
    if (ret_downloaded)
        *ret_downloaded = !present;
    return 0;
}

int remote_blob_read(struct remote *remote, const char *repository, const struct digest *digest,
                     uint64_t offset, void *into, size_t len, remote_progress progress, void *arg,
                     struct err *err)
{
    int rc = remote_check_repository(repository, err);
    if (rc == 0 && (len > REMOTE_READ_MAX || offset > (uint64_t)OCI_BLOB_BYTES_MAX))
        rc = err_fail(err, ERR_INVALID,
                      "%zu bytes from %" PRIu64 " on are more than is read at once", len, offset);
    if (rc == 0 && len > 0)
        rc = remote->ops->blob_read(remote, repository, digest, offset, into, len, progress, arg,
                                    err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot read %zu bytes at %" PRIu64 " of blob %s in %s", len,
                        offset, digest_format(digest).s, remote->url);
    return 0;
}

/* A blob that is read back and thrown away. */
struct verify {
    struct digest_stream stream;
    uint64_t size;
    uint64_t done;
    remote_progress progress;
    void *arg;
    int rc; /* of the first failure here, whatever the implementation makes of it */
};

static int on_verify_progress(void *arg, uint64_t done, uint64_t total)
{
    const struct verify *verify = arg;
    (void)done, (void)total;
    return verify->progress ? verify->progress(verify->arg, verify->done, verify->size) : 0;
}

static int take_back(struct verify *verify, const void *bytes, size_t len, struct err *err)
{
    if (len > verify->size - verify->done)
        return err_fail(err, ERR_DIGEST, "it has more than %" PRIu64 " bytes", verify->size);
    int rc = digest_stream_update(&verify->stream, bytes, len, err);
    verify->done += len;
    if (rc == 0 && on_verify_progress(verify, 0, 0) != 0)
        rc = err_fail(err, ERR_CANCELLED, "the verification was cancelled");
    return rc;
}

static int verify_sink(void *arg, const void *bytes, size_t len, struct err *err)
{
    struct verify *verify = arg;
    if (verify->rc == 0)
        verify->rc = take_back(verify, bytes, len, err);
    return verify->rc;
}

static int read_back(struct remote *remote, const char *repository, const struct digest *digest,
                     struct verify *verify, struct err *err)
{
    struct digest found;
    int rc = remote->ops->blob_get(remote, repository, digest, verify->size, verify_sink, verify,
                                   on_verify_progress, verify, err);
    if (rc >= 0)
        rc = verify->rc;
    if (rc == 0)
        rc = digest_stream_finish(&verify->stream, &found, err);
    if (rc < 0)
        return rc;
    if (verify->done != verify->size)
        return err_fail(err, ERR_DIGEST, "it has %" PRIu64 " instead of %" PRIu64 " bytes",
                        verify->done, verify->size);
    if (!digest_equal(&found, digest))
        return err_fail(err, ERR_DIGEST, "its bytes have the digest %s", digest_format(&found).s);
    return 0;
}

int remote_verify_blob(struct remote *remote, const char *repository, const struct digest *digest,
                       uint64_t size, remote_progress progress, void *arg, struct err *err)
{
    int rc = remote_check_repository(repository, err);
    if (rc < 0)
        return rc;
    struct verify verify = {.size = size, .progress = progress, .arg = arg};
    rc = digest_stream_init(&verify.stream, err);
    if (rc == 0)
        rc = read_back(remote, repository, digest, &verify, err);
    digest_stream_free(&verify.stream);
    if (rc < 0)
        return err_wrap(err, rc, "cannot verify blob %s in %s", digest_format(digest).s,
                        remote->url);
    return 0;
}
