/* registry.h - an OCI registry behind `struct remote` (OCI distribution-spec 1.1).
 *
 * Manifests of OCI and Docker schema 2. Requests log in as the registry asks for it, and are
 * repeated after failures that pass (registry_call.h); downloads go on where they broke off
 * (registry_range.h). Whether a blob is there already is for the callers to ask
 * (remote_push_blob()). docker.io is a registry like any other, but for its address, which is
 * registry-1.docker.io.
 *
 * TLS is checked always. Plain http is used only for loopback hosts and for hosts that the
 * configuration names as insecure. There is no limit on the total time of a transfer, only on
 * standing still. Redirects are followed as registry_http.h says, to other origins without
 * credentials and client certificate. Proxies come from the environment, but not for loopback
 * hosts.
 *
 * Failures: ERR_UNREACHABLE no connection, or one that broke, also in the middle of a body;
 * ERR_DENIED 401 and 403; ERR_NOT_FOUND 404; ERR_REFUSED every other refusal; ERR_DIGEST when the
 * registry names another digest; ERR_DAMAGED answers that make no sense.
 *
 * The parts are listed in docs/DESIGN.md, "Registry".
 */
#pragma once

#include "registry_pool.h"

enum {
    REGISTRY_CONNECT_TIMEOUT_S = 20,
    REGISTRY_STALL_TIMEOUT_S = 60, /* less than one byte a second for so long is a failure */
};

/* All may be NULL. Copied by the functions below, but for the pool. */
struct registry_options {
    struct registry_pool *pool; /* transport, budgets and credentials of the node; borrowed as long
                                 * as the remote is open. NULL: one of its own with the defaults */
    const char *ca_file;        /* trusted besides the system's authorities (PEM) */
    const char *client_cert;    /* PEM */
    const char *client_key;     /* PEM, without a password; NULL: in the file client_cert */
    const char *insecure_hosts; /* "host[:port],..." that may be spoken to in plain http; without a
                                 * port all ports are meant */
};

/* Whether the files that the options name can be used now: 0, or a failure that names the first
 * that cannot, which who opens a registry need not mind, as it may be mended before it is needed.
 */
int registry_check_trust(const struct registry_options *options, struct err *err);

/* Opens "https://host[:port][/prefix]" or "http://...". Makes no connection. Plain http to a host
 * that is neither loopback nor named as insecure is ERR_INVALID, as are a user name or password,
 * a query or a fragment in the URL. `options` may be NULL. */
int registry_open(const char *url, const struct registry_options *options, struct remote **ret,
                  struct err *err);

/* Opens the registry that a reference's host names: http for loopback and insecure hosts, https
 * for all others. */
int registry_open_host(const char *host, const struct registry_options *options,
                       struct remote **ret, struct err *err);
