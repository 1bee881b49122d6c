/* fake_registry_exchange.h - one request to the fake registry and its answer, on the wire.
 *
 * Job: reads the head of a request, its body as the rule wants it read, and writes the answer as
 * the rule wants it written (fake_registry.h). What the request means is not known here.
 *
 * Limits: a head of FAKE_HEAD_MAX bytes; bodies of any size, by Content-Length or in chunks.
 */
#pragma once

#include "buf.h"
#include "fake_server.h"
#include "json_doc.h"

enum {
    FAKE_HEAD_MAX = 256 * 1024,
    FAKE_BODY_KEPT = 64 * 1024,
    FAKE_BODY_MAX = 8 << 20,     /* of an answer in memory, and of a request that is taken whole */
    FAKE_DRAIN_MAX = 256 * 1024, /* so much of an unread body is taken to keep a connection */
};

enum fake_end {
    FAKE_END_KEEP,
    FAKE_END_CLOSE,
    FAKE_END_RESET,
    FAKE_END_STALL,
    FAKE_END_LOST, /* by the peer */
};

struct fake_exchange {
    struct fake_registry *fake;
    struct fake_conn *conn;
    bool other; /* the second host */

    /* The request; owned. */
    char *head;
    char *method; /* this and target are in head */
    char *target;
    char *path;
    json_t *query;   /* name: decoded value; several are joined by a blank */
    json_t *headers; /* lower-case name: value */

    /* Its body. */
    uint64_t length;   /* of what is left of the body, or of the chunk */
    uint64_t read_max; /* bytes after which a rule cuts; UINT64_MAX: none */
    int64_t read_rate; /* bytes a second; 0: any */
    uint64_t bytes;    /* that came */
    struct buf kept;   /* the first FAKE_BODY_KEPT + 1 of them */
    bool chunked;
    bool in_chunks; /* a chunk was begun */
    bool go_on;     /* 100 Continue is waited for */
    bool body_done;
    bool cut;  /* a rule wants no more of the body */
    bool lost; /* the peer has gone */

    /* What holds for it; borrowed references, released with the exchange. */
    json_t *settings;
    json_t *rule; /* NULL: none */

    /* The answer. */
    int status;     /* 0: none */
    json_t *answer; /* name: value, or an array of values */
    struct buf out; /* the body, */
    int out_fd;     /* or this part of a file; owned, -1: none */
    uint64_t out_from;
    uint64_t size; /* of the body */
    uint64_t sent;
    enum fake_end end;

    /* The upload that it added to. */
    char upload[24];
    uint64_t upload_from;
    uint64_t upload_to;
};

/* Reads a head. False when there is none. The exchange is released in both cases. */
bool fake_exchange_read(struct fake_exchange *x, struct fake_conn *conn);
void fake_exchange_free(struct fake_exchange *x);

/* Of the request; NULL when it has none. Borrowed. */
const char *fake_exchange_header(const struct fake_exchange *x, const char *lower_name);
const char *fake_exchange_query(const struct fake_exchange *x, const char *name);

/* The next bytes of the body: 0 at its end, -1 when it is cut or lost. */
ssize_t fake_exchange_body(struct fake_exchange *x, void *into, size_t len);
/* The whole body into memory. False when it is cut or lost, or too large (*ret_large). */
bool fake_exchange_body_all(struct fake_exchange *x, struct buf *ret, bool *ret_large);
/* Reads the rest for nothing. */
void fake_exchange_skip_body(struct fake_exchange *x);

/* Adds a header to the answer, or replaces it; NULL removes it. */
void fake_exchange_set(struct fake_exchange *x, const char *name, const char *value);
void fake_exchange_setf(struct fake_exchange *x, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Makes the answer this text; without a type it has no Content-Type. */
void fake_exchange_text(struct fake_exchange *x, int status, const char *type, const char *text);
/* The same with a JSON value, which is released. */
void fake_exchange_json(struct fake_exchange *x, int status, const char *type, json_t *value);
/* The specification's error document. `detail` (may be NULL) is released. */
void fake_exchange_error(struct fake_exchange *x, int status, const char *code, const char *message,
                         json_t *detail);

/* Writes the answer and takes what is left of the body; sets `end`. */
void fake_exchange_write(struct fake_exchange *x);
