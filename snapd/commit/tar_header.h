/* tar_header.h - makes the header blocks of one entry of a layer's tar stream.
 *
 * Format: POSIX.1-2001 pax interchange. The bytes depend on the entry alone, not on the locale,
 * the clock or the version of a library, because the digest of the stream is the layer's identity
 * (diff ID). That, and three faults of the packaged libarchive's writer, is why these few lines
 * are our own: it writes either two copies of each extended attribute or changes attribute names
 * ("user.100%" to "user.100%25"), writes -0.5 s as -1.5 s, and marks every entry with a keyword
 * that GNU tar complains of.
 *
 * Choices:
 *   names     in the ustar header when they are ASCII and fit, else in "path" and "linkpath"
 *             records; directories end in '/', the root is "./", nothing else begins with "./";
 *             names that are not UTF-8 are announced with hdrcharset=BINARY
 *   times     mtime alone, with nanoseconds. Before 1970 whole seconds, rounded down: readers
 *             disagree on what "-1.5" means.
 *   numbers   sizes of 8 GiB and more and ids above 2097151 in "size", "uid" and "gid" records
 *   xattrs    SCHILY.xattr.NAME with the raw value, which is what Go, Python, star, GNU tar and
 *             libarchive read. A NAME with '=' cannot be a keyword and is written the one way that
 *             can hold it, LIBARCHIVE.xattr.
 *   owners    numbers only, no names
 *
 * Records of one entry are at most TAR_PAX_MAX bytes, what libarchive and Go accept at most.
 */
#pragma once

#include "buf.h"
#include "err.h"
#include "walk_xattrs.h"

#include <stddef.h>
#include <stdint.h>

enum {
    TAR_BLOCK = 512,
    TAR_PAX_MAX = 1 << 20, /* bytes */
};

enum tar_type {
    TAR_FILE = '0',
    TAR_HARD_LINK = '1',
    TAR_SYMLINK = '2',
    TAR_CHAR = '3',
    TAR_BLOCK_DEVICE = '4',
    TAR_DIR = '5',
    TAR_FIFO = '6',
};

struct tar_entry {
    const char *path; /* relative, without a '/' at its end; "" is the root */
    enum tar_type type;
    uint32_t mode; /* permission bits; others are ignored */
    uint32_t uid;
    uint32_t gid;
    int64_t mtime;
    uint32_t mtime_ns; /* counts upwards from mtime, also before 1970 */
    uint64_t size;     /* of a TAR_FILE's content; 0 for all others */
    uint32_t major;    /* of a device */
    uint32_t minor;
    const char *link; /* target of a TAR_SYMLINK, or path of a TAR_HARD_LINK's first name */
    const struct walk_xattr *xattrs; /* written in this order */
    size_t xattr_count;
};

/* Appends the header blocks to `ret`. `scratch` is emptied and used for the records, so its maximum
 * is TAR_PAX_MAX; it may serve any number of calls. Errors name the path. */
int tar_header_add(const struct tar_entry *entry, struct buf *scratch, struct buf *ret,
                   struct err *err);
