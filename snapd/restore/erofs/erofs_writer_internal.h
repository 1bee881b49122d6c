/* erofs_writer_internal.h - what the files of the writer share: its state and its inodes.
 *
 *   erofs_writer.c   the public calls about names and directories, open, finish, free
 *   erofs_file.c     regular files and their data
 *   erofs_inode.c    inodes on disk; nodes without data
 *   erofs_dirs.c     at the end: which names count, and the directories
 *   erofs_nlink.c    at the end: link counts
 *
 * An internal header of this library.
 */
#pragma once

#include "erofs_format.h"
#include "erofs_meta.h"
#include "erofs_names.h"
#include "erofs_out.h"
#include "erofs_reader.h" /* enum erofs_layout */
#include "erofs_writer.h"
#include "erofs_xattr.h"

enum {
    /* The longest tail that lies behind an inode: two inodes with such tails fill a block. Longer
     * ones would leave more of the metadata unused than a block of their own does. */
    EROFS_TAIL_MAX = EROFS_BLOCK / 2 - EROFS_INODE_SIZE,
    /* Larger files have their tail in a block of its own: it is read together with the data in
     * front of it, wastes little of them, and inodes stay close together. */
    EROFS_TAIL_FILE_MAX = 64 << 10,
    /* Zeros that were given as data become a hole from this length on. Shorter ones are left in
     * the data - they are holes of the image file anyway -, as a flat file is read faster. */
    EROFS_HOLE_MIN = 64 << 10,
    EROFS_MAP_MAX = 1 << 18,                                           /* chunks of a file */
    EROFS_CHUNK_BITS_LIMIT = EROFS_BLOCK_BITS + EROFS_CHUNK_BITS_MASK, /* what an inode can say */
    /* The root's attributes lie in the first block, with superblock and inode. */
    EROFS_ROOT_BODY_MAX = EROFS_BLOCK - EROFS_ROOT_NID * EROFS_SLOT - EROFS_INODE_SIZE,
};

static_assert(EROFS_FILE_BYTES_MAX >> EROFS_CHUNK_BITS_LIMIT == EROFS_MAP_MAX, "");

/* The attributes of an inode but the extended ones. */
struct erofs_owner {
    uint32_t uid;
    uint32_t gid;
    uint16_t perm;
    int64_t mtime;
    uint32_t mtime_ns;
};

/* A regular file between begin and end. */
struct erofs_file {
    bool is_open;
    struct erofs_owner owner;
    uint64_t size;
    uint64_t pos;   /* end of what was given */
    uint64_t whole; /* bytes that go to blocks; the others are the inline tail */
    uint8_t chunk_bits;
    uint32_t chunks; /* of `whole` */
    uint32_t chunk;  /* the one at `pos` */
    bool chunk_has_blocks;
    bool chunk_was_given; /* any byte of it, zero or not */
    uint32_t zero_chunks; /* before `chunk`: zeros that were given, and are not decided on */
    bool has_holes;
    uint32_t *map; /* owned; first block of each chunk, or EROFS_HOLE */
    uint32_t map_cap;
    uint8_t tail[EROFS_TAIL_MAX];
};

struct erofs_writer {
    struct erofs_out out;
    struct erofs_meta meta;
    struct erofs_names names;
    struct erofs_xattr_table xattrs;
    struct erofs_xattr_body body; /* of the inode at hand */
    struct erofs_file file;
    uint32_t inodes; /* so far, the root too: i_ino */
    bool has_chunks; /* any file with holes */
    bool is_finished;
    uint8_t first[EROFS_BLOCK]; /* the first block */
};

/* ERR_INVALID for what no inode can have. */
int erofs_attr_check(const struct erofs_attr *attr, struct err *err);
struct erofs_owner erofs_owner_of(const struct erofs_attr *attr);

/* An inode to write. What stands behind it is writer->body and `rest`. */
struct erofs_new_inode {
    mode_t type;
    struct erofs_owner owner;
    enum erofs_layout layout;
    uint64_t size;
    uint32_t u;
    uint32_t nlink;
    const void *rest; /* inline tail or block map */
    size_t rest_len;
};
/* The inode's bytes alone; takes the next i_ino. */
struct erofs_disk_inode erofs_inode_encode(struct erofs_writer *writer,
                                           const struct erofs_new_inode *inode);
/* Writes it at a place of its length. */
int erofs_inode_write(struct erofs_writer *writer, const struct erofs_new_inode *inode,
                      uint64_t pos, struct err *err);
/* Finds a place and writes it there. */
int erofs_inode_add(struct erofs_writer *writer, const struct erofs_new_inode *inode,
                    uint64_t *ret_nid, struct err *err);

/* Everything that is known at the end: directories, then link counts. The root's inode goes to
 * writer->first. Sets inodes and names of `ret`. */
int erofs_dirs_write(struct erofs_writer *writer, struct erofs_writer_stats *ret, struct err *err);

/* Link counts of what the names in `order`, all in the tree, stand for. */
int erofs_nlink_write(struct erofs_writer *writer, const uint32_t *order, uint32_t order_count,
                      uint64_t *ret_inodes, struct err *err);

void erofs_file_free(struct erofs_file *file);
