#include "erofs_out.h"

#include "erofs_format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    EROFS_OUT_BUFFER = 1 << 20, /* whole blocks */
    /* Shorter runs of zero blocks are written: a hole would cost an extent of the file more. */
    EROFS_OUT_HOLE_BLOCKS = 4,
    /* Often enough to keep the disk busy, rarely enough to give it large requests. */
    EROFS_OUT_FLUSH = 8 << 20,
};

int erofs_out_init(struct erofs_out *out, int fd, uint64_t limit, struct err *err)
{
    *out = (struct erofs_out){.fd = fd, .limit = limit};
    out->buffer = malloc(EROFS_OUT_BUFFER);
    if (!out->buffer)
        return err_errno(err, ENOMEM, "cannot write an image");
    return 0;
}

void erofs_out_free(struct erofs_out *out)
{
    free(out->buffer);
    out->buffer = NULL;
}

static int fail(struct erofs_out *out, int num, struct err *err)
{
    out->failed = true;
    return err_errno(err, num, "cannot write the image");
}

/* Says so again where the caller went on after a failure. */
static int refuse(struct err *err)
{
    return err_fail(err, ERR_INTERNAL, "the image is incomplete since an earlier failure");
}

static int write_at(struct erofs_out *out, uint64_t pos, const uint8_t *bytes, size_t len,
                    struct err *err)
{
    while (len > 0) {
        ssize_t n = pwrite(out->fd, bytes, len, (off_t)pos);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail(out, n < 0 ? errno : EIO, err);
        bytes += n;
        pos += (uint64_t)n;
        len -= (size_t)n;
        out->written += (uint64_t)n;
    }
    return 0;
}

static bool block_is_zero(const uint8_t *block)
{
    uint64_t head;
    memcpy(&head, block, sizeof head);
    return head == 0 && memcmp(block, block + sizeof head, EROFS_BLOCK - sizeof head) == 0;
}

/* Blocks from `from` on that are all zeros, or all not. */
static size_t run_length(const uint8_t *bytes, size_t from, size_t blocks, bool zero)
{
    size_t n = 0;
    while (from + n < blocks && block_is_zero(bytes + (from + n) * EROFS_BLOCK) == zero)
        n++;
    return n;
}

/* Writes whole blocks from the buffer, without the long runs of zeros. */
static int write_blocks(struct erofs_out *out, size_t blocks, struct err *err)
{
    size_t from = 0; /* of what is not written yet */
    size_t to = 0;   /* the end of what has to be written */
    while (to < blocks) {
        size_t data = run_length(out->buffer, to, blocks, false);
        size_t zero = run_length(out->buffer, to + data, blocks, true);
        to += data;
        if (zero < EROFS_OUT_HOLE_BLOCKS && to + zero < blocks) {
            to += zero;
            continue;
        }
        int rc = write_at(out, out->start + from * EROFS_BLOCK, out->buffer + from * EROFS_BLOCK,
                          (to - from) * EROFS_BLOCK, err);
        if (rc < 0)
            return rc;
        to += zero;
        from = to;
    }
    return write_at(out, out->start + from * EROFS_BLOCK, out->buffer + from * EROFS_BLOCK,
                    (to - from) * EROFS_BLOCK, err);
}

static int write_buffer(struct erofs_out *out, struct err *err)
{
    int rc = write_blocks(out, out->len / EROFS_BLOCK, err);
    if (rc < 0)
        return rc;
    out->start += out->len;
    out->len = 0;
    if (out->start - out->flushed_to >= EROFS_OUT_FLUSH) {
        /* A hint. Should the disk fail, fsync says so. */
        (void)sync_file_range(out->fd, (off_t)out->flushed_to,
                              (off_t)(out->start - out->flushed_to), SYNC_FILE_RANGE_WRITE);
        out->flushed_to = out->start;
    }
    return 0;
}

static int check_room(struct erofs_out *out, uint64_t len, struct err *err)
{
    if (out->failed)
        return refuse(err);
    uint64_t pos = erofs_out_pos(out);
    if (len <= out->limit - pos)
        return 0;
    out->failed = true;
    return err_fail(err, ERR_TOO_LARGE, "the image would be larger than %llu bytes",
                    (unsigned long long)out->limit);
}

int erofs_out_add(struct erofs_out *out, const void *bytes, size_t len, struct err *err)
{
    int rc = check_room(out, len, err);
    const uint8_t *from = bytes;
    while (rc == 0 && len > 0) {
        size_t n = EROFS_OUT_BUFFER - out->len;
        if (n > len)
            n = len;
        memcpy(out->buffer + out->len, from, n);
        out->len += n;
        from += n;
        len -= n;
        if (out->len == EROFS_OUT_BUFFER)
            rc = write_buffer(out, err);
    }
    return rc;
}

int erofs_out_zeros(struct erofs_out *out, uint64_t len, struct err *err)
{
    int rc = check_room(out, len, err);
    while (rc == 0 && len > 0) {
        if (out->len == 0 && len >= EROFS_OUT_BUFFER) {
            uint64_t skip = len - len % EROFS_OUT_BUFFER;
            out->start += skip;
            out->flushed_to += skip;
            len -= skip;
            continue;
        }
        size_t n = EROFS_OUT_BUFFER - out->len;
        if (n > len)
            n = (size_t)len;
        memset(out->buffer + out->len, 0, n);
        out->len += n;
        len -= n;
        if (out->len == EROFS_OUT_BUFFER)
            rc = write_buffer(out, err);
    }
    return rc;
}

int erofs_out_align(struct erofs_out *out, struct err *err)
{
    return erofs_out_zeros(out, (0 - erofs_out_pos(out)) % EROFS_BLOCK, err);
}

int erofs_out_patch(struct erofs_out *out, uint64_t pos, const void *bytes, size_t len,
                    struct err *err)
{
    if (out->failed)
        return refuse(err);
    if (len > erofs_out_pos(out) || pos > erofs_out_pos(out) - len)
        return err_fail(err, ERR_INTERNAL, "the image ends before byte %llu",
                        (unsigned long long)(pos + len));
    const uint8_t *from = bytes;
    if (pos < out->start) {
        size_t n = out->start - pos < len ? (size_t)(out->start - pos) : len;
        int rc = write_at(out, pos, from, n, err);
        if (rc < 0)
            return rc;
        from += n;
        pos += n;
        len -= n;
    }
    if (len > 0)
        memcpy(out->buffer + (pos - out->start), from, len);
    return 0;
}

int erofs_out_read(struct erofs_out *out, uint64_t pos, void *bytes, size_t len, struct err *err)
{
    if (out->failed)
        return refuse(err);
    if (pos + len > out->start)
        return err_fail(err, ERR_INTERNAL, "byte %llu of the image is not written yet",
                        (unsigned long long)(pos + len));
    for (size_t done = 0; done < len;) {
        ssize_t n = pread(out->fd, (uint8_t *)bytes + done, len - done, (off_t)(pos + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_errno(err, n < 0 ? errno : EIO, "cannot read the image back");
        done += (size_t)n;
    }
    return 0;
}

int erofs_out_flush(struct erofs_out *out, struct err *err)
{
    if (out->failed)
        return refuse(err);
    if (out->len % EROFS_BLOCK != 0)
        return err_fail(err, ERR_INTERNAL, "the image does not end with a block");
    int rc = write_buffer(out, err);
    if (rc < 0)
        return rc;
    if (ftruncate(out->fd, (off_t)out->start) < 0)
        return fail(out, errno, err);
    return 0;
}
