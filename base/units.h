/* units.h - sizes and durations as people write them in configuration files and on command lines.
 *
 *   size      digits and one of K M G T P (powers of 1024, also "KiB", "MiB" ...); bare: bytes
 *   duration  digits and one of ms s m h d w; bare: seconds
 *
 * No signs, no fractions, no spaces inside. A value that does not fit is refused.
 */
#pragma once

#include "err.h"

#include <stdint.h>

/* Bytes. ERR_INVALID names the text and says what is accepted. */
int units_parse_size(const char *text, uint64_t *ret, struct err *err);

/* Nanoseconds. */
int units_parse_duration(const char *text, int64_t *ret, struct err *err);
