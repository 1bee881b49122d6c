/* volume_fetch_io.h - the worker's end of the connection over which absent chunks are brought
 * (volume_wire.h, VOLUME_WIRE_FETCH).
 *
 * Job: to tell varved which chunks reads wait for, once for each read on each connection; to take
 * what it brings, write it (chunk_io_fill()), have the reads that waited for it tried again at
 * once, and answer.
 *
 * One thread. The control thread hands it a connection, whose peer is root and brings chunks for
 * this very live map, and does not wait: one that is there already is ended. One message is under
 * way in each direction; what comes is read only when everything that was to be said could be sent.
 * So a peer that does not read is not listened to, and a peer has to read while it sends. What is
 * no FILL, or is not followed by the bytes of a chunk, ends the connection; a chunk whose bytes
 * have not come is as it was. Without a connection reads wait, for the next one.
 *
 * What waits is the queue's (volume_queue.h), so nothing here outlives a connection. All memory is
 * resident (volume_resident.h); nothing is allocated.
 */
#pragma once

#include "volume_queue.h"
#include "volume_wire.h"

struct volume_fetch_io {
    struct volume_queue *queue; /* borrowed */
    struct chunk_io *io;        /* borrowed */
    uint64_t live_number;       /* of the live map (live_map.h) */
    int wake_fd;                /* owned: a read waits, or a connection was handed over */
    _Atomic int next_fd;        /* owned: handed over; -1 */

    /* Of the thread. */
    int fd;           /* owned: the connection; -1 */
    uint64_t number;  /* of it, from 1 on */
    uint64_t at, end; /* bytes of a read that is being told of */
    bool says;        /* `out` is not sent yet */
    bool takes;       /* the bytes of in.arg[0] come next */
    struct volume_wire in, out;
    void *bytes; /* VOLUME_CHUNK, aligned to blocks; in the region */
};

/* Bytes of the region that volume_fetch_io_init() takes. */
size_t volume_fetch_io_bytes(void);
int volume_fetch_io_init(struct volume_fetch_io *fetch, struct volume_queue *queue,
                         struct volume_resident *resident, struct err *err);
/* Whether what is brought after this FETCH is of the volume as it is attached now: one that was
 * replaced in between may be of another checkpoint, and the socket's name is the same. */
bool volume_fetch_io_is_meant(const struct volume_fetch_io *fetch, const struct volume_wire *ask);
/* Takes a connection over, which does not block. From any thread; waits for nothing. */
void volume_fetch_io_connect(struct volume_fetch_io *fetch, int fd);
/* Body of the thread; does not return. */
void volume_fetch_io_run(struct volume_fetch_io *fetch);
