/* remote_referrers.h - lists of manifests that refer to another one, for implementations of remotes
 * (OCI distribution-spec 1.1, "Listing Referrers"; image-spec, "subject").
 *
 * A list holds each digest once and at most REMOTE_REFERRERS_MAX of them. What is added is copied.
 */
#pragma once

#include "remote.h"

/* Adds the entries of an index, which is what a registry answers and what stands under the
 * fall-back tag; anything but an index is ERR_DAMAGED. */
int remote_referrers_add_index(struct remote_referrers *referrers, const char *bytes, size_t len,
                               struct err *err);
/* Adds a manifest if its subject is `subject`. */
int remote_referrers_add_if(struct remote_referrers *referrers,
                            const struct remote_manifest *manifest, const struct digest *subject,
                            struct err *err);
/* The subject of a manifest or index: 1, 0 when it has none, or ERR_DAMAGED. */
int remote_referrers_subject(const char *bytes, size_t len, struct digest *ret, struct err *err);
/* Adds a manifest to the index under a fall-back tag (`index` NULL: there is none yet) and keeps
 * everything that is in it. *ret is the text of the new one, which the caller frees; NULL when the
 * manifest is in it already. Anything but an index is ERR_DAMAGED. */
int remote_referrers_extend(const struct remote_manifest *index,
                            const struct remote_manifest *manifest, char **ret, struct err *err);
