/* registry_token.h - one bearer token from a token host (distribution's token specification and its
 * OAuth2 page).
 *
 *   an identity token   POST realm: grant_type=refresh_token, service, scope, client_id, and the
 *                       token in the body. A host that does not know this way (404, 405) is asked
 *                       the other way, when the credential has a user name
 *   user and password   GET realm?service=S&scope=A&scope=B with Basic
 *   nothing             the same without: hosts give tokens for what is public to anybody
 *
 * The answer is {"token" or "access_token", "expires_in" (60 s when it is not said), "issued_at",
 * "refresh_token"}. issued_at makes the life of a token shorter, never longer, and is passed over
 * when the clocks of the two machines cannot agree on it (the token would be over already).
 *
 * The realm comes from the registry. It must be https; http only where the configuration allows it
 * for that host and the registry itself is spoken to in http (registry_url_follow()). It is never a
 * link-local address unless the registry is at one. Requests go with the trust of the registry
 *, are repeated as others (registry_repeat.h), and their answers are bounded.
 *
 * No secret is part of a URL, an error or a log line; a token that could break a header line is
 * refused.
 */
#pragma once

#include "registry_credential.h"
#include "registry_repeat.h"

enum {
    REGISTRY_TOKEN_LIFE_S = 60,             /* of a token that says nothing */
    REGISTRY_TOKEN_LIFE_MAX_S = 24 * 3600,  /* longer ones are asked for again after that */
    REGISTRY_TOKEN_MAX = 16 * 1024,         /* bytes of a token */
    REGISTRY_TOKEN_ANSWER_MAX = 256 * 1024, /* bytes of an answer */
};

/* Borrowed for the call. */
struct registry_token_request {
    const struct registry_repeat_means *means;
    const char *realm;   /* absolute, of registry_token_realm() */
    const char *service; /* NULL: none */
    const char *const *scopes;
    size_t scope_count;
    const struct registry_credential *credential; /* NULL: anybody */
    const struct registry_waiter *waiter;
};

struct registry_token {
    char *value;
    int64_t life_ns;     /* from the beginning of the request on */
    char *refresh_token; /* a new identity token in place of the one that was used; NULL: none */
};
void registry_token_free(struct registry_token *token);
#define cleanup_registry_token cleanup_with(registry_token_free)

/* Fetches a token. ERR_DENIED when the token host refuses (400, 401, 403); ERR_DAMAGED for an
 * answer without a token that can be used. */
int registry_token_fetch(const struct registry_token_request *request, struct registry_token *ret,
                         struct err *err);

/* Reads what a token host answered at a time of the wall clock, in seconds; ERR_DAMAGED or
 * ERR_TOO_LARGE for what is no token that can be used. No message has a part of it. */
int registry_token_read(const char *bytes, size_t len, int64_t now_s, struct registry_token *ret,
                        struct err *err);

/* The value of an Authorization header for Basic (RFC 7617); NULL counts as "". Caller frees with
 * registry_secret_free(). */
int registry_token_basic(const char *username, const char *password, char **ret, struct err *err);

/* The address of a realm as it was sent in an answer from `from`, checked. Caller frees *ret.
 * ERR_REFUSED or ERR_DAMAGED when it may not be used. */
int registry_token_realm(const struct registry_http *http, const char *from, const char *realm,
                         char **ret, struct err *err);
