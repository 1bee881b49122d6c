/* unpack.h - from a layer blob to a directory, in a confined child (the program varve-unpack).
 *
 * The child gets the blob as standard input, the target directory, and the directories of the
 * layers below as descriptors. It confines itself before it reads the first byte (own mount
 * namespace with an empty root, the target and the layers below as detached mounts, no network,
 * only the capabilities and system calls that unpacking needs), so nothing of a layer can reach the
 * host (I6). It resolves no name through a symbolic link, whether it comes from the archive or from
 * a lower layer.
 *
 *   UNPACK_LAYER  OCI whiteouts become overlayfs ones (0:0 character device; opaque attribute);
 *                 missing parents take the attributes they have in the layers below, else 0755 0:0;
 *                 hard links to files of lower layers become copies of them
 *   UNPACK_PLAIN  an archive of a user: members are what they are; ".wh." names are refused
 *
 * Refused with a sentence that names the member: absolute and dot-dot names, hard links to nothing
 * or to the outside, damaged or truncated data, more bytes or entries than the limits. The digest
 * of the uncompressed stream is checked to the last byte when one is expected.
 *
 * Growth: an archive may always hold UNPACK_GROWTH_FREE bytes, however small its blob is (a log
 * that repeats one line, or a file of zeros, shrinks by far more than 10,000 times), and beyond
 * that UNPACK_GROWTH_MAX times the size of the blob. Zeros become holes, and the last part of the
 * disk stays free (unpack_tree.h), so one that is made to fill disks does not.
 */
#pragma once

#include "digest.h"
#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum unpack_mode {
    UNPACK_LAYER,
    UNPACK_PLAIN,
};

enum {
    UNPACK_LOWERS_MAX = 127,
    UNPACK_ENTRIES_MAX = 20000000,
    UNPACK_GROWTH_MAX = 5000,
};
#define UNPACK_BYTES_MAX   (UINT64_C(1) << 40)   /* of uncompressed data */
#define UNPACK_GROWTH_FREE (UINT64_C(128) << 30) /* bytes */

struct unpack_request {
    int blob_fd;   /* read from its position to its end */
    int target_fd; /* an empty directory */
    enum unpack_mode mode;
    const struct digest *diff_id; /* expected digest of the tar, or NULL */
    const int *lower_fds;         /* roots of the layers below, topmost first */
    size_t lower_count;
    uint64_t bytes_max;   /* 0: UNPACK_BYTES_MAX */
    uint64_t entries_max; /* 0: UNPACK_ENTRIES_MAX */
    uint64_t growth_free; /* 0: UNPACK_GROWTH_FREE */
};

/* Whether a blob of `size` bytes that holds `bytes` of tar is refused for its growth. */
static inline bool unpack_grows_too_much(uint64_t bytes, uint64_t size, uint64_t growth_free)
{
    return bytes > growth_free && bytes / UNPACK_GROWTH_MAX > size;
}

/* Returns after the child has ended. On failure the target's content is of no use. */
int unpack_run(const struct unpack_request *request, struct err *err);
