/* erofs_meta.h - where inodes lie in an image.
 *
 * Inodes come between the data of files, in runs of up to EROFS_META_RUN blocks, so that those of
 * neighbours are read together. A run is reserved in the output (erofs_out.h) where it is needed
 * first, and filled while data follow behind it. What is put down - an inode with its attributes
 * and its tail or block map - lies in one block if it fits one; else it goes on in the blocks
 * that follow. Places ascend, and bytes are written in that order, through a window of one run.
 *
 * An internal header of this library.
 */
#pragma once

#include "erofs_format.h"
#include "erofs_out.h"

enum {
    EROFS_META_RUN = 16, /* blocks */
};

struct erofs_meta {
    struct erofs_out *out; /* borrowed */
    uint64_t pos;          /* behind the last inode */
    uint64_t end;          /* of the run */
    uint32_t run_blocks;   /* of the next run */
    uint8_t *window;       /* owned; EROFS_META_RUN blocks */
    uint64_t window_start;
    size_t window_len;
};

int erofs_meta_init(struct erofs_meta *meta, struct erofs_out *out, struct err *err);
void erofs_meta_free(struct erofs_meta *meta);

/* A place for `len` bytes that begin with an inode. The output is at a block's beginning. */
int erofs_meta_place(struct erofs_meta *meta, uint64_t len, uint64_t *ret_pos, struct err *err);

/* The same without reserving, for many places in a row; then reserves them all, without a rest. */
uint64_t erofs_meta_plan(struct erofs_meta *meta, uint64_t len);
int erofs_meta_plan_end(struct erofs_meta *meta, struct err *err);

/* Bytes at a place. Positions may not go back. */
int erofs_meta_write(struct erofs_meta *meta, uint64_t pos, const void *bytes, size_t len,
                     struct err *err);
int erofs_meta_flush(struct erofs_meta *meta, struct err *err);
