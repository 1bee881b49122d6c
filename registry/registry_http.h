/* registry_http.h - one HTTP request at a time, as a registry needs it. With its lower half,
 * registry_exchange.c, the only place that makes libcurl transfers.
 *
 * A `struct registry_http` keeps a pool of curl handles, each with its open connections, so that
 * following requests find a connection that is ready. A request runs on one handle in the calling
 * thread and returns when the whole answer is there.
 *
 * What it guards:
 *   - only http and https; TLS 1.2 or later, certificates and host names always checked;
 *   - the client certificate goes to the registry's own scheme, host and port only;
 *   - redirects are followed for GET and HEAD only, at most REGISTRY_HTTP_REDIRECTS_MAX, under the
 *     rules of registry_url_follow();
 *   - proxies come from the environment as curl reads it (https_proxy, no_proxy, ...), but never
 *     for loopback hosts;
 *   - connecting has a time limit; a transfer has none, but standing still has: less than one byte
 *     a second for the stall time. After the last byte of an upload, while the registry stores it,
 *     the longer commit time holds instead;
 *   - every header and every part of an answer that is kept in memory is bounded.
 *
 * What it does not do: it sends no credentials, repeats nothing (save what curl itself sends again
 * when a kept connection turns out to be closed) and checks no digests.
 *
 * Threads: a `struct registry_http` may be used by several threads at once. curl is told to leave
 * signals alone, so the program ignores SIGPIPE.
 */
#pragma once

#include "buf.h"
#include "remote.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    REGISTRY_HTTP_REDIRECTS_MAX = 5,
    REGISTRY_HTTP_LOCATION_MAX = 8192,        /* bytes of a Location header */
    REGISTRY_HTTP_VALUE_MAX = 256,            /* bytes of any other header of interest */
    REGISTRY_HTTP_HEADERS_MAX = 256 * 1024,   /* bytes of all headers of one exchange */
    REGISTRY_HTTP_REFUSAL_MAX = 16 * 1024,    /* bytes kept of the body of a refusal */
    REGISTRY_HTTP_COMMIT_TIMEOUT_S = 15 * 60, /* object stores copy a blob when it is closed */
};

struct registry_http;

struct registry_http_options {
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

/* Other limits, in seconds, for tests; before the first request. */
void registry_http_set_timeouts(struct registry_http *http, long connect_s, long stall_s,
                                long commit_s);

enum registry_http_method {
    REGISTRY_HTTP_GET,
    REGISTRY_HTTP_HEAD,
    REGISTRY_HTTP_POST, /* always with an empty body */
    REGISTRY_HTTP_PUT,  /* always with a body, which may be empty */
    REGISTRY_HTTP_DELETE,
};

/* Everything is borrowed for the call. */
struct registry_http_request {
    enum registry_http_method method;
    const char *url;
    const char *const *headers; /* "Name: value" lines, NULL at the end; NULL: none */

    /* PUT: the body is `body_size` bytes at `body`, or, when that is NULL, of `body_fd` from offset
     * 0 on. `progress` may be NULL; it is also called while nothing moves, at least once a second,
     * and can cancel then too. */
    const void *body;
    int body_fd;
    uint64_t body_size;
    remote_progress progress;
    void *progress_arg;

    /* GET: takes the body of an answer with status 200; more than `sink_max` bytes are
     * ERR_TOO_LARGE. `progress` is called then, too; what it is told has no meaning. */
    remote_sink sink;
    void *sink_arg;
    uint64_t sink_max;

    long total_timeout_s; /* 0: none */
};

struct registry_http_response {
    long status;
    char *url;       /* that gave the answer, after redirects */
    uint64_t length; /* Content-Length; UINT64_MAX when not given */
    char *location;  /* these three as sent, NULL when not given */
    char *content_type;
    char *content_digest; /* Docker-Content-Digest */
    char *retry_after;
    struct buf refusal; /* beginning of the body unless the status is 200 */
    bool body_complete; /* PUT: the whole body had been taken when the answer came */
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
