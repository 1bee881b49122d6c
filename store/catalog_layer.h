/* catalog_layer.h - layer images: one row for each file in DATA/layers.
 *
 * A row is written after its file was published (I1) and goes in the transaction in which the file
 * is unlinked. So a crash leaves at most a file without a row, which the next start removes, as it
 * does with a row whose file somebody has deleted: layer images are a cache.
 *
 * A key is the file's name: "diff-" or "chain-" and 64 hex digits (docs/FORMAT.md).
 */
#pragma once

#include "catalog.h"

#include <stddef.h>
#include <stdint.h>

enum {
    CATALOG_LAYER_TOUCH_S = 60, /* used_ns is exact to this */
};

struct catalog_layer_image {
    char *key;
    int64_t bytes;       /* of the file */
    int64_t entries;     /* names in the image */
    int64_t dropped;     /* extended attributes that were left out */
    char *dropped_first; /* the first of them, a line each; "" for none */
    int64_t created_ns;  /* 0 in put: now */
    int64_t used_ns;     /* 0 in put: now */
};

void catalog_layer_image_free(struct catalog_layer_image *image);
#define cleanup_catalog_layer_image cleanup_with(catalog_layer_image_free)
/* Records an image; one that is there under the key is replaced. ERR_INVALID for another form of
 * key. */
int catalog_layer_put(struct catalog *catalog, const struct catalog_layer_image *image,
                      struct err *err);
/* Notes that images are used now. Writes only when one of them was not used for
 * CATALOG_LAYER_TOUCH_S, so that runs that are made one after the other cost no transaction each;
 * lazy (catalog_begin_lazy()).
 * Keys without a row are left out. */
int catalog_layer_touch(struct catalog *catalog, const char *const *keys, size_t count,
                        struct err *err);
int catalog_layer_get(struct catalog *catalog, const char *key, struct catalog_layer_image *ret,
                      struct err *err);
/* All of them, the least recently used first. Caller frees each and the array. */
int catalog_layer_list(struct catalog *catalog, struct catalog_layer_image **ret, size_t *ret_count,
                       struct err *err);
/* Removes the row; a missing one is no failure. */
int catalog_layer_remove(struct catalog *catalog, const char *key, struct err *err);
