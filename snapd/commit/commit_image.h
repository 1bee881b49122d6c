/* commit_image.h - an image in memory on its way into the catalog: its two documents, read once.
 *
 * The bytes are kept as they are, because their digests are the image's identity.
 */
#pragma once

#include "blobs.h"
#include "buf.h"
#include "catalog_image.h"
#include "cleanup.h"
#include "digest.h"
#include "oci_image.h"

#include <stdbool.h>

struct commit_image {
    struct digest digest; /* of the manifest */
    struct buf manifest_text;
    struct buf config_text;
    struct oci_manifest manifest;
    struct oci_config config;
};

void commit_image_init(struct commit_image *image);
void commit_image_free(struct commit_image *image);
#define cleanup_commit_image cleanup_with(commit_image_free)

/* Reads an image's documents from a store by its descriptor: digests, sizes, and that manifest and
 * config fit each other are checked. */
int commit_image_read(struct blobs *blobs, const struct oci_descriptor *descriptor,
                      struct commit_image *ret, struct err *err);
/* Reads the documents of an image that the catalog knows. */
int commit_image_of_catalog(struct blobs *blobs, const struct catalog_image *record,
                            struct commit_image *ret, struct err *err);
/* Takes new documents (texts are copied) and reads them back. */
int commit_image_set(struct commit_image *image, const char *manifest, const char *config,
                     struct err *err);

/* The row for the catalog, without names; `origin` is "import" or "snapshot". */
int commit_image_record(const struct commit_image *image, const char *origin,
                        struct catalog_image *ret, struct err *err);
/* What recording an image added to the catalog. */
struct commit_added {
    bool image; /* it was not there before */
    bool name;  /* the name stood for nothing before */
};
/* Records image and name in the current transaction. A name that stands for another image is
 * ERR_EXISTS. */
int commit_image_put(struct catalog *catalog, const struct commit_image *image, const char *origin,
                     const char *name, struct commit_added *ret, struct err *err);
/* Takes back what was added, for work that fails afterwards. Failures are logged: a run may use
 * the image already. */
void commit_image_take_back(struct catalog *catalog, const struct commit_image *image,
                            const char *name, const struct commit_added *added);

/* Fails with ERR_EXISTS when the name stands for another image than `digest`. */
int commit_image_check_name(struct catalog *catalog, const char *name, const struct digest *digest,
                            struct err *err);

/* Bytes of all layer blobs, and of manifest and config with them. */
int64_t commit_image_layer_bytes(const struct commit_image *image);
int64_t commit_image_bytes(const struct commit_image *image);
