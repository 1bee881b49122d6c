/* checkpoint_manifest_parts.h - what the manifests of a checkpoint have in common; for
 * checkpoint_manifest*.c alone.
 */
#pragma once

#include "checkpoint_manifest.h"

/* A document with these two types. ERR_DAMAGED, ERR_TOO_LARGE, ERR_UNSUPPORTED for other documents,
 * ERR_TOO_NEW for a later version of the artifact type. Caller owns *ret. */
int checkpoint_manifest_load(const char *bytes, size_t len, const char *media_type,
                             const char *artifact_type, json_t **ret, struct err *err);
/* A descriptor of this media type; more than `most` bytes are ERR_TOO_LARGE. `name` is for
 * messages. */
int checkpoint_manifest_blob(const json_t *object, const char *name, const char *media_type,
                             uint64_t least, uint64_t most, struct checkpoint_blob *ret,
                             struct err *err);
/* NULL without memory. */
json_t *checkpoint_manifest_descriptor(const struct digest *digest, uint64_t size,
                                       const char *media_type);
/* The text of a document; NULL is no memory. Caller frees. */
int checkpoint_manifest_dump(const json_t *json, char **ret, size_t *ret_len, struct err *err);
