/* fake_server.h - connections of a scripted server on a free loopback port: threads, TLS, bytes.
 *
 * Job: accepts connections and hands each to a function in a thread of its own, which reads and
 * writes bytes and decides how the connection ends: orderly, by a reset, or by silence. It knows
 * nothing of HTTP; fake_http.c and fake_registry.c do. No HTTP library stands between a test and
 * the wire, as that is what these tests are about: bytes are sent and connections end exactly where
 * the script says.
 *
 * With a certificate it speaks TLS. The authority of client certificates is optional; they are
 * asked for then, not demanded.
 *
 * Threads: one accepts, one serves each connection, at most FAKE_SERVER_CONNECTIONS_MAX at a time;
 * what comes beyond that waits in the kernel's queue.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    FAKE_SERVER_CONNECTIONS_MAX = 512,
    FAKE_SERVER_FOREVER_MS = 10 * 60 * 1000, /* of a stall: longer than any test */
};

struct fake_server;
struct fake_conn;

struct fake_server_options {
    const char *cert; /* PEM files for TLS; NULL: plain */
    const char *key;
    const char *client_ca; /* NULL: client certificates are not asked for */
    int port;              /* 0: the kernel chooses */
    bool tls10;            /* speaks TLS 1.0 alone */
};

/* Serves one connection; it is closed afterwards. */
typedef void fake_server_serve(void *arg, struct fake_conn *conn);

int fake_server_start(const struct fake_server_options *options, fake_server_serve *serve,
                      void *arg, struct fake_server **ret, struct err *err);
/* Ends all connections and threads. NULL is fine. */
void fake_server_stop(struct fake_server *server);
int fake_server_port(const struct fake_server *server);
/* How many connections were made since the start. */
size_t fake_server_connections(struct fake_server *server);

/* At most `len` bytes; 0 at the end, -1 when the connection is broken. */
ssize_t fake_conn_read(struct fake_conn *conn, void *into, size_t len);
/* The head of a request: up to its empty line, of which nothing behind it is taken, with a NUL
 * byte. False when it does not begin as one, is none in `size` bytes, or the connection ended. */
bool fake_conn_read_head(struct fake_conn *conn, char *into, size_t size);
/* Whether everything was written. */
bool fake_conn_write(struct fake_conn *conn, const void *bytes, size_t len);
/* Waits. False, earlier, when the peer has gone or the server is stopped. */
bool fake_conn_wait(struct fake_conn *conn, int ms);
/* The end will be a reset: the peer sees ECONNRESET. */
void fake_conn_reset(struct fake_conn *conn);
/* Nothing more is written; the peer may go on. */
void fake_conn_end_writing(struct fake_conn *conn);
bool fake_conn_has_cert(const struct fake_conn *conn); /* the peer showed a certificate */
size_t fake_conn_number(const struct fake_conn *conn); /* from 1 on, in order of arrival */
