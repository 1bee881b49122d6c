#include "buf.h"

#include <stdarg.h>
#include <string.h>

static int buf_reserve(struct buf *buf, size_t more, const char *what, struct err *err)
{
    if (more > buf->max || buf->len > buf->max - more)
        return err_fail(err, ERR_TOO_LARGE, "%s is larger than the limit of %zu bytes", what,
                        buf->max);
    size_t need = buf->len + more + 1;
    if (need <= buf->cap)
        return 0;
    size_t cap = buf->cap ? buf->cap * 2 : 256;
    while (cap < need)
        cap *= 2;
    char *data = realloc(buf->data, cap);
    if (!data)
        return err_errno(err, ENOMEM, "cannot hold %s in memory", what);
    buf->data = data;
    buf->cap = cap;
    return 0;
}

int buf_add(struct buf *buf, const void *bytes, size_t len, const char *what, struct err *err)
{
    int rc = buf_reserve(buf, len, what, err);
    if (rc < 0)
        return rc;
    if (len > 0)
        memcpy(buf->data + buf->len, bytes, len);
    buf->len += len;
    buf->data[buf->len] = '\0';
    return 0;
}

int buf_addf(struct buf *buf, struct err *err, const char *fmt, ...)
{
    cleanup_free char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0) {
        text = NULL;
        return err_errno(err, ENOMEM, "cannot format text");
    }
    return buf_add(buf, text, (size_t)n, "text", err);
}

const char *buf_str(const struct buf *buf)
{
    return buf->data ? buf->data : "";
}

char *buf_steal(struct buf *buf)
{
    char *data = buf->data ? buf->data : strdup("");
    *buf = (struct buf)BUF_INIT(buf->max);
    return data;
}

void buf_free(struct buf *buf)
{
    free(buf->data);
    *buf = (struct buf)BUF_INIT(buf->max);
}
