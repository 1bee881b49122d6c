/* remote_stream.h - a blob that goes into a remote while it is being made, so that its digest is
 * known at its end only.
 *
 *   begin, append any number of times, finish once; free in any state
 *
 * The remote gets the bytes as they come; what it has not confirmed yet is kept in memory, at most
 * one chunk, so that a connection that breaks costs nothing. Earlier bytes cannot be given again.
 * After any failure the stream can only be freed, which leaves nothing in the remote. What whoever
 * made the bytes can do then, if they are kept elsewhere as well:
 *
 *   ERR_UNSUPPORTED  the remote takes no blob in this way; remote_push_blob() of the finished blob
 *                    has other ways
 *   ERR_INTERRUPTED  the remote has lost what it had; the same, or another stream
 *   any other        a push would not get further
 *
 * Threads: a stream belongs to one at a time.
 */
#pragma once

#include "remote.h"

/* What an implementation does. */
struct remote_stream_ops {
    int (*append)(struct remote_stream *stream, const void *bytes, size_t len, struct err *err);
    /* Everything was appended. Returns only after the remote has confirmed the digest. */
    int (*finish)(struct remote_stream *stream, const struct digest *digest, struct err *err);
    /* Frees its own parts and the structure, and takes back what was not finished. */
    void (*free)(struct remote_stream *stream);
};

struct remote_stream {
    const struct remote_stream_ops *ops; /* set by the implementation; the rest is not its own */
    struct remote *remote;               /* borrowed */
    char *repository;                    /* owned */
    remote_progress progress;            /* NULL: nobody can ask for the end */
    void *arg;
    struct digest_stream digest;
    uint64_t size; /* bytes appended */
    bool closed;   /* finished or failed */
};

/* `progress` (may be NULL) is told the bytes that the remote has, and 0 as the total; it can ask
 * for the end. ERR_UNSUPPORTED where the remote takes no blobs in pieces. */
int remote_stream_begin(struct remote *remote, const char *repository, remote_progress progress,
                        void *arg, struct remote_stream **ret, struct err *err);
/* More than OCI_BLOB_BYTES_MAX in all are ERR_TOO_LARGE. */
int remote_stream_append(struct remote_stream *stream, const void *bytes, size_t len,
                         struct err *err);
/* The digest and size of all that was appended; the remote shows the blob with both. */
int remote_stream_finish(struct remote_stream *stream, struct digest *ret, uint64_t *ret_size,
                         struct err *err);
void remote_stream_free(struct remote_stream *stream); /* NULL is fine */

static inline void remote_stream_freep(struct remote_stream **stream)
{
    remote_stream_free(*stream);
}
#define cleanup_remote_stream cleanup_with(remote_stream_freep)
