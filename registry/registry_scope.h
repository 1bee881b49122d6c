/* registry_scope.h - scopes of tokens (distribution's token specification, "Token scope").
 *
 * A scope is "type:name:actions", where the name may hold colons and the actions are separated by
 * commas: "repository:team/app:pull,push". Actions of the same resource are asked for together, as
 * token hosts that get a resource twice take either.
 *
 * Pure functions.
 */
#pragma once

#include "err.h"

enum {
    REGISTRY_SCOPES_MAX = 8,       /* in one request for a token */
    REGISTRY_SCOPE_TEXT_MAX = 512, /* bytes of one; longer ones of a peer are passed over */
};

struct registry_scopes {
    char *list[REGISTRY_SCOPES_MAX]; /* owned */
    size_t count;
};
void registry_scopes_free(struct registry_scopes *scopes);
#define cleanup_registry_scopes cleanup_with(registry_scopes_free)

/* Adds one scope, or its actions to those of its resource. A text that is no scope, and what does
 * not fit any more, is passed over. Fails only without memory. */
int registry_scopes_add(struct registry_scopes *scopes, const char *scope, size_t len,
                        struct err *err);
/* Adds those of a challenge, separated by spaces; NULL is none. */
int registry_scopes_add_all(struct registry_scopes *scopes, const char *text, struct err *err);
