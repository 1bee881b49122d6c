/* layer_writer.h - from entries and content to a tar+zstd blob in the store.
 *
 * One pass: headers (tar_header.h) and content go through the digest of the tar (the diff ID), an
 * independent count (tar_count.h), zstd on worker threads, and a blob writer. Nothing is kept in
 * memory but fixed buffers.
 *
 * States: begin, then for each entry layer_writer_add() followed by exactly the announced bytes of
 * content (layer_writer_data() and layer_writer_zeros() in any mixture), then finish once; free in
 * any state. After a failure only free is allowed. A wrong number of content bytes is ERR_INTERNAL:
 * it is a fault of the caller.
 *
 * Determinism: the tar depends on entries and content alone; the blob as layer_zstd.h says.
 *
 * Limits are those of converting (restore/convert.h), so that what was written can be restored:
 * CONVERT_BYTES_MAX of tar, CONVERT_ENTRIES_MAX entries, and the growth; more is ERR_TOO_LARGE.
 *
 * One writer belongs to one thread.
 */
#pragma once

#include "blobs.h"
#include "cleanup.h"
#include "digest.h"
#include "err.h"
#include "layer_zstd.h"
#include "tar_header.h"

#include <stdint.h>

struct layer_writer;

struct layer_written {
    struct digest digest;  /* of the blob */
    struct digest diff_id; /* of the tar */
    uint64_t size;         /* bytes of the blob */
    uint64_t tar_size;     /* bytes of the tar */
    uint64_t entries;
    uint64_t bytes; /* of content */
};

int layer_writer_begin(struct blobs *blobs, struct layer_writer **ret, struct err *err);
/* Who is told the blob's digest before it has its name (blobs.h). */
void layer_writer_set_claim(struct layer_writer *writer, blob_claim claim, void *arg);
int layer_writer_add(struct layer_writer *writer, const struct tar_entry *entry, struct err *err);
int layer_writer_data(struct layer_writer *writer, const void *bytes, size_t len, struct err *err);
/* `len` bytes of zeros: the holes of sparse files cost time to hash and nothing else. */
int layer_writer_zeros(struct layer_writer *writer, uint64_t len, struct err *err);
/* Ends the stream and publishes the blob, if three counts of entries and bytes of content agree:
 * the caller's own, taken from the source; that of the calls; that of tar_count.h. A difference is
 * ERR_DAMAGED. */
int layer_writer_finish(struct layer_writer *writer, uint64_t entries, uint64_t bytes,
                        struct layer_written *ret, struct err *err);
void layer_writer_free(struct layer_writer *writer); /* NULL is fine */
static inline void layer_writer_freep(struct layer_writer **writer)
{
    layer_writer_free(*writer);
}
#define cleanup_layer_writer cleanup_with(layer_writer_freep)
