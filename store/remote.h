/* remote.h - where pushed things live, behind one interface.
 *
 * Implementations: remote_oci.h (an OCI layout directory, the embedded default) and registry.h (an
 * OCI registry over HTTP). Callers move bytes between `struct blobs` and a remote through the
 * wrappers below, which check digests and sizes on both ways (I6), so an implementation cannot
 * forget to.
 *
 * `repository` is the full repository name in the remote, prefix included (remote_repository()
 * puts the prefix in front). `reference` is a tag or "sha256:...". The wrappers refuse names that
 * break the grammar before an implementation sees them, so it may put them into paths and URLs.
 *
 * A manifest is one of the four kinds of oci_document_load(), at most REMOTE_MANIFEST_MAX bytes,
 * and its media type is what its bytes say. A blob has at most OCI_BLOB_BYTES_MAX bytes.
 *
 * Threads: a remote may be used by several threads at once.
 */
#pragma once

#include "blobs.h"
#include "digest.h"
#include "err.h"

#include <stdbool.h>
#include <stdint.h>

struct remote;

enum {
    REMOTE_MANIFEST_MAX = 4 << 20, /* bytes; docker-registry accepts no larger ones */
};

struct remote_manifest {
    char *bytes;
    size_t len;
    char *media_type;
    struct digest digest; /* computed from the bytes, never taken from the peer */
};
void remote_manifest_free(struct remote_manifest *manifest);
#define cleanup_remote_manifest cleanup_with(remote_manifest_free)

/* Takes the bytes of a download; a failure ends it. */
typedef int (*remote_sink)(void *arg, const void *bytes, size_t len, struct err *err);
/* Told how many bytes of a transfer are done; non-zero asks for its end (ERR_CANCELLED). `total` is
 * 0 when it is not known. Callers may give NULL. */
typedef int (*remote_progress)(void *arg, uint64_t done, uint64_t total);

/* Who works on a blob while it is being downloaded. A failure of either call ends the download and
 * is its failure. */
struct remote_watch {
    /* Once, before the first byte: the file that the blob is written to, opened for reading;
     * borrowed for the call. */
    int (*begun)(void *arg, int fd, struct err *err);
    /* After each piece: the first `size` bytes are there. The digest is checked after the last. */
    int (*grown)(void *arg, uint64_t size, struct err *err);
    void *arg;
};

struct remote_ops {
    /* 1 present (size in *ret_size when known, else UINT64_MAX), 0 absent, or -errno. */
    int (*blob_stat)(struct remote *remote, const char *repository, const struct digest *digest,
                     uint64_t *ret_size, struct err *err);
    /* Uploads `size` bytes from `fd` (offset 0 on; pread, the position is not used). Returns only
     * after the remote has confirmed the digest. */
    int (*blob_put)(struct remote *remote, const char *repository, const struct digest *digest,
                    int fd, uint64_t size, remote_progress progress, void *arg, struct err *err);
    /* Sends the blob's bytes to the sink, in order. Where a peer can be silent, `progress` (may be
     * NULL) is called at least once a second all the time, so that it can ask for the end. */
    int (*blob_get)(struct remote *remote, const char *repository, const struct digest *digest,
                    remote_sink sink, void *sink_arg, remote_progress progress, void *progress_arg,
                    struct err *err);
    /* ERR_NOT_FOUND when there is none. `progress` as for blob_get. */
    int (*manifest_get)(struct remote *remote, const char *repository, const char *reference,
                        remote_progress progress, void *progress_arg, struct remote_manifest *ret,
                        struct err *err);
    /* Stores a manifest under a tag, or under its digest alone when tag is NULL. */
    int (*manifest_put)(struct remote *remote, const char *repository, const char *tag,
                        const char *media_type, const void *bytes, size_t len, struct err *err);
    /* Deletes by digest, with every tag of the repository that points to it. ERR_NOT_FOUND when it
     * is gone already; ERR_REFUSED when the remote does not allow deleting. */
    int (*manifest_delete)(struct remote *remote, const char *repository,
                           const struct digest *digest, struct err *err);
    /* Frees the implementation's parts and the structure itself, which remote_close() has freed
     * the strings of. */
    void (*close)(struct remote *remote);
};

struct remote {
    const struct remote_ops *ops;
    char *url;    /* as configured: "oci:/srv/varve" or "https://host/prefix"; owned */
    char *host;   /* "" for oci:, else host[:port]; owned */
    char *prefix; /* "" or "a/b"; owned */
};

void remote_close(struct remote *remote); /* NULL is fine */

/* "<prefix>/<name>" or "<name>"; caller frees. NULL without memory. */
char *remote_repository(const struct remote *remote, const char *name);
/* The reference that any command on any node with this remote accepts: "host/repo@sha256:..." or,
 * for oci:, "repo@sha256:...". Caller frees. */
char *remote_reference(const struct remote *remote, const char *repository,
                       const struct digest *digest);

/* Uploads a blob of the store unless the remote has it with the right size, and asks again
 * afterwards. *ret_uploaded (may be NULL) says which. A local blob that turns out to be damaged is
 * ERR_DIGEST. */
int remote_push_blob(struct remote *remote, const char *repository, struct blobs *blobs,
                     const struct digest *digest, remote_progress progress, void *arg,
                     bool *ret_uploaded, struct err *err);
/* Fails unless the remote shows the blob, and with this size where it tells the size:
 * ERR_NOT_FOUND without it, ERR_DIGEST with another size. */
int remote_confirm_blob(struct remote *remote, const char *repository, const struct digest *digest,
                        uint64_t size, struct err *err);
/* Downloads a blob into the store unless it is there; digest and size (UINT64_MAX: any) checked
 * before it gets its name, and more bytes than `size` end the transfer at once. `progress` is
 * called while nothing moves, too. `watch` (may be NULL) hears nothing of a blob that is there.
 * *ret_downloaded may be NULL. */
int remote_pull_blob(struct remote *remote, const char *repository, struct blobs *blobs,
                     const struct digest *digest, uint64_t size, remote_progress progress,
                     void *arg, const struct remote_watch *watch, bool *ret_downloaded,
                     struct err *err);
/* Fetches a manifest; when `reference` is a digest the bytes are checked against it. */
int remote_manifest_get(struct remote *remote, const char *repository, const char *reference,
                        struct remote_manifest *ret, struct err *err);
/* The same with somebody who can ask for its end, also while nothing moves (ERR_CANCELLED). */
int remote_manifest_get_or_stop(struct remote *remote, const char *repository,
                                const char *reference, remote_progress progress, void *arg,
                                struct remote_manifest *ret, struct err *err);
/* Stores a manifest, under its digest alone when `tag` is NULL, and reads it back by its digest.
 * A media type of NULL stands for what the bytes say. ERR_REFUSED when the remote misses a blob
 * that it names. */
int remote_manifest_put(struct remote *remote, const char *repository, const char *tag,
                        const char *media_type, const void *bytes, size_t len, struct err *err);
int remote_manifest_delete(struct remote *remote, const char *repository,
                           const struct digest *digest, struct err *err);
