#include "registry_sender.h"

#include "fault.h"
#include "registry_pool.h"

#include <inttypes.h>
#include <string.h>

static struct registry_traits traits_of(const struct registry_sender *sender)
{
    const struct registry *registry = sender->session.registry;
    return registry_pool_traits(registry_http_pool(registry->http), registry->base);
}

static void learn(const struct registry_sender *sender, registry_traits_change *change)
{
    const struct registry *registry = sender->session.registry;
    registry_pool_learn(registry_http_pool(registry->http), registry->base, change, (void *)sender);
}

/* A chunk of this size was taken where a larger one was not. */
static void learn_chunk(void *arg, struct registry_traits *traits)
{
    const struct registry_sender *sender = arg;
    if (traits->chunk_max == 0 || sender->chunk < traits->chunk_max)
        traits->chunk_max = sender->chunk;
}

static bool are_equal(struct registry_offset_habits a, struct registry_offset_habits b)
{
    return a.no_patch == b.no_patch && a.no_get == b.no_get && a.one_more == b.one_more;
}

static void learn_ways(void *arg, struct registry_traits *traits)
{
    const struct registry_sender *sender = arg;
    const struct registry_offset_habits habits = sender->session.offset.habits;
    bool other = sender->switched && sender->unsuited;
    traits->no_patch = traits->no_patch || (other && sender->way == REGISTRY_WAY_WHOLE);
    traits->no_whole_put = traits->no_whole_put || (other && sender->way == REGISTRY_WAY_CHUNKS);
    if (!are_equal(sender->begun, habits))
        traits->offsets = habits;
}

/* The registry has the blob, so what was supposed of it is so. */
static void learn_success(const struct registry_sender *sender)
{
    bool other = sender->switched && sender->unsuited;
    if (other || !are_equal(sender->begun, sender->session.offset.habits))
        learn(sender, learn_ways);
}

void registry_sender_choose(struct registry_sender *sender)
{
    const struct registry_traits traits = traits_of(sender);
    const struct registry_source *source = &sender->source;
    sender->begun = traits.offsets;
    sender->session.offset.habits = traits.offsets;
    sender->chunk = REGISTRY_CHUNK_BYTES;
    if (traits.chunk_max > 0 && traits.chunk_max < sender->chunk)
        sender->chunk = traits.chunk_max;
    sender->no_patch = traits.no_patch;
    bool small = source->digest && source->end - source->first <= sender->chunk;
    bool whole = traits.no_patch || (small && !traits.no_whole_put);
    sender->way = whole ? REGISTRY_WAY_WHOLE : REGISTRY_WAY_CHUNKS;
}

static int note(const struct registry_sender *sender, bool there, struct err *err)
{
    if (!sender->note || (there && sender->way == REGISTRY_WAY_WHOLE))
        return 0;
    return sender->note(sender->note_arg, there, err);
}

/* Whether the blob could be sent from its first byte on. */
static bool has_all(const struct registry_sender *sender)
{
    return sender->source.first == 0;
}

/* The registry takes no chunks, or no more of them. */
static int fail_unsuited(const struct registry_sender *sender, struct err *err)
{
    int rc = err_fail(err, ERR_UNSUPPORTED, "the registry takes no blobs in chunks: %s",
                      sender->session.cause.text);
    err_hint(err, "push the blob when it is finished");
    return rc;
}

/* Tries the way that is left, in a new session. */
static int switch_way(struct registry_sender *sender, struct err *err)
{
    bool to_whole = sender->way == REGISTRY_WAY_CHUNKS;
    if (sender->switched || sender->no_patch) {
        sender->hopeless = true;
        return registry_session_fail(&sender->session, err);
    }
    if (to_whole && (!has_all(sender) || !sender->source.digest))
        return fail_unsuited(sender, err);
    int rc = note(sender, false, err);
    if (rc < 0)
        return rc;
    sender->switched = true;
    sender->way = to_whole ? REGISTRY_WAY_WHOLE : REGISTRY_WAY_CHUNKS;
    sender->no_patch = to_whole;
    sender->asks = 0;
    registry_session_abandon(&sender->session);
    return 0;
}

/* Whether one body with everything is still to be tried, as every registry takes that from others:
 * some take one chunk and no second, or tell offsets that are not so. */
static bool whole_is_left(const struct registry_sender *sender)
{
    return sender->way == REGISTRY_WAY_CHUNKS && !sender->switched && !sender->no_patch &&
           sender->source.digest;
}

static int fail_lost(struct registry_sender *sender, struct err *err)
{
    struct err cause = ERR_INIT;
    (void)registry_session_fail(&sender->session, &cause);
    sender->hopeless = true;
    int rc = err_fail(err, ERR_INTERRUPTED,
                      "the registry has lost the upload after %" PRIu64 " bytes: %s",
                      sender->source.first, cause.text);
    err_hint(err, "begin the upload anew, or push the blob when it is finished");
    return rc;
}

/* Gives the session up for a new one. */
static int restart(struct registry_sender *sender, struct err *err)
{
    if (!has_all(sender))
        return fail_lost(sender, err);
    int rc = note(sender, false, err);
    if (rc < 0)
        return rc;
    bool last = sender->losses == REGISTRY_UPLOAD_RESTARTS_MAX;
    if (last && whole_is_left(sender)) {
        sender->unsuited = sender->answered; /* a lost connection says nothing of the registry */
        return switch_way(sender, err);
    }
    if (last) {
        sender->hopeless = true;
        rc = registry_session_fail(&sender->session, err);
        return err_wrap(err, rc, "the upload was begun %d times", sender->restarts + 1);
    }
    registry_session_abandon(&sender->session);
    sender->restarts++;
    sender->losses++;
    sender->asks = 0;
    return FAULT_POINT("registry.upload-lost", err);
}

/* Uses the offset that the session has now. */
static int use_offset(struct registry_sender *sender, struct err *err)
{
    struct registry_offset *offset = &sender->session.offset;
    uint64_t first = sender->source.first;
    if (offset->at < first && !registry_offset_count(offset, first))
        return restart(sender, err);
    if (offset->at > 0 && sender->no_patch)
        return restart(sender, err);
    if (offset->at > 0)
        sender->way = REGISTRY_WAY_CHUNKS; /* it has kept a part, so it goes on from there */
    return note(sender, true, err);
}

static uint64_t least_chunk(const struct registry_sender *sender)
{
    uint64_t least = REGISTRY_CHUNK_MIN;
    return sender->session.chunk_min > least ? sender->session.chunk_min : least;
}

static int fail_too_large(const struct registry_sender *sender, uint64_t len, struct err *err)
{
    int rc = registry_session_fail(&sender->session, err);
    if (sender->session.chunk_min > REGISTRY_CHUNK_MIN && len > REGISTRY_CHUNK_MIN)
        rc = err_wrap(err, rc,
                      "the registry refuses a body of %" PRIu64 " bytes, but wants chunks of at "
                      "least %" PRIu64,
                      len, sender->session.chunk_min);
    else
        rc = err_wrap(err, rc, "the registry refuses a body of %" PRIu64 " bytes%s", len,
                      sender->way == REGISTRY_WAY_WHOLE ? " and takes no chunks" : "");
    err_hint(err, "raise the limit on the size of a body in the registry or in the proxy in front "
                  "of it, to 16 MiB if it can be");
    return rc;
}

/* Chunks of half of these bytes, if they may be smaller; whether they may. */
static bool halve(struct registry_sender *sender, uint64_t len)
{
    uint64_t floor = least_chunk(sender);
    if (len <= floor || sender->no_patch)
        return false;
    uint64_t half = len / 2 > floor ? len / 2 : floor;
    sender->chunk = half < REGISTRY_CHUNK_BYTES ? half : REGISTRY_CHUNK_BYTES;
    sender->asks = 0; /* there are only so many halves */
    sender->losses = 0;
    sender->shrunk = true;
    sender->way = REGISTRY_WAY_CHUNKS;
    return true;
}

/* After a refusal for the size. */
static int shrink(struct registry_sender *sender, uint64_t len, struct err *err)
{
    return halve(sender, len) ? 0 : fail_too_large(sender, len, err);
}

/* Whether the upload, of which the registry has so much, got further than before any break. */
static bool is_further(struct registry_sender *sender)
{
    uint64_t best = sender->session.offset.best;
    uint64_t more = best > sender->furthest ? best - sender->furthest : 0;
    if (more < REGISTRY_SESSION_PROGRESS && (more == 0 || best < sender->source.end))
        return false;
    sender->furthest = best;
    sender->breaks = 0;
    return true;
}

/* A body did not get to its end: whatever stands between may allow no so long or large ones. */
static bool is_break(const struct registry_sender *sender, int step)
{
    const struct registry_session *session = &sender->session;
    if (step != REGISTRY_STEP_WAIT || session->body_done == 0)
        return false;
    return !session->answered || registry_retry_is_cut_off(&session->response);
}

/* What a body that broke off has brought is known. */
static void judge_break(struct registry_sender *sender)
{
    uint64_t size = sender->broken;
    sender->broken = 0;
    if (size == 0 || is_further(sender) || ++sender->breaks < REGISTRY_UPLOAD_BREAKS)
        return;
    if (halve(sender, size))
        registry_retry_differently(&sender->session.retry);
}

/* The session does not answer, or not as it should, though the registry may be well: its address
 * may be of a host that is gone. The record stays until another session is there, as the registry
 * may be away, or refuse everything for now, too. */
static void leave_recorded(struct registry_sender *sender)
{
    struct registry_session *session = &sender->session;
    registry_session_forget(session);
    registry_retry_progress(&session->retry);
    sender->recorded = true;
    sender->restarts++;
}

/* Whether a session's offset is not told for a reason that may be this session's alone: a refusal
 * that stays. */
static bool is_refusal(const struct err *failure)
{
    return (failure->code == ERR_REFUSED && failure->num != REMOTE_REFUSED_FOR_NOW) ||
           (failure->code == ERR_DENIED && failure->num == REMOTE_DENIED_FOR_GOOD);
}

/* Begins anew in another session, if the registry opens one. */
static int leave_refused(struct registry_sender *sender, const struct err *failure, struct err *err)
{
    if (!is_refusal(failure) || !has_all(sender) || sender->losses == REGISTRY_UPLOAD_RESTARTS_MAX)
        return err_pass(err, -failure->num, failure);
    leave_recorded(sender);
    sender->losses++;
    sender->asks = 0;
    return 0;
}

/* Asks for the offset, after something that leaves it open. */
static int ask(struct registry_sender *sender, struct err *err)
{
    if (++sender->asks > REGISTRY_UPLOAD_ASKS_MAX)
        return restart(sender, err);
    struct registry_session *session = &sender->session;
    const struct err cause = session->cause;
    uint64_t progress_at = session->progress_at;
    struct err failure = ERR_INIT;
    int rc = registry_session_ask(session, &failure);
    if (rc < 0)
        return leave_refused(sender, &failure, err);
    judge_break(sender);
    if (rc == REGISTRY_STEP_DONE && session->progress_at > progress_at)
        sender->asks = 0;
    if (rc == REGISTRY_STEP_LOST && cause.code != ERR_NONE)
        session->cause = cause; /* what went wrong before says more */
    if (rc == REGISTRY_STEP_LOST)
        return restart(sender, err);
    return use_offset(sender, err);
}

int registry_sender_open(struct registry_sender *sender, struct err *err)
{
    int rc = 0;
    if (!sender->session.location)
        rc = registry_session_open(&sender->session, err);
    if (rc == 0)
        sender->recorded = false; /* of another one from here on */
    if (rc == 0)
        rc = note(sender, true, err);
    return rc == 0 ? FAULT_POINT("registry.upload-opened", err) : rc;
}

int registry_sender_resume(struct registry_sender *sender, const char *location, uint64_t offset,
                           struct err *err)
{
    struct registry_session *session = &sender->session;
    if (registry_session_take(session, location, offset, sender->source.end, NULL) < 0)
        return note(sender, false, err);
    struct err failure = ERR_INIT;
    int rc = sender->no_patch ? REGISTRY_STEP_LOST : registry_session_ask(session, &failure);
    bool denied = failure.code == ERR_DENIED && failure.num != REMOTE_DENIED_FOR_GOOD;
    bool final = failure.code == ERR_CANCELLED || denied;
    if (rc < 0 && (final || !has_all(sender)))
        return err_pass(err, rc, &failure);
    if (rc < 0) {
        leave_recorded(sender);
        return 0;
    }
    if (rc == REGISTRY_STEP_LOST)
        rc = restart(sender, err);
    if (rc < 0 || !session->location)
        return rc;
    sender->way = REGISTRY_WAY_CHUNKS;
    return 1;
}

/* Whether the registry has the blob already, if that was asked of it: 1, 0 or -errno. */
static int is_there(struct registry_sender *sender, bool closing, struct err *err)
{
    const struct registry_source *source = &sender->source;
    if (!closing)
        return 0;
    return registry_session_is_there(&sender->session, source->digest, source->end, err);
}

/* Waits after a failure that may pass. A closing PUT may have succeeded: 1 then. */
static int wait(struct registry_sender *sender, bool closing, struct err *err)
{
    int rc = registry_session_wait(&sender->session, err);
    if (rc == 0)
        return registry_session_fail(&sender->session, err);
    return rc < 0 ? rc : is_there(sender, closing, err);
}

/* The end of this attempt, unless what was refused was done all the same: a proxy may answer for a
 * registry that works. */
static int refused(struct registry_sender *sender, bool closing, struct err *err)
{
    struct err failure = ERR_INIT;
    int rc = is_there(sender, closing, &failure);
    if (rc < 0 && failure.code == ERR_CANCELLED)
        return err_pass(err, rc, &failure);
    return rc == 1 ? 1 : registry_session_fail(&sender->session, err);
}

/* What is done about a step that was no success: 0 to go on, 1 when the blob is there. */
static int mend(struct registry_sender *sender, int step, uint64_t len, bool closing,
                struct err *err)
{
    int rc;
    switch (step) {
    case REGISTRY_STEP_WAIT:
        sender->asks = 0;
        rc = wait(sender, closing, err);
        return rc == 0 ? ask(sender, err) : rc;
    case REGISTRY_STEP_ASK:
        rc = is_there(sender, closing, err);
        return rc == 0 ? ask(sender, err) : rc;
    case REGISTRY_STEP_LOST:
        return restart(sender, err);
    case REGISTRY_STEP_REFUSED:
        return refused(sender, closing, err);
    case REGISTRY_STEP_TOO_LARGE:
        rc = shrink(sender, len, err);
        return rc == 0 && sender->session.location ? ask(sender, err) : rc;
    default:
        sender->unsuited = true;
        return switch_way(sender, err);
    }
}

/* A body that was not taken, or that brought nothing: as mend(). */
static int mend_body(struct registry_sender *sender, int step,
                     const struct registry_session_body *body, bool closing, struct err *err)
{
    struct registry_session *session = &sender->session;
    bool refused =
        session->answered && (step == REGISTRY_STEP_ASK || step == REGISTRY_STEP_OTHER_WAY);
    bool other_range = refused && session->response.status == 416;
    sender->answered = step != REGISTRY_STEP_WAIT;
    (void)is_further(sender);
    sender->broken = is_break(sender, step) ? body->size : 0;
    if (refused && body->offset < session->offset.taken &&
        registry_offset_count(&session->offset, sender->source.first))
        return use_offset(sender, err); /* it says that it lacks them, and does not want them */
    int rc = mend(sender, step, body->size, closing, err);
    if (rc != 0 || !other_range || body->size == 0 || !session->location ||
        session->offset.at != body->offset)
        return rc;
    if (registry_offset_deny(&session->offset, sender->source.first))
        return use_offset(sender, err);
    if (body->size <= least_chunk(sender) || sender->no_patch)
        return 0;
    /* 416, though this is its offset: some mean by it that there are too many bytes. */
    return shrink(sender, body->size, err);
}

uint64_t registry_sender_chunk(const struct registry_sender *sender)
{
    uint64_t min = sender->session.chunk_min;
    return sender->chunk > min ? sender->chunk : min;
}

/* Bytes of the source from the session's offset on, at most so many. */
static struct registry_session_body next_body(const struct registry_sender *sender, uint64_t most)
{
    const struct registry_source *source = &sender->source;
    uint64_t at = sender->session.offset.at;
    uint64_t left = source->end - at;
    return (struct registry_session_body){
        .bytes = source->bytes ? source->bytes + (at - source->first) : NULL,
        .fd = source->fd,
        .offset = at,
        .size = left < most ? left : most};
}

static int send_chunk(struct registry_sender *sender, struct err *err)
{
    struct registry_session *session = &sender->session;
    const struct registry_session_body body = next_body(sender, registry_sender_chunk(sender));
    uint64_t progress_at = session->progress_at;
    int step = registry_session_patch(session, &body, err);
    if (step < 0)
        return step;
    if (step != REGISTRY_STEP_DONE)
        return mend_body(sender, step, &body, false, err);
    if (session->progress_at > progress_at)
        sender->asks = 0;
    if (sender->shrunk)
        learn(sender, learn_chunk);
    sender->shrunk = false;
    int rc = FAULT_POINT("registry.chunk-sent", err);
    if (rc == 0)
        rc = note(sender, true, err);
    return rc == 0 ? FAULT_POINT("registry.chunk-recorded", err) : rc;
}

/* Closes the session with what is left. */
static int close_session(struct registry_sender *sender, struct err *err)
{
    const struct registry_session_body body = next_body(sender, UINT64_MAX);
    int step = registry_session_put(&sender->session, sender->source.digest, &body, err);
    if (step < 0)
        return step;
    if (step != REGISTRY_STEP_DONE)
        return mend_body(sender, step, &body, true, err);
    learn_success(sender);
    return 1;
}

int registry_sender_step(struct registry_sender *sender, struct err *err)
{
    int rc = sender->session.location ? 0 : registry_sender_open(sender, err);
    if (rc < 0)
        return rc;
    if (sender->way == REGISTRY_WAY_CHUNKS && sender->session.offset.at < sender->source.end)
        return send_chunk(sender, err);
    return close_session(sender, err);
}
