#include "remote.h"

#include "oci_image.h"
#include "remote_internal.h"

#include <string.h>

void remote_manifest_free(struct remote_manifest *manifest)
{
    free(manifest->bytes);
    free(manifest->media_type);
    *manifest = (struct remote_manifest){.bytes = NULL};
}

void remote_session_free(struct remote_session *session)
{
    free(session->location);
    *session = (struct remote_session){.location = NULL};
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
int remote_check_repository(const char *repository, struct err *err)
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

int remote_check_tag(const char *tag, struct err *err)
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

int remote_check_reference(const char *repository, const char *reference, struct err *err)
{
    struct digest digest;
    int rc = remote_check_repository(repository, err);
    if (rc < 0 || is_digest(reference, &digest))
        return rc;
    return remote_check_tag(reference, err);
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
    int rc = remote_check_reference(repository, reference, err);
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

/* What a tag names that was just put. As the operation. */
static int stat_new_tag(struct remote *remote, const char *repository, const char *tag,
                        remote_progress progress, void *arg, struct remote_manifest_stat *ret,
                        struct err *err)
{
    for (int looks = 1;; looks++) {
        struct err failure = ERR_INIT;
        int rc = remote->ops->manifest_stat(remote, repository, tag, progress, arg, ret, &failure);
        if (rc >= 0 || failure.code != ERR_NOT_FOUND)
            return err_pass(err, rc, &failure);
        int again = remote_wait_visible(remote, looks, progress, arg, err);
        if (again <= 0)
            return again < 0 ? again : err_pass(err, rc, &failure);
    }
}

/* Whether the tag names what was just put under it. There is no compare and swap in a registry, so
 * of two who write a tag at once both are told that they have. */
static int check_tag(struct remote *remote, const char *repository, const char *tag,
                     const struct digest *digest, remote_progress progress, void *arg,
                     struct err *err)
{
    struct remote_manifest_stat stat;
    struct err missing = ERR_INIT;
    int rc = stat_new_tag(remote, repository, tag, progress, arg, &stat, &missing);
    rc = err_found(err, rc, &missing);
    if (rc < 0 || (rc == 1 && digest_equal(&stat.digest, digest)))
        return rc < 0 ? rc : 0;
    if (rc == 1)
        rc = err_fail(err, ERR_EXISTS, "another writer has given the tag '%s' to %s meanwhile", tag,
                      digest_format(&stat.digest).s);
    else
        rc = err_fail(err, ERR_REFUSED,
                      "the remote took the manifest and does not have the tag '%s'", tag);
    err_hint(err,
             "the remote has it under its digest alone, where collection may take it: %s@%s; push "
             "it under another tag to keep it",
             repository, digest_format(digest).s);
    return rc;
}

/* Reads what was just put. */
static int read_back(struct remote *remote, const char *repository, const struct digest *digest,
                     remote_progress progress, void *arg, struct err *err)
{
    for (int looks = 1;; looks++) {
        cleanup_remote_manifest struct remote_manifest manifest = {.bytes = NULL};
        struct err failure = ERR_INIT;
        int rc = remote_manifest_get_or_stop(remote, repository, digest_format(digest).s, progress,
                                             arg, &manifest, &failure);
        if (rc >= 0 || failure.code != ERR_NOT_FOUND)
            return err_pass(err, rc, &failure);
        int again = remote_wait_visible(remote, looks, progress, arg, err);
        if (again <= 0)
            return again < 0 ? again : err_pass(err, rc, &failure);
    }
}

static int put_and_read_back(struct remote *remote, const char *repository, const char *tag,
                             const char *media_type, const void *bytes, size_t len, bool claim,
                             remote_progress progress, void *arg, struct remote_missing *missing,
                             struct err *err)
{
    struct digest digest;
    const char *type;
    int rc = check_manifest(bytes, len, media_type, &type, err);
    if (rc == 0)
        rc = digest_bytes(bytes, len, &digest, err);
    if (rc == 0)
        rc = remote->ops->manifest_put(remote, repository, tag, type, bytes, len, claim, progress,
                                       arg, missing, err);
    if (rc < 0)
        return rc;
    rc = read_back(remote, repository, &digest, progress, arg, err);
    return rc == 0 && tag ? check_tag(remote, repository, tag, &digest, progress, arg, err) : rc;
}

int remote_manifest_put(struct remote *remote, const char *repository, const char *tag,
                        const char *media_type, const void *bytes, size_t len, struct err *err)
{
    return remote_manifest_put_or_stop(remote, repository, tag, media_type, bytes, len, NULL, NULL,
                                       NULL, err);
}

static int put_manifest(struct remote *remote, const char *repository, const char *tag,
                        const char *media_type, const void *bytes, size_t len, bool claim,
                        remote_progress progress, void *arg, struct remote_missing *missing,
                        struct err *err)
{
    int rc = remote_check_repository(repository, err);
    if (rc == 0 && tag)
        rc = remote_check_tag(tag, err);
    if (rc < 0)
        return rc;
    rc = put_and_read_back(remote, repository, tag, media_type, bytes, len, claim, progress, arg,
                           missing, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot push the manifest of %s%s%s to %s", repository,
                        tag ? ":" : "", tag ? tag : "", remote->url);
    return 0;
}

int remote_manifest_put_or_stop(struct remote *remote, const char *repository, const char *tag,
                                const char *media_type, const void *bytes, size_t len,
                                remote_progress progress, void *arg, struct remote_missing *missing,
                                struct err *err)
{
    return put_manifest(remote, repository, tag, media_type, bytes, len, false, progress, arg,
                        missing, err);
}

int remote_manifest_claim(struct remote *remote, const char *repository, const char *tag,
                          const char *media_type, const void *bytes, size_t len,
                          remote_progress progress, void *arg, struct remote_missing *missing,
                          struct err *err)
{
    return put_manifest(remote, repository, tag, media_type, bytes, len, true, progress, arg,
                        missing, err);
}

int remote_fail_taken(const char *repository, const char *tag, const struct digest *there,
                      struct err *err)
{
    int rc = err_fail(err, ERR_EXISTS, "%s:%s stands for another image in the remote (%.19s)",
                      repository, tag, digest_format(there).s);
    err_hint(err,
             "remove that one where it was made (varve snapshot rm), or take the snapshot again "
             "under another name");
    return rc;
}

int remote_manifest_stat(struct remote *remote, const char *repository, const char *reference,
                         remote_progress progress, void *arg, struct remote_manifest_stat *ret,
                         struct err *err)
{
    struct digest wanted;
    struct remote_manifest_stat stat = {.size = UINT64_MAX};
    int rc = remote_check_reference(repository, reference, err);
    if (rc == 0)
        rc = remote->ops->manifest_stat(remote, repository, reference, progress, arg, &stat, err);
    if (rc == 0 && is_digest(reference, &wanted) && !digest_equal(&wanted, &stat.digest))
        rc = err_fail(err, ERR_DIGEST, "there it has the digest %s", digest_format(&stat.digest).s);
    if (rc < 0)
        return err_wrap(err, rc, "cannot look for the manifest %s of %s in %s", reference,
                        repository, remote->url);
    *ret = stat;
    return 0;
}

/* For a remote that cannot do it in one step. */
static int choose_and_put(struct remote *remote, const char *repository,
                          const struct remote_choice *choice, const char *media_type,
                          const void *bytes, size_t len, remote_progress progress, void *arg,
                          struct remote_missing *missing, struct err *err)
{
    const char *tag = NULL;
    bool claim = false;
    int rc = choice->choose(choice->arg, &tag, &claim, err);
    if (rc == 0)
        rc = remote_check_tag(tag, err);
    return rc < 0 ? rc
                  : put_and_read_back(remote, repository, tag, media_type, bytes, len, claim,
                                      progress, arg, missing, err);
}

static int swap_in_one_step(struct remote *remote, const char *repository,
                            const struct remote_choice *choice, const char *media_type,
                            const void *bytes, size_t len, remote_progress progress, void *arg,
                            struct remote_missing *missing, struct err *err)
{
    const char *type = NULL;
    int rc = check_manifest(bytes, len, media_type, &type, err);
    return rc < 0 ? rc
                  : remote->ops->manifest_swap(remote, repository, choice, type, bytes, len,
                                               progress, arg, missing, err);
}

int remote_manifest_swap(struct remote *remote, const char *repository,
                         const struct remote_choice *choice, const char *media_type,
                         const void *bytes, size_t len, remote_progress progress, void *arg,
                         struct remote_missing *missing, struct err *err)
{
    int rc = remote_check_repository(repository, err);
    if (rc < 0)
        return rc;
    rc = (remote->ops->manifest_swap ? swap_in_one_step : choose_and_put)(
        remote, repository, choice, media_type, bytes, len, progress, arg, missing, err);
    return rc < 0
               ? err_wrap(err, rc, "cannot store a manifest in %s of %s", repository, remote->url)
               : 0;
}

int remote_manifest_delete(struct remote *remote, const char *repository,
                           const struct digest *digest, remote_progress progress, void *arg,
                           struct err *err)
{
    int rc = remote_check_repository(repository, err);
    if (rc == 0)
        rc = remote->ops->manifest_delete(remote, repository, digest, NULL, progress, arg, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot delete the manifest %s of %s in %s",
                        digest_format(digest).s, repository, remote->url);
    return 0;
}
