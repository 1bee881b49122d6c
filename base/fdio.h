/* fdio.h - whole reads and writes, bounded files, names below a directory.
 *
 * None of these follows a symbolic link in the last component of a name unless it says so. Every
 * descriptor that is opened is close-on-exec.
 */
#pragma once

#include "buf.h"
#include "err.h"

#include <stdint.h>
#include <sys/types.h>

/* Reads until `len` bytes or the end of the file. Returns the number of bytes, which is smaller
 * than `len` only at the end, or -errno. */
ssize_t fdio_read_full(int fd, void *buf, size_t len);

/* Writes everything. 0 or -errno. */
int fdio_write_full(int fd, const void *buf, size_t len);

/* Reads the rest of a file into `ret`, whose maximum bounds it. `what` names it in messages. */
int fdio_read_all(int fd, const char *what, struct buf *ret, struct err *err);

/* Reads the regular file `name` in `dir_fd` whole. Returns -ENOENT with err set when missing. */
int fdio_read_file(int dir_fd, const char *name, struct buf *ret, struct err *err);

/* Opens `path` below `dir_fd` with openat2: no component may be a symbolic link, lead out of the
 * directory or cross into /proc magic links. Returns a descriptor or -errno. */
int fdio_open_beneath(int dir_fd, const char *path, int flags, mode_t mode);

/* Opens the directory `name` in `dir_fd` ("." is that itself) to read its entries, from the first
 * one on. NULL with errno set. */
DIR *fdio_list(int dir_fd, const char *name);

/* Makes the directory `name` if it is missing, opens it and returns its descriptor, or -errno. */
int fdio_open_dir(int dir_fd, const char *name, mode_t mode, struct err *err);
