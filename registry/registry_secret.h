/* registry_secret.h - memory that held a secret is overwritten before it is given back.
 *
 * A courtesy to whoever looks at a core file: what libraries copied (curl, jansson) is theirs.
 */
#pragma once

#include "buf.h"

#include <string.h>

/* Overwrites and frees. NULL is fine. Does not change errno. */
static inline void registry_secret_free(char *secret)
{
    if (secret)
        explicit_bzero(secret, strlen(secret));
    cleanup_freep(&secret);
}

static inline void registry_secret_freep(char **secret)
{
    registry_secret_free(*secret);
}
#define cleanup_secret cleanup_with(registry_secret_freep)

static inline void registry_secret_buf_free(struct buf *buf)
{
    if (buf->data)
        explicit_bzero(buf->data, buf->cap);
    buf_free(buf);
}
#define cleanup_secret_buf cleanup_with(registry_secret_buf_free)
