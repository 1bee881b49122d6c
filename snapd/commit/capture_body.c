#include "capture_body.h"

#include "path_text.h"

#include <stdbool.h>
#include <sys/types.h>

int capture_body_init(struct capture_body *body, struct err *err)
{
    *body = (struct capture_body){.chunk = malloc(CAPTURE_CHUNK)};
    return body->chunk ? 0 : err_errno(err, ENOMEM, "cannot read files");
}

void capture_body_free(struct capture_body *body)
{
    free(body->chunk);
    body->chunk = NULL;
}

/* Bytes that the file occupies on disk are no holes; the unit of stx_blocks is 512 bytes. */
static uint64_t holes_of(const struct statx *stat)
{
    uint64_t used = stat->stx_blocks * 512;
    return used < stat->stx_size ? stat->stx_size - used : 0;
}

int capture_body_check(const struct capture_body *body, const struct walk_entry *entry,
                       struct err *err)
{
    uint64_t holes = holes_of(&entry->stat);
    if (holes == 0 ||
        (body->holes <= CAPTURE_HOLES_MAX && holes <= CAPTURE_HOLES_MAX - body->holes))
        return 0;
    int rc = err_fail(err, ERR_TOO_LARGE,
                      "%s has %llu bytes of holes; with it, the holes of the files in this layer "
                      "pass the limit of %llu bytes",
                      path_text(entry->path).s, (unsigned long long)holes,
                      (unsigned long long)CAPTURE_HOLES_MAX);
    err_hint(err, "remove the file or make it smaller (truncate)");
    return rc;
}

static int fail_short(const struct walk_entry *entry, struct err *err)
{
    int rc = err_fail(err, ERR_CONFLICT, "%s became shorter while it was read",
                      path_text(entry->path).s);
    err_hint(err, "end the processes that write there and try again");
    return rc;
}

static int tick(const struct capture_body *body, struct err *err)
{
    return body->tick ? body->tick(body->arg, err) : 0;
}

/* Copies from the position of the file up to `end`. */
static int copy_data(struct capture_body *body, const struct walk_entry *entry, uint64_t at,
                     uint64_t end, struct layer_writer *writer, struct err *err)
{
    while (at < end) {
        size_t want = end - at < CAPTURE_CHUNK ? (size_t)(end - at) : CAPTURE_CHUNK;
        ssize_t n = pread(entry->fd, body->chunk, want, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, errno, "cannot read %s", path_text(entry->path).s);
        if (n == 0)
            return fail_short(entry, err);
        int rc = layer_writer_data(writer, body->chunk, (size_t)n, err);
        if (rc == 0 && want == CAPTURE_CHUNK)
            rc = tick(body, err);
        if (rc < 0)
            return rc;
        at += (uint64_t)n;
    }
    return 0;
}

/* In pieces, so that the end of the work can be asked for in between. */
static int copy_hole(struct capture_body *body, uint64_t len, struct layer_writer *writer,
                     struct err *err)
{
    body->holes += len;
    while (len > 0) {
        uint64_t n = len < 64 * CAPTURE_CHUNK ? len : 64 * CAPTURE_CHUNK;
        int rc = layer_writer_zeros(writer, n, err);
        if (rc == 0)
            rc = tick(body, err);
        if (rc < 0)
            return rc;
        len -= n;
    }
    return 0;
}

/* The next offset of data or of a hole at or behind `at`, at most `end`. A filesystem that knows
 * no holes says that there are none. */
static int seek(const struct walk_entry *entry, uint64_t at, int whence, uint64_t end,
                uint64_t *ret, struct err *err)
{
    off_t found = lseek(entry->fd, (off_t)at, whence);
    if (found < 0 && errno == EINVAL) {
        *ret = whence == SEEK_DATA ? at : end;
        return 0;
    }
    if (found < 0 && errno != ENXIO)
        return err_errno(err, errno, "cannot read %s", path_text(entry->path).s);
    *ret = found < 0 || (uint64_t)found > end ? end : (uint64_t)found;
    return 0;
}

int capture_body_copy(struct capture_body *body, const struct walk_entry *entry,
                      struct layer_writer *writer, struct err *err)
{
    uint64_t size = entry->stat.stx_size;
    bool sparse = holes_of(&entry->stat) > 0;
    for (uint64_t at = 0; at < size;) {
        uint64_t data = at;
        uint64_t hole = size;
        int rc = sparse ? seek(entry, at, SEEK_DATA, size, &data, err) : 0;
        if (rc == 0 && sparse && data < size)
            rc = seek(entry, data, SEEK_HOLE, size, &hole, err);
        if (rc == 0)
            rc = copy_hole(body, data - at, writer, err);
        if (rc == 0)
            rc = copy_data(body, entry, data, hole, writer, err);
        if (rc < 0)
            return rc;
        at = hole;
    }
    return 0;
}
