/* erofs_reader.h - reads an EROFS image that lies in memory (a mapped file).
 *
 * For two callers: erofs_check.h, which looks at an image before the kernel does, and the
 * converter, which looks names up in the layers below. It reads what erofs_writer.h writes
 * (docs/FORMAT.md) and refuses everything else that EROFS knows, by name: compression, compact
 * inodes, more devices, fragments, other block sizes.
 *
 * Nothing in the image is trusted: every offset is checked against the size of the image before it
 * is followed, every count against what can be there; a directory is only believed to be sorted
 * where that costs nothing but a wrong answer. ERR_DAMAGED names the inode by its nid.
 *
 * Pointers that are handed out point into the image. No allocation, no state; any number of
 * threads. The caller keeps the mapping; a file that shrinks under it is the caller's own fault.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct erofs_image {
    const uint8_t *base; /* borrowed */
    uint64_t size;       /* bytes of the mapping; at least blocks * 4096 */
    uint64_t blocks;
    uint64_t meta;   /* offset of nid 0 */
    uint64_t xattrs; /* offset of the shared attributes */
    uint64_t root;   /* nid */
    uint64_t inodes; /* as the superblock says */
    uint8_t uuid[16];
};

/* Checks the superblock (magic, checksum, features, sizes). */
int erofs_image_open(const void *base, uint64_t size, struct erofs_image *ret, struct err *err);

enum erofs_layout {
    EROFS_FLAT_PLAIN = 0,
    EROFS_FLAT_INLINE = 2,
    EROFS_CHUNK_BASED = 4,
};

struct erofs_inode {
    uint64_t nid;
    mode_t mode; /* type and permissions */
    uint32_t uid;
    uint32_t gid;
    uint32_t nlink;
    uint64_t size;
    int64_t mtime;
    uint32_t mtime_ns;
    dev_t rdev; /* of devices */
    enum erofs_layout layout;
    uint64_t xattr_offset; /* of the attribute header; bytes from the image's beginning */
    uint32_t xattr_len;    /* 0: none */
    uint64_t data_offset;  /* flat: of the first whole block; chunk-based: of the chunk map */
    uint64_t tail_offset;  /* inline: of the last, partial block */
    uint8_t chunk_bits;    /* chunk-based: log2 of the bytes of a chunk */
};

int erofs_inode_read(const struct erofs_image *image, uint64_t nid, struct erofs_inode *ret,
                     struct err *err);

/* 1 and the nid that a directory has under a name, 0 when there is none, or -errno. Logarithmic. */
int erofs_dir_lookup(const struct erofs_image *image, const struct erofs_inode *dir,
                     const char *name, size_t len, uint64_t *ret_nid, struct err *err);

struct erofs_dirent {
    const char *name; /* not NUL-terminated */
    size_t len;
    uint64_t nid;
    uint8_t type; /* DT_*-like: EROFS_FT_* of the format */
};
/* Calls `take` for each entry in its order, "." and ".." too, until it fails. */
typedef int erofs_dir_take(void *arg, const struct erofs_dirent *entry, struct err *err);
int erofs_dir_each(const struct erofs_image *image, const struct erofs_inode *dir,
                   erofs_dir_take *take, void *arg, struct err *err);

struct erofs_found_xattr {
    char name[256]; /* with its prefix */
    const void *value;
    size_t size;
};
typedef int erofs_xattr_take(void *arg, const struct erofs_found_xattr *xattr, struct err *err);
int erofs_xattr_each(const struct erofs_image *image, const struct erofs_inode *inode,
                     erofs_xattr_take *take, void *arg, struct err *err);

/* The data of a regular file or the target of a link, piece by piece, without the holes. */
typedef int erofs_data_take(void *arg, uint64_t offset, const void *bytes, size_t len,
                            struct err *err);
int erofs_data_each(const struct erofs_image *image, const struct erofs_inode *inode,
                    erofs_data_take *take, void *arg, struct err *err);
