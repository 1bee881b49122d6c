/* layers.h - the cache of unpacked layers: DATA/layers/<hex of chain ID>.
 *
 * A layer is complete or absent: it is unpacked into DATA/tmp and published as a tree (I1). Keyed
 * by chain ID, as implied parents and hard links may depend on the layers below.
 *
 * First version: directories. Mounted layer images replace them behind this interface.
 */
#pragma once

#include "catalog_image.h"
#include "node.h"

/* Makes every layer of an image present, lowest first. The caller holds leases on the blobs and
 * on the layers ("layer:<chain id>") or a run's reference to the image. Two callers at once do
 * the work once or twice, with one result. */
int layers_ensure(struct node *node, const struct catalog_image *image, struct err *err);
/* Opens the directory of an unpacked layer. Returns a descriptor or -errno. */
int layers_open(struct node *node, const char *chain_id, struct err *err);
/* Removes an unpacked layer; a missing one is no failure. */
int layers_remove(struct node *node, const char *chain_id, struct err *err);
