/* blobs.h - bytes named by their digest, in an OCI image layout on disk.
 *
 * Layout (OCI image-spec, image-layout.md), readable by skopeo and umoci as it is:
 *
 *   DIR/oci-layout             {"imageLayoutVersion":"1.0.0"}
 *   DIR/index.json             one descriptor per image name, org.opencontainers.image.ref.name
 *   DIR/blobs/sha256/<hex>     read-only files
 *   DIR/.varve/                temporary files (".tmp-...") and the lock of a shared directory
 *
 * A blob gets its name only after its bytes are complete, hashed and synced (I1); nothing is
 * taken under a digest it does not have (I6). The same directory format serves as this node's
 * store and as the `oci:DIR` remote; only the remote is shared between daemons, so only it takes
 * the lock (remote_oci.c).
 *
 * Threads: all calls may be made from any thread. Two writers of one blob both succeed.
 */
#pragma once

#include "buf.h"
#include "digest.h"
#include "err.h"
#include "publish.h"

#include <stdbool.h>
#include <stdint.h>

struct blobs;

/* Opens the layout at `path`, making it when the directory is missing or empty. A directory with
 * other content, or a layout version that is not known, is refused. */
int blobs_open(const char *path, struct blobs **ret, struct err *err);
void blobs_close(struct blobs *blobs); /* NULL is fine */
/* Descriptor of the layout's directory and of its directory for temporary files; borrowed. */
int blobs_dir_fd(const struct blobs *blobs);
int blobs_temp_fd(const struct blobs *blobs);

/* Size of a blob. -ENOENT (ERR_NOT_FOUND) when it is not there. Does not read it. */
int blobs_stat(struct blobs *blobs, const struct digest *digest, uint64_t *ret_size,
               struct err *err);

/* Opens a blob for reading, its size in *ret_size. The caller checks the digest of what it reads
 * before trusting it, or uses blobs_verify(). Returns a descriptor or -errno. */
int blobs_open_blob(struct blobs *blobs, const struct digest *digest, uint64_t *ret_size,
                    struct err *err);

/* Reads a small blob (manifest, config) into memory, size bounded by the buffer, digest checked. */
int blobs_read(struct blobs *blobs, const struct digest *digest, struct buf *ret,
               struct err *err);

/* Reads a blob through and compares its digest. */
int blobs_verify(struct blobs *blobs, const struct digest *digest, struct err *err);

/* A blob being written: begin, write any number of times, commit once; free in any state. */
struct blob_writer {
    struct blobs *blobs; /* borrowed */
    struct publish publish;
    struct digest_stream stream;
    uint64_t size;
    uint64_t size_max; /* more bytes are ERR_TOO_LARGE; UINT64_MAX for no limit */
};
int blob_writer_begin(struct blobs *blobs, uint64_t size_max, struct blob_writer *ret,
                      struct err *err);
int blob_writer_write(struct blob_writer *writer, const void *bytes, size_t len, struct err *err);
/* Publishes under the digest of what was written. When `expected` is given and differs, or
 * `expected_size` (UINT64_MAX: any) differs, nothing is published and the failure is ERR_DIGEST
 * with both values. */
int blob_writer_commit(struct blob_writer *writer, const struct digest *expected,
                       uint64_t expected_size, struct digest *ret, struct err *err);
void blob_writer_free(struct blob_writer *writer);
#define cleanup_blob_writer cleanup_with(blob_writer_free)

/* Writes a small blob in one call. */
int blobs_put(struct blobs *blobs, const void *bytes, size_t len, struct digest *ret,
              struct err *err);

/* Removes a blob. A missing one is no failure. */
int blobs_remove(struct blobs *blobs, const struct digest *digest, struct err *err);

/* One line of index.json. */
struct blobs_ref {
    char *name; /* org.opencontainers.image.ref.name; NULL for an image without a name */
    char *digest;
    char *media_type;
    int64_t size;
};
void blobs_ref_free(struct blobs_ref *ref);
/* Reads index.json. Caller frees each and the array. */
int blobs_index_read(struct blobs *blobs, struct blobs_ref **ret, size_t *ret_count,
                     struct err *err);
/* Publishes index.json with exactly these lines, sorted by name then digest. */
int blobs_index_write(struct blobs *blobs, const struct blobs_ref *refs, size_t count,
                      struct err *err);
