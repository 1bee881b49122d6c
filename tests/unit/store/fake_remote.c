#include "fake_remote.h"

#include "store_fixture.h"

#include <stdlib.h>
#include <string.h>

static struct fake_remote *fake_of(struct remote *remote)
{
    return (struct fake_remote *)remote;
}

static int fake_blob_stat(struct remote *remote, const char *repository,
                          const struct digest *digest, remote_progress progress, void *arg,
                          uint64_t *ret_size, struct err *err)
{
    (void)repository, (void)digest, (void)progress, (void)arg;
    struct fake_remote *fake = fake_of(remote);
    int turn = fake->stats > 0;
    fake->stats++;
    if (fake->stat_answers[turn] < 0)
        return err_fail(err, ERR_UNREACHABLE, "nobody answers");
    *ret_size = fake->stat_sizes[turn];
    return fake->stat_answers[turn];
}

static int fake_blob_put(struct remote *remote, const char *repository, const struct digest *digest,
                         int fd, uint64_t size, remote_progress progress, void *arg,
                         struct remote_upload *upload, struct err *err)
{
    (void)repository, (void)digest, (void)fd;
    struct fake_remote *fake = fake_of(remote);
    fake->puts++;
    upload->sent += size;
    if (progress && progress(arg, size, size) != 0)
        return err_fail(err, ERR_CANCELLED, "cancelled");
    if (fake->put_rc < 0)
        return err_fail(err, ERR_REFUSED, "digest invalid");
    return 0;
}

static int fake_blob_get(struct remote *remote, const char *repository, const struct digest *digest,
                         uint64_t size, remote_sink sink, void *arg, remote_progress progress,
                         void *progress_arg, struct err *err)
{
    (void)repository, (void)digest, (void)size;
    struct fake_remote *fake = fake_of(remote);
    fake->gets++;
    (void)progress, (void)progress_arg;
    if (!fake->chunks[0])
        return err_fail(err, ERR_NOT_FOUND, "no such blob");
    for (size_t i = 0; i < ARRAY_SIZE(fake->chunks) && fake->chunks[i]; i++) {
        int rc = sink(arg, fake->chunks[i], strlen(fake->chunks[i]), err);
        if (rc < 0 && !fake->ignores_sink)
            return rc;
    }
    return 0;
}

static int fake_blob_probe(struct remote *remote, const char *repository,
                           const struct digest *digest, uint64_t size, remote_progress progress,
                           void *arg, uint64_t *ret_size, struct err *err)
{
    (void)size;
    struct fake_remote *fake = fake_of(remote);
    fake->probes++;
    if (fake->keeps_nothing)
        return 0;
    return fake_blob_stat(remote, repository, digest, progress, arg, ret_size, err);
}

static int fake_manifest_get(struct remote *remote, const char *repository, const char *reference,
                             remote_progress progress, void *progress_arg,
                             struct remote_manifest *ret, struct err *err)
{
    (void)repository, (void)reference, (void)progress, (void)progress_arg;
    struct fake_remote *fake = fake_of(remote);
    if (!fake->manifest)
        return err_fail(err, ERR_NOT_FOUND, "no such manifest");
    *ret = (struct remote_manifest){
        .bytes = strdup(fake->manifest),
        .len = strlen(fake->manifest),
        .media_type = fake->media_type ? strdup(fake->media_type) : NULL,
    };
    memset(&ret->digest, 0xee, sizeof ret->digest); /* never to be believed */
    return 0;
}

static int fake_manifest_stat(struct remote *remote, const char *repository, const char *reference,
                              remote_progress progress, void *progress_arg,
                              struct remote_manifest_stat *ret, struct err *err)
{
    (void)repository, (void)reference, (void)progress, (void)progress_arg;
    struct fake_remote *fake = fake_of(remote);
    if (fake->tagless)
        return err_fail(err, ERR_NOT_FOUND, "no such tag");
    *ret = (struct remote_manifest_stat){
        .digest = store_digest(fake->tagged ? fake->tagged : fake->manifest)};
    return 0;
}

static int fake_manifest_put(struct remote *remote, const char *repository, const char *tag,
                             const char *media_type, const void *bytes, size_t len, bool claim,
                             remote_progress progress, void *arg, struct remote_missing *missing,
                             struct err *err)
{
    (void)repository, (void)bytes, (void)len, (void)progress, (void)arg, (void)missing, (void)err;
    (void)claim;
    fake_of(remote)->tag_got = tag ? tag : "";
    fake_of(remote)->media_type = media_type;
    return 0;
}

static int fake_manifest_delete(struct remote *remote, const char *repository,
                                const struct digest *digest, const char *only,
                                remote_progress progress, void *arg, struct err *err)
{
    (void)repository, (void)digest, (void)only, (void)progress, (void)arg;
    (void)err;
    fake_of(remote)->deletes++;
    return 0;
}

static void fake_close(struct remote *remote)
{
    free(remote);
}

static const struct remote_ops fake_ops = {
    .blob_stat = fake_blob_stat,
    .blob_put = fake_blob_put,
    .blob_get = fake_blob_get,
    .blob_probe = fake_blob_probe,
    .manifest_get = fake_manifest_get,
    .manifest_stat = fake_manifest_stat,
    .manifest_put = fake_manifest_put,
    .manifest_delete = fake_manifest_delete,
    .close = fake_close,
};

struct fake_remote *fake_remote_open(const char *host, const char *prefix)
{
    struct fake_remote *fake = calloc(1, sizeof *fake);
    fake->remote = (struct remote){.ops = &fake_ops,
                                   .url = strdup("fake://x"),
                                   .host = strdup(host),
                                   .prefix = strdup(prefix)};
    return fake;
}

void fake_remote_closep(struct fake_remote **fake)
{
    remote_close(&(*fake)->remote);
}
