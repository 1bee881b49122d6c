/* registry.h - an OCI registry behind `struct remote` (OCI distribution-spec 1.1).
 *
 * First version: HEAD before an upload, one POST and one PUT per blob, manifests of OCI and Docker
 * schema 2, anonymous or with basic credentials in the configuration; no resumed uploads, tokens
 * or mounts yet.
 *
 * TLS is checked always. Plain http is used only for loopback hosts and for hosts that the
 * configuration names as insecure. There is no limit on the total time of a transfer, only on
 * standing still. Redirects are followed for downloads only.
 */
#pragma once

#include "remote.h"

enum {
    REGISTRY_CONNECT_TIMEOUT_S = 20,
    REGISTRY_STALL_TIMEOUT_S = 60, /* less than one byte a second for so long is a failure */
};

struct registry_options {
    const char *ca_file;        /* NULL: the system's */
    const char *client_cert;    /* NULL: none */
    const char *client_key;
    const char *insecure_hosts; /* "host[:port],..." that may be spoken to in plain http */
};

/* Opens "https://host[:port][/prefix]" or "http://...". Makes no connection. Plain http to a host
 * that is neither loopback nor named as insecure is ERR_INVALID. */
int registry_open(const char *url, const struct registry_options *options, struct remote **ret,
                  struct err *err);

/* Opens the registry that a reference's host names: http for loopback and insecure hosts, https
 * for all others. */
int registry_open_host(const char *host, const struct registry_options *options,
                       struct remote **ret, struct err *err);
