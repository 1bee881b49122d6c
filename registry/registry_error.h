/* registry_error.h - failures in plain words: refusals of a registry, failed transfers of curl.
 *
 * A refusal has a status and often a body {"errors":[{"code","message"}]} (OCI distribution-spec,
 * "Error codes"), but proxies answer with whatever they like. The status decides; of the text a
 * short, cleaned piece goes into the message.
 */
#pragma once

#include "registry_http.h"

#include <curl/curl.h>

enum {
    REGISTRY_ERROR_TEXT_MAX = 200, /* bytes of a peer's text in a message */
};

/* Text from outside for a message: printable ASCII in one line, anything else as '?'. */
struct registry_error_text {
    char s[REGISTRY_ERROR_TEXT_MAX + 1];
};
struct registry_error_text registry_error_clean(const char *bytes, size_t len);

/* The failure for an answer whose status is none that the caller expects. Codes: 401 and 403
 * ERR_DENIED, 404 ERR_NOT_FOUND, an error of code DIGEST_INVALID ERR_DIGEST, all others
 * ERR_REFUSED. */
int registry_error_refusal(const struct registry_http_response *response, struct err *err);

/* Whether the registry gave this error code ("UNSUPPORTED"). */
bool registry_error_has_code(const struct registry_http_response *response, const char *code);

/* Which blobs a refused manifest misses: the error codes MANIFEST_BLOB_UNKNOWN and BLOB_UNKNOWN,
 * and the digests in their messages and details, in whatever form registries put them there. */
void registry_error_missing(const struct registry_http_response *response,
                            struct remote_missing *ret);

/* Checks of answers that look like success. Each returns 0 or a failure.
 *
 * A log-in page of a proxy comes with status 200 too (ERR_DAMAGED). Other successes, and answers
 * with a digest, are a registry's whatever they are labelled: Quay sends its 201 as text/html. */
int registry_error_if_web_page(const struct registry_http_response *response, struct err *err);
/* Says of a failure of what arrived that it was sent encoded (RFC 9110, 8.4), if it was: that is
 * never asked for, but proxies do it, and some only label files so that are compressed themselves.
 * Returns `rc`. */
int registry_error_of_encoded(const struct registry_http_response *response, int rc,
                              struct err *err);
/* The registry says what digest it has; ERR_DIGEST when it is another one. Saying nothing is no
 * failure. */
int registry_error_if_other_digest(const struct registry_http_response *response,
                                   const struct digest *digest, struct err *err);

/* For what may be TLS that was spoken to in plain http: says why, if `url` is of a loopback host.
 */
void registry_error_hint_loopback(const char *url, struct err *err);

/* The failure of a transfer that brought no answer. `detail` is curl's text, "" for none. Of those
 * with ERR_UNREACHABLE the ones that asking again would not mend, such as a certificate that is not
 * trusted, have the number EPROTO in place of EHOSTUNREACH. */
int registry_error_transfer(CURLcode code, const char *detail, const char *url, struct err *err);

/* The same for a proxy that was asked for a way to the registry (CONNECT) and answered `status`. */
int registry_error_proxy(long status, const char *url, struct err *err);
