/* registry_url.h - URLs of a registry: taking them apart, following what a registry answers.
 *
 * Everything is done by curl's URL parser, the same that the transfer uses, so that a check and
 * the connection never disagree about what a URL means. Relative addresses are resolved by RFC
 * 3986; what a registry put into the query of an upload address is kept byte for byte.
 *
 * A `Location` header comes from outside. It may name another host, but never a weaker transport:
 * https does not become http, and plain http goes only to loopback and to hosts that the
 * configuration calls insecure. User names and passwords in it are refused. It does not lead to an
 * address of this machine itself from one that is elsewhere, nor to an address that
 * registry_address.h lists from another host.
 *
 * Pure functions; safe for use by several threads. Strings are owned by the caller.
 */
#pragma once

#include "digest.h"
#include "err.h"

#include <stdbool.h>

enum {
    REGISTRY_URL_MAX = 8192, /* bytes; signed addresses of object stores have up to 4 KiB */
};

/* A configured "https://host[:port][/prefix]". */
struct registry_url {
    char *base;   /* "https://host[:port]", canonical */
    char *host;   /* "host[:port]", canonical (reference_host.h) */
    char *prefix; /* "" or "a/b", a legal repository name */
};
void registry_url_free(struct registry_url *url);
#define cleanup_registry_url cleanup_with(registry_url_free)

/* Parses and checks a configured URL. ERR_INVALID with a hint for other schemes, user names,
 * queries, fragments and illegal prefixes, and for plain http to a host that is neither loopback
 * nor in the list of insecure hosts. A password in the URL does not get into the message. */
int registry_url_parse(const char *url, const char *insecure_hosts, struct registry_url *ret,
                       struct err *err);

/* The address that `location` means in an answer to a request for `from`, without its fragment. */
int registry_url_follow(const char *from, const char *location, const char *insecure_hosts,
                        char **ret, struct err *err);

/* Adds "name=value" to the query, the value escaped. Caller frees *ret. */
int registry_url_add_query(const char *url, const char *name, const char *value, char **ret,
                           struct err *err);

/* Adds "digest=sha256%3A..." to the query. */
int registry_url_add_digest(const char *url, const struct digest *digest, char **ret,
                            struct err *err);

/* Whether two URLs have the same scheme, host and port. False when one cannot be parsed. */
bool registry_url_same_origin(const char *a, const char *b);

/* "scheme://host:port" of a URL, one text for each origin. Caller frees. ERR_INVALID when it cannot
 * be parsed. */
int registry_url_origin(const char *url, char **ret, struct err *err);

/* Whether two URLs have the same host, whatever their ports. False when one cannot be parsed. */
bool registry_url_same_host(const char *a, const char *b);

/* Whether the host of a URL is an address that registry_address.h lists. Names are not resolved. */
bool registry_url_is_link_local(const char *url);

/* "host[:port]" of a URL for messages; "?" when it cannot be parsed. NULL without memory. */
char *registry_url_host(const char *url);

/* Whether the host of a URL is loopback (reference_host_is_loopback()). */
bool registry_url_is_loopback(const char *url);
