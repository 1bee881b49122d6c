/* registry_credential.h - what somebody logs in to a registry with.
 *
 * Of a credential at most one kind is used: a token for the registry itself before an identity
 * token (what a log-in gave in place of the password, to be exchanged at the token host) before
 * user name and password.
 */
#pragma once

#include "registry_secret.h"

/* Strings are owned; NULL when not given. */
struct registry_credential {
    char *username;
    char *password;
    char *identity_token;
    char *registry_token;
    char *source; /* for messages: the file, or the helper program */
};

static inline void registry_credential_free(struct registry_credential *credential)
{
    registry_secret_free(credential->username);
    registry_secret_free(credential->password);
    registry_secret_free(credential->identity_token);
    registry_secret_free(credential->registry_token);
    free(credential->source);
    *credential = (struct registry_credential){0};
}
#define cleanup_registry_credential cleanup_with(registry_credential_free)
