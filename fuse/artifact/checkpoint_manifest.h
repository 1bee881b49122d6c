/* checkpoint_manifest.h - the manifests of a checkpoint: index, root manifest, pack lists
 * (docs/FORMAT.md, "Checkpoints").
 *
 * Job: between structures and bytes, no I/O. Deterministic. What is read comes from a registry and
 * is checked: media types, artifact types, counts, sizes, digests, no two packs of a list that
 * begin with the same VOLUME_PACK_ID bytes, no manifest twice. ERR_DAMAGED, ERR_TOO_LARGE,
 * ERR_TOO_NEW for a later version of the artifact type, ERR_UNSUPPORTED for a sound document that
 * is no checkpoint. Members and annotations that are not known are passed over (image-spec,
 * "Extensibility").
 */
#pragma once

#include "checkpoint_config.h"
#include "oci_image.h"
#include "pack_usage.h"
#include "pack_writer.h"

enum {
    CHECKPOINT_LIST_PACKS = 1000,
    CHECKPOINT_LISTS_MAX = 256,
    CHECKPOINT_MANIFEST_BYTES_MAX = 1 << 20,
    CHECKPOINT_ROOT_BYTES_MAX = VOLUME_ROOT_BYTES_MAX + PACK_USAGE_BYTES_MAX,
};
_Static_assert(CHECKPOINT_LIST_PACKS *CHECKPOINT_LISTS_MAX == PACK_USAGE_PACKS_MAX, "all packs");
#define CHECKPOINT_ARTIFACT   "application/vnd.varve.checkpoint.v1"
#define CHECKPOINT_MEDIA_ROOT "application/vnd.varve.checkpoint.root.v1"
#define CHECKPOINT_PACKS      "application/vnd.varve.packs.v1"
#define CHECKPOINT_MEDIA_PACK "application/vnd.varve.pack.v1"
#define CHECKPOINT_EMPTY      "{}" /* the config of pack lists */

/* Something with a digest and a size: a manifest, config or root. */
struct checkpoint_blob {
    struct digest digest;
    uint64_t size;
};

/* The index. */
struct checkpoint_index {
    struct checkpoint_blob root_manifest;
    struct checkpoint_blob *lists; /* pack lists, oldest first; owned */
    size_t list_count;
    char volume[VOLUME_ID_LEN + 1]; /* the annotations, for people and for who lists tags */
    char node[CHECKPOINT_NODE_MAX + 1];
    uint64_t generation;
    uint64_t token;
    bool has_parent;
    struct digest parent;
};
void checkpoint_index_free(struct checkpoint_index *index);
#define cleanup_checkpoint_index cleanup_with(checkpoint_index_free)
int checkpoint_index_encode(const struct checkpoint_index *index, char **ret, size_t *ret_len,
                            struct err *err);
int checkpoint_index_decode(const char *bytes, size_t len, struct checkpoint_index *ret,
                            struct err *err);

/* The root manifest. */
struct checkpoint_root_manifest {
    struct checkpoint_blob config;
    struct checkpoint_blob root;
};
int checkpoint_root_encode(const struct checkpoint_root_manifest *manifest, char **ret,
                           size_t *ret_len, struct err *err);
int checkpoint_root_decode(const char *bytes, size_t len, struct checkpoint_root_manifest *ret,
                           struct err *err);

/* A pack list of 1 to CHECKPOINT_LIST_PACKS packs. Its config is OCI's empty one (image-spec,
 * manifest.md, "Guidance for an Empty Descriptor"), whose bytes are CHECKPOINT_EMPTY. */
int checkpoint_packs_encode(const struct pack *packs, size_t count, char **ret, size_t *ret_len,
                            struct err *err);
/* Caller frees *ret. */
int checkpoint_packs_decode(const char *bytes, size_t len, struct pack **ret, size_t *ret_count,
                            struct err *err);
/* The config of all pack lists. */
struct checkpoint_blob checkpoint_packs_config(void);
