/* oci_image.h - OCI image documents: reading manifests and configs, making new ones.
 *
 * Reads OCI image manifests and Docker schema 2 manifests, indexes and manifest lists (OCI
 * image-spec manifest.md, config.md, image-index.md). Everything comes from outside: types,
 * counts, sizes and digests are checked; a document with both "layers" and "manifests" is refused,
 * as is a media type that contradicts the caller's. Writing is deterministic (json_doc_dump).
 */
#pragma once

#include "cleanup.h"
#include "digest.h"
#include "err.h"
#include "json_doc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OCI_MEDIA_MANIFEST    "application/vnd.oci.image.manifest.v1+json"
#define OCI_MEDIA_INDEX       "application/vnd.oci.image.index.v1+json"
#define OCI_MEDIA_CONFIG      "application/vnd.oci.image.config.v1+json"
#define OCI_MEDIA_LAYER       "application/vnd.oci.image.layer.v1.tar"
#define OCI_MEDIA_LAYER_GZIP  "application/vnd.oci.image.layer.v1.tar+gzip"
#define OCI_MEDIA_LAYER_ZSTD  "application/vnd.oci.image.layer.v1.tar+zstd"
#define DOCKER_MEDIA_MANIFEST "application/vnd.docker.distribution.manifest.v2+json"
#define DOCKER_MEDIA_LIST     "application/vnd.docker.distribution.manifest.list.v2+json"
#define DOCKER_MEDIA_CONFIG   "application/vnd.docker.container.image.v1+json"
#define DOCKER_MEDIA_LAYER    "application/vnd.docker.image.rootfs.diff.tar.gzip"

enum {
    OCI_LAYERS_MAX = 127, /* more than any engine mounts */
};

/* How the bytes of a layer blob are packed; decided by the bytes, checked against the type. */
enum oci_packing {
    OCI_TAR,
    OCI_TAR_GZIP,
    OCI_TAR_ZSTD,
};

struct oci_descriptor {
    char *media_type;
    struct digest digest;
    int64_t size;
};

struct oci_manifest {
    char *media_type;
    struct oci_descriptor config;
    struct oci_descriptor *layers; /* lowest first */
    size_t layer_count;
};
void oci_manifest_free(struct oci_manifest *manifest);
#define cleanup_oci_manifest cleanup_with(oci_manifest_free)

struct oci_config {
    char *architecture; /* NULL when the document does not say */
    char *os;
    char **env; /* "K=V" */
    size_t env_count;
    char *working_dir; /* NULL when not set */
    char *user;        /* NULL when not set */
    struct digest *diff_ids;
    size_t diff_id_count;
};
void oci_config_free(struct oci_config *config);
#define cleanup_oci_config cleanup_with(oci_config_free)

/* Whether bytes of this media type are an index (then oci_index_select() goes on). */
bool oci_media_is_index(const char *media_type);
/* Whether a layer of this media type can be read here. Foreign layers cannot. */
bool oci_media_is_layer(const char *media_type);

/* `media_type` is what the descriptor or the HTTP header said; NULL when nobody said. */
int oci_manifest_parse(const char *bytes, size_t len, const char *media_type,
                       struct oci_manifest *ret, struct err *err);
/* Picks the manifest for linux and this machine's architecture; with a single entry, that one. */
int oci_index_select(const char *bytes, size_t len, struct oci_descriptor *ret, struct err *err);
void oci_descriptor_free(struct oci_descriptor *descriptor);

/* Fails unless the config has one diff ID per layer of the manifest. */
int oci_config_parse(const char *bytes, size_t len, size_t layer_count, struct oci_config *ret,
                     struct err *err);

/* chain[0] = diff_ids[0]; chain[i] = sha256(chain[i-1] " " diff_ids[i]) (config.md, "Layer
 * ChainID"). `ret` has room for `count`. */
int oci_chain_ids(const struct digest *diff_ids, size_t count, struct digest *ret,
                  struct err *err);

/* What a new image says about itself. */
struct oci_new_layer {
    struct digest digest;
    int64_t size;
    const char *media_type;
    struct digest diff_id;
    const char *created_by; /* history line; a fixed text, no clock, no host name */
};

/* A config for a new image of one layer. `architecture` in Go's names ("amd64"). */
int oci_config_new(const char *architecture, const struct oci_new_layer *layer, char **ret,
                   struct err *err);
/* The config of an image with one layer more; everything else in it is kept as it was. */
int oci_config_append(const char *base_config, size_t len, const struct oci_new_layer *layer,
                      const char *comment, char **ret, struct err *err);
/* A manifest. `layers` lowest first; `annotations` an object or NULL. Docker media types become
 * their OCI equivalents. */
int oci_manifest_new(const struct oci_descriptor *config, const struct oci_descriptor *layers,
                     size_t layer_count, const json_t *annotations, char **ret, struct err *err);

/* The architecture of this machine in Go's names. */
const char *oci_host_architecture(void);
