/* registry_http.h - one HTTP request at a time, as a registry needs it: redirects, who is shown
 * what. registry_exchange.c below it makes the transfers, on the connections of a registry_pool.
 *
 * A request works on its bytes in the calling thread and returns when the whole answer is there.
 *
 * What it guards:
 *   - only http and https; TLS 1.2 or later, certificates and host names always checked;
 *   - the client certificate goes to the registry's own scheme, host and port only, credentials to
 *     that of the request's address, whatever a redirect or a Location says;
 *   - redirects are followed under the rules of registry_url_follow(), at most
 *     REGISTRY_HTTP_REDIRECTS_MAX: for GET and HEAD all of them, for other methods 307 and 308
 *     with the same method and the body from its beginning (RFC 9110, 15.4). Others are answers;
 *   - proxies come from the environment as curl reads it (https_proxy, no_proxy, ...), but never
 *     for loopback hosts;
 *   - the budget and the pause of each origin (registry_pool.h);
 *   - connecting has a time limit; a transfer has none, but standing still has: less than one byte
 *     a second for the stall time. Time that the caller takes for its bytes does not count. After
 *     the last byte of an upload, while the registry stores it, the longer commit time holds
 *     instead; it is also the limit for a whole request without a blob in either direction, and for
 *     the whole of an answer to an upload, and of headers and refusals of a download;
 *   - every header and every part of an answer that is kept in memory is bounded.
 *
 * What it does not do: it knows no credentials, repeats nothing (save what curl itself sends again
 * when a kept connection turns out to be closed) and checks no digests.
 *
 * Threads: a `struct registry_http` may be used by several threads at once.
 */
#pragma once

#include "buf.h"
#include "registry_pool.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    REGISTRY_HTTP_REDIRECTS_MAX = 5,
    REGISTRY_HTTP_LOCATION_MAX = 8192,      /* bytes of a Location header */
    REGISTRY_HTTP_LINK_MAX = 8192,          /* bytes of all Link headers */
    REGISTRY_HTTP_CHALLENGES_MAX = 8192,    /* bytes of all WWW-Authenticate headers; what does not
                                             * fit is left out */
    REGISTRY_HTTP_VALUE_MAX = 256,          /* bytes of any other header of interest */
    REGISTRY_HTTP_HEADERS_MAX = 256 * 1024, /* bytes of all headers of one exchange */
    REGISTRY_HTTP_REFUSAL_MAX = 16 * 1024,  /* bytes kept of the body of a refusal */
    REGISTRY_HTTP_COMMIT_TIMEOUT_S = 15 * 60, /* object stores copy a blob when it is closed */
    REGISTRY_HTTP_SMALL_MAX = 1 << 20, /* bytes of a blob, or of a manifest that is sent, that are
                                        * soon over: they need no slot for bulk transfers */
};

struct registry_http;

struct registry_http_options {
    struct registry_pool *pool; /* borrowed while it is open; NULL: one of its own */
    const char *base;           /* "https://host[:port]"; gets the client certificate */
    const char *ca_file;        /* trusted besides the system's authorities; NULL: none */
    const char *client_cert;    /* NULL: none */
    const char *client_key;     /* NULL: in the file of the certificate */
    const char *insecure_hosts; /* see reference_host.h */
};

/* Copies the options. Makes no connection. */
int registry_http_open(const struct registry_http_options *options, struct registry_http **ret,
                       struct err *err);
void registry_http_close(struct registry_http *http); /* NULL is fine */

/* The pool that its requests go through. */
struct registry_pool *registry_http_pool(const struct registry_http *http);

/* Other limits, in seconds, for tests; before the first request. */
void registry_http_set_timeouts(struct registry_http *http, long connect_s, long stall_s,
                                long commit_s);

enum registry_http_method {
    REGISTRY_HTTP_GET,
    REGISTRY_HTTP_HEAD,
    REGISTRY_HTTP_POST, /* these three always with a body, which may be empty */
    REGISTRY_HTTP_PUT,
    REGISTRY_HTTP_PATCH,
    REGISTRY_HTTP_DELETE,
};

struct registry_http_response;

/* Everything is borrowed for the call. */
struct registry_http_request {
    enum registry_http_method method;
    const char *url;
    const char *const *headers; /* "Name: value" lines, NULL at the end; NULL: none */

    /* Value of the Authorization header; NULL: none. It is sent to the origin of `url` only,
     * wherever redirects lead to. */
    const char *authorization;
    bool keep_origin; /* a redirect to another origin is the answer; the body is a secret */

    /* The body of POST, PUT and PATCH: `body_size` bytes at `body`, or, when that is NULL, of
     * `body_fd` from offset `body_offset` on. `progress` may be NULL; it is told how much of the
     * body is sent, also while nothing moves, four times a second, and can cancel then too. */
    const void *body;
    int body_fd;
    uint64_t body_offset;
    uint64_t body_size;
    remote_progress progress;
    void *progress_arg;

    /* Takes the body of an answer with status 200, or 206 to a request for a range; more than
     * `sink_max` bytes are ERR_TOO_LARGE. Of GET, and of POST with a body in memory. Before the
     * first byte `head` (may be NULL) is called with the same argument: status, address and headers
     * of the answer are there; a failure ends the transfer. `progress` is called while the body
     * comes, too; what it is told has no meaning then. */
    remote_sink sink;
    int (*head)(void *sink_arg, const struct registry_http_response *head, struct err *err);
    void *sink_arg;
    uint64_t sink_max;

    /* GET: asks for `range_len` bytes (0: for the whole) from `range_offset` on (RFC 9110, 14.2). A
     * 206 that gives others, or more, is ERR_DAMAGED. A server may answer 200 with all bytes, and
     * the sink gets them: `head` can tell. */
    uint64_t range_offset;
    uint64_t range_len;

    long total_timeout_s; /* 0: none */
};

struct registry_http_response {
    long status;
    char *url;       /* that gave the answer, after redirects */
    uint64_t length; /* Content-Length; UINT64_MAX when not given */
    /* As sent, NULL when not given. */
    char *location;
    char *content_type;
    char *content_digest; /* Docker-Content-Digest */
    char *content_encoding;
    char *retry_after;
    char *range; /* of an upload: "0-<last>" (distribution-spec, "Pushing a blob in chunks") */
    char *content_range;    /* of a 206 or 416 */
    char *link;             /* all of them, joined by ", " */
    char *chunk_min_length; /* OCI-Chunk-Min-Length */
    char *oci_subject;      /* OCI-Subject */
    char *challenges;       /* all WWW-Authenticate, one a line */
    uint64_t range_total;   /* of a 206: size of the whole; UINT64_MAX when not given */
    struct buf refusal;     /* beginning of the body unless it went to the sink */
    bool body_complete;     /* the request's whole body had been taken when the answer came */
};
void registry_http_response_free(struct registry_http_response *response);
#define cleanup_http_response cleanup_with(registry_http_response_free)

/* Performs a request. 0 when an answer came, whatever its status; a failure when none came, when
 * it broke off (ERR_UNREACHABLE), is no HTTP (ERR_DAMAGED) or too large (ERR_TOO_LARGE), or when a
 * callback failed: its failure is what is returned. */
int registry_http_perform(struct registry_http *http, const struct registry_http_request *request,
                          struct registry_http_response *ret, struct err *err);

/* The absolute address that the Location header of an answer means, under the rules of
 * registry_url_follow(). Caller frees *ret. */
int registry_http_location(const struct registry_http *http,
                           const struct registry_http_response *response, char **ret,
                           struct err *err);
