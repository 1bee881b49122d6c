#include "convert_raw.h"

#include "convert_space.h"

#include <string.h>

enum {
    BLOCK = 4096,
    SPACE_CHECK_BYTES = 1 << 20, /* look at the free space after so many bytes */
};

struct raw {
    int fd;
    uint64_t offset;  /* of the bytes that come next */
    uint64_t checked; /* offset at which free space was last looked at */
};

static bool is_zero(const char *bytes, size_t len)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0;
}

static int write_at(const struct raw *raw, const char *bytes, size_t len, uint64_t offset,
                    struct err *err)
{
    while (len > 0) {
        ssize_t n = pwrite(raw->fd, bytes, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, errno, "cannot write the unpacked archive");
        bytes += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* How many bytes from the beginning are, block by block of the file, all zeros or all not. */
static size_t run_length(const struct raw *raw, const char *bytes, size_t len, bool *ret_zero)
{
    size_t run = 0;
    while (run < len) {
        size_t block = BLOCK - (size_t)((raw->offset + run) % BLOCK);
        if (block > len - run)
            block = len - run;
        bool zero = is_zero(bytes + run, block);
        if (run > 0 && zero != *ret_zero)
            break;
        *ret_zero = zero;
        run += block;
    }
    return run;
}

static int take(struct raw *raw, const char *bytes, size_t len, struct err *err)
{
    while (len > 0) {
        bool zero = false;
        size_t run = run_length(raw, bytes, len, &zero);
        int rc = zero ? 0 : write_at(raw, bytes, run, raw->offset, err);
        if (rc < 0)
            return rc;
        raw->offset += run;
        bytes += run;
        len -= run;
    }
    if (raw->offset - raw->checked < SPACE_CHECK_BYTES)
        return 0;
    raw->checked = raw->offset;
    return convert_space_check(raw->fd, err);
}

int convert_raw_run(int target_fd, struct convert_stream *stream, struct err *err)
{
    struct raw raw = {.fd = target_fd};
    for (;;) {
        const void *bytes;
        ssize_t n = convert_stream_read(stream, &bytes, err);
        if (n < 0)
            return (int)n;
        if (n == 0)
            break;
        int rc = take(&raw, bytes, (size_t)n, err);
        if (rc < 0)
            return rc;
    }
    if (raw.offset == 0 && !convert_stream_has_expected(stream))
        return err_fail(err, ERR_DAMAGED, "the archive is empty");
    if (ftruncate(target_fd, (off_t)raw.offset) < 0)
        return err_errno(err, errno, "cannot write the unpacked archive");
    return raw.offset > 0 ? convert_space_check(target_fd, err) : 0;
}
