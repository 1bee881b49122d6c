/* unpack_file.h - the data of regular files, with holes. */
#pragma once

#include "unpack_entry.h"

/* Writes what `source` gives into the new file `fd` and makes it `size` bytes long. Whole pages of
 * zeros become holes. That the source gives less than was announced is its own to notice. */
int unpack_file_write(struct unpack_tree *tree, int fd, uint64_t size, unpack_source source,
                      void *arg, struct err *err);

/* A source that reads a file of a lower layer, passing over its holes. */
struct unpack_copy {
    int fd; /* borrowed */
    uint64_t offset;
    char *chunk; /* owned */
};

#define UNPACK_COPY_INIT                                                                           \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

int unpack_copy_open(int fd, struct unpack_copy *ret, struct err *err);
void unpack_copy_close(struct unpack_copy *copy);
ssize_t unpack_copy_next(void *arg, const void **ret_bytes, uint64_t *ret_offset, struct err *err);
