/* chunk_seen.h - the chunks that a checkpoint has stored already, and where.
 *
 * Job: a table from digests to spots in packs that only grows, up to `max` entries; what comes
 * after that is not remembered. A duplicate that is missed costs its bytes, nothing else.
 *
 * Memory: 88 to 176 bytes an entry; 23 MiB with 2^18, half as much again while it grows.
 *
 * Threads: any.
 */
#pragma once

#include "digest.h"
#include "pack_writer.h"

struct chunk_seen;

int chunk_seen_new(size_t max, struct chunk_seen **ret, struct err *err);
void chunk_seen_free(struct chunk_seen *seen); /* NULL is fine */
/* `ret` may be NULL. */
bool chunk_seen_find(struct chunk_seen *seen, const struct digest *digest, struct pack_spot *ret);
/* A digest that is not there yet. */
int chunk_seen_add(struct chunk_seen *seen, const struct digest *digest,
                   const struct pack_spot *spot, struct err *err);
