/* catalog_image.h - images and their names.
 *
 * An image is one manifest and everything it names, all present as blobs. Names are
 * "[host/]repository:tag" (registry/reference.h has the grammar) and point to one image each; an
 * image may have several names or none (then it is found by its digest).
 */
#pragma once

#include "catalog.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct catalog_layer {
    char *digest;     /* of the blob, "sha256:..." */
    char *media_type; /* OCI or Docker */
    int64_t size;     /* bytes of the blob */
    char *diff_id;    /* digest of the uncompressed tar */
    char *chain_id;   /* digest of this and all layers below (OCI image-spec, config.md) */
};

struct catalog_image {
    char *digest;        /* of the manifest */
    char *media_type;    /* of the manifest */
    int64_t size;        /* bytes of the manifest */
    char *config_digest; /* of the config blob */
    int64_t config_size;
    char *platform;               /* "linux/amd64"; NULL when the config does not say */
    char *origin;                 /* "import", "pull" or "snapshot" */
    int64_t created_ns;           /* 0 in put: now */
    struct catalog_layer *layers; /* lowest first */
    size_t layer_count;
    char **names; /* filled by get and list, not needed by put */
    size_t name_count;
};

void catalog_image_free(struct catalog_image *image);
#define cleanup_catalog_image cleanup_with(catalog_image_free)

/* Adds an image, or does nothing if it is there. Digests are in text form. A layer blob that is
 * known under the same chain ID with another size or diff ID is ERR_DAMAGED; whether the bytes have
 * the diff ID that an image claims is seen when they are converted. */
int catalog_image_put(struct catalog *catalog, const struct catalog_image *image, struct err *err);
int catalog_image_get(struct catalog *catalog, const char *digest, struct catalog_image *ret,
                      struct err *err);
/* All images, newest first. Caller frees each and the array. */
int catalog_image_list(struct catalog *catalog, struct catalog_image **ret, size_t *ret_count,
                       struct err *err);

/* Points a name at an image (ERR_NOT_FOUND when it is not there). With `replace` false a name that
 * points elsewhere is ERR_EXISTS. */
int catalog_image_name_set(struct catalog *catalog, const char *name, const char *digest,
                           bool replace, struct err *err);
/* The digest a name points to; caller frees. */
int catalog_image_name_get(struct catalog *catalog, const char *name, char **ret_digest,
                           struct err *err);
/* Removes a name. ERR_NOT_FOUND when it is not there. */
int catalog_image_name_remove(struct catalog *catalog, const char *name, struct err *err);

/* Removes an image and its names, and queues every blob and layer image that no other image
 * needs for deletion (catalog_lease.h), in one transaction. ERR_CONFLICT, naming it, when a run
 * uses the image or a snapshot has it at durability local. */
int catalog_image_remove(struct catalog *catalog, const char *digest, struct err *err);
