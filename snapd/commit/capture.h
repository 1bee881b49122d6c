/* capture.h - from a directory tree to a layer blob.
 *
 * One walker (walk.h) feeds one writer (layer_writer.h). Two kinds of trees:
 *   CAPTURE_UPPER   the upper directory of an overlay: whiteouts (0:0 character devices) and
 *                   trusted.overlay.opaque become OCI whiteouts, other overlay attributes are left
 *                   out; redirects and metacopy files are refused by name
 *   CAPTURE_ROOTFS  a plain root filesystem: everything is data; names that begin with ".wh." are
 *                   refused, as no layer can hold them
 *
 * The walk stays on one mount, follows no link, opens regular files only. What a layer cannot hold
 * (sockets) or what lies on other mounts is listed in `skipped`; anything else that cannot be read
 * is a failure that names the path. A file that changes its size under the reader is a failure.
 * Afterwards entries and bytes walked, written and counted by an independent parser of the
 * produced tar stream (tar_count.h) must agree; a gap is ERR_DAMAGED, never a success.
 *
 * Left out without a word: attributes that belong to the host (labels of its security modules) and
 * overlayfs's own. Holes of sparse files are found, not read, and written as zeros, which costs
 * time only; more than 64 GiB of holes in one capture (capture_body.h) are refused by name, as are
 * paths and layers that converting would refuse (restore/convert.h). A mount point's directory is
 * stored empty (walk.h). An upper directory in which gVisor hides what its sandbox wrote is
 * refused.
 *
 * Same tree, same diff ID, on any machine: sorted names, mtimes in nanoseconds, no atime, ctime,
 * user or group names, hard links to the first name in order.
 */
#pragma once

#include "blobs.h"
#include "digest.h"
#include "err.h"
#include "json_doc.h"

#include <stdint.h>

enum capture_kind {
    CAPTURE_UPPER,
    CAPTURE_ROOTFS,
};

/* Whom the capture calls; any may be NULL, and a failure of any ends it. */
struct capture_hooks {
    int (*progress)(void *arg, uint64_t entries, struct err *err);
    blob_claim claim; /* told the layer's digest before its blob has a name */
    void *arg;        /* of both */
};

struct capture_result {
    struct digest digest;  /* of the blob (tar+zstd) */
    struct digest diff_id; /* of the tar */
    uint64_t size;         /* bytes of the blob */
    uint64_t tar_size;     /* bytes of the tar */
    uint64_t entries;      /* tar entries, whiteouts included */
    json_t *skipped;       /* array of {"path","reason"}; owned; paths that are not UTF-8 escaped */
};
void capture_result_free(struct capture_result *result);

/* Captures the tree below `root_fd` into the store. The blob is published on success. */
int capture_tree(int root_fd, enum capture_kind kind, struct blobs *blobs,
                 const struct capture_hooks *hooks, struct capture_result *ret, struct err *err);
