/* Blobs on their way to a remote: looked for, sent, confirmed. */

#include "remote_internal.h"

#include <inttypes.h>

/* 1 when the remote has it, its size in *ret_size; 0 or -errno. */
static int look(struct remote *remote, const char *repository, const struct digest *digest,
                remote_progress progress, void *arg, uint64_t *ret_size, struct err *err)
{
    int rc = remote->ops->blob_stat(remote, repository, digest, progress, arg, ret_size, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot look for blob %s in %s", digest_format(digest).s,
                        remote->url);
    return rc;
}

/* Reads the last byte. As look(). An empty blob has none. */
static int probe(struct remote *remote, const char *repository, const struct digest *digest,
                 uint64_t size, remote_progress progress, void *arg, uint64_t *ret_size,
                 struct err *err)
{
    if (size == 0)
        return look(remote, repository, digest, progress, arg, ret_size, err);
    int rc =
        remote->ops->blob_probe(remote, repository, digest, size, progress, arg, ret_size, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot look for blob %s in %s", digest_format(digest).s,
                        remote->url);
    return rc;
}

/* `found` and `have` are what was seen: as look(). */
static int judge(struct remote *remote, const char *repository, const struct digest *digest,
                 uint64_t size, int found, uint64_t have, remote_progress progress, void *arg,
                 struct err *err)
{
    if (found == 0)
        return err_fail(err, ERR_NOT_FOUND, "%s does not have blob %s in %s", remote->url,
                        digest_format(digest).s, repository);
    if (have == UINT64_MAX)
        return remote_verify_blob(remote, repository, digest, size, progress, arg, err);
    if (have != size)
        return err_fail(err, ERR_DIGEST,
                        "%s has blob %s with %" PRIu64 " bytes, but it should have %" PRIu64,
                        remote->url, digest_format(digest).s, have, size);
    return 0;
}

int remote_confirm_blob(struct remote *remote, const char *repository, const struct digest *digest,
                        uint64_t size, remote_progress progress, void *arg, struct err *err)
{
    uint64_t have = UINT64_MAX;
    int rc = remote_check_repository(repository, err);
    if (rc == 0)
        rc = probe(remote, repository, digest, size, progress, arg, &have, err);
    return rc < 0 ? rc : judge(remote, repository, digest, size, rc, have, progress, arg, err);
}

int remote_prove_sent_blob(struct remote *remote, const char *repository,
                           const struct digest *digest, uint64_t size, bool verify,
                           remote_progress progress, void *arg, struct err *err)
{
    for (int looks = 1;; looks++) {
        struct err failure = ERR_INIT;
        int rc =
            verify ? remote_verify_blob(remote, repository, digest, size, progress, arg, &failure)
                   : remote_confirm_blob(remote, repository, digest, size, progress, arg, &failure);
        if (rc >= 0 || failure.code != ERR_NOT_FOUND)
            return err_pass(err, rc, &failure);
        int again = remote_wait_visible(remote, looks, progress, arg, err);
        if (again <= 0)
            return again < 0 ? again : err_pass(err, rc, &failure);
    }
}

/* After an upload that the remote has confirmed: whether it shows it. */
static int check_sent(struct remote *remote, const char *repository, const struct digest *digest,
                      uint64_t size, remote_progress progress, void *arg, struct err *err)
{
    uint64_t have = UINT64_MAX;
    int rc = look(remote, repository, digest, progress, arg, &have, err);
    for (int looks = 1; rc == 0; looks++) {
        int again = remote_wait_visible(remote, looks, progress, arg, err);
        if (again < 0)
            return again;
        if (again == 0)
            break;
        rc = look(remote, repository, digest, progress, arg, &have, err);
    }
    return rc < 0 ? rc : judge(remote, repository, digest, size, rc, have, progress, arg, err);
}

int remote_wait_visible(struct remote *remote, int looks, remote_progress progress, void *arg,
                        struct err *err)
{
    if (!remote->ops->wait_visible)
        return 0;
    return remote->ops->wait_visible(remote, looks, progress, arg, err);
}

int remote_fail_push(int rc, struct err *err)
{
    if (rc >= 0 || !err || err->code != ERR_NOT_FOUND)
        return rc;
    err->code = ERR_REFUSED;
    err->num = EREMOTEIO;
    return -EREMOTEIO;
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

/* Another attempt may have finished it without hearing of that. */
static int forget_session(const struct remote_upload *upload, const char *repository,
                          const struct digest *digest, struct err *err)
{
    const struct remote_sessions *sessions = upload->sessions;
    return sessions ? sessions->forget(sessions->arg, repository, digest, err) : 0;
}

/* Sends what `fd` has, unless the remote has it. `blobs`: where it is from; NULL: from elsewhere,
 * and whoever calls confirms it. */
static int push(struct remote *remote, const char *repository, struct blobs *blobs,
                const struct digest *digest, int fd, uint64_t size, remote_progress progress,
                void *arg, struct remote_upload *upload, struct err *err)
{
    uint64_t have = UINT64_MAX;
    int rc = upload->anew ? 0 : look(remote, repository, digest, progress, arg, &have, err);
    if (rc < 0)
        return rc;
    upload->outcome = rc == 1 && have == size ? REMOTE_BLOB_PRESENT : REMOTE_BLOB_SENT;
    upload->lacked = upload->lacked || (upload->outcome == REMOTE_BLOB_SENT && !upload->anew);
    if (upload->outcome == REMOTE_BLOB_PRESENT)
        return forget_session(upload, repository, digest, err);
    rc = remote_fail_push(
        remote->ops->blob_put(remote, repository, digest, fd, size, progress, arg, upload, err),
        err);
    if (rc < 0 && blobs)
        rc = explain_upload(blobs, digest, rc, err);
    else if (rc >= 0 && blobs)
        rc =
            remote_fail_push(check_sent(remote, repository, digest, size, progress, arg, err), err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot push blob %s to %s", digest_format(digest).s, remote->url);
    upload->lacked = false;
    return 0;
}

int remote_push_blob(struct remote *remote, const char *repository, struct blobs *blobs,
                     const struct digest *digest, remote_progress progress, void *arg,
                     struct remote_upload *upload, struct err *err)
{
    struct remote_upload none = {.sessions = NULL};
    int rc = remote_check_repository(repository, err);
    if (rc < 0)
        return rc;
    uint64_t size;
    cleanup_fd int fd = blobs_open_blob(blobs, digest, &size, err);
    if (fd < 0)
        return fd;
    return push(remote, repository, blobs, digest, fd, size, progress, arg, upload ? upload : &none,
                err);
}

/* Sends and confirms. */
static int push_file(struct remote *remote, const char *repository, const struct digest *digest,
                     int fd, uint64_t size, remote_progress progress, void *arg,
                     struct remote_upload *upload, struct err *err)
{
    int rc = push(remote, repository, NULL, digest, fd, size, progress, arg, upload, err);
    if (rc < 0)
        return rc;
    return upload->outcome == REMOTE_BLOB_PRESENT
               ? remote_confirm_blob(remote, repository, digest, size, progress, arg, err)
               : remote_prove_sent_blob(remote, repository, digest, size, false, progress, arg,
                                        err);
}

int remote_push_file(struct remote *remote, const char *repository, const struct digest *digest,
                     int fd, uint64_t size, remote_progress progress, void *arg, struct err *err)
{
    struct remote_upload upload = {.anew = false};
    struct remote_upload again = {.anew = true};
    struct err failure = ERR_INIT;
    int rc = remote_check_repository(repository, err);
    if (rc < 0)
        return rc;
    rc = push_file(remote, repository, digest, fd, size, progress, arg, &upload, &failure);
    if (rc < 0 && upload.outcome == REMOTE_BLOB_PRESENT &&
        (failure.code == ERR_NOT_FOUND || failure.code == ERR_DIGEST))
        rc = push_file(remote, repository, digest, fd, size, progress, arg, &again, err);
    else
        rc = err_pass(err, rc, &failure);
    return rc < 0 ? remote_fail_push(rc, err) : 0;
}

void remote_session_abandon(struct remote *remote, const char *repository, const char *location)
{
    if (remote->ops->session_abandon && remote_check_repository(repository, NULL) == 0)
        remote->ops->session_abandon(remote, repository, location);
}
