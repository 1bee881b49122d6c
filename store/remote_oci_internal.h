/* remote_oci_internal.h - the parts of the oci: remote, for remote_oci*.c only.
 *
 * remote_oci.c opens it and moves blobs; remote_oci_index.c reads and changes index.json under its
 * lock; remote_oci_manifest.c fetches and stores manifests; remote_oci_list.c lists tags and
 * referrers; remote_oci_delete.c takes names away.
 *
 * Operations are as in struct remote_ops. What is said to hold the lock needs the caller to keep
 * the descriptor of remote_oci_lock().
 */
#pragma once

#include "remote.h"

struct remote_oci {
    struct remote remote; /* first, so that the pointers are the same */
    struct blobs *blobs;  /* owned; safe for use by several threads */
};

static inline struct blobs *remote_oci_blobs(struct remote *remote)
{
    return ((struct remote_oci *)remote)->blobs;
}

/* Takes the lock of the index and returns a descriptor; closing it gives the lock back, and so does
 * the end of the process. Each call opens the file anew, so threads exclude each other too. Whoever
 * holds it up may be another machine's process, so `progress` (may be NULL) is asked meanwhile. */
int remote_oci_lock(struct blobs *blobs, remote_progress progress, void *arg, struct err *err);

/* Entries of index.json. Entries are borrowed from the document. */

/* A tag in index.json. */
struct remote_oci_tagged {
    json_t *index; /* owned */
    char *name;    /* "<repository>:<tag>"; owned */
    json_t *manifests;
    json_t *entry; /* NULL: there is no such tag */
    size_t at;     /* its place in manifests */
};
void remote_oci_tagged_free(struct remote_oci_tagged *tagged);
#define cleanup_remote_oci_tagged cleanup_with(remote_oci_tagged_free)
/* Reads index.json and looks for a tag. */
int remote_oci_look(struct blobs *blobs, const char *repository, const char *tag,
                    struct remote_oci_tagged *ret, struct err *err);
/* Position of the entry with a name in an array of entries: 1 found, 0 there is none; two are
 * ERR_DAMAGED. */
int remote_oci_find(const json_t *manifests, const char *name, size_t *ret, struct err *err);
/* The digest of an entry, of whatever algorithm. */
const char *remote_oci_digest(const json_t *entry);
/* The tag in an entry's name, borrowed, when it is one of this repository; else NULL. */
const char *remote_oci_tag(const json_t *entry, const char *repository);
/* Whether an entry is one of this repository: by its name, or by our note when it has none. */
bool remote_oci_is_of(const json_t *entry, const char *repository);
/* A new entry, which notes the repository when `tag` is NULL. Caller owns it; NULL without memory.
 */
json_t *remote_oci_entry(const char *repository, const char *tag, const char *media_type,
                         const struct digest *digest, size_t len);

/* Reads the manifest that an entry (NULL: nobody) speaks of; their sizes agree. */
int remote_oci_read(struct blobs *blobs, const struct digest *digest, const json_t *entry,
                    struct remote_manifest *ret, struct err *err);
/* The same for an entry. A manifest that is missing is ERR_DAMAGED, as a name of it is there. */
int remote_oci_read_entry(struct blobs *blobs, const json_t *entry, struct remote_manifest *ret,
                          struct err *err);

/* Drops the entry of a tag and publishes the index; the caller holds the lock. ERR_NOT_FOUND when
 * there is none, or it names another manifest than `expected` (NULL: any). */
int remote_oci_drop_tag(struct blobs *blobs, const char *repository, const char *tag,
                        const struct digest *expected, struct err *err);

int remote_oci_manifest_get(struct remote *remote, const char *repository, const char *reference,
                            remote_progress progress, void *progress_arg,
                            struct remote_manifest *ret, struct err *err);
int remote_oci_manifest_stat(struct remote *remote, const char *repository, const char *reference,
                             remote_progress progress, void *progress_arg,
                             struct remote_manifest_stat *ret, struct err *err);
int remote_oci_blob_stream(struct remote *remote, const char *repository, remote_progress progress,
                           void *arg, struct remote_stream **ret, struct err *err);
int remote_oci_manifest_put(struct remote *remote, const char *repository, const char *tag,
                            const char *media_type, const void *bytes, size_t len, bool claim,
                            remote_progress progress, void *arg, struct remote_missing *missing,
                            struct err *err);
int remote_oci_manifest_swap(struct remote *remote, const char *repository,
                             const struct remote_choice *choice, const char *media_type,
                             const void *bytes, size_t len, remote_progress progress, void *arg,
                             struct remote_missing *missing, struct err *err);
int remote_oci_manifest_delete(struct remote *remote, const char *repository,
                               const struct digest *digest, const char *only,
                               remote_progress progress, void *arg, struct err *err);
int remote_oci_tags_list(struct remote *remote, const char *repository, remote_progress progress,
                         void *progress_arg, struct remote_tags *ret, struct err *err);
int remote_oci_tag_delete(struct remote *remote, const char *repository, const char *tag,
                          const struct digest *expected, remote_progress progress, void *arg,
                          struct err *err);
int remote_oci_referrers_list(struct remote *remote, const char *repository,
                              const struct digest *subject, remote_progress progress,
                              void *progress_arg, struct remote_referrers *ret, struct err *err);
