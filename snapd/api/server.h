/* server.h - HTTP/1.1 + JSON on a unix socket (libmicrohttpd, the only user of it).
 *
 * docs/openapi.yaml describes every route. Peers are told apart by SO_PEERCRED: root and the
 * daemon's own uid may call, everybody else gets 403. The socket has mode 0600 from its first
 * instant. Bodies, headers, connections and idle times are bounded; a slow client holds one
 * connection and nothing else. Every verb that makes a job answers 202 with its ID.
 *
 * Errors are {"error": {"code", "message", "hint"}}.
 */
#pragma once

#include "node.h"

enum {
    SERVER_CONNECTIONS_MAX = 256,
    SERVER_BODY_MAX = 1 << 20, /* bytes of a JSON body; uploads have no limit but the disk */
    SERVER_IDLE_TIMEOUT_S = 60,
    SERVER_WAIT_MAX_S = 30, /* of one long poll */
};

struct server;

/* Binds `path` (a stale socket is replaced, a live one is ERR_CONFLICT) and starts to answer. */
int server_start(struct node *node, const char *path, struct server **ret, struct err *err);
/* Stops to answer and removes the socket. */
void server_stop(struct server *server);
