/* wire_call.h - calls with a deadline over the SOCK_SEQPACKET sockets of keeper and workers; what
 * keeper_client.c and worker_client.c share.
 *
 * A deadline is a time of CLOCK_MONOTONIC in nanoseconds. Sockets are non-blocking, so that a peer
 * that is stopped costs no more than the deadline. -ETIMEDOUT: it has passed. -ECONNRESET: the peer
 * has gone.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

int64_t wire_deadline(int wait_ms);
/* Whole milliseconds, for poll(2); 0 when it has passed. */
int wire_left_ms(int64_t deadline);
/* Waits a little before something is tried again. -ETIMEDOUT when the deadline has passed. */
int wire_pause(int64_t deadline);

/* Connects to the socket `name` in a directory, whatever the length of its path. Returns a
 * descriptor or -errno; -ENOENT, -ECONNREFUSED: nobody is there. */
int wire_connect(int dir_fd, const char *name, int64_t deadline);
/* One message with borrowed descriptors. 0 or -errno. */
int wire_send(int socket, const void *message, size_t len, const int *fds, size_t count,
              int64_t deadline);
/* One message of exactly `len` bytes with at most `max` descriptors, which the caller owns. 0 or
 * -errno; -EBADMSG for another length. */
int wire_receive(int socket, void *message, size_t len, int *ret_fds, size_t max, size_t *ret_count,
                 int64_t deadline);

/* Whether a number can be the status of an answer: 0, or an errno of Linux made negative. A worker
 * may say anything. */
bool wire_is_status(int32_t status);
/* Turns the status of an answer, or a failure of the above, into an error; `text` (may be NULL) is
 * the peer's. Returns -errno. */
int wire_fail(struct err *err, int status, const char *text, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
