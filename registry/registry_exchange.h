/* registry_exchange.h - one request to one address on a curl handle, and its answer; the lower half
 * of registry_http, which adds the pool of handles and redirects.
 *
 * All limits of registry_http.h on time and size are kept here. The handle's options are all set
 * anew and stay set afterwards: they point into the caller's data, so the caller resets the handle.
 */
#pragma once

#include "registry_http.h"

#include <curl/curl.h>

/* Borrowed for the call. */
struct registry_exchange_settings {
    const char *ca_file;     /* trusted besides the system's authorities; NULL: none */
    const char *client_cert; /* shown to this address; NULL: none */
    const char *client_key;  /* NULL: in the file of the certificate */
    long connect_s;
    long stall_s;
    long commit_s; /* in place of stall_s once the last byte of a body is sent */
};

/* As registry_http_perform(), but redirects are answers like any other. */
int registry_exchange_run(CURL *curl, const struct registry_exchange_settings *settings,
                          const struct registry_http_request *request, const char *url,
                          struct registry_http_response *ret, struct err *err);
