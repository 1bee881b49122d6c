/* registry_exchange.h - one request to one address and its answer, on the connections of a pool;
 * the lower half of registry_http, which adds redirects.
 *
 * Job: sets up a curl handle, has the pool's thread run it, and works on the bytes of the bodies in
 * the calling thread: what is read from a file, what a sink does and whoever is asked for progress
 * hold up no other transfer. Between the two threads is a registry_pipe.
 *
 * All limits of registry_http.h on time and size are kept here.
 */
#pragma once

#include "registry_http.h"

/* Borrowed for the call. */
struct registry_exchange_settings {
    const char *ca_file;     /* trusted besides the system's authorities; NULL: none */
    const char *client_cert; /* shown to this address; NULL: none */
    const char *client_key;  /* NULL: in the file of the certificate */
    bool guarded;            /* not to an address that registry_address.h lists */
    bool authorized;         /* the request's credentials go to this address */
    long connect_s;
    long stall_s;
    long commit_s; /* in place of stall_s once the last byte of a body is sent; for an answer */
};

struct registry_loop;

/* As registry_http_perform(), but redirects are answers like any other. */
int registry_exchange_run(struct registry_loop *loop,
                          const struct registry_exchange_settings *settings,
                          const struct registry_http_request *request, const char *url,
                          struct registry_http_response *ret, struct err *err);
