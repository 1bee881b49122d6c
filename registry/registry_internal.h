/* registry_internal.h - what the files of the registry client share. For them and for tests only.
 */
#pragma once

#include "registry.h"
#include "registry_http.h"

struct registry_retry;

struct registry {
    struct remote remote; /* first, so that the two pointers are one */
    struct registry_http *http;
    struct registry_pool *pool; /* that http uses */
    char *base;                 /* "https://host[:port]" */
};

static inline struct registry *registry_of(struct remote *remote)
{
    return (struct registry *)remote;
}

/* "<base>/v2/<repository>/<kind>/<name>" of checked parts. Caller frees *ret. */
int registry_make_url(const struct registry *registry, const char *repository, const char *kind,
                      const char *name, char **ret, struct err *err);

/* Whether a blob is there, as a part of other work (registry_retry.h; NULL: it is all of it). As
 * the operation, but the message leaves out the repository, which is a checked name. */
int registry_blob_look(struct registry *registry, const char *repository,
                       const struct digest *digest, struct registry_retry *retry,
                       remote_progress progress, void *arg, uint64_t *ret_size, struct err *err);

enum {
    /* Looks for what was stored just now, and the first pause between them, which doubles: 3.75 s.
     */
    REGISTRY_VISIBLE_LOOKS = 5,
    REGISTRY_VISIBLE_FIRST_MS = 250,
};

/* The operations, as in struct remote_ops; registry_upload.h has another one. */
int registry_wait_visible(struct remote *remote, int looks, remote_progress progress, void *arg,
                          struct err *err);
int registry_blob_stat(struct remote *remote, const char *repository, const struct digest *digest,
                       remote_progress progress, void *arg, uint64_t *ret_size, struct err *err);
int registry_stream_open(struct remote *remote, const char *repository, remote_progress progress,
                         void *arg, struct remote_stream **ret, struct err *err);
int registry_blob_get(struct remote *remote, const char *repository, const struct digest *digest,
                      uint64_t size, remote_sink sink, void *sink_arg, remote_progress progress,
                      void *progress_arg, struct err *err);
int registry_blob_read(struct remote *remote, const char *repository, const struct digest *digest,
                       uint64_t offset, void *into, size_t len, remote_progress progress,
                       void *progress_arg, struct err *err);
int registry_blob_probe(struct remote *remote, const char *repository, const struct digest *digest,
                        uint64_t size, remote_progress progress, void *arg, uint64_t *ret_size,
                        struct err *err);
int registry_manifest_get(struct remote *remote, const char *repository, const char *reference,
                          remote_progress progress, void *progress_arg, struct remote_manifest *ret,
                          struct err *err);
int registry_manifest_put(struct remote *remote, const char *repository, const char *tag,
                          const char *media_type, const void *bytes, size_t len, bool claim,
                          remote_progress progress, void *arg, struct remote_missing *missing,
                          struct err *err);
int registry_manifest_delete(struct remote *remote, const char *repository,
                             const struct digest *digest, const char *only,
                             remote_progress progress, void *arg, struct err *err);
int registry_manifest_stat(struct remote *remote, const char *repository, const char *reference,
                           remote_progress progress, void *progress_arg,
                           struct remote_manifest_stat *ret, struct err *err);
int registry_tags_list(struct remote *remote, const char *repository, remote_progress progress,
                       void *progress_arg, struct remote_tags *ret, struct err *err);
int registry_tag_delete(struct remote *remote, const char *repository, const char *tag,
                        const struct digest *expected, remote_progress progress, void *arg,
                        struct err *err);
int registry_referrers_list(struct remote *remote, const char *repository,
                            const struct digest *subject, remote_progress progress,
                            void *progress_arg, struct remote_referrers *ret, struct err *err);

/* Adds a manifest that has a subject and was just put to the subject's list of referrers, unless
 * the answer to the PUT says that the registry keeps that list itself. */
int registry_referrers_note(struct remote *remote, const char *repository,
                            const struct remote_manifest *manifest,
                            const struct registry_http_response *response, remote_progress progress,
                            void *arg, struct err *err);

/* As the operation, for who pushes: see registry_call_as_pusher(). */
int registry_manifest_get_as_pusher(struct remote *remote, const char *repository,
                                    const char *reference, remote_progress progress,
                                    void *progress_arg, struct remote_manifest *ret,
                                    struct err *err);

/* The Accept headers of requests for manifests. */
extern const char *const registry_manifest_accept[];
/* The known type that a Content-Type names, parameters such as a charset left out; else NULL. */
const char *registry_manifest_type(const char *content_type);
/* What goes into the URL and into messages is checked before anything else. */
int registry_manifest_check_names(const char *repository, const char *reference, struct err *err);
