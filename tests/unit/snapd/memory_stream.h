/* memory_stream.h - a convert_stream of bytes that are in memory, without threads or packing.
 *
 * A test that uses it gets its functions in place of convert_stream.c, so that it decides how the
 * bytes are cut into pieces.
 */
#pragma once

#include "convert_stream.h"

/* Gives `len` borrowed bytes in pieces of at most `piece` bytes (0: all at once), each in memory of
 * its own. `expected` may be NULL. */
struct convert_stream *memory_stream_open(const void *bytes, size_t len, size_t piece,
                                          const struct digest *expected);
