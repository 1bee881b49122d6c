/* registry_sender.h - the bytes of a blob into upload sessions, in a way that suits the registry.
 *
 * Job: chooses between one PUT with everything and chunks, sends, and does what has to be done
 * about answers that are no success, for blobs of the store (registry_upload.h) and for bytes that
 * are still being made (remote_stream.h). They differ in what can be sent again: the source says
 * which bytes there are, and whether the last of them is the blob's.
 *
 *   POST, one PUT             a blob of at most a chunk, if all of it is there
 *   POST, PATCH..., PUT       a larger one, or one whose end is not known; the PUT is empty
 *
 * What is learned about the registry (registry_pool.h, traits) holds for later blobs too, once it
 * has proved right:
 *   413, or 416 at the offset that the registry has (GHCR)
 *       chunks of half the size, down to REGISTRY_CHUNK_MIN
 *   the second body that breaks off (the connection, 408, 502, 504, 520 to 524) and leaves the
 *   registry where it was, and each further one
 *       the same: a proxy may limit the time of a request, or its bytes
 *   400, 405, 411, 415 or 501 to a chunk, 404 to the first
 *       one PUT with all
 *   a PUT with a body is refused
 *       chunks for small blobs too
 *   offsets that are not so
 *       registry_offset.h
 * Before an upload in chunks fails because it was begun too often, one PUT with all is tried in a
 * new session, as every registry takes that from other clients.
 *
 * After a body that broke off nothing is supposed: the registry is asked for its offset, and what
 * is behind it is sent again. A session that is lost is begun anew, at most
 * REGISTRY_UPLOAD_RESTARTS_MAX times with one size of chunks; so it may be lost at each break, and
 * the blob gets there once chunks are small enough. A closing PUT whose answer does not come may
 * have been done: the blob is asked for before anything is sent again.
 *
 * A source that has no bytes from the blob's first on any more cannot begin anew or go another way.
 * That is a failure which says that a push of the whole blob may succeed: ERR_UNSUPPORTED where the
 * registry takes no chunks, ERR_INTERRUPTED where it lost them.
 *
 * Threads: a sender belongs to one.
 */
#pragma once

#include "registry_session.h"

enum {
    REGISTRY_UPLOAD_RESTARTS_MAX = 4,
    REGISTRY_UPLOAD_ASKS_MAX = 3, /* times that a registry has another offset, without progress */
    REGISTRY_UPLOAD_BREAKS = 2,   /* that bring nothing, until chunks become smaller */
};

enum registry_way {
    REGISTRY_WAY_CHUNKS,
    REGISTRY_WAY_WHOLE, /* one PUT with all bytes */
};

/* The bytes of the blob that can be sent, also once more; borrowed. */
struct registry_source {
    const char *bytes; /* the first of them; NULL: they are in `fd`, at their offsets */
    int fd;
    uint64_t first;              /* offset in the blob of the first byte that is there */
    uint64_t end;                /* and of the one behind the last */
    const struct digest *digest; /* of the blob, which ends at `end`; NULL: more bytes come */
};

struct registry_sender {
    struct registry_session session;
    struct registry_source source;
    /* Called when a session was opened and after each chunk that the registry has, and with `there`
     * false when a session is given up. A failure is the upload's. NULL: nobody keeps records. */
    int (*note)(void *arg, bool there, struct err *err);
    void *note_arg;

    /* Its own. */
    struct registry_offset_habits begun; /* what was known of the registry's offsets */
    enum registry_way way;
    uint64_t chunk;    /* bytes of a body, at most */
    bool shrunk;       /* to less than the registry is known to take */
    bool no_patch;     /* chunks are no way */
    bool switched;     /* the other way was tried and did not suit */
    bool unsuited;     /* the registry showed by its answers that the first way does not suit it */
    bool answered;     /* the last body that was not taken had an answer */
    int asks;          /* times that the offset was another, without progress */
    int restarts;      /* sessions that were lost */
    int losses;        /* those of them since the chunks became smaller */
    uint64_t broken;   /* bytes of the body that broke off just now; 0: none did */
    int breaks;        /* bodies that broke off since the upload got further than ever before */
    uint64_t furthest; /* that it had got then */
    bool recorded; /* what an earlier attempt left did not answer, and nothing took its place yet */
    bool hopeless; /* another attempt would not get further in this session */
};

/* What is known of the registry decides how to begin. Sets the way and the chunk; called again when
 * the end of the source became known and no byte was sent. */
void registry_sender_choose(struct registry_sender *sender);
/* Opens a session unless one is there. */
int registry_sender_open(struct registry_sender *sender, struct err *err);
/* Takes up what an earlier attempt left: 1 when the registry told where it goes on, 0 when there is
 * nothing to go on with, or it does not answer. */
int registry_sender_resume(struct registry_sender *sender, const char *location, uint64_t offset,
                           struct err *err);
/* How many bytes the next chunk has, if the source has them. */
uint64_t registry_sender_chunk(const struct registry_sender *sender);
/* One request with bytes and what follows from its answer: 0 to go on, 1 when the registry has the
 * blob, which takes the source's digest. There is something to send, or a digest. */
int registry_sender_step(struct registry_sender *sender, struct err *err);
