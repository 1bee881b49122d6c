/* fake_registry_api.h - the distribution specification's operations of the fake registry.
 *
 * Each function carries out one request that was authorised, and makes the answer in the exchange.
 * A request whose body was cut, or whose peer has gone, has no answer. They take the lock
 * themselves.
 */
#pragma once

#include "fake_registry_state.h"

/* fake_registry_blob.c */
void fake_blob_get(struct fake_exchange *x, const char *repo, const char *digest);
void fake_blob_delete(struct fake_exchange *x, const char *repo, const char *digest);

/* fake_registry_upload.c */
void fake_upload_begin(struct fake_exchange *x, const char *repo);
void fake_upload_add(struct fake_exchange *x, const char *repo, const char *id);
void fake_upload_stat(struct fake_exchange *x, const char *repo, const char *id);
void fake_upload_cancel(struct fake_exchange *x, const char *repo, const char *id);

/* fake_registry_manifest.c */
void fake_manifest_get(struct fake_exchange *x, const char *repo, const char *reference);
void fake_manifest_put(struct fake_exchange *x, const char *repo, const char *reference);
void fake_manifest_delete(struct fake_exchange *x, const char *repo, const char *reference);
void fake_tags_list(struct fake_exchange *x, const char *repo);
void fake_referrers_list(struct fake_exchange *x, const char *repo, const char *digest);

/* fake_registry_auth.c. Whether the request may do `actions` ("pull", "pull,push", "delete"; NULL:
 * be there at all) in a repository, and read `from` (NULL: none); if not, the answer is made. */
bool fake_auth_check(struct fake_exchange *x, const char *repo, const char *actions,
                     const char *from);
/* The token service: GET with a query, or POST with an OAuth form. */
void fake_auth_token(struct fake_exchange *x);

/* fake_registry.c. A setting or header with its words filled in; `words` as for fake_rule_fill().
 * Caller frees. */
char *fake_registry_fill(const struct fake_registry *fake, const char *text,
                         const char *const words[]);
/* Leads to the same address on the other host, with what stands for a signature. */
void fake_registry_redirect(struct fake_exchange *x, int status);
