/* registry_auth.h - the Authorization header of a request, and what to do about a 401.
 *
 * Job: for a request to an origin that needs certain rights, gives the header's value from what is
 * known: nothing at first; after a 401 what its challenge asks for, remembered by origin,
 * repository and scopes, so that later requests carry it at once.
 *
 *   challenge Basic    the credentials of the host (registry_credentials.h)
 *   challenge Bearer   a token for the scopes from the realm (registry_token.h), fetched with the
 *                      credentials or as anybody, used until shortly before it expires; or the
 *                      token for the registry itself that the credentials hold
 *
 * Of several challenges the first usable one is taken, Bearer before Basic; without credentials
 * Basic is not usable. A token is asked for with the scopes that are needed and those that the
 * challenge names besides. A token host is spoken to with the registry's own trust, in plain http
 * only where the registry itself may be; credentials go to the realm that the registry names over
 * its own checked connection, and never to a link-local address.
 *
 * A token is asked for once, however many threads need it; who waits for it gets its failure, too,
 * unless it was cancelled by the one who asked. When a new one cannot be had a little before the
 * end of the old one, the old one serves on. A value that was just refused is not sent again by the
 * same request. Files and helpers are asked for each new token, and after each 401. When the file
 * has changed, nothing that came from the old one is used any more: to log out is to be logged out.
 *
 * No secret is ever part of an error, a log line or an argument of a process.
 *
 * Threads: may be used by several at once.
 */
#pragma once

#include "registry_repeat.h"

enum {
    REGISTRY_AUTH_TRIES = 3,    /* challenges that one request answers */
    REGISTRY_AUTH_EARLY_S = 10, /* a token is not used in the last so many seconds of its life, or
                                 * in the last quarter when that is shorter */
};

struct registry_auth;

/* `auth_file` as in registry_credentials.h. */
int registry_auth_open(const char *auth_file, struct registry_auth **ret, struct err *err);
void registry_auth_close(struct registry_auth *auth); /* NULL is fine */

/* Time, which all calls of the pool share; set by tests, before the first call. Copied. */
void registry_auth_set_time(struct registry_auth *auth, const struct registry_repeat_time *time);
const struct registry_repeat_time *registry_auth_time(const struct registry_auth *auth);

/* What a request needs. Borrowed for the call. */
struct registry_need {
    struct registry_http *http; /* for the token host */
    const char *base;           /* the registry's origin, "https://host[:port]" */
    const char *host;           /* canonical, for credentials and messages */
    const char *repository;     /* for credentials of a path; NULL: none */
    /* "repository:NAME:pull,push" and the like, sorted, unique. */
    const char *const *scopes;
    size_t scope_count;
    const struct registry_waiter *waiter;
};

/* The value for the Authorization header in *ret (caller frees with registry_secret_free()), or
 * NULL when none is known to be needed. Fetches a new token for one that is about to expire.
 * ERR_DENIED, with what to do, when the token host refuses. */
int registry_auth_value(struct registry_auth *auth, const struct registry_need *need, char **ret,
                        struct err *err);
/* Answers a 401 of the registry: remembers its challenges, so that registry_auth_value() gives
 * something else than `used` (NULL: nothing was sent). ERR_DENIED, with what to do, when there is
 * no more to try. */
int registry_auth_answer(struct registry_auth *auth, const struct registry_need *need,
                         const char *used, const struct registry_http_response *response,
                         struct err *err);
