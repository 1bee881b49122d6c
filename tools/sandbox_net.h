/* sandbox_net.h - pasta: outbound network for a sandbox, without a way to the host's loopback.
 *
 * pasta passes packets between the sandbox's network namespace and sockets in the host's. It has
 * to join the sandbox's user namespace, which it cannot as the unprivileged user that it becomes
 * when root of the host starts it. So a holder process enters that user namespace first, without
 * any capability left, and starts pasta from there; pasta reaches the network namespace and tells
 * that it is ready through two descriptors of the holder.
 *
 * pasta changes its credentials, which unties it from its parent's death. So the holder is process
 * 1 of a pid namespace that holds nothing but pasta: with the holder, which is tied to the client,
 * pasta ends.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <sys/types.h>

enum {
    SANDBOX_NET_READY_S = 20, /* pasta is ready in some 30 ms; on a loaded host later */
};

struct sandbox_net_pasta {
    pid_t holder; /* 0: not running */
    int client;   /* the end that tells the holder that the client lives; owned */
};
#define SANDBOX_NET_PASTA_INIT                                                                     \
    {                                                                                              \
        .client = -1                                                                               \
    }

/* Starts pasta for the network namespace of `pid` and waits until it is ready. `forward`: pass
 * questions to SANDBOX_RESOLV_FORWARD on to the host's resolver. */
int sandbox_net_start(pid_t pid, bool forward, struct sandbox_net_pasta *ret, struct err *err);

/* Ends pasta, if it runs. */
void sandbox_net_stop(struct sandbox_net_pasta *pasta);
