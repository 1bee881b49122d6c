/* blobs.h - bytes named by their digest, in an OCI image layout on disk.
 *
 * Layout (OCI image-spec, image-layout.md), readable by skopeo and umoci as it is:
 *
 *   DIR/oci-layout             {"imageLayoutVersion":"1.0.0"}
 *   DIR/index.json             one descriptor per image name, org.opencontainers.image.ref.name
 *   DIR/blobs/sha256/<hex>     read-only files
 *   DIR/.varve/                temporary files (".tmp-..."), what the layout is for (blobs_role.h),
 *                              and the lock of a shared directory
 *
 * A blob gets its name only after its bytes are complete, hashed and synced (I1); nothing is
 * taken under a digest it does not have (I6). The same directory format serves as this node's
 * store and as the `oci:DIR` remote; only the remote is shared between daemons, so only it takes
 * the lock (remote_oci.c). Stock tools ignore .varve. They also rewrite index.json in place and
 * without the lock (skopeo) or by rename (umoci), so they may read at any time but write only
 * while no daemon does; and `umoci gc` takes blobs whose manifest is not pushed yet.
 *
 * Temporary files: a writer holds an flock on its own until it is published or given up. A store
 * that one daemon owns is swept whole at its start (publish_sweep() on blobs_temp_fd()); in a
 * shared one blobs_sweep_stale() takes what is a day old and locked by nobody.
 *
 * Modes: blobs 0444, directories 0755, so that stock tools of other users can read a remote; the
 * directory around a node's store is what protects it. .varve is 0700, as an flock by a stranger
 * would stop every writer.
 *
 * What it does not do: it never reads a blob through just to say that it is there. A file of the
 * right name and size counts as the blob until somebody reads it and compares (blobs_verify()).
 *
 * Threads: all calls may be made from any thread; the structure does not change after it was
 * opened. Two writers of one blob both succeed.
 */
#pragma once

#include "buf.h"
#include "digest.h"
#include "err.h"
#include "json_doc.h"
#include "publish.h"

#include <stdbool.h>
#include <stdint.h>

struct blobs;

enum {
    BLOBS_STALE_AGE_S = 24 * 3600, /* temporary files in a shared layout are swept after this */
};

/* Opens the layout at `path`, making it when the directory is missing or empty (a "lost+found"
 * does not count). A directory with other content, or a layout version that is not known, is
 * refused. Layouts that other tools made are fine. */
int blobs_open(const char *path, struct blobs **ret, struct err *err);
/* Opens somebody else's layout for reading: makes and changes nothing, and only the calls that
 * read may be used on it. Nothing in it is trusted; no symbolic link below `path` is followed. */
int blobs_open_reader(const char *path, struct blobs **ret, struct err *err);
/* The same for a directory that is open (borrowed for the call), wherever it is mounted; `path` is
 * its name in messages. */
int blobs_open_reader_at(int dir_fd, const char *path, struct blobs **ret, struct err *err);
void blobs_close(struct blobs *blobs); /* NULL is fine */
/* The path as it was given, for messages; borrowed. */
const char *blobs_path(const struct blobs *blobs);
/* Descriptor of the layout's directory for temporary files; borrowed. -1 for a reader. */
int blobs_temp_fd(const struct blobs *blobs);
/* Removes temporary files that are older than BLOBS_STALE_AGE_S by the file system's own clock and
 * that no living process holds locked. Others may be writing meanwhile. */
int blobs_sweep_stale(struct blobs *blobs, struct err *err);

/* Size of a blob. -ENOENT (ERR_NOT_FOUND) when it is not there. Does not read it. */
int blobs_stat(struct blobs *blobs, const struct digest *digest, uint64_t *ret_size,
               struct err *err);

/* Whether a blob is there with this size (UINT64_MAX: any), and then makes it durable (I3): it may
 * come from a tool that does not sync, or from a writer that is not through yet. 1 yes, 0 no, or
 * -errno. */
int blobs_settle(struct blobs *blobs, const struct digest *digest, uint64_t size, struct err *err);

/* Opens a blob for reading, its size in *ret_size. The caller checks the digest of what it reads
 * before trusting it, or uses blobs_verify(). Returns a descriptor or -errno. */
int blobs_open_blob(struct blobs *blobs, const struct digest *digest, uint64_t *ret_size,
                    struct err *err);

/* Reads a small blob (manifest, config) into memory, size bounded by the buffer, digest checked. */
int blobs_read(struct blobs *blobs, const struct digest *digest, struct buf *ret, struct err *err);

/* Reads a blob through and compares its digest. */
int blobs_verify(struct blobs *blobs, const struct digest *digest, struct err *err);

/* Told the digest of a blob before the blob has its name, for a lease (I5); a failure keeps it from
 * getting one. */
typedef int (*blob_claim)(void *arg, const struct digest *digest, struct err *err);

/* A blob being written: begin, write any number of times, commit once; free in any state, also
 * one that is all zeros. */
struct blob_writer {
    struct blobs *blobs; /* borrowed; NULL before begin and after free */
    struct publish publish;
    struct digest_stream stream;
    uint64_t size;
    uint64_t size_max; /* more bytes are ERR_TOO_LARGE at once; UINT64_MAX for no limit */
    blob_claim claim;  /* NULL: nobody is told; set by the caller before the commit */
    void *claim_arg;
    bool replace; /* what has the name already is not believed, whatever its size; set as `claim` */
    bool broken;  /* a write failed, so file and digest no longer agree */
};

#define BLOB_WRITER_INIT                                                                           \
    {                                                                                              \
        .publish = PUBLISH_INIT                                                                    \
    }

int blob_writer_begin(struct blobs *blobs, uint64_t size_max, struct blob_writer *ret,
                      struct err *err);
/* After a failure the writer can only be freed; a commit fails too (I6). */
int blob_writer_write(struct blob_writer *writer, const void *bytes, size_t len, struct err *err);
/* Publishes under the digest of what was written. When `expected` is given and differs, or
 * `expected_size` (UINT64_MAX: any) differs, nothing is published and the failure is ERR_DIGEST
 * with both values. A blob that is there with the same size stays as it is; one of another size is
 * damaged and is replaced, as is whatever is there with `replace`. Either way it is durable
 * afterwards (I3). */
int blob_writer_commit(struct blob_writer *writer, const struct digest *expected,
                       uint64_t expected_size, struct digest *ret, struct err *err);
/* Opens what is being written for reading, with a position of its own, for somebody who works on
 * the bytes while they arrive. Until the commit nobody knows whether they are right (I6). Returns a
 * descriptor or -errno. */
int blob_writer_open_reader(const struct blob_writer *writer, struct err *err);
void blob_writer_free(struct blob_writer *writer);
#define cleanup_blob_writer cleanup_with(blob_writer_free)

/* Writes a small blob in one call. */
int blobs_put(struct blobs *blobs, const void *bytes, size_t len, struct digest *ret,
              struct err *err);

/* Removes a blob. A missing one is no failure. */
int blobs_remove(struct blobs *blobs, const struct digest *digest, struct err *err);

/* One line of index.json. */
struct blobs_ref {
    char *name;   /* org.opencontainers.image.ref.name; NULL for an image without a name */
    char *digest; /* as it stands there; other algorithms than sha256 are possible */
    char *media_type;
    int64_t size; /* never negative */
};
void blobs_ref_free(struct blobs_ref *ref);
/* Reads index.json, in its order; a name may stand there twice when another tool wrote it. Caller
 * frees each and the array. */
int blobs_index_read(struct blobs *blobs, struct blobs_ref **ret, size_t *ret_count,
                     struct err *err);
/* Publishes index.json with exactly these lines, sorted by name then digest. */
int blobs_index_write(struct blobs *blobs, const struct blobs_ref *refs, size_t count,
                      struct err *err);

/* The same as a document, for callers that must keep what other tools wrote into it. Loading
 * checks what blobs_index_read() checks: "manifests" of the result is an array of objects with
 * mediaType, digest and size of the right types, and annotations, where present, are strings.
 * Caller owns *ret. */
int blobs_index_load(struct blobs *blobs, json_t **ret, struct err *err);
/* Publishes the document. One that is too large to be loaded again is ERR_TOO_LARGE. */
int blobs_index_store(struct blobs *blobs, const json_t *index, struct err *err);
/* The name of an entry of a loaded index; NULL without one. Borrowed. */
const char *blobs_index_name(const json_t *entry);
/* A new entry; `name` may be NULL. Caller owns it; NULL without memory. */
json_t *blobs_index_entry(const char *media_type, const char *digest, int64_t size,
                          const char *name);
