/* A blob that goes to a registry while it is being made, in chunks (remote_stream.h). What the
 * registry has not confirmed yet is kept. */

#include "fault.h"
#include "reference.h"
#include "registry_pool.h"
#include "registry_session.h"
#include "remote_stream.h"

#include <inttypes.h>
#include <string.h>

enum {
    STREAM_BUFFER_MAX = 64 << 20, /* a registry that wants larger chunks gets no streams */
    STREAM_ASKS_MAX = 3,          /* other offsets in a row, without progress */
};

struct stream {
    struct remote_stream stream; /* first, so that the pointers are the same */
    struct registry_session session;
    char *repository; /* owned; the session borrows it */
    char *bytes;      /* owned; those from session.offset on are not confirmed */
    size_t room;
    size_t len;
    uint64_t start; /* where in the blob they begin */
    uint64_t chunk; /* bytes of a body, at most */
    int asks;
};

static struct stream *stream_of(struct remote_stream *stream)
{
    return (struct stream *)stream;
}

static int fail_lost(struct stream *stream, struct err *err)
{
    struct err cause = ERR_INIT;
    (void)registry_session_fail(&stream->session, &cause);
    int rc =
        err_fail(err, ERR_REFUSED, "the registry has lost the upload after %" PRIu64 " bytes: %s",
                 stream->start, cause.text);
    err_hint(err, "begin the upload anew");
    return rc;
}

static int ask(struct stream *stream, struct err *err)
{
    if (++stream->asks > STREAM_ASKS_MAX)
        return fail_lost(stream, err);
    int rc = registry_session_ask(&stream->session, err);
    if (rc == REGISTRY_STEP_LOST ||
        (rc == REGISTRY_STEP_DONE && stream->session.offset < stream->start))
        return fail_lost(stream, err);
    return rc;
}

static void change_traits(void *arg, struct registry_traits *traits)
{
    const uint64_t *limit = arg;
    if (traits->chunk_max == 0 || *limit < traits->chunk_max)
        traits->chunk_max = *limit;
}

static int shrink(struct stream *stream, uint64_t len, struct err *err)
{
    struct registry *registry = stream->session.registry;
    uint64_t floor = REGISTRY_CHUNK_MIN;
    if (stream->session.chunk_min > floor)
        floor = stream->session.chunk_min;
    if (len <= floor) {
        int rc = registry_session_fail(&stream->session, err);
        return err_wrap(err, rc, "the registry refuses a body of %" PRIu64 " bytes", len);
    }
    stream->chunk = len / 2 > floor ? len / 2 : floor;
    registry_pool_learn(registry_http_pool(registry->http), registry->base, change_traits,
                        &stream->chunk);
    return ask(stream, err);
}

static int wait(struct stream *stream, struct err *err)
{
    int rc = registry_session_wait(&stream->session, err);
    if (rc == 0)
        return registry_session_fail(&stream->session, err);
    if (rc < 0)
        return rc;
    stream->asks = 0;
    return ask(stream, err);
}

static int mend(struct stream *stream, int step, uint64_t len, struct err *err)
{
    switch (step) {
    case REGISTRY_STEP_WAIT:
        return wait(stream, err);
    case REGISTRY_STEP_ASK:
        return ask(stream, err);
    case REGISTRY_STEP_TOO_LARGE:
        return shrink(stream, len, err);
    case REGISTRY_STEP_OTHER_WAY: {
        int rc = err_fail(err, ERR_UNSUPPORTED, "the registry takes no blobs in chunks");
        err_hint(err, "%s", stream->session.cause.text);
        return rc;
    }
    default:
        return fail_lost(stream, err);
    }
}

/* Sends what is kept, once; what was confirmed goes out of the buffer. */
static int send_kept(struct stream *stream, struct err *err)
{
    struct registry_session *session = &stream->session;
    uint64_t left = stream->start + stream->len - session->offset;
    const struct registry_session_body body = {
        .bytes = stream->bytes + (session->offset - stream->start),
        .fd = -1,
        .offset = session->offset,
        .size = left < stream->chunk ? left : stream->chunk,
    };
    uint64_t best = session->best;
    int step = registry_session_patch(session, &body, err);
    if (step < 0)
        return step;
    if (step == REGISTRY_STEP_DONE && session->best == best)
        step = REGISTRY_STEP_ASK;
    int rc = step == REGISTRY_STEP_DONE ? FAULT_POINT("registry.stream-sent", err)
                                        : mend(stream, step, body.size, err);
    if (rc < 0)
        return rc;
    if (session->offset < stream->start)
        return fail_lost(stream, err);
    if (session->offset == stream->start)
        return 0;
    stream->asks = 0;
    size_t done = (size_t)(session->offset - stream->start);
    memmove(stream->bytes, stream->bytes + done, stream->len - done);
    stream->len -= done;
    stream->start = session->offset;
    return 0;
}

static int op_append(struct remote_stream *base, const void *bytes, size_t len, struct err *err)
{
    struct stream *stream = stream_of(base);
    const char *from = bytes;
    int rc = 0;
    while (len > 0 && rc == 0) {
        size_t room = stream->room - stream->len;
        size_t now = len < room ? len : room;
        memcpy(stream->bytes + stream->len, from, now);
        stream->len += now;
        from += now;
        len -= now;
        if (stream->len == stream->room)
            rc = send_kept(stream, err);
    }
    return rc;
}

/* Closes the session: 1 when the registry has the blob, 0 to try again. */
static int close_session(struct stream *stream, const struct digest *digest, struct err *err)
{
    struct registry_session *session = &stream->session;
    const struct registry_session_body none = {.fd = -1, .offset = session->offset};
    int step = registry_session_put(session, digest, &none, err);
    if (step < 0)
        return step;
    if (step == REGISTRY_STEP_DONE)
        return 1;
    /* The answer to an earlier attempt may have been lost. */
    int rc = registry_session_is_there(session, digest, stream->start, err);
    return rc == 0 ? mend(stream, step, 0, err) : rc;
}

static int op_finish(struct remote_stream *base, const struct digest *digest, struct err *err)
{
    struct stream *stream = stream_of(base);
    int rc = 0;
    while (rc == 0) {
        if (stream->len > 0)
            rc = send_kept(stream, err);
        else
            rc = close_session(stream, digest, err);
    }
    if (rc < 0)
        return rc;
    free(steal_ptr(stream->session.location)); /* there is nothing to give up any more */
    return 0;
}

static void op_free(struct remote_stream *base)
{
    struct stream *stream = stream_of(base);
    registry_session_abandon(&stream->session);
    registry_session_free(&stream->session);
    free(stream->repository);
    free(stream->bytes);
    free(stream);
}

static int open_session(struct stream *stream, struct err *err)
{
    struct registry *registry = stream->session.registry;
    const struct registry_traits traits =
        registry_pool_traits(registry_http_pool(registry->http), registry->base);
    if (traits.no_patch)
        return err_fail(err, ERR_UNSUPPORTED, "the registry takes no blobs in chunks");
    int rc = registry_session_open(&stream->session, err);
    if (rc < 0)
        return rc;
    uint64_t min = stream->session.chunk_min;
    stream->room = REGISTRY_CHUNK_BYTES;
    if (min > STREAM_BUFFER_MAX)
        return err_fail(err, ERR_UNSUPPORTED,
                        "the registry takes no chunks of less than %" PRIu64 " bytes", min);
    if (min > stream->room)
        stream->room = (size_t)min;
    stream->chunk = stream->room;
    if (traits.chunk_max > 0 && traits.chunk_max < stream->chunk)
        stream->chunk = traits.chunk_max;
    stream->bytes = malloc(stream->room);
    return stream->bytes ? 0 : err_errno(err, ENOMEM, "cannot keep a chunk of an upload");
}

int registry_stream_open(struct remote *remote, const char *repository, remote_progress progress,
                         void *arg, struct remote_stream **ret, struct err *err)
{
    static const struct remote_stream_ops ops = {
        .append = op_append, .finish = op_finish, .free = op_free};
    int rc = reference_check_repository(repository, err);
    if (rc < 0)
        return rc;
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return err_errno(err, ENOMEM, "cannot begin an upload");
    stream->stream.ops = &ops;
    stream->repository = strdup(repository);
    stream->session = (struct registry_session){.registry = registry_of(remote),
                                                .repository = stream->repository,
                                                .progress = progress,
                                                .arg = arg};
    rc = stream->repository ? open_session(stream, err)
                            : err_errno(err, ENOMEM, "cannot begin an upload");
    if (rc < 0) {
        op_free(&stream->stream);
        return err_wrap(err, rc, "repository %s", repository);
    }
    *ret = &stream->stream;
    return 0;
}
