#include "remote_oci.h"

#include "blobs_role.h"
#include "fdio.h"
#include "log.h"
#include "remote_oci_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

enum {
    COPY_CHUNK = 256 * 1024, /* bytes per read */
};

static int op_blob_stat(struct remote *remote, const char *repository, const struct digest *digest,
                        remote_progress progress, void *arg, uint64_t *ret_size, struct err *err)
{
    (void)repository;          /* one store for all repositories */
    (void)progress, (void)arg; /* a disk is never silent */
    struct err local = ERR_INIT;
    return err_found(err, blobs_stat(remote_oci_blobs(remote), digest, ret_size, &local), &local);
}

static int copy_in(struct blob_writer *writer, int fd, uint64_t size, remote_progress progress,
                   void *arg, struct err *err)
{
    cleanup_free char *chunk = malloc(COPY_CHUNK);
    if (!chunk)
        return err_errno(err, ENOMEM, "cannot copy a blob");
    for (uint64_t done = 0; done < size;) {
        size_t want = size - done < COPY_CHUNK ? (size_t)(size - done) : COPY_CHUNK;
        ssize_t n = pread(fd, chunk, want, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, errno, "cannot read a blob");
        if (n == 0)
            return err_fail(err, ERR_DAMAGED,
                            "the blob ends after %" PRIu64 " of %" PRIu64 " bytes", done, size);
        int rc = blob_writer_write(writer, chunk, (size_t)n, err);
        if (rc < 0)
            return rc;
        done += (uint64_t)n;
        if (progress && progress(arg, done, size) != 0)
            return err_fail(err, ERR_CANCELLED, "the upload was cancelled");
    }
    return 0;
}

/* A blob with other bytes has the right name and size, and would keep both. */
static int drop_if_damaged(struct blobs *blobs, const struct digest *digest, struct err *err)
{
    struct err failure = ERR_INIT;
    int rc = blobs_verify(blobs, digest, &failure);
    if (rc == 0 || failure.code == ERR_NOT_FOUND)
        return 0;
    return failure.code == ERR_DIGEST ? blobs_remove(blobs, digest, err)
                                      : err_pass(err, rc, &failure);
}

static int op_blob_put(struct remote *remote, const char *repository, const struct digest *digest,
                       int fd, uint64_t size, remote_progress progress, void *arg,
                       struct remote_upload *upload, struct err *err)
{
    (void)repository;
    cleanup_blob_writer struct blob_writer writer = BLOB_WRITER_INIT;
    struct digest found;
    int rc = blob_writer_begin(remote_oci_blobs(remote), size, &writer, err);
    writer.replace = upload->anew;
    if (rc == 0)
        rc = copy_in(&writer, fd, size, progress, arg, err);
    upload->sent += writer.size;
    if (rc == 0 && upload->anew)
        rc = drop_if_damaged(remote_oci_blobs(remote), digest, err);
    if (rc == 0)
        rc = blob_writer_commit(&writer, digest, size, &found, err);
    return rc;
}

static int op_blob_get(struct remote *remote, const char *repository, const struct digest *digest,
                       uint64_t size, remote_sink sink, void *sink_arg, remote_progress progress,
                       void *progress_arg, struct err *err)
{
    (void)repository, (void)size;
    (void)progress, (void)progress_arg;
    uint64_t have;
    cleanup_fd int fd = blobs_open_blob(remote_oci_blobs(remote), digest, &have, err);
    if (fd < 0)
        return fd;
    cleanup_free char *chunk = malloc(COPY_CHUNK);
    if (!chunk)
        return err_errno(err, ENOMEM, "cannot copy a blob");
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (;;) {
        ssize_t n = fdio_read_full(fd, chunk, COPY_CHUNK);
        if (n < 0)
            return err_errno(err, (int)n, "cannot read a blob");
        if (n == 0)
            return 0;
        int rc = sink(sink_arg, chunk, (size_t)n, err);
        if (rc < 0)
            return rc;
    }
}

static int op_blob_read(struct remote *remote, const char *repository, const struct digest *digest,
                        uint64_t offset, void *into, size_t len, remote_progress progress,
                        void *progress_arg, struct err *err)
{
    (void)repository, (void)progress, (void)progress_arg;
    uint64_t size;
    cleanup_fd int fd = blobs_open_blob(remote_oci_blobs(remote), digest, &size, err);
    if (fd < 0)
        return fd;
    for (size_t done = 0; done < len;) {
        ssize_t n = pread(fd, (char *)into + done, len - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, errno, "cannot read a blob");
        if (n == 0)
            return err_fail(err, ERR_DIGEST, "it has %" PRIu64 " bytes only", size);
        done += (size_t)n;
    }
    return 0;
}

static int op_blob_probe(struct remote *remote, const char *repository, const struct digest *digest,
                         uint64_t size, remote_progress progress, void *arg, uint64_t *ret_size,
                         struct err *err)
{
    char byte;
    uint64_t have;
    int rc = op_blob_stat(remote, repository, digest, progress, arg, &have, err);
    if (rc <= 0)
        return rc;
    if (have == size)
        rc = op_blob_read(remote, repository, digest, size - 1, &byte, 1, progress, arg, err);
    if (rc < 0)
        return rc;
    *ret_size = have;
    return 1;
}

static void op_close(struct remote *remote)
{
    blobs_close(remote_oci_blobs(remote));
    free(remote);
}

static const struct remote_ops oci_ops = {
    .blob_stat = op_blob_stat,
    .blob_put = op_blob_put,
    .blob_stream = remote_oci_blob_stream,
    .blob_get = op_blob_get,
    .blob_read = op_blob_read,
    .blob_probe = op_blob_probe,
    .manifest_get = remote_oci_manifest_get,
    .manifest_stat = remote_oci_manifest_stat,
    .manifest_put = remote_oci_manifest_put,
    .manifest_delete = remote_oci_manifest_delete,
    .manifest_swap = remote_oci_manifest_swap,
    .tags_list = remote_oci_tags_list,
    .tag_delete = remote_oci_tag_delete,
    .referrers_list = remote_oci_referrers_list,
    .close = op_close,
};

/* The directory in "oci:DIR". */
static int directory_of(const char *url, const char **ret, struct err *err)
{
    static const char scheme[] = "oci:";
    if (strncmp(url, scheme, sizeof scheme - 1) != 0)
        return err_fail(err, ERR_INVALID, "'%.200s' does not begin with 'oci:'", url);
    const char *dir = url + sizeof scheme - 1;
    int rc = 0;
    if (*dir != '/')
        rc = err_fail(err, ERR_INVALID, "remote '%.200s' does not name an absolute directory", url);
    else if (strchr(dir, ':'))
        rc = err_fail(err, ERR_INVALID,
                      "the directory of remote '%.200s' holds a ':', where stock tools end a path",
                      url);
    if (rc < 0) {
        err_hint(err, "write it like oci:/srv/images");
        return rc;
    }
    *ret = dir;
    return 0;
}

static void remote_closep(struct remote_oci **oci)
{
    if (*oci)
        remote_close(&(*oci)->remote);
}

int remote_oci_open(const char *url, struct remote **ret, struct err *err)
{
    const char *dir = NULL;
    int rc = directory_of(url, &dir, err);
    if (rc < 0)
        return rc;
    cleanup_with(remote_closep) struct remote_oci *oci = calloc(1, sizeof *oci);
    if (!oci)
        return err_errno(err, ENOMEM, "cannot open remote %s", url);
    oci->remote = (struct remote){
        .ops = &oci_ops, .url = strdup(url), .host = strdup(""), .prefix = strdup("")};
    if (!oci->remote.url || !oci->remote.host || !oci->remote.prefix)
        return err_errno(err, ENOMEM, "cannot open remote %s", url);
    rc = blobs_open(dir, &oci->blobs, err);
    if (rc == 0)
        rc = blobs_role_take(oci->blobs, BLOBS_ROLE_REMOTE, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot open remote %s", url);
    /* What dead daemons left is no reason not to start. */
    struct err sweep = ERR_INIT;
    if (blobs_sweep_stale(oci->blobs, &sweep) < 0)
        log_event(LOG_WARN, "remote-sweep-failed", "remote", url, "error", sweep.text, NULL);
    *ret = &steal_ptr(oci)->remote;
    return 0;
}
