/* layer_pack.h - from the plain tar of a layer in a file to a tar+zstd blob in the store.
 *
 * The tar is taken byte by byte as it is, so its diff ID stays; it is compressed as every layer
 * that this program makes (layer_zstd.h). What is in the tar is not looked at here: the converter
 * does that when the layer is used.
 */
#pragma once

#include "blobs.h"
#include "digest.h"
#include "err.h"

#include <stdint.h>

struct layer_pack {
    struct blobs *blobs;          /* borrowed */
    int fd;                       /* the tar, at its beginning; borrowed */
    uint64_t size;                /* of the tar; a file that ends earlier is ERR_DAMAGED */
    const struct digest *diff_id; /* that the tar must have, else ERR_DIGEST; borrowed */
    blob_claim claim;             /* as in blobs.h */
    int (*progress)(void *arg, uint64_t bytes, struct err *err); /* bytes of the tar so far */
    void *arg;                                                   /* of both */
};

struct layer_packed {
    struct digest digest; /* of the blob */
    uint64_t size;        /* of the blob */
};

int layer_pack(const struct layer_pack *pack, struct layer_packed *ret, struct err *err);
