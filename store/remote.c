#include "remote.h"

#include "oci_image.h"

#include <inttypes.h>
#include <string.h>

void remote_manifest_free(struct remote_manifest *manifest)
{
    free(manifest->bytes);
    free(manifest->media_type);
    *manifest = (struct remote_manifest){.bytes = NULL};
}

void remote_close(struct remote *remote)
{
    if (!remote)
        return;
    free(steal_ptr(remote->url));
    free(steal_ptr(remote->host));
    free(steal_ptr(remote->prefix));
    remote->ops->close(remote);
}

char *remote_repository(const struct remote *remote, const char *name)
{
    char *repository;
    const char *slash = remote->prefix[0] ? "/" : "";
    return asprintf(&repository, "%s%s%s", remote->prefix, slash, name) < 0 ? NULL : repository;
}

char *remote_reference(const struct remote *remote, const char *repository,
                       const struct digest *digest)
{
    char *reference;
    const char *slash = remote->host[0] ? "/" : "";
    int len =
        asprintf(&reference, "%s%s%s@%s", remote->host, slash, repository, digest_format(digest).s);
    return len < 0 ? NULL : reference;
}

/* Lower-case components of letters and digits, with separators inside of them only; so no name
 * leaves its place in a path or URL. */
static int check_repository(const char *repository, struct err *err)
{
    static const char alnum[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    size_t len = strlen(repository);
    bool good = len >= 1 && len <= 255;
    for (size_t i = 0; good && i < len; i++) {
        char next = repository[i + 1];
        bool inner = i > 0 && repository[i - 1] != '/' && next != '/' && next != '\0';
        good = strchr(alnum, repository[i]) || (inner && strchr("._-", repository[i])) ||
               (inner && repository[i] == '/');
    }
    if (good)
        return 0;
    return err_fail(err, ERR_INVALID, "'%.300s' is not the name of a repository", repository);
}

static int check_tag(const char *tag, struct err *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_.-";
    size_t len = strlen(tag);
    if (len >= 1 && len <= 128 && strspn(tag, allowed) == len && tag[0] != '.' && tag[0] != '-')
        return 0;
    return err_fail(err, ERR_INVALID, "'%.200s' is not a tag", tag);
}

/* Whether a text is a digest; it can't be a tag then, as tags hold no ':'. */
static bool is_digest(const char *reference, struct digest *ret)
{
    return digest_parse(reference, ret, NULL) == 0;
}

static int check_reference(const char *repository, const char *reference, struct err *err)
{
    struct digest digest;
    int rc = check_repository(repository, err);
    if (rc < 0 || is_digest(reference, &digest))
        return rc;
    return check_tag(reference, err);
}

int remote_confirm_blob(struct remote *remote, const char *repository, const struct digest *digest,
                        uint64_t size, struct err *err)
{
    uint64_t have = UINT64_MAX;
    int rc = check_repository(repository, err);
    if (rc == 0)
        rc = remote->ops->blob_stat(remote, repository, digest, &have, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot look for blob %s in %s", digest_format(digest).s,
                        remote->url);
    if (rc == 0)
        return err_fail(err, ERR_NOT_FOUND, "%s does not have blob %s in %s", remote->url,
                        digest_format(digest).s, repository);
    if (have != UINT64_MAX && have != size)
        return err_fail(err, ERR_DIGEST,
                        "%s has blob %s with %" PRIu64 " bytes, but it should have %" PRIu64,
                        remote->url, digest_format(digest).s, have, size);
    return 0;
}

/* A refused upload may be the fault of the local file; then that is what the user must know. */
static int explain_upload(struct blobs *blobs, const struct digest *digest, int rc, struct err *err)
{
    struct err local = ERR_INIT;
    if (err && (err->code == ERR_UNREACHABLE || err->code == ERR_CANCELLED))
        return rc;
    int verified = blobs_verify(blobs, digest, &local);
    if (verified == 0 || (local.code != ERR_DIGEST && local.code != ERR_NOT_FOUND))
        return rc;
    if (err)
        *err = local;
    return verified;
}

int remote_push_blob(struct remote *remote, const char *repository, struct blobs *blobs,
                     const struct digest *digest, remote_progress progress, void *arg,
                     bool *ret_uploaded, struct err *err)
{
    int rc = check_repository(repository, err);
    if (rc < 0)
        return rc;
    uint64_t size;
    cleanup_fd int fd = blobs_open_blob(blobs, digest, &size, err);
    if (fd < 0)
        return fd;
    uint64_t have = UINT64_MAX;
    rc = remote->ops->blob_stat(remote, repository, digest, &have, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot look for blob %s in %s", digest_format(digest).s,
                        remote->url);
    bool present = rc == 1 && have == size;
    if (!present) {
        rc = remote->ops->blob_put(remote, repository, digest, fd, size, progress, arg, err);
        if (rc < 0)
            rc = explain_upload(blobs, digest, rc, err);
        else
            rc = remote_confirm_blob(remote, repository, digest, size, err);
        if (rc < 0)
            return err_wrap(err, rc, "cannot push blob %s to %s", digest_format(digest).s,
                            remote->url);
    }
    if (ret_uploaded)
        *ret_uploaded = !present;
    return 0;
}

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
    rc = remote->ops->blob_get(remote, repository, digest, pull_sink, pull, on_pull_progress, pull,
                               err);
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
    int rc = check_repository(repository, err);
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

/* Size and kind of a manifest's bytes, and that they are what they are announced as (I6). */
static int check_manifest(const void *bytes, size_t len, const char *media_type,
                          const char **ret_type, struct err *err)
{
    if (len > REMOTE_MANIFEST_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the manifest has %zu bytes, more than the limit of %d",
                        len, REMOTE_MANIFEST_MAX);
    cleanup_json json_t *document = NULL;
    return oci_document_load(bytes, len, media_type, &document, ret_type, err);
}

static int check_fetched(struct remote_manifest *manifest, const char *reference, struct err *err)
{
    struct digest wanted;
    const char *type;
    if (!manifest->bytes || !manifest->media_type)
        return err_fail(err, ERR_DAMAGED, "the answer has no content or no media type");
    int rc = digest_bytes(manifest->bytes, manifest->len, &manifest->digest, err);
    if (rc < 0)
        return rc;
    if (is_digest(reference, &wanted) && !digest_equal(&wanted, &manifest->digest))
        return err_fail(err, ERR_DIGEST, "the bytes received have the digest %s",
                        digest_format(&manifest->digest).s);
    return check_manifest(manifest->bytes, manifest->len, manifest->media_type, &type, err);
}

int remote_manifest_get(struct remote *remote, const char *repository, const char *reference,
                        struct remote_manifest *ret, struct err *err)
{
    return remote_manifest_get_or_stop(remote, repository, reference, NULL, NULL, ret, err);
}

int remote_manifest_get_or_stop(struct remote *remote, const char *repository,
                                const char *reference, remote_progress progress, void *arg,
                                struct remote_manifest *ret, struct err *err)
{
    cleanup_remote_manifest struct remote_manifest manifest = {.bytes = NULL};
    int rc = check_reference(repository, reference, err);
    if (rc < 0)
        return rc;
    rc = remote->ops->manifest_get(remote, repository, reference, progress, arg, &manifest, err);
    if (rc >= 0)
        rc = check_fetched(&manifest, reference, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot fetch the manifest %s of %s from %s", reference,
                        repository, remote->url);
    *ret = manifest;
    manifest = (struct remote_manifest){.bytes = NULL};
    return 0;
}

static int put_and_read_back(struct remote *remote, const char *repository, const char *tag,
                             const char *media_type, const void *bytes, size_t len, struct err *err)
{
    struct digest digest;
    const char *type;
    cleanup_remote_manifest struct remote_manifest manifest = {.bytes = NULL};
    int rc = check_manifest(bytes, len, media_type, &type, err);
    if (rc == 0)
        rc = digest_bytes(bytes, len, &digest, err);
    if (rc == 0)
        rc = remote->ops->manifest_put(remote, repository, tag, type, bytes, len, err);
    if (rc < 0)
        return rc;
    return remote_manifest_get(remote, repository, digest_format(&digest).s, &manifest, err);
}

int remote_manifest_put(struct remote *remote, const char *repository, const char *tag,
                        const char *media_type, const void *bytes, size_t len, struct err *err)
{
    int rc = check_repository(repository, err);
    if (rc == 0 && tag)
        rc = check_tag(tag, err);
    if (rc < 0)
        return rc;
    rc = put_and_read_back(remote, repository, tag, media_type, bytes, len, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot push the manifest of %s%s%s to %s", repository,
                        tag ? ":" : "", tag ? tag : "", remote->url);
    return 0;
}

int remote_manifest_delete(struct remote *remote, const char *repository,
                           const struct digest *digest, struct err *err)
{
    int rc = check_repository(repository, err);
    if (rc == 0)
        rc = remote->ops->manifest_delete(remote, repository, digest, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot delete the manifest %s of %s in %s",
                        digest_format(digest).s, repository, remote->url);
    return 0;
}
