/* registry_pipe.h - the bytes of one body between the thread that asked and the transport's thread.
 *
 * Job: a ring of fixed size with one writer and one reader, one way. The *near* side is the thread
 * that asked for the exchange: it works on bytes (disk, digest, sink) and may wait. The *far* side
 * is the transport, which serves all exchanges and never waits: where it finds no room or no bytes
 * it is told so and pauses its transfer, and the next step of the near side says that the transfer
 * is to be woken.
 *
 *   download   far: registry_pipe_put()    near: wait for bytes, registry_pipe_taken()
 *   upload     near: wait for room, registry_pipe_added()    far: registry_pipe_take()
 *
 * The near side works on the ring's memory itself, so each byte is copied once. It is woken when
 * there is something worth waking for: WAKE_BYTES, or less at the end of the transport's round
 * (registry_pipe_flush()).
 *
 * An upload can be restarted from another offset: curl sends a body again when a kept connection
 * turns out to be closed. What the near side was adding then is dropped (the count of restarts
 * tells).
 *
 * States: open until registry_pipe_end(); bytes that are in it can be read after that too.
 * Limits: a pipe of size 0 carries nothing and only tells the end.
 */
#pragma once

#include "err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    REGISTRY_PIPE_BYTES = 1 << 20,        /* of a body on its way */
    REGISTRY_PIPE_PIECE = 256 * 1024,     /* that the near side gets at once, at most */
    REGISTRY_PIPE_WAKE_BYTES = 128 * 1024 /* that the near side is woken for within a round */
};

/* Fields are private and guarded by lock, but for `ring` and `size`, which do not change. */
struct registry_pipe {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* the near side waits here */
    char *ring;
    size_t size;
    size_t start; /* of the bytes in it */
    size_t used;
    bool near_waits;
    bool far_waits; /* its transfer is paused */
    bool ended;
    unsigned int restarts;
    uint64_t position; /* of the body, that the writer goes on at after a restart */
};

int registry_pipe_open(struct registry_pipe *pipe, size_t size, struct err *err);
void registry_pipe_close(struct registry_pipe *pipe);

/* Far side. */

/* Puts all of it, or nothing and false: the transfer is to be paused. */
bool registry_pipe_put(struct registry_pipe *pipe, const void *bytes, size_t len);
/* Takes up to `len` bytes; 0: the transfer is to be paused. */
size_t registry_pipe_take(struct registry_pipe *pipe, void *into, size_t len);
/* The transport's round is over: whoever waits for bytes gets what there is. */
void registry_pipe_flush(struct registry_pipe *pipe);
/* Forgets what is in it; the writer goes on at `position` of the body. */
void registry_pipe_restart(struct registry_pipe *pipe, uint64_t position);
/* Nothing more is put or taken. The far side's last call: the near side may close the pipe as soon
 * as it sees the end. */
void registry_pipe_end(struct registry_pipe *pipe);

/* Near side. */

enum registry_pipe_wish {
    REGISTRY_PIPE_BYTES_WISHED,
    REGISTRY_PIPE_ROOM_WISHED,
    REGISTRY_PIPE_END_WISHED,
};

/* What there is: `len` bytes of the ring at `at`, to be read or to be filled. */
struct registry_pipe_state {
    char *at;
    size_t len; /* at most REGISTRY_PIPE_PIECE */
    bool ended;
    unsigned int restarts;
    uint64_t position;
};

/* Waits until the wish is fulfilled, the end or a restart, at most `ms`. `restarts` is the count
 * that the caller knows of. */
struct registry_pipe_state registry_pipe_wait(struct registry_pipe *pipe,
                                              enum registry_pipe_wish wish, unsigned int restarts,
                                              int64_t ms);
/* The first `len` bytes were read. Whether the far side is to be woken. */
bool registry_pipe_taken(struct registry_pipe *pipe, size_t len);
/* `len` bytes were added in the room that was shown; dropped when there was a restart since.
 * Whether the far side is to be woken. */
bool registry_pipe_added(struct registry_pipe *pipe, size_t len, unsigned int restarts);
