/* layers.h - the cache of unpacked layers: DATA/layers/<hex of chain ID>.
 *
 * A layer is complete or absent: it is unpacked into DATA/tmp and published as a tree (I1), then
 * trusted by its name. Keyed by chain ID, as implied parents and hard links may depend on the
 * layers below. The directory itself is the layer's root directory, with the layer's attributes for
 * it.
 *
 * The blob was checked against its digest when it came into the store; unpacking checks the diff ID
 * of what came out of it (I6). How a blob is packed is told by its bytes, whatever its media type
 * says.
 *
 * First version: directories. Mounted layer images replace them behind this interface.
 */
#pragma once

#include "catalog_image.h"
#include "node.h"

/* Makes every layer of an image present, lowest first. The caller holds leases on the blobs and
 * on the layers ("layer:<chain id>") or a run's reference to the image. Two callers at once do
 * the work once, with one result; when the first fails, the second tries it itself. */
int layers_ensure(struct node *node, const struct catalog_image *image, struct err *err);
/* Opens the directory of an unpacked layer. Returns a descriptor or -errno. */
int layers_open(struct node *node, const char *chain_id, struct err *err);
/* Removes an unpacked layer; a missing one is no failure. */
int layers_remove(struct node *node, const char *chain_id, struct err *err);

/* The removal in two halves, for a caller with an open transaction: the first one durably takes the
 * layer's name away (1; 0 when there was none) and leaves a tree with the name `temp` in DATA/tmp;
 * the second one removes that, which may take long. A crash between them leaves it to the next
 * start. */
int layers_detach(struct node *node, const char *chain_id, char temp[32], struct err *err);
int layers_discard(struct node *node, const char *temp, struct err *err);
