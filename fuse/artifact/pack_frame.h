/* pack_frame.h - the bytes of a chunk as they stand in a pack (docs/FORMAT.md, "Frames").
 *
 * Job: one chunk of VOLUME_CHUNK bytes to a zstd frame, or to itself where that is not smaller, and
 * back. The only user of libzstd in fuse/. A frame that is as long as a chunk is the chunk itself.
 *
 * Limits: what is decoded comes from a registry. A frame that says it has another size, needs a
 * dictionary, has bytes behind its end or gives other bytes than the digest's is ERR_DAMAGED; no
 * more than one chunk is ever written.
 *
 * Threads: a codec belongs to one at a time.
 */
#pragma once

#include "digest.h"
#include "volume_format.h"

struct pack_frame; /* the state of libzstd for both directions */

enum {
    PACK_FRAME_LEVEL = 1, /* of zstd: a checkpoint waits for the disk and the net, not for this */
};

int pack_frame_new(struct pack_frame **ret, struct err *err);
void pack_frame_free(struct pack_frame *codec); /* NULL is fine */
/* `ret` has room for VOLUME_CHUNK bytes; returns how many were written, 1 to VOLUME_CHUNK. */
size_t pack_frame_encode(struct pack_frame *codec, const void *chunk, void *ret);
/* `ret` gets VOLUME_CHUNK bytes, which have this digest, or is undefined after a failure. */
int pack_frame_decode(struct pack_frame *codec, const void *bytes, size_t len,
                      const struct digest *digest, void *ret, struct err *err);
