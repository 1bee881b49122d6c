/* registry_range.h - bytes of one blob from a registry, in order and each once, whatever happens to
 * connections (OCI distribution-spec 1.1, "Pulling blobs"; RFC 9110, 14 "Range Requests").
 *
 * Job: asks for a part of a blob and hands its bytes to a sink. What breaks off goes on where it
 * was.
 *
 *   206   the bytes that were asked for, as many as the server gives; the rest is asked for again
 *   200   the server ignores Range: what the sink has had is read past, never handed on again, and
 *         this blob is asked for as a whole from then on. Of others nothing is learned from that: a
 *         cache or an object store may have answered, and to ask them costs no request more
 *   416   the end of a blob of unknown size; else the whole blob is asked for, as with 200
 *
 * An attempt that fails is followed by another one under registry_retry.h's rules; at least
 * REGISTRY_RANGE_PROGRESS new bytes make the count begin anew, so that a server that gives a byte
 * with each answer is given up.
 *
 * Redirects: the address that the registry's redirect led to is asked for the following parts
 * directly, without credentials, as long as it works; then the registry is asked again. It is
 * forgotten with the source.
 *
 * Whether the bytes are the right ones is for the caller to find out by the digest (I6): a mismatch
 * is never a reason to ask again.
 *
 * Threads: several may fetch parts of one source at once.
 */
#pragma once

#include "registry_internal.h"

#include <pthread.h>

enum {
    REGISTRY_RANGE_PROGRESS = 64 * 1024, /* bytes that count as progress of an attempt */
};

/* Where the bytes of a blob come from. */
struct registry_source {
    struct registry *registry; /* borrowed, like the next two */
    const char *repository;
    const struct digest *digest;
    uint64_t size; /* UINT64_MAX: not known. Another total in an answer is ERR_DIGEST */
    char *url;     /* at the registry; owned */
    pthread_mutex_t lock;
    char *elsewhere; /* where a redirect led to; NULL: ask the registry. Owned; guarded by lock */
    bool whole;      /* a range was answered with 200; guarded by lock */
};
int registry_source_open(struct registry *registry, const char *repository,
                         const struct digest *digest, uint64_t size, struct registry_source *ret,
                         struct err *err);
void registry_source_close(struct registry_source *source);
#define cleanup_registry_source cleanup_with(registry_source_close)
/* Whether the blob came whole where a part of it was asked for. */
bool registry_source_is_whole(struct registry_source *source);

/* A part of a blob and who takes it; sink and progress are called on the calling thread. */
struct registry_range {
    uint64_t offset;
    uint64_t size; /* bytes; UINT64_MAX: to the end */
    bool or_rest;  /* where a server gives the whole blob, everything from `offset` on is taken */
    remote_sink sink;
    void *sink_arg;
    remote_progress progress; /* may be NULL; what it is told has no meaning */
    void *progress_arg;
};
/* *ret_done: bytes that the sink had, which is `size` or, by or_rest, more. A blob that ends before
 * is ERR_DIGEST. */
int registry_range_fetch(struct registry_source *source, const struct registry_range *range,
                         uint64_t *ret_done, struct err *err);
