/* tar_count.h - counts what is in a tar stream, as a second opinion on the writer.
 *
 * Job: reads the stream that a layer writer produced, knowing nothing of how it was made, and
 * counts entries and bytes of content. If the writer, or what fed it, lost or cut something, the
 * counts differ and the capture fails; a layer with a gap is never published.
 *
 * Reads ustar headers, pax records ("size", "path", "linkpath"), and numbers in octal or base-256,
 * for entries of the types that layers have. Every header's checksum is checked, links and other
 * entries without content must have none, paths must be relative without ".." components, and the
 * stream must end with two blocks of zeros and nothing behind them. Anything else is ERR_DAMAGED.
 *
 * Streaming: bytes may be cut anywhere; memory is one block and one set of pax records.
 */
#pragma once

#include "buf.h"
#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TAR_COUNT_BLOCK = 512,
    TAR_COUNT_PAX_MAX = 1 << 20, /* bytes of one set of records */
};

struct tar_count {
    uint64_t entries;
    uint64_t bytes;  /* of content */
    uint64_t offset; /* bytes seen, for messages */
    uint64_t skip;   /* bytes of content and padding that are still to come */
    unsigned char block[TAR_COUNT_BLOCK];
    size_t have; /* bytes of the block that is being collected */
    unsigned zero_blocks;
    uint64_t pax_left; /* bytes of records and padding that are still to come */
    uint64_t pax_len;  /* of the records without padding */
    struct buf pax;
    bool pax_pending; /* records were read and wait for their entry */
};

void tar_count_init(struct tar_count *count);
int tar_count_feed(struct tar_count *count, const void *bytes, size_t len, struct err *err);
/* Checks that the stream ended where it should. Then `entries` and `bytes` are right. */
int tar_count_finish(const struct tar_count *count, struct err *err);
void tar_count_free(struct tar_count *count);
