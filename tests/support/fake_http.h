/* fake_http.h - a scripted HTTP/1.1 server on a free loopback port, in threads of the test.
 *
 * A table of rules says what is answered, byte for byte, and how the connection ends; every
 * request is recorded. With a certificate it speaks TLS and records whether the peer showed one.
 * It knows just enough of HTTP to read a request: Content-Length, chunked bodies never.
 *
 * Connections are fake_server.h's. Tests may change the rules while requests are under way: each is
 * answered by the rules that it met.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fake_http_end {
    FAKE_KEEP,  /* wait for the next request */
    FAKE_CLOSE, /* orderly end of the connection */
    FAKE_RESET, /* the peer sees ECONNRESET */
    FAKE_STALL, /* keep the connection and say nothing more while the peer does */
};

struct fake_http_rule {
    const char *method;   /* NULL: every method */
    const char *path;     /* beginning of the request target */
    int nth;              /* 0: always; n: only the n-th request with this method and path */
    const char *response; /* sent as it is; "" sends nothing */
    size_t response_len;  /* 0: the length of the string */
    size_t repeat;        /* the response is followed by so many bytes 'x' */
    enum fake_http_end end;
    int delay_ms;     /* between the request's last byte and the answer */
    int byte_ms;      /* before each byte of the response */
    bool skip_body;   /* answer before the body is read */
    bool no_continue; /* leave an `Expect: 100-continue` unanswered */
};

struct fake_http_request {
    char method[16];
    char *target;
    char *headers; /* all lines, as sent */
    char *body;    /* its first 64 KiB */
    uint64_t body_len;
    bool client_cert; /* TLS: the peer showed a certificate */
};

struct fake_http;

/* Starts without rules. `cert` and `key` are PEM files for TLS, NULL for plain http. `client_ca`
 * (may be NULL) is the authority of client certificates, which are asked for, not demanded. */
int fake_http_start(const char *cert, const char *key, const char *client_ca,
                    struct fake_http **ret, struct err *err);
/* Ends all connections and threads. NULL is fine. */
void fake_http_stop(struct fake_http *fake);

int fake_http_port(const struct fake_http *fake);

/* Replaces the rules (the strings are borrowed until the next call) and forgets the requests. The
 * first rule that fits answers; without one it is "500 no rule". */
void fake_http_set(struct fake_http *fake, const struct fake_http_rule *rules, size_t count);

/* How many requests came since, and the i-th one; NULL when there is none. It lives until
 * fake_http_stop(); what its body has is sure when it was answered. */
size_t fake_http_count(struct fake_http *fake);
const struct fake_http_request *fake_http_at(struct fake_http *fake, size_t i);
/* How many connections were made since the start. */
size_t fake_http_connections(struct fake_http *fake);
/* The value of a header of a request in a static thread-local buffer, NULL without it. */
const char *fake_http_header(const struct fake_http_request *request, const char *name);
