/* One blob of an image on its way into a remote. */

#include "catalog_place.h"
#include "catalog_upload.h"
#include "layers_busy.h"
#include "log.h"
#include "push_image_internal.h"

#include <string.h>

static int fail_with_another(struct err *err)
{
    return err_fail(err, ERR_CANCELLED, "another blob could not be pushed");
}

int push_blob_progress(void *arg, uint64_t done, uint64_t total)
{
    struct push_transfer *transfer = arg;
    struct push *push = transfer->push;
    (void)total;
    uint64_t sum = 0;
    pthread_mutex_lock(&push->lock);
    transfer->blob->done = done;
    for (size_t i = 0; i < push->count; i++)
        sum += push->blobs[i].done;
    bool failed = push->failed;
    pthread_mutex_unlock(&push->lock);
    if (failed)
        return fail_with_another(&transfer->stop) < 0;
    return job_progress(push->wanted->job, sum, push->total, "bytes", &transfer->stop) < 0;
}

int push_blob_end(const struct push_transfer *transfer, int rc, struct err *err)
{
    if (rc >= 0 || transfer->stop.code == ERR_NONE)
        return rc;
    err_clear(err);
    return err_pass(err, -transfer->stop.num, &transfer->stop);
}

/* A convert_stop; `arg` is the push. */
static int stop_of_push(void *arg, struct err *err)
{
    struct push *push = arg;
    pthread_mutex_lock(&push->lock);
    bool failed = push->failed;
    pthread_mutex_unlock(&push->lock);
    return failed ? fail_with_another(err) : job_stop(push->wanted->job, err);
}

/* The record of uploads. It only saves work, so its failures end nothing. */

static struct catalog_upload_key key_of(const struct push *push, const char *repository,
                                        const struct digest_text *digest)
{
    return (struct catalog_upload_key){
        .remote = push->node->remote->url, .repository = repository, .digest = digest->s};
}

static int warn(const struct push *push, int rc, const struct err *failure)
{
    if (rc < 0)
        log_event(LOG_WARN, "upload-not-recorded", "job", job_id(push->wanted->job), "error",
                  failure->text, NULL);
    return 0;
}

static int load_session(void *arg, const char *repository, const struct digest *digest,
                        struct remote_session *ret, struct err *err)
{
    const struct push *push = arg;
    const struct digest_text text = digest_format(digest);
    const struct catalog_upload_key key = key_of(push, repository, &text);
    struct catalog_upload found = {.location = NULL};
    int rc = catalog_upload_get(push->node->catalog, &key, &found, err);
    if (rc == 1)
        *ret =
            (struct remote_session){.location = found.location, .offset = (uint64_t)found.offset};
    return rc;
}

static int save_session(void *arg, const char *repository, const struct digest *digest,
                        uint64_t size, const struct remote_session *session, struct err *err)
{
    const struct push *push = arg;
    const struct digest_text text = digest_format(digest);
    const struct catalog_upload_key key = key_of(push, repository, &text);
    const struct catalog_upload upload = {
        .location = session->location, .offset = (int64_t)session->offset, .size = (int64_t)size};
    struct err failure = ERR_INIT;
    (void)err;
    return warn(push, catalog_upload_put(push->node->catalog, &key, &upload, &failure), &failure);
}

static int forget_session(void *arg, const char *repository, const struct digest *digest,
                          struct err *err)
{
    const struct push *push = arg;
    const struct digest_text text = digest_format(digest);
    const struct catalog_upload_key key = key_of(push, repository, &text);
    struct err failure = ERR_INIT;
    (void)err;
    return warn(push, catalog_upload_remove(push->node->catalog, &key, &failure), &failure);
}

/* Repositories that turned out not to have the blob are not tried again. */
static void forget_places(const struct push *push, const struct push_blob *blob)
{
    const struct remote_upload *upload = &blob->upload;
    for (size_t i = 0; i < upload->mount_count; i++) {
        struct err failure = ERR_INIT;
        int rc = upload->mount_lacking >> i & 1
                     ? catalog_place_remove(push->node->catalog, push->node->remote->host,
                                            upload->mount_from[i],
                                            digest_format(&blob->descriptor->digest).s, &failure)
                     : 0;
        (void)warn(push, rc, &failure);
    }
}

/* What nobody finishes need not stay in the registry; who waits for the same blob goes on. */
static bool is_unwanted(void *arg)
{
    const struct push_transfer *transfer = arg;
    return job_is_cancelled(transfer->push->wanted->job) && !layers_busy_is_awaited(transfer->busy);
}

static int upload(struct push *push, struct push_blob *blob, const struct layers_busy *busy,
                  struct err *err)
{
    const struct remote_sessions sessions = {
        .load = load_session, .save = save_session, .forget = forget_session, .arg = push};
    struct push_transfer transfer = {.push = push, .blob = blob, .stop = ERR_INIT, .busy = busy};
    char **places = NULL;
    size_t count = 0;
    struct node *node = push->node;
    const char *repository = push->wanted->repository;
    const struct digest *digest = &blob->descriptor->digest;
    int rc = catalog_place_list(node->catalog, node->remote->host, digest_format(digest).s,
                                repository, PUSH_IMAGE_PLACES, &places, &count, err);
    if (rc < 0)
        return rc;
    blob->upload.sessions = &sessions;
    blob->upload.mount_from = (const char *const *)places;
    blob->upload.mount_count = count;
    blob->upload.mount_lacking = 0;
    blob->upload.is_unwanted = is_unwanted;
    blob->upload.unwanted_arg = &transfer;
    rc = remote_push_blob(node->remote, repository, node->blobs, digest, push_blob_progress,
                          &transfer, &blob->upload, err);
    forget_places(push, blob);
    catalog_place_free_list(places, count);
    blob->upload.sessions = NULL;
    blob->upload.mount_from = NULL;
    blob->upload.mount_count = 0;
    blob->upload.is_unwanted = NULL;
    blob->upload.unwanted_arg = NULL;
    rc = push_blob_end(&transfer, rc, err);
    if (rc == 0 && push_blob_progress(&transfer, (uint64_t)blob->descriptor->size, 0) != 0)
        rc = push_blob_end(&transfer, -1, err);
    return rc;
}

/* One job at a time sends a blob to a repository. Caller frees *ret_key, after the busy ends. */
static int enter(struct push *push, const struct push_blob *blob, convert_stop *stop,
                 struct layers_busy *busy, char **ret_key, struct err *err)
{
    char *key;
    if (asprintf(&key, "%s %s", push->wanted->repository,
                 digest_format(&blob->descriptor->digest).s) < 0)
        return err_errno(err, ENOMEM, "cannot push a blob");
    int rc = layers_busy_enter(busy, push->node, "push", key, stop, push, err);
    if (rc < 0)
        free(key);
    else
        *ret_key = key;
    return rc;
}

/* A convert_stop of who does not wait. */
static int never(void *arg, struct err *err)
{
    (void)arg;
    return err_fail(err, ERR_CONFLICT, "another job sends it");
}

void push_blob_give_up(struct push *push, const struct push_blob *blob, int64_t until_ms)
{
    cleanup_free char *key = NULL;
    cleanup_layers_busy struct layers_busy busy = {.node = NULL};
    cleanup_remote_session struct remote_session session = {.location = NULL};
    const struct digest *digest = &blob->descriptor->digest;
    const char *repository = push->wanted->repository;
    if (enter(push, blob, never, &busy, &key, NULL) < 0 || layers_busy_is_awaited(&busy) ||
        load_session(push, repository, digest, &session, NULL) <= 0)
        return;
    (void)forget_session(push, repository, digest, NULL);
    if (clock_now_ms() < until_ms)
        remote_session_abandon(push->node->remote, repository, session.location);
}

int push_blob_send(struct push *push, struct push_blob *blob, bool anew, struct err *err)
{
    cleanup_layers_busy struct layers_busy busy = {.node = NULL};
    cleanup_free char *key = NULL;
    int rc = enter(push, blob, stop_of_push, &busy, &key, err);
    if (rc < 0)
        return rc;
    blob->upload.anew = anew;
    rc = upload(push, blob, &busy, err);
    layers_busy_leave(&busy); /* before its key goes */
    return rc;
}

/* Looks at a blob in the remote: with its size, or byte for byte. One that went there just now may
 * not be visible yet. */
static int look(struct push *push, struct push_blob *blob, bool verify, struct err *err)
{
    struct push_transfer transfer = {.push = push, .blob = blob, .stop = ERR_INIT};
    struct remote *remote = push->node->remote;
    const char *repository = push->wanted->repository;
    const struct oci_descriptor *descriptor = blob->descriptor;
    uint64_t size = (uint64_t)descriptor->size;
    int rc;
    if (blob->upload.outcome != REMOTE_BLOB_PRESENT)
        rc = remote_prove_sent_blob(remote, repository, &descriptor->digest, size, verify,
                                    push_blob_progress, &transfer, err);
    else if (verify)
        rc = remote_verify_blob(remote, repository, &descriptor->digest, size, push_blob_progress,
                                &transfer, err);
    else
        rc = remote_confirm_blob(remote, repository, &descriptor->digest, size, push_blob_progress,
                                 &transfer, err);
    return push_blob_end(&transfer, rc, err);
}

/* Whether a look found that the remote lacks the blob. */
static bool is_lack(int rc, const struct err *failure)
{
    return rc < 0 && (failure->code == ERR_NOT_FOUND || failure->code == ERR_DIGEST);
}

static void note_lack(struct push *push)
{
    pthread_mutex_lock(&push->lock);
    push->lost = true;
    pthread_mutex_unlock(&push->lock);
}

/* What is lost or has other bytes there is sent once more, if it is here. */
static int prove(struct push *push, struct push_blob *blob, bool verify, struct err *err)
{
    struct err lost = ERR_INIT;
    uint64_t size;
    int rc = look(push, blob, verify, &lost);
    if (!is_lack(rc, &lost))
        return err_pass(err, rc, &lost);
    if (blobs_stat(push->node->blobs, &blob->descriptor->digest, &size, NULL) < 0) {
        note_lack(push);
        return err_pass(err, rc, &lost);
    }
    blob->upload.lacked = true; /* until it is sent and seen */
    rc = push_blob_send(push, blob, true, err);
    err_clear(&lost);
    int now = look(push, blob, verify, &lost); /* also to know what the sending came to */
    if (is_lack(now, &lost))
        note_lack(push);
    blob->upload.lacked = now < 0;
    if (rc == 0 && now < 0 && lost.code == ERR_DIGEST)
        err_hint(&lost,
                 "the remote kept its damaged file when the blob was sent once more: remove it "
                 "there, then push again");
    return rc < 0 ? rc : err_pass(err, now, &lost);
}

int push_blob_confirm(struct push *push, struct push_blob *blob, struct err *err)
{
    return prove(push, blob, false, err);
}

int push_blob_verify(struct push *push, struct push_blob *blob, struct err *err)
{
    return prove(push, blob, true, err);
}
