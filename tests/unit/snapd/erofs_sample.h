/* erofs_sample.h - a small image made by hand, with one of everything that layer images have.
 *
 *   /-first /file /sub/hard   three names of one file: inline, its own and shared attributes, ACL
 *   /gone                     a whiteout
 *   /link -> file
 *   /pipe
 *   /plain                    5,000 bytes in two blocks
 *   /sub                      a directory: inline, opaque
 *   /sub/dev                  a device, 300:70000
 *   /sub/sparse               a hole, a block, a hole
 *
 * The root directory has two blocks. Tests change bytes of it where the constants below say, which
 * do not come from the code under test.
 */
#pragma once

#include "erofs_format.h"

#include <stddef.h>
#include <stdint.h>

enum {
    SAMPLE_BLOCKS = 8,
    SAMPLE_SIZE = SAMPLE_BLOCKS * 4096,
    SAMPLE_INODES = 9,
    SAMPLE_NAMES = 10,
    /* nids */
    SAMPLE_ROOT = 36,
    SAMPLE_FILE = 40,
    SAMPLE_SUB = 50,
    SAMPLE_LINK = 60,
    SAMPLE_DEV = 64,
    SAMPLE_SPARSE = 68,
    SAMPLE_GONE = 72,
    SAMPLE_PLAIN = 76,
    SAMPLE_PIPE = 80,
    /* blocks */
    SAMPLE_ROOT_BLOCK = 1,
    SAMPLE_SHARED_BLOCK = 3,
    SAMPLE_SPARSE_BLOCK = 4,
    SAMPLE_PLAIN_BLOCK = 5,
    SAMPLE_FREE_BLOCK = 7, /* zeros */
    /* entries of directories, in their order */
    SAMPLE_ROOT_FIRST = 0,
    SAMPLE_ROOT_DOT,
    SAMPLE_ROOT_DOT_DOT,
    SAMPLE_ROOT_FILE,
    SAMPLE_ROOT_GONE, /* the last one in the first block */
    SAMPLE_ROOT_LINK = 0,
    SAMPLE_ROOT_PIPE,
    SAMPLE_ROOT_PLAIN,
    SAMPLE_ROOT_SUB,
    SAMPLE_SUB_DOT = 0,
    SAMPLE_SUB_DOT_DOT,
    SAMPLE_SUB_DEV,
    SAMPLE_SUB_HARD,
    SAMPLE_SUB_SPARSE,
    SAMPLE_PLAIN_BYTES = 5000,
    SAMPLE_SPARSE_BYTES = 3 * 4096 - 100,
    /* places */
    SAMPLE_FILE_XATTRS = SAMPLE_FILE * 32 + 64,
    SAMPLE_FILE_OWN = SAMPLE_FILE_XATTRS + 12 + 4, /* user.own=1 */
    SAMPLE_FILE_ACL = SAMPLE_FILE_OWN + 8,         /* system.posix_acl_access, 3 entries */
    SAMPLE_FILE_XATTR_BYTES = 12 + 4 + 8 + 32,
    SAMPLE_SUB_XATTRS = SAMPLE_SUB * 32 + 64,
    SAMPLE_SUB_OPAQUE = SAMPLE_SUB_XATTRS + 12, /* trusted.overlay.opaque=y */
    SAMPLE_SUB_XATTR_BYTES = 12 + 20,
    SAMPLE_SUB_ENTRIES = SAMPLE_SUB_XATTRS + SAMPLE_SUB_XATTR_BYTES,
    SAMPLE_SPARSE_MAP = SAMPLE_SPARSE * 32 + 64,
};

#define SAMPLE_SUPER(field)      (1024 + offsetof(struct erofs_disk_super, field))
#define SAMPLE_INODE(nid, field) ((nid)*32 + offsetof(struct erofs_disk_inode, field))
#define SAMPLE_ENTRY(block, i, field)                                                              \
    ((block) + (i) * sizeof(struct erofs_disk_dirent) + offsetof(struct erofs_disk_dirent, field))
/* Both blocks of the root directory. */
#define SAMPLE_ROOT_1 (SAMPLE_ROOT_BLOCK * 4096)
#define SAMPLE_ROOT_2 (SAMPLE_ROOT_BLOCK * 4096 + 4096)

void erofs_sample(uint8_t image[SAMPLE_SIZE]);

/* Makes the checksum right again. */
void erofs_sample_seal(uint8_t *image);
