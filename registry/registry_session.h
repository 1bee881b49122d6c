/* registry_session.h - one upload session of a registry, a request at a time (OCI distribution-spec
 * 1.1, "Pushing a blob monolithically", "Pushing a blob in chunks", "Mounting a blob from another
 * repository").
 *
 *   POST             opens it: an address, which each later answer may change (`Location`, resolved
 *                    by RFC 3986; its query is kept byte for byte)
 *   PATCH            adds a chunk at the offset that the registry has
 *   GET              tells this offset: 204 and `Range: 0-<last>`
 *   PUT ?digest=     closes it, with the rest of the bytes or none
 *   DELETE           gives it up
 *
 * Job: makes the requests and says what an answer means for the session; what is done about it is
 * registry_sender.h's to decide.
 *
 * What the answers say of the offset is registry_offset.h's to judge.
 *
 * Threads: a session belongs to one.
 */
#pragma once

#include "registry_internal.h"
#include "registry_offset.h"
#include "registry_retry.h"

enum {
    REGISTRY_CHUNK_MIN = 1 << 20, /* bytes; a registry that refuses so few is not pushed to */
    /* What is sent again after a lost connection stays below 16 MiB. */
    REGISTRY_CHUNK_BYTES = 15 << 20,
    /* Bytes that count as progress, as does the last one: a registry that keeps one of each body
     * would have them sent for ever. */
    REGISTRY_SESSION_PROGRESS = 64 * 1024,
};

struct registry_session {
    /* Set by the caller; borrowed. */
    struct registry *registry;
    const char *repository;
    remote_progress progress; /* NULL: nobody can ask for the end */
    void *arg;
    uint64_t total; /* that progress is told; 0: not known */

    char *location; /* owned; NULL: there is no session */
    struct registry_offset offset;
    uint64_t chunk_min;   /* chunks but the last have so many bytes (OCI-Chunk-Min-Length) */
    uint64_t progress_at; /* offset.best when it last counted as progress */
    bool used;            /* the registry has taken a chunk in this session */
    bool broken;          /* a body broke off in it, or it is another process's */
    bool mount_failed;    /* a mount, by a 5xx, and nothing was opened since */
    bool worthless;       /* it is closed, or its bytes are others than the blob's */
    bool doubted;         /* other bytes arrived than were sent, in this or an earlier session */

    uint64_t sent; /* bytes of bodies that went out, of all sessions */
    struct registry_retry retry;
    /* The last answer that was no success, for a pause; and its sentence, for when nothing helps.
     */
    struct registry_http_response response;
    bool answered; /* there is one */
    struct err cause;

    uint64_t body_offset; /* of the request that is under way */
    uint64_t body_done;
};

/* Frees what is owned; gives nothing up. */
void registry_session_free(struct registry_session *session);
#define cleanup_registry_session cleanup_with(registry_session_free)

/* Lets go of the session, about which the registry is told nothing. */
void registry_session_forget(struct registry_session *session);

/* What a request came to. The cause says why for all but the first. */
enum registry_step {
    REGISTRY_STEP_DONE,
    REGISTRY_STEP_ASK,       /* the registry has another offset than was supposed, or none */
    REGISTRY_STEP_WAIT,      /* it may go on after a pause; what arrived is not known */
    REGISTRY_STEP_LOST,      /* the session is gone, or its bytes are not ours */
    REGISTRY_STEP_TOO_LARGE, /* 413: the same with fewer bytes may succeed */
    REGISTRY_STEP_OTHER_WAY, /* the registry does not know this kind of request */
    REGISTRY_STEP_REFUSED,   /* for another reason, which says nothing of the session */
};

/* Bytes of a body: from `fd` at `offset`, or in memory where `bytes` is set. */
struct registry_session_body {
    const void *bytes;
    int fd;
    uint64_t offset; /* in the blob, and in the file */
    uint64_t size;
};

/* Opens a session in place of the one that is there, which is forgotten. */
int registry_session_open(struct registry_session *session, struct err *err);
/* Asks for a blob from another repository: 1 when it is there now, 0 when not, whatever the reason:
 * it only saves work, and so has a patience of its own, and after a 5xx one more attempt alone. A
 * registry that fails both and opens a session right after that is asked for no mount for as long
 * as its traits are remembered (registry_pool.h): one that is being started would fail at that,
 * too. It may have opened a session, or not. Fails when the end is asked for. */
int registry_session_mount(struct registry_session *session, const struct digest *digest,
                           const char *from, struct registry_retry *retry, struct err *err);
/* Takes up a session that another attempt opened; its address is checked as one from outside. */
int registry_session_take(struct registry_session *session, const char *location, uint64_t offset,
                          uint64_t size, struct err *err);

/* Adds a chunk at session->offset.at. A step, or -errno. */
int registry_session_patch(struct registry_session *session,
                           const struct registry_session_body *body, struct err *err);
/* Closes the session with the rest of the bytes, whose number may be 0. DONE means that the
 * registry has the blob under its digest. */
int registry_session_put(struct registry_session *session, const struct digest *digest,
                         const struct registry_session_body *body, struct err *err);
/* Asks for the offset: DONE; LOST, when the registry does not know the session or what it tells is
 * of no use; or -errno, also when it answers something that says nothing of the session. */
int registry_session_ask(struct registry_session *session, struct err *err);
/* Tells the registry that nothing more comes, and forgets the session. */
void registry_session_abandon(struct registry_session *session);

/* Pauses after a failure that passes: 1 to go on, 0 when there were enough attempts without
 * progress, or -errno. */
int registry_session_wait(struct registry_session *session, struct err *err);
/* Makes a failure of the last cause. */
int registry_session_fail(const struct registry_session *session, struct err *err);
/* Whether the registry has the blob with this size: 1, 0 or -errno. */
int registry_session_is_there(struct registry_session *session, const struct digest *digest,
                              uint64_t size, struct err *err);
