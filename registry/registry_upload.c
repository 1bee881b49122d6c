#include "registry_upload.h"

#include "fault.h"
#include "reference.h"
#include "registry_pool.h"
#include "registry_session.h"

#include <inttypes.h>

enum way {
    WAY_CHUNKS,
    WAY_WHOLE, /* one PUT with all bytes */
};

struct upload {
    struct registry_session session;
    const struct digest *digest;
    int fd;
    uint64_t size;
    struct remote_upload *report;
    enum way way;
    bool switched;  /* the other way was tried and did not suit */
    bool unsuited;  /* the registry showed by its answers that the first way does not suit it */
    bool answered;  /* the last chunk that was not taken had an answer */
    bool no_patch;  /* chunks are no way */
    uint64_t chunk; /* bytes, at most */
    int asks;       /* times that the offset was another, without progress */
    bool hopeless;  /* another attempt would not get further in this session */
};

static struct registry_pool *pool_of(const struct upload *upload)
{
    return registry_http_pool(upload->session.registry->http);
}

static const char *base_of(const struct upload *upload)
{
    return upload->session.registry->base;
}

/* What is known of the registry decides how to begin. */
static void choose(struct upload *upload)
{
    const struct registry_traits traits = registry_pool_traits(pool_of(upload), base_of(upload));
    upload->chunk = REGISTRY_CHUNK_BYTES;
    if (traits.chunk_max > 0 && traits.chunk_max < upload->chunk)
        upload->chunk = traits.chunk_max;
    upload->no_patch = traits.no_patch;
    if (traits.no_patch)
        upload->way = WAY_WHOLE;
    else if (traits.no_whole_put)
        upload->way = WAY_CHUNKS;
    else
        upload->way = upload->size <= upload->chunk ? WAY_WHOLE : WAY_CHUNKS;
}

/* The record of the session. */

static int save(const struct upload *upload, struct err *err)
{
    const struct remote_sessions *sessions = upload->report->sessions;
    if (!sessions || upload->way == WAY_WHOLE)
        return 0;
    const struct remote_session session = {.location = upload->session.location,
                                           .offset = upload->session.offset};
    return sessions->save(sessions->arg, upload->session.repository, upload->digest, upload->size,
                          &session, err);
}

static int forget(const struct upload *upload, struct err *err)
{
    const struct remote_sessions *sessions = upload->report->sessions;
    if (!sessions)
        return 0;
    return sessions->forget(sessions->arg, upload->session.repository, upload->digest, err);
}

/* Tries the way that is left, in a new session. */
static int switch_way(struct upload *upload, struct err *err)
{
    if (upload->switched || upload->no_patch) {
        upload->hopeless = true;
        return registry_session_fail(&upload->session, err);
    }
    int rc = forget(upload, err);
    if (rc < 0)
        return rc;
    upload->switched = true;
    upload->way = upload->way == WAY_WHOLE ? WAY_CHUNKS : WAY_WHOLE;
    upload->no_patch = upload->way == WAY_WHOLE;
    upload->asks = 0;
    registry_session_abandon(&upload->session);
    return 0;
}

/* Whether one body with everything is still to be tried, as every registry takes that from others:
 * some take one chunk and no second, or tell offsets that are not so. */
static bool whole_is_left(const struct upload *upload)
{
    return upload->way == WAY_CHUNKS && !upload->switched && !upload->no_patch;
}

/* A lost connection says nothing about what a registry can do. */
static int last_resort(struct upload *upload, struct err *err)
{
    upload->unsuited = upload->answered;
    return switch_way(upload, err);
}

/* Gives the session up for a new one. */
static int restart(struct upload *upload, struct err *err)
{
    int rc = forget(upload, err);
    if (rc < 0)
        return rc;
    if (upload->report->restarts == REGISTRY_UPLOAD_RESTARTS_MAX && whole_is_left(upload))
        return last_resort(upload, err);
    if (upload->report->restarts == REGISTRY_UPLOAD_RESTARTS_MAX) {
        upload->hopeless = true;
        rc = registry_session_fail(&upload->session, err);
        return err_wrap(err, rc, "the upload was begun %d times", REGISTRY_UPLOAD_RESTARTS_MAX + 1);
    }
    registry_session_abandon(&upload->session);
    upload->report->restarts++;
    upload->asks = 0;
    return FAULT_POINT("registry.upload-lost", err);
}

/* Asks for the offset, after something that leaves it open. */
static int ask(struct upload *upload, struct err *err)
{
    if (++upload->asks > REGISTRY_UPLOAD_ASKS_MAX)
        return restart(upload, err);
    struct registry_session *session = &upload->session;
    const struct err cause = session->cause;
    uint64_t best = session->best;
    int rc = registry_session_ask(session, err);
    if (rc == REGISTRY_STEP_DONE && session->best > best)
        upload->asks = 0;
    if (rc == REGISTRY_STEP_LOST && cause.code != ERR_NONE)
        session->cause = cause; /* what went wrong before says more */
    if (rc == REGISTRY_STEP_LOST)
        return restart(upload, err);
    if (rc < 0)
        return rc;
    if (session->offset > 0 && upload->no_patch)
        return restart(upload, err);
    if (session->offset > 0)
        upload->way = WAY_CHUNKS; /* it has kept a part, so it goes on from there */
    return save(upload, err);
}

/* Uses what an earlier attempt left. 1 when it can be gone on with. */
static int go_on(struct upload *upload, struct err *err)
{
    const struct remote_sessions *sessions = upload->report->sessions;
    struct registry_session *session = &upload->session;
    cleanup_remote_session struct remote_session found = {.location = NULL};
    if (!sessions)
        return 0;
    int rc = sessions->load(sessions->arg, session->repository, upload->digest, &found, err);
    if (rc <= 0)
        return rc;
    if (registry_session_take(session, found.location, found.offset, upload->size, NULL) < 0)
        return forget(upload, err);
    rc = registry_session_ask(session, err);
    if (rc == REGISTRY_STEP_LOST)
        rc = restart(upload, err);
    if (rc < 0 || !session->location)
        return rc;
    upload->way = WAY_CHUNKS;
    upload->report->resumed_at = session->offset;
    return 1;
}

/* 1 when the registry took the blob from another repository. */
static int mount(struct upload *upload, struct err *err)
{
    const struct remote_upload *report = upload->report;
    for (size_t i = 0; i < report->mount_count; i++) {
        int rc =
            registry_session_mount(&upload->session, upload->digest, report->mount_from[i], err);
        if (rc < 0)
            return rc;
        if (rc == 1)
            rc = registry_session_is_there(&upload->session, upload->digest, upload->size, err);
        if (rc != 0 || upload->session.location)
            return rc;
    }
    return 0;
}

static int begin(struct upload *upload, struct err *err)
{
    int rc = 0;
    if (!upload->session.location)
        rc = registry_session_open(&upload->session, err);
    if (rc == 0)
        rc = save(upload, err);
    return rc == 0 ? FAULT_POINT("registry.upload-opened", err) : rc;
}

struct learned {
    uint64_t limit;
    bool no_patch;
    bool no_whole_put;
};

static void change_traits(void *arg, struct registry_traits *traits)
{
    const struct learned *learned = arg;
    traits->no_patch = traits->no_patch || learned->no_patch;
    traits->no_whole_put = traits->no_whole_put || learned->no_whole_put;
    if (learned->limit > 0 && (traits->chunk_max == 0 || learned->limit < traits->chunk_max))
        traits->chunk_max = learned->limit;
}

static void learn(const struct upload *upload, struct learned learned)
{
    registry_pool_learn(pool_of(upload), base_of(upload), change_traits, &learned);
}

static int fail_too_large(struct upload *upload, uint64_t len, struct err *err)
{
    upload->hopeless = true;
    int rc = registry_session_fail(&upload->session, err);
    if (upload->session.chunk_min > REGISTRY_CHUNK_MIN && len > REGISTRY_CHUNK_MIN)
        rc = err_wrap(err, rc,
                      "the registry refuses a body of %" PRIu64 " bytes, but wants chunks of at "
                      "least %" PRIu64,
                      len, upload->session.chunk_min);
    else
        rc = err_wrap(err, rc, "the registry refuses a body of %" PRIu64 " bytes%s", len,
                      upload->way == WAY_WHOLE ? " and takes no chunks" : "");
    err_hint(err, "raise the limit on the size of a body in the registry or in the proxy in front "
                  "of it, to 16 MiB if it can be");
    return rc;
}

static uint64_t least_chunk(const struct upload *upload)
{
    uint64_t least = REGISTRY_CHUNK_MIN;
    return upload->session.chunk_min > least ? upload->session.chunk_min : least;
}

/* Smaller chunks, for all later blobs too. */
static int shrink(struct upload *upload, uint64_t len, struct err *err)
{
    uint64_t floor = least_chunk(upload);
    if (len <= floor || upload->no_patch)
        return fail_too_large(upload, len, err);
    uint64_t half = len / 2 > floor ? len / 2 : floor;
    if (half > REGISTRY_CHUNK_BYTES)
        half = REGISTRY_CHUNK_BYTES;
    upload->chunk = half;
    upload->way = WAY_CHUNKS;
    learn(upload, (struct learned){.limit = half});
    return 0;
}

/* Waits after a failure that may pass. A closing PUT may have succeeded: 1 then. */
static int wait(struct upload *upload, bool closing, struct err *err)
{
    int rc = registry_session_wait(&upload->session, err);
    if (rc == 0)
        return registry_session_fail(&upload->session, err);
    if (rc < 0)
        return rc;
    if (!closing)
        return 0;
    return registry_session_is_there(&upload->session, upload->digest, upload->size, err);
}

/* What is done about a step that was no success: 0 to go on, 1 when the blob is there. */
static int mend(struct upload *upload, int step, uint64_t len, bool closing, struct err *err)
{
    int rc;
    switch (step) {
    case REGISTRY_STEP_WAIT:
        upload->asks = 0;
        rc = wait(upload, closing, err);
        return rc == 0 ? ask(upload, err) : rc;
    case REGISTRY_STEP_ASK:
        rc = closing
                 ? registry_session_is_there(&upload->session, upload->digest, upload->size, err)
                 : 0;
        return rc == 0 ? ask(upload, err) : rc;
    case REGISTRY_STEP_LOST:
        return restart(upload, err);
    case REGISTRY_STEP_TOO_LARGE:
        rc = shrink(upload, len, err);
        return rc == 0 && upload->session.location ? ask(upload, err) : rc;
    default:
        upload->unsuited = true;
        return switch_way(upload, err);
    }
}

/* A chunk that was not taken, or that brought nothing. */
static int mend_chunk(struct upload *upload, int step, const struct registry_session_body *body,
                      struct err *err)
{
    const struct registry_session *session = &upload->session;
    bool other_range =
        step == REGISTRY_STEP_ASK && session->answered && session->response.status == 416;
    upload->answered = step != REGISTRY_STEP_WAIT;
    int rc =
        mend(upload, step == REGISTRY_STEP_DONE ? REGISTRY_STEP_ASK : step, body->size, false, err);
    if (rc != 0 || !other_range || !session->location || session->offset != body->offset ||
        body->size <= least_chunk(upload))
        return rc;
    /* 416, though this is its offset: some mean by it that there are too many bytes. */
    upload->asks = 0; /* there are only so many halves */
    return shrink(upload, body->size, err);
}

static int send_chunk(struct upload *upload, struct err *err)
{
    struct registry_session *session = &upload->session;
    uint64_t left = upload->size - session->offset;
    uint64_t chunk = upload->chunk > session->chunk_min ? upload->chunk : session->chunk_min;
    const struct registry_session_body body = {
        .fd = upload->fd, .offset = session->offset, .size = left < chunk ? left : chunk};
    uint64_t best = session->best;
    int step = registry_session_patch(session, &body, err);
    if (step < 0)
        return step;
    if (step != REGISTRY_STEP_DONE || session->offset <= body.offset)
        return mend_chunk(upload, step, &body, err);
    if (session->best > best)
        upload->asks = 0;
    int rc = FAULT_POINT("registry.chunk-sent", err);
    if (rc == 0)
        rc = save(upload, err);
    return rc == 0 ? FAULT_POINT("registry.chunk-recorded", err) : rc;
}

/* Closes the session with what is left. 1 when the registry has the blob. */
static int close_session(struct upload *upload, struct err *err)
{
    struct registry_session *session = &upload->session;
    const struct registry_session_body body = {
        .fd = upload->fd, .offset = session->offset, .size = upload->size - session->offset};
    int step = registry_session_put(session, upload->digest, &body, err);
    if (step < 0)
        return step;
    if (step != REGISTRY_STEP_DONE)
        return mend(upload, step, body.size, true, err);
    if (upload->switched && upload->unsuited)
        learn(upload, upload->way == WAY_WHOLE ? (struct learned){.no_patch = true}
                                               : (struct learned){.no_whole_put = true});
    return 1;
}

static int send_all(struct upload *upload, struct err *err)
{
    int rc = 0;
    while (rc == 0) {
        if (!upload->session.location)
            rc = begin(upload, err);
        if (rc < 0)
            break;
        if (upload->way == WAY_CHUNKS && upload->session.offset < upload->size)
            rc = send_chunk(upload, err);
        else
            rc = close_session(upload, err);
    }
    return rc;
}

static int finish(struct upload *upload, struct err *err)
{
    int rc = FAULT_POINT("registry.upload-closed", err);
    return rc == 0 ? forget(upload, err) : rc;
}

static int run(struct upload *upload, struct err *err)
{
    choose(upload);
    int rc = go_on(upload, err);
    if (rc == 0 && !upload->report->anew) {
        rc = mount(upload, err);
        if (rc == 1) {
            upload->report->outcome = REMOTE_BLOB_MOUNTED;
            return finish(upload, err);
        }
        if (rc == 0 && upload->session.location)
            rc = begin(upload, err);
    }
    if (rc >= 0)
        rc = send_all(upload, err);
    return rc < 0 ? rc : finish(upload, err);
}

/* Whether another attempt may go on where this one failed. */
static bool may_go_on(const struct upload *upload, const struct err *failure)
{
    return upload->report->sessions && upload->session.offset > 0 && !upload->hopeless &&
           !upload->session.refused && failure->code != ERR_DIGEST && failure->code != ERR_DAMAGED;
}

/* Leaves no session behind that nobody goes on with. A registry that does not answer need not be
 * asked. */
static void give_up(struct upload *upload, const struct err *failure)
{
    if (may_go_on(upload, failure))
        return;
    (void)forget(upload, NULL);
    if (failure->code != ERR_UNREACHABLE)
        registry_session_abandon(&upload->session);
}

int registry_upload_blob(struct remote *remote, const char *repository, const struct digest *digest,
                         int fd, uint64_t size, remote_progress progress, void *arg,
                         struct remote_upload *report, struct err *err)
{
    struct err failure = ERR_INIT;
    int rc = reference_check_repository(repository, err);
    if (rc < 0)
        return rc;
    struct upload upload = {.session = {.registry = registry_of(remote),
                                        .repository = repository,
                                        .progress = progress,
                                        .arg = arg,
                                        .total = size,
                                        .cause = ERR_INIT},
                            .digest = digest,
                            .fd = fd,
                            .size = size,
                            .report = report};
    rc = run(&upload, &failure);
    if (rc < 0)
        give_up(&upload, &failure);
    report->sent += upload.session.sent;
    registry_session_free(&upload.session);
    if (rc < 0)
        return err_wrap(err, err_pass(err, rc, &failure), "repository %s", repository);
    return 0;
}
