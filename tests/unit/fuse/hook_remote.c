#include "hook_remote.h"

#include <string.h>

static struct hook_remote *hook_of(struct remote *remote)
{
    return (struct hook_remote *)remote;
}

static int before(struct remote *remote, const char *what, const char *name, struct err *err)
{
    struct hook_remote *hook = hook_of(remote);
    int call = atomic_fetch_add(&hook->calls, 1) + 1;
    if (hook->fail_at == call)
        return err_fail(err, ERR_UNREACHABLE, "call %d (%s %s) was made to fail", call, what, name);
    return hook->before ? hook->before(hook->arg, what, name, err) : 0;
}

#define PASS(operation_, name_, err_, ...)                                                         \
    do {                                                                                           \
        int before_rc = before(remote, #operation_, name_, err_);                                  \
        struct remote *to = hook_of(remote)->to;                                                   \
        return before_rc < 0 ? before_rc : to->ops->operation_(to, __VA_ARGS__, err_);             \
    } while (0)

static int pass_blob_stat(struct remote *remote, const char *repository,
                          const struct digest *digest, remote_progress progress, void *arg,
                          uint64_t *ret_size, struct err *err)
{
    PASS(blob_stat, digest_hex(digest).s, err, repository, digest, progress, arg, ret_size);
}

static int pass_blob_put(struct remote *remote, const char *repository, const struct digest *digest,
                         int fd, uint64_t size, remote_progress progress, void *arg,
                         struct remote_upload *upload, struct err *err)
{
    atomic_fetch_add(&hook_of(remote)->puts, 1);
    PASS(blob_put, digest_hex(digest).s, err, repository, digest, fd, size, progress, arg, upload);
}

static int pass_blob_read(struct remote *remote, const char *repository,
                          const struct digest *digest, uint64_t offset, void *into, size_t len,
                          remote_progress progress, void *arg, struct err *err)
{
    atomic_fetch_add(&hook_of(remote)->read, len);
    PASS(blob_read, digest_hex(digest).s, err, repository, digest, offset, into, len, progress,
         arg);
}

static int pass_blob_get(struct remote *remote, const char *repository, const struct digest *digest,
                         uint64_t size, remote_sink sink, void *sink_arg, remote_progress progress,
                         void *arg, struct err *err)
{
    PASS(blob_get, digest_hex(digest).s, err, repository, digest, size, sink, sink_arg, progress,
         arg);
}

static int pass_blob_probe(struct remote *remote, const char *repository,
                           const struct digest *digest, uint64_t size, remote_progress progress,
                           void *arg, uint64_t *ret_size, struct err *err)
{
    PASS(blob_probe, digest_hex(digest).s, err, repository, digest, size, progress, arg, ret_size);
}

static int pass_manifest_get(struct remote *remote, const char *repository, const char *reference,
                             remote_progress progress, void *arg, struct remote_manifest *ret,
                             struct err *err)
{
    PASS(manifest_get, reference, err, repository, reference, progress, arg, ret);
}

static int pass_manifest_stat(struct remote *remote, const char *repository, const char *reference,
                              remote_progress progress, void *arg, struct remote_manifest_stat *ret,
                              struct err *err)
{
    PASS(manifest_stat, reference, err, repository, reference, progress, arg, ret);
}

static int pass_manifest_put(struct remote *remote, const char *repository, const char *tag,
                             const char *media_type, const void *bytes, size_t len, bool claim,
                             remote_progress progress, void *arg, struct remote_missing *missing,
                             struct err *err)
{
    PASS(manifest_put, tag ? tag : "", err, repository, tag, media_type, bytes, len, claim,
         progress, arg, missing);
}

static int pass_manifest_swap(struct remote *remote, const char *repository,
                              const struct remote_choice *choice, const char *media_type,
                              const void *bytes, size_t len, remote_progress progress, void *arg,
                              struct remote_missing *missing, struct err *err)
{
    PASS(manifest_swap, "", err, repository, choice, media_type, bytes, len, progress, arg,
         missing);
}

static int pass_tags_list(struct remote *remote, const char *repository, remote_progress progress,
                          void *arg, struct remote_tags *ret, struct err *err)
{
    PASS(tags_list, "", err, repository, progress, arg, ret);
}

/* Without what checkpoints do not use. */
#define COMMON_OPS                                                                                 \
    .blob_stat = pass_blob_stat, .blob_put = pass_blob_put, .blob_get = pass_blob_get,             \
    .blob_read = pass_blob_read, .blob_probe = pass_blob_probe, .manifest_get = pass_manifest_get, \
    .manifest_stat = pass_manifest_stat, .manifest_put = pass_manifest_put,                        \
    .tags_list = pass_tags_list

static const struct remote_ops all_ops = {COMMON_OPS, .manifest_swap = pass_manifest_swap};
static const struct remote_ops swapless_ops = {COMMON_OPS};

struct remote *hook_remote_init(struct hook_remote *hook, struct remote *to)
{
    hook->to = to;
    hook->remote = (struct remote){.ops = hook->swapless ? &swapless_ops : &all_ops,
                                   .url = strdup(to->url),
                                   .host = strdup(to->host),
                                   .prefix = strdup(to->prefix)};
    return &hook->remote;
}

void hook_remote_free(struct hook_remote *hook)
{
    free(hook->remote.url);
    free(hook->remote.host);
    free(hook->remote.prefix);
}
