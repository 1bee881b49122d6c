/* Uploads: sessions, chunks, offsets, mounts. */

#include "cleanup.h"
#include "fake_registry_api.h"
#include "fake_registry_rule.h"

#include <fcntl.h>
#include <string.h>

enum {
    PIECE = 64 * 1024,
    NUMBER_MAX = 24,
};

/* Location, Range and the rest of an answer about an upload. With the lock. */
static void answer_upload(struct fake_exchange *x, struct fake_upload *upload, int status)
{
    char path[4096];
    char state[NUMBER_MAX];
    char size[NUMBER_MAX];
    char last[NUMBER_MAX];
    char added[NUMBER_MAX];
    uint64_t bytes = x->upload_to - x->upload_from;
    snprintf(path, sizeof path, "/v2/%s/blobs/uploads/%s", upload->repo, upload->id);
    snprintf(state, sizeof state, "s%u=", ++upload->state);
    snprintf(size, sizeof size, "%llu", (unsigned long long)upload->size);
    snprintf(last, sizeof last, "%llu", (unsigned long long)upload->size - (upload->size > 0));
    snprintf(added, sizeof added, "%llu", (unsigned long long)bytes - (bytes > 0));
    const char *const words[] = {"path",     path,    "name",  upload->repo, "id",
                                 upload->id, "state", state,   "size",       size,
                                 "last",     last,    "added", added,        NULL};
    const char *range = fake_rule_str(x->settings, "range");
    const char *range_of_get = fake_rule_str(x->settings, "range_of_get");
    if (strcmp(x->method, "GET") == 0 && !(range_of_get && !*range_of_get))
        range = range_of_get;
    cleanup_free char *location =
        fake_registry_fill(x->fake, fake_rule_str(x->settings, "upload_location"), words);
    cleanup_free char *filled = range ? fake_registry_fill(x->fake, range, words) : NULL;
    if (x->status == 0) /* else there is an error to tell */
        fake_exchange_text(x, status, NULL, "");
    fake_exchange_set(x, "Location", location);
    fake_exchange_set(x, "Docker-Upload-UUID", upload->id);
    fake_exchange_set(x, "Range", filled);
    int64_t min = fake_rule_int(x->settings, "min_chunk", 0);
    if (min > 0)
        fake_exchange_setf(x, "OCI-Chunk-Min-Length", "%lld", (long long)min);
}

static void answer_unknown(struct fake_exchange *x)
{
    fake_exchange_error(x, 404, "BLOB_UPLOAD_UNKNOWN", "blob upload unknown to registry", NULL);
}

static void answer_created(struct fake_exchange *x, const char *repo, const char *digest)
{
    fake_exchange_text(x, 201, NULL, "");
    fake_exchange_setf(x, "Location", "/v2/%s/blobs/%s", repo, digest);
    if (fake_rule_bool(x->settings, "digest_header", true))
        fake_exchange_set(x, "Docker-Content-Digest", digest);
}

/* As where something in front of the registry limits the time of a request. */
static void limit_body(struct fake_exchange *x)
{
    uint64_t most = (uint64_t)fake_rule_int(x->settings, "body_break", 0);
    if (most == 0 || x->length <= most || x->read_max <= most)
        return;
    x->read_max = most;
    x->end = FAKE_END_CLOSE;
}

/* The answer to a body that was limited, if there is to be one. */
static void answer_break(struct fake_exchange *x)
{
    int status = (int)fake_rule_int(x->settings, "body_break_status", 0);
    if (!x->cut || status == 0 ||
        x->read_max != (uint64_t)fake_rule_int(x->settings, "body_break", 0))
        return;
    x->cut = false;
    x->end = FAKE_END_KEEP;
    fake_exchange_text(x, status, "text/html", "<h1>Timeout</h1>");
}

/* Adds the body to the upload, which is this request's alone. Bytes that arrived before the body
 * broke off count as the setting says. Whether the whole body came. Without the lock. */
static bool take_body(struct fake_exchange *x, struct fake_upload *upload)
{
    cleanup_free char *piece = malloc(PIECE);
    ssize_t n;
    limit_body(x);
    snprintf(x->upload, sizeof x->upload, "%s", upload->id);
    x->upload_from = x->upload_to = upload->size;
    while ((n = piece ? fake_exchange_body(x, piece, PIECE) : -1) > 0) {
        if (pwrite(upload->fd, piece, (size_t)n, (off_t)x->upload_to) != n)
            return false;
        x->upload_to += (uint64_t)n;
        pthread_mutex_lock(&x->fake->lock);
        upload->size = x->upload_to;
        pthread_mutex_unlock(&x->fake->lock);
    }
    const char *interrupted = fake_rule_str(x->settings, "interrupted");
    if (n == 0)
        return true;
    answer_break(x);
    pthread_mutex_lock(&x->fake->lock);
    if (strcmp(interrupted, "keep") != 0)
        upload->size = x->upload_to = x->upload_from;
    if (strcmp(interrupted, "forget") == 0)
        fake_state_end_upload(x->fake, upload);
    pthread_mutex_unlock(&x->fake->lock);
    return false;
}

/* What the request says of itself fits to the upload; if not, the answer is made. With the lock. */
static bool fits_upload(struct fake_exchange *x, struct fake_upload *upload)
{
    const char *state = fake_exchange_query(x, "_state");
    const char *range = fake_exchange_header(x, "content-range");
    int64_t body_max = fake_rule_int(x->settings, "body_max", 0);
    char latest[NUMBER_MAX];
    snprintf(latest, sizeof latest, "s%u=", upload->state);
    if (state && fake_rule_bool(x->settings, "strict_state", true) && strcmp(state, latest) != 0) {
        fake_exchange_error(x, 404, "BLOB_UPLOAD_INVALID", "an old Location was used", NULL);
        return false;
    }
    if (body_max > 0 && x->length > (uint64_t)body_max) {
        int status = (int)fake_rule_int(x->settings, "body_max_status", 413);
        fake_exchange_text(x, status, "text/html", "<h1>Request Entity Too Large</h1>");
        return false;
    }
    if (range && strncmp(range, "bytes ", 6) == 0)
        range += 6;
    if (range && strtoull(range, NULL, 10) != upload->size) {
        x->status = 0;
        int status = (int)fake_rule_int(x->settings, "out_of_place_status", 416);
        const char *code = status == 416 ? "BLOB_UPLOAD_INVALID" : "UNSUPPORTED";
        fake_exchange_error(x, status, code, "not the offset of this upload", NULL);
        answer_upload(x, upload, status);
        return false;
    }
    return true;
}

/* Makes the upload a blob, if it has the digest. With the lock, which is given up while the bytes
 * are hashed. */
static void commit(struct fake_exchange *x, struct fake_upload *upload, const char *digest)
{
    struct fake_registry *fake = x->fake;
    pthread_mutex_unlock(&fake->lock);
    struct digest_text have = fake_state_digest(upload->fd, upload->size);
    pthread_mutex_lock(&fake->lock);
    int fd = strcmp(have.s, digest) == 0 ? fcntl(upload->fd, F_DUPFD_CLOEXEC, 0) : -1;
    fake_state_end_upload(fake, upload);
    if (fd < 0) {
        fake_exchange_error(x, 400, "DIGEST_INVALID",
                            "provided digest did not match uploaded content",
                            json_pack("{s:s}", "have", have.s));
        return;
    }
    fake_state_add_blob(fake, fake_state_repo(fake, upload->repo, true), digest, fd, upload->size);
    answer_created(x, upload->repo, digest);
}

void fake_upload_add(struct fake_exchange *x, const char *repo, const char *id)
{
    struct fake_registry *fake = x->fake;
    bool closes = strcmp(x->method, "PUT") == 0;
    const char *digest = fake_exchange_query(x, "digest");
    int redirect = (int)fake_rule_int(x->settings, "redirect_uploads", 0);
    if (redirect > 0 && !x->other) {
        fake_registry_redirect(x, redirect);
        return;
    }
    if (closes && !digest) {
        fake_exchange_error(x, 400, "DIGEST_INVALID", "digest missing", NULL);
        return;
    }
    pthread_mutex_lock(&fake->lock);
    struct fake_upload *upload = fake_state_take_upload(fake, repo, id, true);
    if (!upload) {
        answer_unknown(x);
    } else {
        if (fits_upload(x, upload)) {
            pthread_mutex_unlock(&fake->lock);
            bool whole = take_body(x, upload);
            pthread_mutex_lock(&fake->lock);
            if (whole && closes)
                commit(x, upload, digest);
            else if (whole)
                answer_upload(x, upload, 202);
        }
        fake_state_leave_upload(fake, upload, true);
    }
    pthread_mutex_unlock(&fake->lock);
}

/* A mount, or a blob in one request (POST with digest): whether the answer is made. With the lock.
 */
static bool mounted(struct fake_exchange *x, const char *repo)
{
    struct fake_registry *fake = x->fake;
    const char *digest = fake_exchange_query(x, "mount");
    const char *from = fake_exchange_query(x, "from");
    if (!digest || !from || !fake_rule_bool(x->settings, "mount", true))
        return false;
    struct fake_repo *source = fake_state_repo(fake, from, false);
    if (!source || !fake_state_blob(fake, source, digest))
        return false;
    json_object_set_new(fake_state_repo(fake, repo, true)->blobs, digest, json_true());
    answer_created(x, repo, digest);
    return true;
}

void fake_upload_begin(struct fake_exchange *x, const char *repo)
{
    struct fake_registry *fake = x->fake;
    const char *digest = fake_exchange_query(x, "digest");
    pthread_mutex_lock(&fake->lock);
    fake_state_expire(fake);
    if (mounted(x, repo)) {
        pthread_mutex_unlock(&fake->lock);
        return;
    }
    struct fake_upload *upload = fake_state_begin_upload(fake, repo);
    upload->busy = true;
    if (!digest || fits_upload(x, upload)) {
        pthread_mutex_unlock(&fake->lock);
        bool whole = digest ? take_body(x, upload) : true;
        pthread_mutex_lock(&fake->lock);
        if (whole && digest)
            commit(x, upload, digest);
        else if (whole)
            answer_upload(x, upload, 202);
    }
    fake_state_leave_upload(fake, upload, true);
    pthread_mutex_unlock(&fake->lock);
}

void fake_upload_stat(struct fake_exchange *x, const char *repo, const char *id)
{
    struct fake_registry *fake = x->fake;
    pthread_mutex_lock(&fake->lock);
    struct fake_upload *upload = fake_state_take_upload(fake, repo, id, false);
    if (!upload) {
        answer_unknown(x);
    } else {
        answer_upload(x, upload, 204);
        fake_state_leave_upload(fake, upload, false);
    }
    pthread_mutex_unlock(&fake->lock);
}

void fake_upload_cancel(struct fake_exchange *x, const char *repo, const char *id)
{
    struct fake_registry *fake = x->fake;
    pthread_mutex_lock(&fake->lock);
    struct fake_upload *upload = fake_state_take_upload(fake, repo, id, false);
    if (!upload) {
        answer_unknown(x);
    } else {
        fake_state_end_upload(fake, upload);
        fake_state_leave_upload(fake, upload, false);
        fake_exchange_text(x, 204, NULL, "");
    }
    pthread_mutex_unlock(&fake->lock);
}
