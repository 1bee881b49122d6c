/* base64.h - base64 with the usual alphabet (RFC 4648, section 4).
 *
 * What is decoded comes from outside: padding may be left out, but a character of no alphabet, a
 * length that cannot be, and bits behind the last byte are refused, so that a text has one meaning.
 */
#pragma once

#include "buf.h"

#include <stdbool.h>

/* Appends the text of `len` bytes, with padding or without. */
int base64_encode(const void *bytes, size_t len, bool padded, struct buf *ret, struct err *err);
/* Appends the bytes of a text. ERR_DAMAGED when it is none; the message has no piece of it, as it
 * may be a secret. */
int base64_decode(const char *text, size_t len, struct buf *ret, struct err *err);
