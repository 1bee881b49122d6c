/* registry_pieces.h - a large blob in pieces that come at the same time and are handed on in order.
 *
 * One connection is often slower than the way it goes: object stores limit each, and a lost packet
 * halts what comes behind it. So threads fetch pieces of REGISTRY_PIECES_BYTES, each into a buffer
 * of its own, at most REGISTRY_PIECES_AHEAD of them ahead of what was handed on; the caller's
 * thread hands them on as they grow. Memory is bounded by the buffers, connections by the budget of
 * the pool (registry_pool.h). A thread that waits for a connection holds none, and one that has one
 * needs nothing but its buffer, so nobody waits in a circle.
 *
 * The caller fetches the first piece itself, straight into the sink. The threads begin as soon as
 * it has waited for bytes longer than the sink has worked on them, and REGISTRY_PIECES_WAIT_MS at
 * least. Where the sink is what limits the download, several connections would only cost: the rest
 * comes in one request then. A server without ranges gives the whole blob to the first request.
 *
 * What breaks off goes on where it was (registry_range.h).
 */
#pragma once

#include "registry_range.h"

enum {
    REGISTRY_PIECES_BYTES = 8 << 20,
    REGISTRY_PIECES_AHEAD = 3,      /* threads; one buffer more is being handed on */
    REGISTRY_PIECES_MIN = 32 << 20, /* smaller blobs come in one request */
    REGISTRY_PIECES_WAIT_MS = 20,
};

/* Hands on all bytes of a blob, whose size the source knows or not. Sink and progress are called on
 * the calling thread. */
int registry_pieces_fetch(struct registry_source *source, remote_sink sink, void *sink_arg,
                          remote_progress progress, void *progress_arg, struct err *err);
