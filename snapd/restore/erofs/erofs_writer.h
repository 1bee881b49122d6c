/* erofs_writer.h - writes one EROFS image, front to back, while the files for it arrive.
 *
 * The caller says what there is: inodes (files with their data, links, devices), directories, and
 * names in directories. The writer turns that into an image that Linux 5.15 and later mount
 * (docs/FORMAT.md has the page; uncompressed, block size 4096, extended inodes only, chunk-based
 * inodes for files with holes). It knows nothing of archives or of layers.
 *
 *   erofs_writer_open()
 *     any number of: a file (begin, data..., end) or a node   -> its number, the nid
 *                    a directory                              -> its handle
 *                    a name for either; a name taken away
 *   erofs_writer_finish()        directories, shared attributes, link counts, superblock
 *   erofs_writer_free()          in any state
 *
 * Inodes and data are written when they come; only names, directories and attributes wait in
 * memory, all of it bounded (struct erofs_writer_limits). A name may be given again: the newest
 * one counts, and what has no name left is dead bytes in the image. So the caller needs no second
 * pass and no sorting. Directories that were replaced keep their handles, but nothing below them is
 * in the image.
 *
 * Same calls, same bytes: no clock, no random numbers, no addresses of memory in the image.
 *
 * Holes of files, for which lseek(SEEK_HOLE) of the mounted file answers, are: chunks (a block
 * each, more above 1 GiB) of which the caller gave no byte, zeros from 64 KiB on that it gave, and
 * files of a block or more that are all zeros. Shorter zeros stay data, as a flat file is read
 * faster; the image file is sparse there too.
 *
 * System calls: pwrite64, pread64, sync_file_range, ftruncate, and those of malloc().
 *
 * What it does not do: compression, deduplication, more than one device, fsync (the caller
 * publishes). One thread at a time.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct erofs_writer;

enum {
    EROFS_WRITER_VERSION = 1, /* changes with the bytes that the same calls give; part of UUIDs */
    EROFS_NAME_MAX = 255,     /* bytes */
    EROFS_SYMLINK_MAX = 4095, /* bytes */
    EROFS_XATTR_VALUE_MAX = 65535,
    EROFS_UUID_LEN = 16,
};

struct erofs_writer_limits {
    uint32_t names_max;       /* 0: EROFS_NAMES_MAX; directories and names together */
    uint64_t name_bytes_max;  /* 0: EROFS_NAME_BYTES_MAX */
    uint64_t xattr_bytes_max; /* 0: EROFS_XATTR_BYTES_MAX; names and values kept in memory */
    uint64_t image_bytes_max; /* 0: EROFS_IMAGE_BYTES_MAX */
};
#define EROFS_NAMES_MAX       UINT32_C(5000000)
#define EROFS_NAME_BYTES_MAX  (UINT64_C(256) << 20)
#define EROFS_XATTR_BYTES_MAX (UINT64_C(64) << 20)
#define EROFS_FILE_BYTES_MAX  (UINT64_C(1) << 61) /* of one file: 2^18 chunks of at most 2^43 */
#define EROFS_IMAGE_BYTES_MAX (UINT64_C(1) << 43) /* half of what 32-bit block numbers reach */

struct erofs_xattr {
    const char *name; /* whole: "user.", "trusted.", "security." and more, "system.posix_acl_*" */
    const void *value;
    size_t size;
};

/* Everything is borrowed for the call. */
struct erofs_attr {
    uint32_t uid;
    uint32_t gid;
    uint16_t perm; /* 07777 */
    int64_t mtime; /* seconds, before 1970 too */
    uint32_t mtime_ns;
    const struct erofs_xattr *xattrs; /* in any order; no name twice; names up to 64 KiB together */
    size_t xattr_count;
};

/* A directory. The root is there from the beginning, 0755 0:0 at time 0 without attributes. */
typedef uint32_t erofs_dir;
#define EROFS_ROOT ((erofs_dir)0)

/* `fd` is an empty regular file, open for reading and writing; borrowed. */
int erofs_writer_open(int fd, const struct erofs_writer_limits *limits, struct erofs_writer **ret,
                      struct err *err);
void erofs_writer_free(struct erofs_writer *writer); /* NULL is fine */

/* A regular file of `size` bytes. Pieces come in ascending order and do not overlap; what no piece
 * covers is zeros. Nothing but these calls may come between begin and end. */
int erofs_writer_file_begin(struct erofs_writer *writer, const struct erofs_attr *attr,
                            uint64_t size, struct err *err);
int erofs_writer_file_data(struct erofs_writer *writer, uint64_t offset, const void *bytes,
                           size_t len, struct err *err);
int erofs_writer_file_end(struct erofs_writer *writer, uint64_t *ret_nid, struct err *err);

/* `type` is S_IFLNK (with `target`), S_IFIFO, S_IFSOCK, S_IFCHR or S_IFBLK (with `rdev`). */
int erofs_writer_node(struct erofs_writer *writer, mode_t type, const struct erofs_attr *attr,
                      const char *target, dev_t rdev, uint64_t *ret_nid, struct err *err);

/* What a name stands for. */
struct erofs_entry {
    mode_t type; /* S_IFDIR, S_IFREG, ... */
    union {
        erofs_dir dir; /* S_IFDIR */
        uint64_t nid;  /* others */
    };
};

/* 1 and what the name in `dir` stands for, or 0. Names are not NUL-terminated. */
int erofs_writer_find(const struct erofs_writer *writer, erofs_dir dir, const char *name,
                      size_t len, struct erofs_entry *ret);
/* Gives a name to an inode; an earlier entry of that name goes, a directory with all below it. */
int erofs_writer_link(struct erofs_writer *writer, erofs_dir dir, const char *name, size_t len,
                      mode_t type, uint64_t nid, struct err *err);
/* A new directory with that name; an earlier entry of that name goes. */
int erofs_writer_mkdir(struct erofs_writer *writer, erofs_dir parent, const char *name, size_t len,
                       const struct erofs_attr *attr, erofs_dir *ret, struct err *err);
/* Takes a name away, a directory with all below it. No failure when there is none. */
void erofs_writer_unlink(struct erofs_writer *writer, erofs_dir dir, const char *name, size_t len);

/* Replaces all attributes of a directory. */
int erofs_writer_dir_set(struct erofs_writer *writer, erofs_dir dir, const struct erofs_attr *attr,
                         struct err *err);
/* Adds one extended attribute to those of a directory, or replaces the one of that name. */
int erofs_writer_dir_xattr(struct erofs_writer *writer, erofs_dir dir,
                           const struct erofs_xattr *xattr, struct err *err);
/* A word of the caller's own about a directory, 0 in a new one. Not in the image. */
uint32_t erofs_writer_dir_note(const struct erofs_writer *writer, erofs_dir dir);
void erofs_writer_dir_set_note(struct erofs_writer *writer, erofs_dir dir, uint32_t note);
/* Parent and name of a directory, for messages and for walking up; the name is borrowed until the
 * next name is given. The root is its own parent. */
erofs_dir erofs_writer_dir_parent(const struct erofs_writer *writer, erofs_dir dir);
const char *erofs_writer_dir_name(const struct erofs_writer *writer, erofs_dir dir,
                                  size_t *ret_len);
/* All directories, also replaced ones, are the handles below this number. */
uint32_t erofs_writer_dir_count(const struct erofs_writer *writer);
/* Whether the directory is still in the tree. */
bool erofs_writer_dir_is_live(const struct erofs_writer *writer, erofs_dir dir);

struct erofs_writer_stats {
    uint64_t image_bytes; /* of the image file, holes included */
    uint64_t inodes;      /* reachable ones */
    uint64_t names;       /* without "." and ".." */
};

/* Completes the image. Only erofs_writer_free() may follow. */
int erofs_writer_finish(struct erofs_writer *writer, const uint8_t uuid[EROFS_UUID_LEN],
                        struct erofs_writer_stats *ret, struct err *err);

/* Bytes of image so far, holes of the file included. */
uint64_t erofs_writer_bytes(const struct erofs_writer *writer);
/* Bytes that went to the file so far, its holes not; what is still buffered (1 MiB) comes later.
 * Whole blocks of data, and the block maps of files with holes: it can be far more than the bytes
 * given. */
uint64_t erofs_writer_written(const struct erofs_writer *writer);
