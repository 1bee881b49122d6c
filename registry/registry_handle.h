/* registry_handle.h - a request as options of a curl handle: address, trust, method, headers.
 *
 * Job: everything that does not depend on how the bytes are moved, which is registry_exchange.c's.
 *
 * HTTP/2, where a server offers it over TLS, is for requests whose bodies are small: questions,
 * openings of uploads, manifests, tokens, lists. Many of them share one connection. Blobs go by
 * HTTP/1.1, each on a connection of its own, because of libcurl 7.88.1: a transfer that waits for
 * its sink keeps all others of its connection waiting (measured with docker-registry: downloads of
 * 64 MiB took 7 s instead of 2.3 s beside slow ones, and those that hand on pieces in order
 * would wait for each other), and an upload took 2.4 s instead of 0.9 s.
 */
#pragma once

#include "registry_exchange.h"

#include <curl/curl.h>

enum {
    REGISTRY_HANDLE_SMALL_MAX = REMOTE_MANIFEST_MAX, /* bytes of a body by HTTP/2 */
    /* A file of trusted authorities that was replaced is read again after that. Without it, a
     * libcurl that was built without a directory of authorities (Debian's has one, and keeps
     * nothing) has the old one for a day. */
    REGISTRY_HANDLE_CA_SECONDS = 1,
};

/* Sets an option of `curl` unless one before could not be set; both are variables. */
#define REGISTRY_HANDLE_SET(option, value)                                                         \
    do {                                                                                           \
        if (code == CURLE_OK)                                                                      \
            code = curl_easy_setopt(curl, option, value);                                          \
    } while (0)

/* Sets all of it. *ret_headers is NULL before; it has to live as long as the handle has the
 * options, and is freed by registry_handle_free_headers() also after a failure. */
CURLcode registry_handle_set(CURL *curl, const struct registry_exchange_settings *settings,
                             const struct registry_http_request *request, const char *url,
                             struct curl_slist **ret_headers);
/* Overwrites, as one of the lines may be a secret, and frees. NULL is fine. */
void registry_handle_free_headers(struct curl_slist *list);
