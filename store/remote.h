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
#include "oci_image.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

struct remote;

enum {
    REMOTE_MANIFEST_MAX = 4 << 20, /* bytes; docker-registry accepts no larger ones */
    REMOTE_TAGS_MAX = 100000,      /* of one repository; more are ERR_TOO_LARGE */
    REMOTE_REFERRERS_MAX = 10000,  /* of one manifest */
    /* errno of refusals that need to be told from others of their code: ERR_REFUSED by a peer that
     * is overloaded, full or down, which may be over the next time and leaves open what was done;
     * and ERR_DENIED to who is logged in, where others are of a login that is missing or over. */
    REMOTE_REFUSED_FOR_NOW = EAGAIN,
    REMOTE_DENIED_FOR_GOOD = EPERM,
    REMOTE_READ_MAX = 64 << 20, /* bytes of a blob that are read into memory at once */
};

struct remote_manifest {
    char *bytes;
    size_t len;
    char *media_type;
    struct digest digest; /* computed from the bytes, never taken from the peer */
};
void remote_manifest_free(struct remote_manifest *manifest);
#define cleanup_remote_manifest cleanup_with(remote_manifest_free)

/* What a remote tells of a manifest without sending it. */
struct remote_manifest_stat {
    struct digest digest;
    uint64_t size;          /* UINT64_MAX: it does not say */
    const char *media_type; /* static, one of the four kinds; NULL: it does not say */
};

/* The tags of a repository, in byte order, each once. */
struct remote_tags {
    char **names; /* owned, like the array */
    size_t count;
};
void remote_tags_free(struct remote_tags *tags);
#define cleanup_remote_tags cleanup_with(remote_tags_free)

/* Manifests whose subject is another one (OCI distribution-spec 1.1, "Listing Referrers"). */
struct remote_referrer {
    struct oci_descriptor descriptor; /* owned */
    char *artifact_type;              /* NULL: it does not say; owned */
};
struct remote_referrers {
    struct remote_referrer *list; /* owned */
    size_t count;
};
void remote_referrers_free(struct remote_referrers *referrers);
#define cleanup_remote_referrers cleanup_with(remote_referrers_free)

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

/* Where an upload goes on that was not finished. */
struct remote_session {
    char *location;  /* address that the remote gave; owned */
    uint64_t offset; /* bytes that the remote has confirmed */
};
void remote_session_free(struct remote_session *session);
#define cleanup_remote_session cleanup_with(remote_session_free)

/* Who keeps sessions, so that another attempt, also of another process, goes on where one ended. A
 * failure of a call is the upload's. */
struct remote_sessions {
    /* 1 with a session, which the caller frees, 0 without one, or -errno. */
    int (*load)(void *arg, const char *repository, const struct digest *digest,
                struct remote_session *ret, struct err *err);
    /* After each confirmed piece; `size` is the whole blob's. */
    int (*save)(void *arg, const char *repository, const struct digest *digest, uint64_t size,
                const struct remote_session *session, struct err *err);
    /* It is finished, or lost. Nothing may be there. */
    int (*forget)(void *arg, const char *repository, const struct digest *digest, struct err *err);
    void *arg;
};

enum remote_outcome {
    REMOTE_BLOB_PRESENT, /* nothing had to be done */
    REMOTE_BLOB_MOUNTED, /* the remote took it from another of its repositories */
    REMOTE_BLOB_SENT,
};

/* One upload. What is not known stays zero. */
struct remote_upload {
    const char *const *mount_from; /* other repositories of this remote that may hold the blob */
    size_t mount_count;
    const struct remote_sessions *sessions; /* NULL: nothing is recorded */
    bool anew; /* send it although the remote says that it is there, over what it has */
    /* Asked when it has failed (NULL: no): whether nobody will go on with it, so that the remote is
     * told, in one short request, and the session is forgotten. */
    bool (*is_unwanted)(void *arg);
    void *unwanted_arg;

    /* What came of it; also of one that failed. */
    enum remote_outcome outcome;
    uint64_t mount_lacking; /* bit i: mount_from[i] does not have the blob */
    bool lacked;            /* the remote did not have it, and does not have it now */
    uint64_t sent;          /* bytes of bodies that went out, what was sent again included */
    uint64_t resumed_at;    /* where an earlier attempt's session was gone on with; 0: with none */
    int restarts;           /* sessions that were lost, so that the blob began anew */
};

enum {
    REMOTE_MISSING_MAX = 16,
};

/* Blobs that a manifest names and the remote says that it does not have. */
struct remote_missing {
    bool any;                                  /* it says so */
    struct digest digests[REMOTE_MISSING_MAX]; /* those it names */
    size_t count;
};

/* What a manifest is to be stored under, decided by a look at what is there: compare and swap, with
 * a comparison of the caller's. */
struct remote_choice {
    /* Asked directly before the store; it may read of the remote, and changes nothing there. A
     * failure ends the store and is its failure. *ret_tag: valid until the store has ended;
     * *ret_claim: as remote_manifest_claim(). */
    int (*choose)(void *arg, const char **ret_tag, bool *ret_claim, struct err *err);
    void *arg;
};

struct remote_stream;

struct remote_ops {
    /* In all of them `progress` (may be NULL) is called at least once a second where a peer can be
     * silent, so that it can ask for the end. */

    /* 1 present (size in *ret_size when known, else UINT64_MAX), 0 absent, or -errno. */
    int (*blob_stat)(struct remote *remote, const char *repository, const struct digest *digest,
                     remote_progress progress, void *arg, uint64_t *ret_size, struct err *err);
    /* Uploads `size` bytes from `fd` (offset 0 on; pread, the position is not used). Returns only
     * after the remote has confirmed the digest. `upload` is never NULL. */
    int (*blob_put)(struct remote *remote, const char *repository, const struct digest *digest,
                    int fd, uint64_t size, remote_progress progress, void *arg,
                    struct remote_upload *upload, struct err *err);
    /* Tells the remote that nobody goes on with a session, in one short request, whose answer
     * changes nothing. NULL where there are no sessions. */
    void (*session_abandon)(struct remote *remote, const char *repository, const char *location);
    /* Begins an upload whose digest is known at its end only (remote_stream.h). */
    int (*blob_stream)(struct remote *remote, const char *repository, remote_progress progress,
                       void *arg, struct remote_stream **ret, struct err *err);
    /* Sends the blob's bytes to the sink, in order, on the calling thread. `size` is what it should
     * have, UINT64_MAX when that is not known; the sink may be given others. */
    int (*blob_get)(struct remote *remote, const char *repository, const struct digest *digest,
                    uint64_t size, remote_sink sink, void *sink_arg, remote_progress progress,
                    void *progress_arg, struct err *err);
    /* Reads `len` bytes from `offset` on. A blob that ends before is ERR_DIGEST. */
    int (*blob_read)(struct remote *remote, const char *repository, const struct digest *digest,
                     uint64_t offset, void *into, size_t len, remote_progress progress,
                     void *progress_arg, struct err *err);
    /* Reads the last byte of a blob that should have `size` bytes, not 0. 1 when it comes, or the
     * blob has another size (*ret_size; UINT64_MAX: it does not say); 0 when the blob is absent, or
     * the remote says that it has it and gives no byte of it, however often it is asked. */
    int (*blob_probe)(struct remote *remote, const char *repository, const struct digest *digest,
                      uint64_t size, remote_progress progress, void *arg, uint64_t *ret_size,
                      struct err *err);
    /* ERR_NOT_FOUND when there is none. */
    int (*manifest_get)(struct remote *remote, const char *repository, const char *reference,
                        remote_progress progress, void *progress_arg, struct remote_manifest *ret,
                        struct err *err);
    /* As manifest_get, without the bytes where the remote can tell. */
    int (*manifest_stat)(struct remote *remote, const char *repository, const char *reference,
                         remote_progress progress, void *progress_arg,
                         struct remote_manifest_stat *ret, struct err *err);
    /* Stores a manifest under a tag, or under its digest alone when tag is NULL. One that has a
     * subject is among the subject's referrers afterwards. When it is refused for blobs that are
     * not there, `missing` (may be NULL) is filled. `claim`: a tag that names another manifest is
     * ERR_EXISTS (remote_fail_taken()) and stays; it is looked at in the same step where the remote
     * can, else directly before each attempt. */
    int (*manifest_put)(struct remote *remote, const char *repository, const char *tag,
                        const char *media_type, const void *bytes, size_t len, bool claim,
                        remote_progress progress, void *arg, struct remote_missing *missing,
                        struct err *err);
    /* Deletes by digest, with every tag of the repository that points to it. ERR_NOT_FOUND when it
     * is gone already; ERR_REFUSED when the remote does not allow deleting. `only` NULL: whatever
     * points to it; else the one tag ("": none) that may, and a remote that can look and delete in
     * one step answers ERR_CONFLICT when another one does. */
    int (*manifest_delete)(struct remote *remote, const char *repository,
                           const struct digest *digest, const char *only, remote_progress progress,
                           void *arg, struct err *err);
    /* As manifest_put, under the tag that `choice` names: between its look at the repository and
     * the store nobody changes a tag there. NULL where the remote has no such operation. */
    int (*manifest_swap)(struct remote *remote, const char *repository,
                         const struct remote_choice *choice, const char *media_type,
                         const void *bytes, size_t len, remote_progress progress, void *arg,
                         struct remote_missing *missing, struct err *err);
    /* All tags. A repository that is not there has none. */
    int (*tags_list)(struct remote *remote, const char *repository, remote_progress progress,
                     void *progress_arg, struct remote_tags *ret, struct err *err);
    /* Removes a tag from the manifest `expected` (NULL: whatever it names) and leaves that and its
     * other tags. ERR_NOT_FOUND when the tag is gone already or names something else; ERR_REFUSED
     * when the remote does not allow it. */
    int (*tag_delete)(struct remote *remote, const char *repository, const char *tag,
                      const struct digest *expected, remote_progress progress, void *arg,
                      struct err *err);
    /* What refers to a manifest, which need not be there. */
    int (*referrers_list)(struct remote *remote, const char *repository,
                          const struct digest *subject, remote_progress progress,
                          void *progress_arg, struct remote_referrers *ret, struct err *err);
    /* See remote_wait_visible(). NULL where what is stored is there at once. */
    int (*wait_visible)(struct remote *remote, int looks, remote_progress progress, void *arg,
                        struct err *err);
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

/* What a registry has just taken it may not show yet: some answer from copies that lag behind.
 * Waits before another look: 1 to look again, 0 when there were enough looks (`looks` were made),
 * or -errno. All waits together take some seconds. */
int remote_wait_visible(struct remote *remote, int looks, remote_progress progress, void *arg,
                        struct err *err);

/* Uploads a blob of the store unless the remote has it with the right size, and asks again
 * afterwards. `upload` (may be NULL) says what may help, and hears what came of it. A local blob
 * that turns out to be damaged is ERR_DIGEST. */
int remote_push_blob(struct remote *remote, const char *repository, struct blobs *blobs,
                     const struct digest *digest, remote_progress progress, void *arg,
                     struct remote_upload *upload, struct err *err);
/* The same for the first `size` bytes of a file that is in no store; `digest` is theirs. It is
 * confirmed afterwards (remote_confirm_blob()), also when it was there; what the remote says that
 * it has, and has not, is sent over that. */
int remote_push_file(struct remote *remote, const char *repository, const struct digest *digest,
                     int fd, uint64_t size, remote_progress progress, void *arg, struct err *err);
/* Gives up an upload that an earlier attempt left (struct remote_session), within two seconds. */
void remote_session_abandon(struct remote *remote, const char *repository, const char *location);
/* The failure of a push: what was sent and is not there, or goes where nothing is, fails the push
 * (ERR_REFUSED), while ERR_NOT_FOUND is of what was to be pushed. Returns -errno. */
int remote_fail_push(int rc, struct err *err);
/* Fails unless the remote shows the blob with this size and gives its last byte, as some go on
 * saying that they have what they have lost: ERR_NOT_FOUND without it, ERR_DIGEST with another
 * size. To be told no size is no proof: then the blob is read back (remote_verify_blob()). */
int remote_confirm_blob(struct remote *remote, const char *repository, const struct digest *digest,
                        uint64_t size, remote_progress progress, void *arg, struct err *err);
/* The same, and remote_verify_blob(), of a blob that was sent just now, which is looked for again
 * where it is not there (remote_wait_visible()). */
int remote_prove_sent_blob(struct remote *remote, const char *repository,
                           const struct digest *digest, uint64_t size, bool verify,
                           remote_progress progress, void *arg, struct err *err);
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
/* Stores a manifest, under its digest alone when `tag` is NULL, reads it back by its digest and
 * looks at what the tag names then. A media type of NULL stands for what the bytes say. ERR_REFUSED
 * when the remote misses a blob that it names, or has no such tag afterwards; ERR_EXISTS when the
 * tag names another manifest afterwards, as somebody else wrote it at the same time. Of both the
 * hint says what the remote has. */
int remote_manifest_put(struct remote *remote, const char *repository, const char *tag,
                        const char *media_type, const void *bytes, size_t len, struct err *err);
/* The same with somebody who can ask for its end, and who hears of blobs that the remote misses
 * (NULL: nobody). */
int remote_manifest_put_or_stop(struct remote *remote, const char *repository, const char *tag,
                                const char *media_type, const void *bytes, size_t len,
                                remote_progress progress, void *arg, struct remote_missing *missing,
                                struct err *err);
/* The same for a tag that is never taken from another manifest: ERR_EXISTS when it names one. A
 * registry cannot compare and swap, so of those who write in the time of one request the last one
 * has it; the others are told. */
int remote_manifest_claim(struct remote *remote, const char *repository, const char *tag,
                          const char *media_type, const void *bytes, size_t len,
                          remote_progress progress, void *arg, struct remote_missing *missing,
                          struct err *err);
/* The failure of who finds that a tag names `there` instead. */
int remote_fail_taken(const char *repository, const char *tag, const struct digest *there,
                      struct err *err);
/* What stands under a tag or digest; `progress` (may be NULL) can ask for the end. */
int remote_manifest_stat(struct remote *remote, const char *repository, const char *reference,
                         remote_progress progress, void *arg, struct remote_manifest_stat *ret,
                         struct err *err);
/* Stores a manifest under the tag that is chosen in the same step, where the remote can; else
 * directly before it, so that of those who do it at the same time each may have found the other
 * not there. `media_type` as for remote_manifest_put(). */
int remote_manifest_swap(struct remote *remote, const char *repository,
                         const struct remote_choice *choice, const char *media_type,
                         const void *bytes, size_t len, remote_progress progress, void *arg,
                         struct remote_missing *missing, struct err *err);
/* Deletes a manifest with all its tags, whoever else needs it; remote_delete() looks first. */
int remote_manifest_delete(struct remote *remote, const char *repository,
                           const struct digest *digest, remote_progress progress, void *arg,
                           struct err *err);

int remote_tags_list(struct remote *remote, const char *repository, remote_progress progress,
                     void *arg, struct remote_tags *ret, struct err *err);
int remote_tag_delete(struct remote *remote, const char *repository, const char *tag,
                      const struct digest *expected, remote_progress progress, void *arg,
                      struct err *err);
/* `artifact_type` NULL: of all types. */
int remote_referrers_list(struct remote *remote, const char *repository,
                          const struct digest *subject, const char *artifact_type,
                          remote_progress progress, void *arg, struct remote_referrers *ret,
                          struct err *err);

/* Reads part of a blob into memory; not checked against its digest, which is the caller's to do by
 * other means (I6). */
int remote_blob_read(struct remote *remote, const char *repository, const struct digest *digest,
                     uint64_t offset, void *into, size_t len, remote_progress progress, void *arg,
                     struct err *err);
/* Reads a blob back and compares digest and size: ERR_NOT_FOUND without it, ERR_DIGEST for other
 * bytes. */
int remote_verify_blob(struct remote *remote, const char *repository, const struct digest *digest,
                       uint64_t size, remote_progress progress, void *arg, struct err *err);

/* What became of a manifest that its owner does not need any more. */
enum remote_deleted {
    REMOTE_DELETED,   /* the remote was asked and agreed */
    REMOTE_ABSENT,    /* it was gone already */
    REMOTE_KEPT,      /* another tag or an index names it, or nobody can tell whether one does: the
                       * remote does not let us look, or its list, or what a tag leads to, cannot
                       * be read */
    REMOTE_UNDELETED, /* the remote was asked and refused */
    REMOTE_WAITS,     /* nobody has looked whether something else needs it: it is there still */
};
struct remote_deletion {
    enum remote_deleted state;
    bool untagged;              /* the owner's tag does not name it any more */
    char message[ERR_TEXT_MAX]; /* why it was kept or refused, or "" */
};
/* Takes a tag away from a manifest, and deletes the manifest unless something else in the
 * repository needs it: all tags are listed, and each is asked for what it names; of those that
 * name an index the index is read, and those in it. `tag` NULL: it has none. A tag that names
 * another manifest meanwhile is left alone. A remote that does not answer is a failure, and
 * nothing was deleted; so are answers that leave open what was done (429, 5xx) and a login that is
 * missing or over. What it does not allow or cannot do, and a list that cannot be read, are part of
 * the result. */
int remote_delete(struct remote *remote, const char *repository, const struct digest *digest,
                  const char *tag, remote_progress progress, void *arg, struct remote_deletion *ret,
                  struct err *err);

/* A manifest that is not needed any more, for remote_delete_some(). */
struct remote_unneeded {
    struct digest digest;
    const char *tag; /* its owner's; NULL: it has none, or was taken away before. Borrowed */
    bool keeps_tag;  /* as long as something needs it, the tag stays too: it is there for that */
    bool tag_waits;  /* as long as nobody can tell whether something does, the tag stays */
    struct remote_deletion result;
};
/* How that is done. */
struct remote_deleting {
    size_t looks_max;         /* SIZE_MAX: any number */
    bool lists_anew;          /* the tags are listed again directly before each deletion */
    remote_progress progress; /* may be NULL */
    void *arg;
    /* May be NULL. Called directly before the first request by which the first manifest, or its
     * tag, may go. When it fails that is the failure, and both are there. */
    int (*before)(void *arg, struct err *err);
    void *before_arg;
};
/* remote_delete() of several manifests of one repository with one look at all of its tags, as each
 * tag costs a request. It is about the first one, which goes last; the others go along, and have
 * no tags of their own, or such that keep them. Where there are more than `looks_max` tags besides
 * the first one's, nobody looks: that one loses its tag alone and waits (REMOTE_WAITS;
 * REMOTE_UNDELETED where tags cannot be taken away), as the others do. New tags are looked for
 * again before each deletion that comes some time after the first look.
 *
 * A failure of the first one is the failure. One of another stops no other, unless the remote does
 * not answer any more: it waits on, and its message says why. */
int remote_delete_some(struct remote *remote, const char *repository, struct remote_unneeded *list,
                       size_t count, const struct remote_deleting *how, struct err *err);
