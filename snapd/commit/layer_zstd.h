/* layer_zstd.h - how the layers that this program makes are compressed.
 *
 * One setting for all of them, so that equal tars are equal blobs, however a layer came here
 * (captured, or packed again from an archive). The blob depends on the version of libzstd and on
 * the constants below; not on the number of worker threads, nor on how the bytes were cut into
 * calls.
 */
#pragma once

#include "blobs.h"
#include "cleanup.h"
#include "err.h"

#include <stddef.h>

enum {
    /* Changing one changes the blob digests of equal trees. */
    LAYER_ZSTD_LEVEL = 3,
    LAYER_ZSTD_JOB_BYTES = 4 << 20, /* input per worker job */
    LAYER_ZSTD_OVERLAP_LOG = 6,     /* a job sees 1/8 of a window of the one before */
    LAYER_ZSTD_WORKERS_MAX = 4,     /* without influence on the result */
};

struct layer_zstd {
    void *context;      /* ZSTD_CCtx *; owned */
    unsigned char *out; /* owned; compressed bytes on their way to the blob */
    size_t out_size;
};

int layer_zstd_begin(struct layer_zstd *zstd, struct err *err);
/* Compresses bytes into the blob. */
int layer_zstd_write(struct layer_zstd *zstd, struct blob_writer *blob, const void *bytes,
                     size_t len, struct err *err);
/* Ends the frame. */
int layer_zstd_finish(struct layer_zstd *zstd, struct blob_writer *blob, struct err *err);
void layer_zstd_free(struct layer_zstd *zstd); /* in any state, also all zeros */
#define cleanup_layer_zstd cleanup_with(layer_zstd_free)
