#include "unpack_file.h"

#include <string.h>

enum {
    PAGE = 4096, /* bytes: zeros are left out by whole aligned pages */
    COPY_CHUNK = 256 * 1024,
};

static bool is_zero(const char *bytes, size_t len)
{
    return len == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0);
}

static int write_at(int fd, const char *bytes, size_t len, uint64_t offset, struct err *err)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, bytes, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, errno, "cannot write its data");
        bytes += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* Length of the longest run from the beginning that is all data or, with `zero`, all zero pages. */
static size_t run_length(const char *bytes, size_t len, uint64_t offset, bool zero)
{
    size_t used = 0;
    while (used < len) {
        size_t page = PAGE - (size_t)((offset + used) % PAGE);
        if (page > len - used)
            page = len - used;
        if (is_zero(bytes + used, page) != zero)
            break;
        used += page;
    }
    return used;
}

/* Writes a piece, leaving holes for its zero pages. *end becomes the end of what was written. */
static int write_piece(struct unpack_tree *tree, int fd, const char *bytes, size_t len,
                       uint64_t offset, uint64_t *end, struct err *err)
{
    while (len > 0) {
        size_t hole = run_length(bytes, len, offset, true);
        size_t data = run_length(bytes + hole, len - hole, offset + hole, false);
        int rc = unpack_tree_account(tree, data, err);
        if (rc == 0)
            rc = write_at(fd, bytes + hole, data, offset + hole, err);
        if (rc < 0)
            return rc;
        bytes += hole + data;
        offset += hole + data;
        len -= hole + data;
        if (data > 0)
            *end = offset;
    }
    return 0;
}

int unpack_file_write(struct unpack_tree *tree, int fd, uint64_t size, unpack_source source,
                      void *arg, struct err *err)
{
    uint64_t end = 0;
    for (;;) {
        const void *bytes;
        uint64_t offset;
        ssize_t n = source(arg, &bytes, &offset, err);
        if (n < 0)
            return (int)n;
        if (n == 0)
            break;
        if (offset > size || (uint64_t)n > size - offset)
            return err_fail(err, ERR_DAMAGED, "its data goes beyond its size");
        int rc = write_piece(tree, fd, bytes, (size_t)n, offset, &end, err);
        if (rc < 0)
            return rc;
    }
    if (end < size && ftruncate(fd, (off_t)size) < 0)
        return err_errno(err, errno, "cannot make it %llu bytes long", (unsigned long long)size);
    return 0;
}

int unpack_copy_open(int fd, struct unpack_copy *ret, struct err *err)
{
    char *chunk = malloc(COPY_CHUNK);
    if (!chunk)
        return err_errno(err, ENOMEM, "cannot copy a file of a lower layer");
    *ret = (struct unpack_copy){.fd = fd, .chunk = chunk};
    return 0;
}

void unpack_copy_close(struct unpack_copy *copy)
{
    free(copy->chunk);
    *copy = (struct unpack_copy)UNPACK_COPY_INIT;
}

ssize_t unpack_copy_next(void *arg, const void **ret_bytes, uint64_t *ret_offset, struct err *err)
{
    struct unpack_copy *copy = arg;
    /* Holes may be far larger than the data; a file system without SEEK_DATA says EINVAL. */
    off_t at = lseek(copy->fd, (off_t)copy->offset, SEEK_DATA);
    if (at < 0 && errno == ENXIO)
        return 0;
    if (at < 0 && errno != EINVAL)
        return err_errno(err, errno, "cannot read it in a lower layer");
    if (at >= 0)
        copy->offset = (uint64_t)at;
    ssize_t n;
    do
        n = pread(copy->fd, copy->chunk, COPY_CHUNK, (off_t)copy->offset);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_errno(err, errno, "cannot read it in a lower layer");
    *ret_bytes = copy->chunk;
    *ret_offset = copy->offset;
    copy->offset += (uint64_t)n;
    return n;
}
