/* layers.h - the cache of layer images: DATA/layers/<key>, one EROFS image file for each layer.
 *
 *   key            the image is good for
 *   diff-<hex>     every layer with this diff ID: most layers
 *   chain-<hex>    one chain ID: a layer whose meaning depends on the layers below (convert.h)
 *
 * A layer is complete or absent: its image is written into DATA/tmp, checked, synced, and published
 * only when the digest of the blob and the diff ID matched (I1, I6); then it is trusted by its
 * name. How a blob is packed is told by its bytes, whatever its media type says.
 *
 * layers_ensure() makes all layers of an image present. Several layers are worked on at the same
 * time, lowest first; a layer that needs those below waits for them at its end. A blob that is not
 * in the store is fetched and converted as one stream. A layer that several callers need is worked
 * on once: the others wait for it, and when the first fails, the next one tries itself.
 *
 * Each layer image has a row in the catalog (catalog_layer.h). layers_recover() makes files and
 * rows agree after a crash.
 *
 * What it does not do: mounting (layers_mount.h), deciding what may go (catalog_lease.h).
 */
#pragma once

#include "catalog_image.h"
#include "convert.h"
#include "node.h"
#include "remote.h"

enum {
    LAYERS_PARALLEL = 4, /* layers that one caller works on at the same time */
    LAYERS_KEY_LEN = 72, /* "chain-" and 64 digits, NUL included */
};

/* How to get blobs that the store may not have. */
struct layers_fetch {
    /* Brings the blob of layer `index` into the store, digest checked; one that is there is fine,
     * and then the watch hears nothing. Called for each layer that has no image, on several threads
     * at once. `stop` is to be asked also while nothing moves: another layer may have failed. */
    int (*blob)(void *arg, size_t index, const struct remote_watch *watch, convert_stop *stop,
                void *stop_arg, struct err *err);
    void *arg;
};

/* `fetch` NULL: the blobs are in the store. `stop` as for convert_wait(); called on several
 * threads. The first failure ends the work on the other layers and is returned, with the layer's
 * number. A blob of the store that turns out to be damaged is fetched again, or with `fetch` NULL
 * ERR_DIGEST. The caller holds leases on blobs and layers ("layer:<chain ID>", "diff:<diff ID>") or
 * a run's reference to the image. */
int layers_ensure(struct node *node, const struct catalog_image *image,
                  const struct layers_fetch *fetch, convert_stop *stop, void *stop_arg,
                  struct err *err);
/* The key of a layer's image: 1, or 0 when it is not there, or -errno. */
int layers_find(struct node *node, const struct catalog_layer *layer, char ret[LAYERS_KEY_LEN],
                struct err *err);
/* Notes in the catalog that the images of these layers are used now, exact to a minute. A failure
 * is logged: it harms nothing but the order in which layers are collected. */
void layers_note_use(struct node *node, const struct catalog_image *image);
/* Opens an image file for reading. Returns a descriptor or -errno. */
int layers_open(struct node *node, const char *key, struct err *err);
/* Removes an image file, durably; a missing one is no failure. One unlink, so it is quick. */
int layers_remove(struct node *node, const char *key, struct err *err);
/* The same for an object that is queued for deletion, with the row: "layer:<chain ID>" or
 * "diff:<diff ID>", in the transaction of catalog_deletion_next(). */
int layers_remove_queued(struct node *node, const char *object, struct err *err);

/* At the start, before anybody works with layers: removes images without a row, rows without an
 * image or with another size, and what else lies in DATA/layers (directories of earlier versions).
 * All of it is a cache, but for the directories that a run stands on which was mounted by an
 * earlier version: they go at a start that finds no such run. Failures are logged and do not stop
 * the others (I9). */
void layers_recover(struct node *node);
