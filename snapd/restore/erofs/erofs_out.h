/* erofs_out.h - the bytes of an image on their way to its file.
 *
 * One sequential output with a buffer of EROFS_OUT_BUFFER bytes, so that the file sees few, large
 * writes. Runs of zero blocks in the buffer are not written; the file is sparse there. Earlier
 * bytes can be patched. The kernel is told to start writing to the disk while more comes, so that
 * the caller's fsync has little left to wait for.
 *
 * Nothing beyond the limit is written: ERR_TOO_LARGE. A failure stays: everything after it fails.
 * System calls: pwrite64, pread64, sync_file_range, ftruncate.
 *
 * An internal header of this library.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct erofs_out {
    int fd; /* borrowed */
    uint64_t limit;
    uint8_t *buffer; /* owned */
    uint64_t start;  /* offset of the buffer's first byte; at a block's beginning */
    size_t len;
    uint64_t flushed_to; /* how far the kernel was told to write */
    uint64_t written;    /* bytes that went to the file, those written twice counted twice */
    bool failed;
};

int erofs_out_init(struct erofs_out *out, int fd, uint64_t limit, struct err *err);
void erofs_out_free(struct erofs_out *out);

/* Where the next byte goes. */
static inline uint64_t erofs_out_pos(const struct erofs_out *out)
{
    return out->start + out->len;
}

int erofs_out_add(struct erofs_out *out, const void *bytes, size_t len, struct err *err);
int erofs_out_zeros(struct erofs_out *out, uint64_t len, struct err *err);
/* Zeros to the end of the block. */
int erofs_out_align(struct erofs_out *out, struct err *err);

/* Replaces or reads bytes before the position. */
int erofs_out_patch(struct erofs_out *out, uint64_t pos, const void *bytes, size_t len,
                    struct err *err);
int erofs_out_read(struct erofs_out *out, uint64_t pos, void *bytes, size_t len, struct err *err);

/* Writes what is in the buffer, and gives the file its size. The position is at a block's end. */
int erofs_out_flush(struct erofs_out *out, struct err *err);
