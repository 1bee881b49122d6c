/* registry_handle.h - a request as options of a curl handle: address, trust, method, headers.
 *
 * Job: everything that does not depend on how the bytes are moved, which is registry_exchange.c's.
 */
#pragma once

#include "registry_exchange.h"

#include <curl/curl.h>

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
