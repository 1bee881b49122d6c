/* registry_hide.h - takes secrets out of an answer before anybody makes words of it.
 *
 * A registry, a token host, or a proxy that shows what it got may repeat a secret in its refusal:
 * as it was sent, within JSON (whose writers escape '&', '/', '"' and others in their own ways), in
 * a form's encoding, or in a header that messages show. So JSON is hidden in after it is decoded,
 * and other text in each of these spellings.
 */
#pragma once

#include "registry_http.h"

enum {
    REGISTRY_HIDE_MAX = 4, /* secrets of one request */
};

/* Overwrites every place of the secrets (NULL ones are none) in the body that was kept and in the
 * headers that messages show. Without memory the body is dropped. */
void registry_hide(struct registry_http_response *response, const char *const *secrets,
                   size_t count);

/* Hides what stands in the query of an address that was asked: object stores sign it, and repeat
 * parts of it when they refuse a signature, as registries do with the state of an upload. All
 * values of some length go, and what is between the slashes of one; what a query of the
 * distribution specification has stays, and so do values below 16 bytes, which may be words of any
 * answer. The caller gives the first address and the last; those that redirects lead through in
 * between are not hidden. */
void registry_hide_query(struct registry_http_response *response, const char *url);

/* Appends the secret in the encoding of a form (RFC 3986, 2.1, all but unreserved characters). */
int registry_hide_form(const char *secret, struct buf *ret, struct err *err);
