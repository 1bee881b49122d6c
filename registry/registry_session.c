#include "registry_session.h"

#include "clock.h"
#include "registry_call.h"
#include "registry_error.h"
#include "registry_url.h"

#include <inttypes.h>
#include <string.h>

enum {
    ABANDON_TIMEOUT_S = 2, /* for the one request that tidies up after a failed upload */
    MOUNT_TRIES = 2,       /* that a registry fails */
};

/* The refusals that say that the session, not the request, is at fault. */
static const char *const session_codes[] = {"BLOB_UPLOAD_UNKNOWN", "BLOB_UPLOAD_INVALID",
                                            "RANGE_INVALID"};
/* Those that say that the bytes are not the ones that were announced. */
static const char *const bytes_codes[] = {"DIGEST_INVALID", "SIZE_INVALID"};

void registry_session_forget(struct registry_session *session)
{
    free(steal_ptr(session->location));
    registry_offset_begin(&session->offset);
    session->progress_at = 0;
    session->used = false;
    session->broken = false;
    session->worthless = false;
}

void registry_session_free(struct registry_session *session)
{
    registry_session_forget(session);
    registry_http_response_free(&session->response);
}

static int on_progress(void *arg, uint64_t done, uint64_t total)
{
    struct registry_session *session = arg;
    (void)total;
    if (done < session->body_done) /* it is sent again from its beginning */
        session->body_done = 0;
    session->sent += done - session->body_done;
    session->body_done = done;
    if (!session->progress)
        return 0;
    return session->progress(session->arg, session->body_offset + done, session->total);
}

static struct registry_call make_call(struct registry_session *session,
                                      enum registry_http_method method, const char *url)
{
    session->body_offset = session->offset.at;
    session->body_done = 0;
    return (struct registry_call){
        .request = {.method = method,
                    .url = url,
                    .body_fd = -1,
                    .progress = on_progress,
                    .progress_arg = session},
        .repeat = REGISTRY_REPEAT_SAFE,
        .retry = &session->retry,
        .repository = session->repository,
        .actions = "pull,push",
    };
}

/* Keeps an answer that was no success, and its sentence. Takes the response over. */
static int keep(struct registry_session *session, struct registry_http_response *response, int step)
{
    err_clear(&session->cause);
    (void)registry_error_refusal(response, &session->cause);
    registry_http_response_free(&session->response);
    session->response = *response;
    session->answered = true;
    *response = (struct registry_http_response){0};
    return step;
}

static int keep_cause(struct registry_session *session, const struct err *cause, int step)
{
    session->cause = *cause;
    session->answered = false;
    return step;
}

static int fail_with(struct registry_session *session, int step, const char *cause)
{
    err_clear(&session->cause);
    (void)err_fail(&session->cause, ERR_REFUSED, "%s", cause);
    session->answered = false;
    return step;
}

int registry_session_fail(const struct registry_session *session, struct err *err)
{
    if (session->cause.code == ERR_NONE)
        return err_fail(err, ERR_REFUSED,
                        "the registry takes bytes of the upload and does not have them afterwards");
    return err_pass(err, -session->cause.num, &session->cause);
}

static bool has_code_of(const struct registry_http_response *response, const char *const *codes,
                        size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (registry_error_has_code(response, codes[i]))
            return true;
    return false;
}

/* The newest address counts; an answer without one leaves it as it is. */
static int take_location(struct registry_session *session,
                         const struct registry_http_response *response, struct err *err)
{
    if (!response->location)
        return 0;
    char *location;
    int rc = registry_http_location(session->registry->http, response, &location, err);
    if (rc < 0)
        return rc;
    free(session->location);
    session->location = location;
    return 0;
}

static void take_chunk_min(struct registry_session *session,
                           const struct registry_http_response *response)
{
    const char *value = response->chunk_min_length;
    if (!value || *value < '0' || *value > '9' || strlen(value) > 18)
        return;
    char *end;
    unsigned long long min = strtoull(value, &end, 10);
    session->chunk_min = *end == '\0' ? min : 0;
}

static int open_answered(struct registry_session *session,
                         const struct registry_http_response *response, struct err *err)
{
    registry_session_forget(session);
    session->chunk_min = 0;
    if (!response->location)
        return err_fail(err, ERR_DAMAGED, "the registry answered %ld without an address",
                        response->status);
    take_chunk_min(session, response);
    return take_location(session, response, err);
}

/* An empty value takes out the header that curl gives to forms. */
static const char *const no_type[] = {"Content-Type:", NULL};

static void set_no_mount(void *arg, struct registry_traits *traits)
{
    (void)arg;
    traits->no_mount = true;
}

/* It has failed at a mount and is well otherwise. */
static void learn_no_mount(const struct registry_session *session)
{
    const struct registry *registry = session->registry;
    registry_pool_learn(registry->pool, registry->base, set_no_mount, NULL);
}

int registry_session_open(struct registry_session *session, struct err *err)
{
    cleanup_free char *url = NULL;
    int rc =
        registry_make_url(session->registry, session->repository, "blobs", "uploads/", &url, err);
    if (rc < 0)
        return rc;
    struct registry_call call = make_call(session, REGISTRY_HTTP_POST, url);
    call.request.headers = no_type;
    const int failures = session->retry.attempts + session->retry.put_off;
    cleanup_http_response struct registry_http_response response = {0};
    rc = registry_call_perform(session->registry, &call, &response, err);
    if (rc < 0)
        return rc;
    if (response.status != 202)
        return registry_error_refusal(&response, err);
    if (session->mount_failed && session->retry.attempts + session->retry.put_off == failures)
        learn_no_mount(session);
    session->mount_failed = false;
    return open_answered(session, &response, err);
}

/* "<uploads>?mount=<digest>&from=<repository>" */
static int mount_url(const struct registry_session *session, const struct digest *digest,
                     const char *from, char **ret, struct err *err)
{
    cleanup_free char *url = NULL;
    cleanup_free char *mount = NULL;
    int rc =
        registry_make_url(session->registry, session->repository, "blobs", "uploads/", &url, err);
    if (rc == 0)
        rc = registry_url_add_query(url, "mount", digest_format(digest).s, &mount, err);
    if (rc == 0)
        rc = registry_url_add_query(mount, "from", from, ret, err);
    return rc;
}

static bool is_asked_for_mounts(const struct registry_session *session)
{
    const struct registry *registry = session->registry;
    return !session->mount_failed && !registry_pool_traits(registry->pool, registry->base).no_mount;
}

/* Whether the registry has failed at the mount itself: to say when to come back is no failure, and
 * what is lost on the way says nothing of mounts. */
static bool has_failed(const struct registry_http_response *response)
{
    return response->status >= 500 && registry_retry_is_passing(response) &&
           !registry_retry_is_put_off(response);
}

/* One attempt, counted in `failed` when it has. 1: there may be another one. */
static int try_mount_once(struct registry_session *session, const struct registry_call *call,
                          int *failed, struct registry_http_response *ret, struct err *err)
{
    const struct registry_waiter waiter = {
        .progress = session->progress, .arg = session->arg, .total = session->total};
    int rc = registry_call_perform(session->registry, call, ret, err);
    bool lost = rc < 0 && registry_retry_is_lost(err);
    if (!lost && (rc < 0 || !has_failed(ret)))
        return rc;
    session->mount_failed = !lost && ++*failed == MOUNT_TRIES;
    if (!is_asked_for_mounts(session))
        return 0;
    err_clear(err);
    return registry_call_wait(session->registry, call->retry, lost ? NULL : ret, &waiter, err);
}

/* Patience of its own for each blob would make a push wait for what only saves work. */
static int try_mount(struct registry_session *session, const struct registry_call *call,
                     struct registry_http_response *ret, struct err *err)
{
    int failed = 0;
    int rc;
    while ((rc = try_mount_once(session, call, &failed, ret, err)) == 1) {
        registry_http_response_free(ret);
        *ret = (struct registry_http_response){0};
    }
    return rc;
}

int registry_session_mount(struct registry_session *session, const struct digest *digest,
                           const char *from, struct registry_retry *retry, struct err *err)
{
    cleanup_free char *url = NULL;
    if (!is_asked_for_mounts(session))
        return 0;
    int rc = mount_url(session, digest, from, &url, err);
    if (rc < 0)
        return rc;
    struct registry_call call = make_call(session, REGISTRY_HTTP_POST, url);
    call.request.headers = no_type;
    call.from = from;
    call.retry = retry;
    call.repeat = REGISTRY_REPEAT_NEVER; /* try_mount() does */
    struct err failure = ERR_INIT;
    cleanup_http_response struct registry_http_response response = {0};
    rc = try_mount(session, &call, &response, &failure);
    if (rc < 0 && failure.code == ERR_CANCELLED)
        return err_pass(err, rc, &failure);
    if (rc == 0 && response.status == 201)
        return 1;
    /* Whatever else it is, an upload without a mount finds out what is wrong. */
    if (rc == 0 && response.status == 202 && open_answered(session, &response, &failure) < 0)
        registry_session_forget(session);
    return 0;
}

int registry_session_take(struct registry_session *session, const char *location, uint64_t offset,
                          uint64_t size, struct err *err)
{
    const struct registry_http_response from = {.url = session->registry->base,
                                                .location = (char *)location};
    char *address;
    int rc = registry_http_location(session->registry->http, &from, &address, err);
    if (rc < 0)
        return rc;
    registry_session_forget(session);
    session->location = address;
    registry_offset_take_up(&session->offset, offset, size); /* what was sent is not known */
    session->progress_at = session->offset.best;
    session->broken = true;
    return 0;
}

/* Takes the offset that the session has now. */
static int note_offset(struct registry_session *session)
{
    uint64_t best = session->offset.best;
    uint64_t more = best > session->progress_at ? best - session->progress_at : 0;
    session->used = session->used || session->offset.at > 0;
    if (more >= REGISTRY_SESSION_PROGRESS || (more > 0 && best == session->total)) {
        session->progress_at = best;
        registry_retry_progress(&session->retry);
    }
    return REGISTRY_STEP_DONE;
}

/* Sends a body; a failure of the connection is a step. */
static int send_body(struct registry_session *session, struct registry_call *call,
                     const struct registry_session_body *body, struct registry_http_response *ret,
                     struct err *err)
{
    struct err failure = ERR_INIT;
    call->repeat = REGISTRY_REPEAT_NEVER;
    call->request.body = body->bytes ? body->bytes : body->size == 0 ? "" : NULL;
    call->request.body_fd = body->fd;
    call->request.body_offset = body->offset;
    call->request.body_size = body->size;
    registry_offset_send(&session->offset, body->offset + body->size);
    int rc = registry_call_perform(session->registry, call, ret, &failure);
    if (rc == 0 && ret->body_complete && session->body_done < body->size)
        session->sent += body->size - session->body_done;
    if (body->size > 0 && (rc < 0 || registry_retry_is_passing(ret)))
        registry_offset_break(&session->offset); /* what of it was kept is not known */
    if (rc == 0)
        return REGISTRY_STEP_DONE;
    if (body->size > 0)
        session->broken = true;
    if (registry_retry_is_lost(&failure))
        return keep_cause(session, &failure, REGISTRY_STEP_WAIT);
    return err_pass(err, rc, &failure);
}

static bool is_unknown_request(long status)
{
    return status == 405 || status == 411 || status == 415 || status == 501;
}

/* What a refused body means, whichever way it went. */
static int judge_refusal(struct registry_session *session, struct registry_http_response *response)
{
    long status = response->status;
    if (status == 413)
        return keep(session, response, REGISTRY_STEP_TOO_LARGE);
    session->broken = true;
    if (registry_retry_is_passing(response))
        return keep(session, response, REGISTRY_STEP_WAIT);
    if (status == 404 || status == 409 || status == 410 || status == 416 ||
        has_code_of(response, session_codes, ARRAY_SIZE(session_codes)))
        return keep(session, response, REGISTRY_STEP_ASK);
    session->worthless = has_code_of(response, bytes_codes, ARRAY_SIZE(bytes_codes));
    return keep(session, response, REGISTRY_STEP_REFUSED);
}

/* What a refused chunk means. A registry may know no chunks, or take one and no second. */
static int judge_patch(struct registry_session *session, struct registry_http_response *response)
{
    bool own = has_code_of(response, session_codes, ARRAY_SIZE(session_codes)) ||
               has_code_of(response, bytes_codes, ARRAY_SIZE(bytes_codes));
    bool lost = response->status == 404 && !session->used;
    if (!own && (lost || response->status == 400 || is_unknown_request(response->status)))
        return keep(session, response, REGISTRY_STEP_OTHER_WAY);
    return judge_refusal(session, response);
}

static bool is_success(long status)
{
    return status == 200 || status == 201 || status == 202 || status == 204;
}

static int chunk_taken(struct registry_session *session,
                       const struct registry_http_response *response, uint64_t end)
{
    struct err why = ERR_INIT;
    session->used = true;
    if (!response->body_complete) {
        registry_offset_break(&session->offset);
        return fail_with(session, REGISTRY_STEP_ASK,
                         "the registry answered before it had all bytes of a chunk");
    }
    if (!registry_offset_took(&session->offset, end, response->range, &why))
        return keep_cause(session, &why, REGISTRY_STEP_ASK);
    return note_offset(session);
}

int registry_session_patch(struct registry_session *session,
                           const struct registry_session_body *body, struct err *err)
{
    char range[64];
    snprintf(range, sizeof range, "Content-Range: %" PRIu64 "-%" PRIu64, body->offset,
             body->offset + body->size - 1);
    const char *const headers[] = {"Content-Type: application/octet-stream", range, NULL};
    struct registry_call call = make_call(session, REGISTRY_HTTP_PATCH, session->location);
    call.request.headers = headers;
    cleanup_http_response struct registry_http_response response = {0};
    int step = send_body(session, &call, body, &response, err);
    if (step != REGISTRY_STEP_DONE)
        return step;
    if (!is_success(response.status))
        return judge_patch(session, &response);
    int rc = registry_error_if_web_page(&response, err);
    if (rc == 0)
        rc = take_location(session, &response, err);
    if (rc < 0)
        return rc;
    return chunk_taken(session, &response, body->offset + body->size);
}

static int look(struct registry_session *session, const struct digest *digest, uint64_t *ret_size,
                struct err *err)
{
    return registry_blob_look(session->registry, session->repository, digest, &session->retry,
                              session->progress, session->arg, ret_size, err);
}

/* The same of a blob that the registry has just taken. */
static int look_for_new(struct registry_session *session, const struct digest *digest,
                        uint64_t *ret_size, struct err *err)
{
    struct remote *remote = &session->registry->remote;
    int again = 1;
    for (int looks = 1; again == 1; looks++) {
        int rc = look(session, digest, ret_size, err);
        if (rc != 0)
            return rc;
        again = registry_wait_visible(remote, looks, session->progress, session->arg, err);
    }
    return again;
}

/* The registry confirms by 201 and its digest header; one that sends no header is asked. */
static int confirm(struct registry_session *session, const struct digest *digest, uint64_t size,
                   const struct registry_http_response *response, struct err *err)
{
    int rc = registry_error_if_web_page(response, err);
    if (rc < 0)
        return rc;
    session->worthless = true; /* it is closed, whatever came of it */
    if (!response->body_complete)
        return err_fail(err, ERR_DAMAGED, "the registry answered %ld before it had all bytes",
                        response->status);
    if (response->content_digest)
        return registry_error_if_other_digest(response, digest, err);
    uint64_t have = UINT64_MAX;
    rc = look_for_new(session, digest, &have, err);
    if (rc == 0)
        rc = err_fail(err, ERR_REFUSED, "the registry took it but does not have it");
    else if (rc == 1 && have != size && have != UINT64_MAX)
        rc = err_fail(err, ERR_DIGEST,
                      "the registry has it with %" PRIu64 " instead of %" PRIu64 " bytes", have,
                      size);
    return rc < 0 ? rc : 0;
}

/* What a closing PUT that was refused means. Some registries want a body in it, others none; that
 * is told by various statuses. */
static int judge_put(struct registry_session *session, struct registry_http_response *response,
                     struct err *err)
{
    bool other_bytes = has_code_of(response, bytes_codes, ARRAY_SIZE(bytes_codes));
    /* A connection that closed may have made libcurl send a chunk twice: once, nothing is believed
     * of what several requests brought. */
    if (other_bytes && (session->broken || (session->used && !session->doubted))) {
        session->doubted = true;
        return keep(session, response, REGISTRY_STEP_LOST);
    }
    session->worthless = other_bytes;
    if (other_bytes)
        return registry_error_refusal(response, err);
    bool other_way = response->status == 400 || is_unknown_request(response->status);
    if (other_way && !has_code_of(response, session_codes, ARRAY_SIZE(session_codes)))
        return keep(session, response, REGISTRY_STEP_OTHER_WAY);
    return judge_refusal(session, response);
}

int registry_session_put(struct registry_session *session, const struct digest *digest,
                         const struct registry_session_body *body, struct err *err)
{
    cleanup_free char *url = NULL;
    int rc = registry_url_add_digest(session->location, digest, &url, err);
    if (rc < 0)
        return rc;
    static const char *const headers[] = {"Content-Type: application/octet-stream", NULL};
    struct registry_call call = make_call(session, REGISTRY_HTTP_PUT, url);
    call.request.headers = headers;
    cleanup_http_response struct registry_http_response response = {0};
    int step = send_body(session, &call, body, &response, err);
    if (step != REGISTRY_STEP_DONE)
        return step;
    if (response.status != 201 && response.status != 200 && response.status != 204)
        return judge_put(session, &response, err);
    rc = confirm(session, digest, body->offset + body->size, &response, err);
    return rc < 0 ? rc : REGISTRY_STEP_DONE;
}

/* Whether an answer to the question for the offset says that there is no such session. 400, as some
 * find an address of theirs malformed that they do not know any more. */
static bool is_lost(const struct registry_http_response *response)
{
    const long status = response->status;
    return status == 400 || status == 404 || status == 409 || status == 410 || status == 416 ||
           has_code_of(response, session_codes, ARRAY_SIZE(session_codes));
}

int registry_session_ask(struct registry_session *session, struct err *err)
{
    struct registry_call call = make_call(session, REGISTRY_HTTP_GET, session->location);
    cleanup_http_response struct registry_http_response response = {0};
    int rc = registry_call_perform(session->registry, &call, &response, err);
    if (rc < 0)
        return rc;
    bool no_get = response.status == 405 || response.status == 501;
    if (is_lost(&response))
        return keep(session, &response, REGISTRY_STEP_LOST);
    if (!is_success(response.status) && !no_get)
        return registry_error_refusal(&response, err);
    rc = no_get ? 0 : take_location(session, &response, err);
    if (rc < 0)
        return rc;
    struct err why = ERR_INIT;
    if (!registry_offset_told(&session->offset, no_get ? NULL : response.range, &why))
        return keep_cause(session, &why, REGISTRY_STEP_LOST);
    return note_offset(session);
}

static int is_late(void *arg, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return clock_now_ms() > *(const int64_t *)arg;
}

/* A courtesy without a guarantee: sessions also expire, and docker-registry 2.8 answers 404 once a
 * body broke off and leaves such a session to its own purge. */
void registry_session_abandon(struct registry_session *session)
{
    if (!session->location)
        return;
    int64_t until_ms = clock_now_ms() + ABANDON_TIMEOUT_S * INT64_C(1000);
    struct registry_call call = make_call(session, REGISTRY_HTTP_DELETE, session->location);
    call.request.progress = is_late; /* who was told to stop would not get so far */
    call.request.progress_arg = &until_ms;
    call.repeat = REGISTRY_REPEAT_NEVER;
    cleanup_http_response struct registry_http_response response = {0};
    (void)registry_call_perform(session->registry, &call, &response, NULL);
    registry_session_forget(session);
}

int registry_session_wait(struct registry_session *session, struct err *err)
{
    const struct registry_waiter waiter = {.progress = session->progress,
                                           .arg = session->arg,
                                           .done = session->offset.at,
                                           .total = session->total};
    return registry_call_wait(session->registry, &session->retry,
                              session->answered ? &session->response : NULL, &waiter, err);
}

int registry_session_is_there(struct registry_session *session, const struct digest *digest,
                              uint64_t size, struct err *err)
{
    uint64_t have = UINT64_MAX;
    int rc = look(session, digest, &have, err);
    return rc == 1 ? have == size : rc; /* to be told no size is no proof */
}
