/* export_tar.h - writes a tar archive of plain files and directories to a file descriptor.
 *
 * For archives that carry images, not for layers: every entry belongs to root, has mode 0644
 * (files) or 0755 (directories) and the time 0, so the bytes depend on names and content alone.
 * Sizes have no limit (tar_header.h).
 *
 * States: any number of entries, each file followed by exactly the announced bytes; then finish
 * once. A wrong number of bytes is ERR_INTERNAL: it is a fault of the caller.
 */
#pragma once

#include "tar_header.h"

struct export_tar {
    int fd;        /* borrowed */
    uint64_t size; /* bytes written */
    uint64_t left; /* bytes of content that the current file still needs */
    unsigned pad;  /* zeros behind it */
    struct buf header;
    struct buf records;
};

void export_tar_begin(struct export_tar *tar, int fd);
void export_tar_free(struct export_tar *tar);

int export_tar_dir(struct export_tar *tar, const char *path, struct err *err);
/* A file of `size` bytes, which follow by export_tar_data(). */
int export_tar_file(struct export_tar *tar, const char *path, uint64_t size, struct err *err);
int export_tar_data(struct export_tar *tar, const void *bytes, size_t len, struct err *err);
/* A small file in one call. */
int export_tar_bytes(struct export_tar *tar, const char *path, const void *bytes, size_t len,
                     struct err *err);
int export_tar_finish(struct export_tar *tar, struct err *err);
