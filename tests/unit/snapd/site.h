/* site.h - a node with an API server on it, and a client that speaks HTTP byte by byte, for the
 * tests of snapd/api.
 *
 * The node has a catalog, blobs, an embedded remote and directories in a scratch directory, no
 * mounts. Its kinds of jobs have the real names and do nothing but note their parameters; a job
 * runs only while site_shared.hold is false.
 *
 * The client has no library between it and the server, so that it can send what no well-behaved
 * client sends. Reading has a deadline of SITE_DEADLINE_MS.
 */
#pragma once

#include "buf.h"
#include "node.h"
#include "scratch.h"
#include "server.h"

#include <jansson.h>
#include <stdatomic.h>

enum {
    SITE_DEADLINE_MS = 20000,
};

extern struct site_shared {
    atomic_bool hold; /* jobs wait */
    atomic_int runs;  /* of jobs */
} site_shared;

struct site {
    void *scratch;
    char socket[128];
    struct node node;
    struct server *server;
};

/* For cmocka: *state is a struct site that answers on site->socket. */
int site_setup(void **state);
int site_teardown(void **state);

/* One answer. */
struct site_reply {
    int status;    /* 0: the server closed the connection without one */
    char *headers; /* the header lines */
    char *body;    /* NUL-terminated */
    json_t *json;  /* of the body; NULL when it is none */
};
void site_reply_free(struct site_reply *reply);
#define cleanup_site_reply cleanup_with(site_reply_free)

/* A connection; the test fails when there is none. */
int site_connect(const struct site *site);
/* Sends everything, or until the server closes its end. Returns whether all was sent. */
bool site_send(int fd, const void *bytes, size_t len);
bool site_send_text(int fd, const char *text);
/* Reads the next answer of a connection; `head` says that it has no body whatever its headers say.
 * Interim answers (100) come as answers of their own. */
struct site_reply site_read(int fd, bool head);
/* Whether the server closes the connection within the deadline; what it sends is thrown away. */
bool site_closes(int fd);

/* A request on a connection of its own. `body` may be NULL. */
struct site_reply site_ask(const struct site *site, const char *method, const char *path,
                           const char *body);
/* The same with a header line ("Idempotency-Key: k\r\n"). */
struct site_reply site_ask_with(const struct site *site, const char *method, const char *path,
                                const char *header, const char *body);

/* Asks and checks the status; the test fails with the body otherwise. The document is the caller's.
 * Bodies are JSON with single quotes. */
json_t *site_expect(const struct site *site, int status, const char *method, const char *path,
                    const char *body);
/* Asks and checks that it fails with this status and code, and with `word` in the message. */
void site_refused(const struct site *site, int status, const char *code, const char *word,
                  const char *method, const char *path, const char *body);

/* Waits until the job is done and returns its parameters, as its kind saw them; caller owns. */
json_t *site_job_params(const struct site *site, const char *job);

/* Puts an image with one name into the catalog and its blobs into the store. The digest is in a
 * static buffer. */
const char *site_add_image(struct site *site, const char *name, const char *salt);
/* A run in state ready. */
void site_add_run(struct site *site, const char *id, const char *image);
/* A snapshot of a run. */
void site_add_snapshot(struct site *site, const char *id, const char *run, const char *image,
                       const char *name, const char *tag);
/* A workspace that is detached; with a path it is to be mounted there. */
void site_add_workspace(struct site *site, const char *name, int64_t size, const char *path,
                        bool read_only);
