/* buf.h - a growing byte buffer with a hard maximum.
 *
 * Everything that is read from outside into memory goes through a buffer whose maximum the caller
 * states. `data` is always followed by a NUL byte that `len` does not count, so text can be used
 * as a C string. Not safe for use by several threads at once.
 */
#pragma once

#include "cleanup.h"
#include "err.h"

#include <stddef.h>

struct buf {
    char *data; /* owned; NULL while nothing was added */
    size_t len;
    size_t cap;
    size_t max; /* bytes; adding more fails with ERR_TOO_LARGE */
};

#define BUF_INIT(max_)                                                                             \
    {                                                                                              \
        .max = (max_)                                                                              \
    }

/* Appends bytes. `what` names the content in the message of a passed maximum. */
int buf_add(struct buf *buf, const void *bytes, size_t len, const char *what, struct err *err);

/* Appends formatted text. */
int buf_addf(struct buf *buf, struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The content as a string; "" while nothing was added. Borrowed until the next change. */
const char *buf_str(const struct buf *buf);

/* Gives the content to the caller, who frees it; an empty buffer gives "". NULL without memory. */
char *buf_steal(struct buf *buf);

void buf_free(struct buf *buf);
#define cleanup_buf cleanup_with(buf_free)
