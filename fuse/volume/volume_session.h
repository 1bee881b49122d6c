/* volume_session.h - the FUSE session: INIT, what a dead worker had taken, and the reading threads.
 *
 * libfuse parses requests and makes replies; reading, writing and INIT are done here.
 *
 * INIT. The kernel sends it once in the life of a mount, to whichever worker reads it. It is never
 * given to libfuse as it comes: the request is recorded in the live map, then the record is fed to
 * libfuse, whose reply is recorded too, and the kernel gets the recorded reply. A successor feeds
 * the record to its own libfuse in the same way, which brings it into the same state, and compares:
 * a different reply would mean to serve the kernel in a way that it was not promised, so it
 * refuses. The steps (init_state) can be cut at any instruction:
 *
 *   0  nothing is known. INIT is unread, or was taken by one who died: it is sent again
 *   1  the request is recorded: no need to wait for it, the reply can be made
 *   2  the reply is recorded: whoever reads INIT (again) answers with it
 *   3  the kernel has it
 *
 * Sent again. A successor asks the kernel once, before its first read, for all requests that were
 * read and not answered (FUSE_NOTIFY_RESEND, Linux 6.9; the INIT request says whether the kernel
 * can). Where it can't, those requests would wait for ever, and a successor refuses.
 *
 * The thread that leads (volume_queue.h) reads with read(2) into its buffer, at such an address
 * that a write's payload is block-aligned; the descriptor never waits, so that the same thread sees
 * what has ended in its ring. ENODEV is the end of the connection.
 */
#pragma once

#include "live_map.h"
#include "volume_queue.h"

struct fuse_session;
struct fuse_lowlevel_ops;
struct fuse_conn_info;

struct volume_session {
    int fuse_fd;                    /* owned */
    struct live_map_header *header; /* borrowed */
    struct fuse_session *fuse;      /* as long as the process */
    bool resends;                   /* the kernel can send again */
    bool started;                   /* a worker served before this one */
    bool spins;                     /* there is a processor for it (volume_spin.h) */
    uint64_t init_unique;           /* of the kernel's INIT that was read and is not answered; 0 */
    /* libfuse's reply to the recorded INIT. */
    size_t reply_len;
    char reply[LIVE_MAP_INIT_MAX];
};

/* Makes libfuse's session; reads nothing. Owns `fuse_fd` from here on. `userdata` is what the
 * operations get. */
int volume_session_open(struct volume_session *session, int fuse_fd, struct live_map_header *header,
                        const struct fuse_lowlevel_ops *ops, size_t ops_size, void *userdata,
                        struct err *err);
/* INIT, and what was read and not answered: the last step before the threads read. Blocks until the
 * kernel has sent INIT. `slot` lends its buffer. ERR_UNSUPPORTED, ERR_DAMAGED: refused. -ENODEV:
 * the mount is gone. */
int volume_session_begin(struct volume_session *session, struct volume_slot *slot, struct err *err);
/* Body of a serving thread; returns when the connection is gone, or after volume_queue_stop(). */
void volume_session_serve(struct volume_session *session, struct volume_slot *slot);
/* The kernel asks for the attributes of `device` again: its size has changed. */
void volume_session_forget_attr(struct volume_session *session);

/* For operations: the slot of the calling thread, and the number of the request in it, without the
 * bit that says that it was sent again. */
struct volume_slot *volume_session_slot(void);
uint64_t volume_session_unique(void);
