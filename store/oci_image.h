/* oci_image.h - OCI image documents: reading manifests and configs, making new ones.
 *
 * Reads OCI image manifests and Docker schema 2 manifests, indexes and manifest lists (OCI
 * image-spec manifest.md, config.md, image-index.md). Everything comes from outside: types,
 * counts, sizes and digests are checked; a document with both "layers" and "manifests" is refused,
 * as is a media type that contradicts the caller's (the two readings of one document would be two
 * images under one digest). Writing is deterministic (json_doc_dump) and knows no clock.
 *
 * Each family has its file: oci_media.c, oci_descriptor.c, oci_document.c (what manifests and
 * indexes have in common), oci_manifest.c, oci_index.c, oci_config.c, oci_chain.c, oci_host.c.
 *
 * Codes of failures: ERR_DAMAGED for a document that breaks its format, ERR_TOO_LARGE for one that
 * passes a limit, ERR_UNSUPPORTED for one that is sound but nothing that this program can use (an
 * artifact, Docker schema 1, foreign or encrypted layers, another operating system).
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
#define OCI_BLOB_BYTES_MAX (INT64_C(1) << 40) /* a larger size in a descriptor is refused */

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
    char **entrypoint; /* words of the command that it runs; arguments are `cmd` */
    size_t entrypoint_count;
    char **cmd;
    size_t cmd_count;
    struct digest *diff_ids;
    size_t diff_id_count;
};
void oci_config_free(struct oci_config *config);
#define cleanup_oci_config cleanup_with(oci_config_free)

/* Whether bytes of this media type are an index (then oci_index_select() goes on). */
bool oci_media_is_index(const char *media_type);
/* Whether bytes of this media type are an image manifest. */
bool oci_media_is_manifest(const char *media_type);
/* The static name of one of the four media types of manifests and indexes; NULL for others. */
const char *oci_media_known(const char *media_type);
/* Whether a layer of this media type can be read here. Foreign layers cannot. */
bool oci_media_is_layer(const char *media_type);
/* The OCI name of a Docker media type; others are returned as they are. */
const char *oci_media_to_oci(const char *media_type);

/* Reads a descriptor; `what` names it in messages, a size above `size_max` is ERR_TOO_LARGE. */
int oci_descriptor_parse(const json_t *object, const char *what, int64_t size_max,
                         struct oci_descriptor *ret, struct err *err);
/* The JSON form; caller owns it. NULL without memory. */
json_t *oci_descriptor_json(const struct oci_descriptor *descriptor);
void oci_descriptor_free(struct oci_descriptor *descriptor);
void oci_descriptor_free_all(struct oci_descriptor *descriptors, size_t count);

/* Reads what manifests and indexes of any kind (images and artifacts) have in common and decides
 * which of the two it is. `media_type` is what the descriptor or the HTTP header said; NULL when
 * nobody said. *ret_type becomes one of the four media types above, static. Caller owns *ret. */
int oci_document_load(const char *bytes, size_t len, const char *media_type, json_t **ret,
                      const char **ret_type, struct err *err);
/* Everything that a loaded document names and that must be there for it to be whole: config and
 * layers, or the manifests of an index. The subject of a referrer is not among it. Caller frees
 * with oci_descriptor_free_all(). */
int oci_document_references(const json_t *document, struct oci_descriptor **ret, size_t *ret_count,
                            struct err *err);

/* Reads an image manifest with at least one layer. `media_type` as above. */
int oci_manifest_parse(const char *bytes, size_t len, const char *media_type,
                       struct oci_manifest *ret, struct err *err);
/* Picks the entry that runs best here: linux, this machine's architecture, the highest variant not
 * above the baseline (amd64 v1, arm64 v8), the first of equals. An entry without a platform is
 * taken when it is the only image in the index. Attestations and entries that are no images do not
 * count. ERR_NOT_FOUND lists the platforms that there are. The result may be an index again. */
int oci_index_select(const char *bytes, size_t len, struct oci_descriptor *ret, struct err *err);
/* The n-th entry (from 0) that is an index without a platform: what is in it has to be looked at. 1
 * with it, 0 when there are not so many, or -errno. */
int oci_index_nested(const char *bytes, size_t len, size_t n, struct oci_descriptor *ret,
                     struct err *err);

/* Fails unless the config has one diff ID per layer of the manifest and is for linux. Lines of Env
 * without "=" or a name set nothing and are left out. */
int oci_config_parse(const char *bytes, size_t len, size_t layer_count, struct oci_config *ret,
                     struct err *err);

/* chain[0] = diff_ids[0]; chain[i] = sha256(chain[i-1] " " diff_ids[i]) (config.md, "Layer
 * ChainID"). `ret` has room for `count`. */
int oci_chain_ids(const struct digest *diff_ids, size_t count, struct digest *ret, struct err *err);

/* What a new image says about itself. */
struct oci_new_layer {
    struct digest digest;
    int64_t size;
    const char *media_type;
    struct digest diff_id;
    const char *created_by; /* history line; a fixed text, no clock, no host name */
};

/* A config for a new image of one layer. `architecture` in Go's names ("amd64"). Caller frees. */
int oci_config_new(const char *architecture, const struct oci_new_layer *layer, char **ret,
                   struct err *err);
/* The config of an image with one layer more. Everything else in it is kept as it was, members
 * that are not known here and "created" too; only a missing history is filled with empty lines for
 * the layers below, as stock tools want one line per layer. `comment` (NULL: none) stands in the
 * history line. Caller frees. */
int oci_config_append(const char *base_config, size_t len, const struct oci_new_layer *layer,
                      const char *comment, char **ret, struct err *err);
/* A manifest. `layers` lowest first; `annotations` an object of strings or NULL. Docker media
 * types become their OCI equivalents. Caller frees. */
int oci_manifest_new(const struct oci_descriptor *config, const struct oci_descriptor *layers,
                     size_t layer_count, const json_t *annotations, char **ret, struct err *err);

/* The architecture of this machine in Go's names. */
const char *oci_host_architecture(void);
/* How well a platform runs here: 0 not at all, else the larger the better. `variant` may be NULL.
 * Spellings of other tools ("x86_64", "aarch64") are understood. */
int oci_host_fit(const char *os, const char *architecture, const char *variant);
