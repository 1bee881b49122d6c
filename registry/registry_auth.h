/* registry_auth.h - the Authorization header of a request, and what to do about a 401.
 *
 * Job: for a request to an origin that needs certain rights, gives the header's value from what is
 * known: nothing at first; after a 401 what its challenge asks for, remembered by origin and
 * scope, so that later requests carry it at once.
 *
 *   challenge Basic    the credentials of the host (registry_credentials.h)
 *   challenge Bearer   a token for the scope from the realm (registry_token.h), fetched with the
 *                      credentials or anonymously, used until shortly before it expires
 *
 * Of several challenges the first usable one is taken, Bearer before Basic; without credentials
 * Basic is not usable. A token host is spoken to with the registry's own trust, in plain http only
 * where the registry itself may be; credentials go to the realm that the registry names over its
 * own checked connection, and never to a link-local address.
 *
 * A token is asked for once, however many threads need it. A 401 to a token that was just fetched
 * is final after REGISTRY_AUTH_TRIES. Files and helpers are asked again when the file has changed.
 *
 * No secret is ever part of an error, a log line or an argument of a process.
 *
 * Threads: may be used by several at once.
 */
#pragma once

#include "registry_http.h"

enum {
    REGISTRY_AUTH_TRIES = 3,    /* challenges that one request answers */
    REGISTRY_AUTH_EARLY_S = 10, /* a token is not used in the last so many seconds of its life, or
                                 * in the last quarter when that is shorter */
    REGISTRY_AUTH_LIFE_S = 60, /* of a token that says nothing (distribution token specification) */
    REGISTRY_AUTH_SCOPES_MAX = 4,
};

struct registry_auth;

/* `auth_file` as in registry_credentials.h. */
int registry_auth_open(const char *auth_file, struct registry_auth **ret, struct err *err);
void registry_auth_close(struct registry_auth *auth); /* NULL is fine */

/* What a request needs. `scopes` are "repository:NAME:pull,push" and the like, sorted, unique. */
struct registry_need {
    struct registry_http *http; /* for the token host; its base is the registry's origin */
    const char *const *scopes;
    size_t scope_count;
    const struct registry_waiter *waiter;
};

/* The value for the Authorization header in *ret (caller frees with registry_auth_free_value), or
 * NULL when none is known to be needed. Fetches a new token for one that is about to expire. */
int registry_auth_value(struct registry_auth *auth, const struct registry_need *need, char **ret,
                        struct err *err);
/* Answers a 401: remembers its challenges, so that registry_auth_value() gives something else than
 * `used` (NULL: nothing was sent). ERR_DENIED, with what to do, when there is no more to try. */
int registry_auth_answer(struct registry_auth *auth, const struct registry_need *need,
                         const char *used, const struct registry_http_response *response,
                         struct err *err);
/* Overwrites and frees. NULL is fine. */
void registry_auth_free_value(char *value);
