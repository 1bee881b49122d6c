/* erofs_format.h - the part of the EROFS on-disk format that layer images use (docs/FORMAT.md).
 *
 * All numbers are little endian; the structures are read and written as they are on little-endian
 * hosts, which the build makes sure of. Offsets are from the beginning of the image. A nid is an
 * offset divided by 32, as the metadata begin at block 0.
 *
 * What follows an inode (64 bytes, aligned to 32), in this order, each only where there is some:
 *   - attributes: a header of 12 bytes, h_shared_count 32-bit references into the table of shared
 *     attributes (in units of 4 bytes from its first block), then whole attributes, each padded to
 *     4 bytes. They may go on in the next blocks; no entry's head and no reference crosses a block.
 *   - EROFS_FLAT_INLINE: the last size % 4096 bytes of the data, within one block.
 *     EROFS_CHUNK_BASED: the block map, 4 bytes a chunk, which may go on in the next blocks.
 *
 * Layouts that the writer uses: regular files all three; directories flat, plain or inline (the
 * root always plain); links inline, or plain with one block where inode, attributes and target do
 * not fit one block together (the kernel before 6.10 insists); everything else plain without data.
 * An inline file of less than a block has block number 0 in i_u, an empty one too.
 *
 * An internal header of this library.
 */
#pragma once

#include <assert.h>
#include <endian.h>
#include <stddef.h>
#include <stdint.h>

static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "on-disk structures are used as they are");

enum {
    EROFS_BLOCK_BITS = 12,
    EROFS_BLOCK = 1 << EROFS_BLOCK_BITS,
    EROFS_SUPER_OFFSET = 1024,
    EROFS_SLOT = 32, /* bytes that a nid counts */
    EROFS_INODE_SIZE = 64,
    EROFS_ROOT_NID = 36, /* the slot behind the superblock */
};

#define EROFS_MAGIC UINT32_C(0xE0F5E1E2)
#define EROFS_HOLE  UINT32_C(0xFFFFFFFF) /* in a block map */

enum {
    EROFS_COMPAT_CHECKSUM = 0x1,
    EROFS_COMPAT_MTIME = 0x2,
    EROFS_INCOMPAT_CHUNKED = 0x4,
};

struct erofs_disk_super {
    uint32_t magic;
    uint32_t checksum; /* erofs_format_checksum() */
    uint32_t feature_compat;
    uint8_t block_bits;
    uint8_t ext_slots; /* 0 */
    uint16_t root_nid;
    uint64_t inodes;
    uint64_t build_time;
    uint32_t build_time_ns;
    uint32_t blocks;
    uint32_t meta_block;
    uint32_t xattr_block;
    uint8_t uuid[16];
    uint8_t volume_name[16];
    uint32_t feature_incompat;
    uint16_t compression; /* 0 */
    uint16_t extra_devices;
    uint16_t device_slot;
    uint8_t dir_block_bits;     /* 0: as block_bits */
    uint8_t xattr_prefix_count; /* 0 */
    uint32_t xattr_prefix_start;
    uint64_t packed_nid;
    uint8_t reserved[24];
};
static_assert(sizeof(struct erofs_disk_super) == 128, "");
static_assert(offsetof(struct erofs_disk_super, inodes) == 16, "");
static_assert(offsetof(struct erofs_disk_super, uuid) == 48, "");
static_assert(offsetof(struct erofs_disk_super, feature_incompat) == 80, "");
static_assert(offsetof(struct erofs_disk_super, packed_nid) == 96, "");

/* i_format: bit 0 is set for inodes of 64 bytes, bits 1 to 3 are the layout
 * (enum erofs_layout of erofs_reader.h). */
enum {
    EROFS_FORMAT_EXTENDED = 1,
    EROFS_FORMAT_LAYOUT_SHIFT = 1,
    EROFS_FORMAT_KNOWN_BITS = 0xF,
};

/* i_u of a chunk-based inode: log2(chunk size / block size); all other bits are 0 here. */
enum {
    EROFS_CHUNK_BITS_MASK = 0x1F,
};

struct erofs_disk_inode {
    uint16_t format;
    uint16_t xattr_count; /* 0: none; else attributes take 12 + 4 * (xattr_count - 1) bytes */
    uint16_t mode;
    uint16_t reserved;
    uint64_t size;
    uint32_t u; /* first data block, device number or chunk format */
    uint32_t ino;
    uint32_t uid;
    uint32_t gid;
    int64_t mtime;
    uint32_t mtime_ns;
    uint32_t nlink;
    uint8_t reserved2[16];
};
static_assert(sizeof(struct erofs_disk_inode) == EROFS_INODE_SIZE, "");
static_assert(offsetof(struct erofs_disk_inode, nlink) == 44, "");

struct erofs_disk_xattr_header {
    uint32_t name_filter; /* 0 */
    uint8_t shared_count;
    uint8_t reserved[7];
};
static_assert(sizeof(struct erofs_disk_xattr_header) == 12, "");

struct erofs_disk_xattr { /* name without the prefix, then the value; padded to 4 bytes */
    uint8_t name_len;
    uint8_t name_index; /* enum erofs_xattr_index */
    uint16_t value_size;
};
static_assert(sizeof(struct erofs_disk_xattr) == 4, "");

/* The prefix that name_index stands for; the two of "system." are whole names. */
enum erofs_xattr_index {
    EROFS_XATTR_USER = 1,        /* "user." */
    EROFS_XATTR_ACL_ACCESS = 2,  /* "system.posix_acl_access" */
    EROFS_XATTR_ACL_DEFAULT = 3, /* "system.posix_acl_default" */
    EROFS_XATTR_TRUSTED = 4,     /* "trusted." */
    EROFS_XATTR_SECURITY = 6,    /* "security." */
};

/* Attributes behind one inode, with their header: 12 + 4 * 65534. */
#define EROFS_XATTR_BODY_MAX UINT32_C(262148)

/* A directory block: entries, then their names in the same order. The first name's offset says how
 * many entries there are. The last name ends at a NUL byte or at the end of block or directory. */
struct __attribute__((packed)) erofs_disk_dirent {
    uint64_t nid;
    uint16_t name_offset; /* in the block */
    uint8_t type;         /* enum erofs_file_type */
    uint8_t reserved;
};
static_assert(sizeof(struct erofs_disk_dirent) == 12, "");

enum erofs_file_type {
    EROFS_FT_REG = 1,
    EROFS_FT_DIR = 2,
    EROFS_FT_CHR = 3,
    EROFS_FT_BLK = 4,
    EROFS_FT_FIFO = 5,
    EROFS_FT_SOCK = 6,
    EROFS_FT_LNK = 7,
};

/* The checksum of a superblock: CRC-32C without the final inversion over the first block from
 * EROFS_SUPER_OFFSET on, with the checksum's own four bytes as 0. `block` is the whole block. */
uint32_t erofs_format_checksum(const uint8_t block[EROFS_BLOCK]);

/* EROFS_FT_* of S_IF*, 0 for an unknown type; and back. */
uint8_t erofs_format_file_type(uint32_t mode);
uint32_t erofs_format_mode(uint8_t file_type);
