/* fd_pass.h - messages with descriptors over unix sockets (SCM_RIGHTS).
 *
 * For sockets that keep messages apart (SOCK_SEQPACKET, SOCK_DGRAM). A message is sent whole or not
 * at all. One that arrives cut, in its bytes or its descriptors, is an error, and no descriptor of
 * it stays open. Received descriptors are close-on-exec. No signal is raised by a peer that has
 * gone.
 *
 * Needs the C library alone and allocates nothing: varve-keeper compiles it in. Hence no struct
 * err: what -errno means is for the caller to say.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum {
    FD_PASS_MAX = 253, /* descriptors with one message; the kernel's own limit (SCM_MAX_FD) */
};

/* Sends one message. The descriptors are borrowed. `wait` false: -EAGAIN instead of waiting.
 * 0 or -errno: -EPIPE or -ECONNRESET when the peer has gone, -E2BIG for too many descriptors,
 * -EMSGSIZE for a message that the socket cannot hold. */
int fd_pass_send(int socket, const void *message, size_t len, const int *fds, size_t count,
                 bool wait);

/* Receives one message of at most `cap` bytes with at most `max` descriptors, which the caller
 * owns. Returns the length, 0 when the peer has gone (an empty message is the same), or -errno:
 * -EAGAIN; -EMSGSIZE for a longer message; -EMFILE when not all of its descriptors arrived, as it
 * had more than `max` or this process has none left. After both the next message can be received.
 */
ssize_t fd_pass_receive(int socket, void *message, size_t cap, int *ret_fds, size_t max,
                        size_t *ret_count, bool wait);
