/* text.h - sizes, ages, times and foreign text for the eyes of people (pure functions).
 *
 * Text that comes from the daemon (names, comments, paths) was chosen by somebody else: control
 * characters in it are written as \xNN, so that it can neither move the cursor nor start a line of
 * its own.
 */
#pragma once

#include "buf.h"
#include "err.h"

#include <stdint.h>

struct text_short {
    char s[32];
};

/* "0 B", "999 B", "1.0 KiB", "12.3 MiB", up to EiB; negative numbers give "-". */
struct text_short text_size(int64_t bytes);

/* "now", "5 s", "3 min", "2 h", "4 d", of a duration in nanoseconds; below 1 s: "now". */
struct text_short text_age(int64_t ns);

/* RFC 3339 with "Z" or an offset, fractions allowed, to nanoseconds since the epoch. ERR_DAMAGED
 * for anything else. */
int text_parse_time(const char *text, int64_t *ret_ns, struct err *err);

/* Appends `text`. Bytes that are not UTF-8, C0, DEL and C1 become \xNN; marks that break lines or
 * turn the direction of text become \u{N}. */
int text_escape(const char *text, struct buf *ret, struct err *err);

/* Columns that a text takes: code points, as no text is measured by a font here. */
size_t text_width(const char *text);
