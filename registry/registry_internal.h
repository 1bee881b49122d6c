/* registry_internal.h - what the files of the registry client share. For them and for tests only.
 */
#pragma once

#include "registry.h"
#include "registry_http.h"

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

/* The operations, as in struct remote_ops. */
int registry_blob_stat(struct remote *remote, const char *repository, const struct digest *digest,
                       remote_progress progress, void *arg, uint64_t *ret_size, struct err *err);
int registry_blob_put(struct remote *remote, const char *repository, const struct digest *digest,
                      int fd, uint64_t size, remote_progress progress, void *arg,
                      struct remote_upload *upload, struct err *err);
int registry_blob_get(struct remote *remote, const char *repository, const struct digest *digest,
                      uint64_t size, remote_sink sink, void *sink_arg, remote_progress progress,
                      void *progress_arg, struct err *err);
int registry_manifest_get(struct remote *remote, const char *repository, const char *reference,
                          remote_progress progress, void *progress_arg, struct remote_manifest *ret,
                          struct err *err);
int registry_manifest_put(struct remote *remote, const char *repository, const char *tag,
                          const char *media_type, const void *bytes, size_t len,
                          remote_progress progress, void *arg, struct remote_missing *missing,
                          struct err *err);
int registry_manifest_delete(struct remote *remote, const char *repository,
                             const struct digest *digest, const char *only, struct err *err);
