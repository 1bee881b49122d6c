#include "checkpoint_parts.h"

#include "cleanup.h"

#include <inttypes.h>
#include <string.h>

int checkpoint_ask_stop(remote_progress stop, void *arg, struct err *err)
{
    if (stop && stop(arg, 0, 0))
        return err_fail(err, ERR_CANCELLED, "reading a checkpoint was ended");
    return 0;
}

int checkpoint_read_blob(struct checkpoint *checkpoint, const struct checkpoint_blob *blob,
                         void *ret, const char *what, remote_progress stop, void *arg,
                         struct err *err)
{
    struct digest got;
    int rc = remote_blob_read(checkpoint->remote, checkpoint->repository, &blob->digest, 0, ret,
                              blob->size, stop, arg, err);
    if (rc == 0)
        rc = digest_bytes(ret, blob->size, &got, err);
    if (rc == 0 && !digest_equal(&got, &blob->digest))
        rc = err_fail(err, ERR_DIGEST, "blob %s has other bytes, with the digest %s",
                      digest_format(&blob->digest).s, digest_format(&got).s);
    return rc < 0 ? err_wrap(err, rc, "%s of a checkpoint", what) : 0;
}

int checkpoint_read_manifest(struct checkpoint *checkpoint, const struct checkpoint_blob *blob,
                             const char *what, remote_progress stop, void *arg,
                             struct remote_manifest *ret, struct err *err)
{
    const struct digest_text name = digest_format(&blob->digest);
    cleanup_remote_manifest struct remote_manifest manifest = {.bytes = NULL};
    int rc = remote_manifest_get_or_stop(checkpoint->remote, checkpoint->repository, name.s, stop,
                                         arg, &manifest, err);
    if (rc == 0 && manifest.len != blob->size)
        rc = err_fail(err, ERR_DIGEST, "manifest %s has %zu bytes instead of %" PRIu64, name.s,
                      manifest.len, blob->size);
    if (rc < 0)
        return err_wrap(err, rc, "%s of a checkpoint", what);
    *ret = manifest;
    manifest = (struct remote_manifest){.bytes = NULL};
    return 0;
}

static int read_index(struct checkpoint *checkpoint, const char *reference, remote_progress stop,
                      void *arg, struct err *err)
{
    cleanup_remote_manifest struct remote_manifest manifest = {.bytes = NULL};
    int rc = remote_manifest_get_or_stop(checkpoint->remote, checkpoint->repository, reference,
                                         stop, arg, &manifest, err);
    if (rc < 0)
        return rc;
    checkpoint->digest = manifest.digest;
    if (manifest.len > CHECKPOINT_MANIFEST_BYTES_MAX)
        return err_fail(err, ERR_TOO_LARGE, "%s has %zu bytes", reference, manifest.len);
    return checkpoint_index_decode(manifest.bytes, manifest.len, &checkpoint->index, err);
}

/* The annotations are for people and for who lists tags; what counts is the config. */
static int compare_index(const struct checkpoint_index *index,
                         const struct checkpoint_config *config, struct err *err)
{
    const char *what = NULL;
    if (strcmp(index->volume, config->volume) != 0)
        what = "volume";
    else if (index->generation != config->generation)
        what = "generation";
    else if (index->token != config->token)
        what = "token";
    else if (strcmp(index->node, config->node) != 0)
        what = "node";
    else if (index->has_parent != config->has_parent ||
             (index->has_parent && !digest_equal(&index->parent, &config->parent)))
        what = "parent";
    return what ? err_fail(err, ERR_DAMAGED, "index and config name another %s", what) : 0;
}

static int read_config(struct checkpoint *checkpoint, const struct checkpoint_blob *blob,
                       const struct hmac_key *key, remote_progress stop, void *arg, struct err *err)
{
    if (blob->size == 0 || blob->size > CHECKPOINT_CONFIG_BYTES_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the config of a checkpoint has %" PRIu64 " bytes",
                        blob->size);
    cleanup_free char *bytes = malloc(blob->size);
    if (!bytes)
        return err_errno(err, ENOMEM, "cannot read the config of a checkpoint");
    int rc = checkpoint_read_blob(checkpoint, blob, bytes, "the config", stop, arg, err);
    if (rc == 0)
        rc = checkpoint_config_decode(bytes, blob->size, &checkpoint->config, err);
    if (rc == 0 && key)
        rc = checkpoint_config_verify(&checkpoint->config, key, err);
    return rc < 0 ? rc : compare_index(&checkpoint->index, &checkpoint->config, err);
}

static int decode_root(struct checkpoint *checkpoint, const uint8_t *bytes, size_t len,
                       struct err *err)
{
    struct volume_root *root = checkpoint->root;
    int rc = volume_root_decode(bytes, len, root, err);
    if (rc < 0)
        return rc;
    if (root->size != checkpoint->config.size)
        return err_fail(err, ERR_DAMAGED,
                        "the root is of a volume of %" PRIu64
                        " bytes, the config of one of %" PRIu64,
                        root->size, checkpoint->config.size);
    size_t at = volume_root_bytes(root);
    return root->has_usage ? pack_usage_decode(bytes + at, len - at, root->leaf_count,
                                               &checkpoint->pack_uses, &checkpoint->use_count, err)
                           : 0;
}

static int read_root(struct checkpoint *checkpoint, const struct checkpoint_blob *blob,
                     remote_progress stop, void *arg, struct err *err)
{
    if (!digest_equal(&blob->digest, &checkpoint->config.root))
        return err_fail(err, ERR_DAMAGED, "root manifest and config name another root");
    if (blob->size < VOLUME_ROOT_HEAD || blob->size > CHECKPOINT_ROOT_BYTES_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the root of a checkpoint has %" PRIu64 " bytes",
                        blob->size);
    cleanup_free uint8_t *bytes = malloc(blob->size);
    checkpoint->root = malloc(sizeof *checkpoint->root);
    if (!bytes || !checkpoint->root)
        return err_errno(err, ENOMEM, "cannot read the root of a checkpoint");
    int rc = checkpoint_read_blob(checkpoint, blob, bytes, "the root", stop, arg, err);
    return rc == 0 ? decode_root(checkpoint, bytes, blob->size, err) : rc;
}

static int load(struct checkpoint *checkpoint, const struct hmac_key *key, const char *reference,
                remote_progress stop, void *arg, struct err *err)
{
    cleanup_remote_manifest struct remote_manifest manifest = {.bytes = NULL};
    struct checkpoint_root_manifest parts;
    int rc = read_index(checkpoint, reference, stop, arg, err);
    if (rc == 0)
        rc = checkpoint_read_manifest(checkpoint, &checkpoint->index.root_manifest,
                                      "the root manifest", stop, arg, &manifest, err);
    if (rc == 0)
        rc = checkpoint_root_decode(manifest.bytes, manifest.len, &parts, err);
    if (rc == 0)
        rc = read_config(checkpoint, &parts.config, key, stop, arg, err);
    if (rc == 0)
        rc = read_root(checkpoint, &parts.root, stop, arg, err);
    return rc < 0 ? rc : checkpoint_packs_load(checkpoint, stop, arg, err);
}

static struct checkpoint *make(const struct checkpoint_options *options)
{
    pthread_condattr_t monotonic;
    struct checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (!checkpoint)
        return NULL;
    checkpoint->remote = options->remote;
    checkpoint->repository = strdup(options->repository);
    (void)pthread_mutex_init(&checkpoint->lock, NULL); /* cannot fail without attributes */
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&checkpoint->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    return checkpoint;
}

int checkpoint_open(const struct checkpoint_options *options, const char *reference,
                    remote_progress stop, void *arg, struct checkpoint **ret, struct err *err)
{
    struct checkpoint *checkpoint = make(options);
    int rc = checkpoint && checkpoint->repository
                 ? load(checkpoint, options->key, reference, stop, arg, err)
                 : err_errno(err, ENOMEM, "no memory");
    if (rc < 0) {
        checkpoint_free(checkpoint);
        return err_wrap(err, rc, "cannot open checkpoint %s of %s", reference, options->repository);
    }
    *ret = checkpoint;
    return 0;
}

void checkpoint_free(struct checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    checkpoint_leaves_free(checkpoint);
    for (size_t i = 0; i < checkpoint->codec_count; i++)
        pack_frame_free(checkpoint->codecs[i]);
    (void)pthread_cond_destroy(&checkpoint->changed);
    (void)pthread_mutex_destroy(&checkpoint->lock);
    checkpoint_index_free(&checkpoint->index);
    checkpoint_config_free(&checkpoint->config);
    free(checkpoint->root);
    free(checkpoint->packs);
    free(checkpoint->list_packs);
    free(checkpoint->pack_uses);
    free(checkpoint->by_id);
    free(checkpoint->repository);
    free(checkpoint);
}

const struct digest *checkpoint_digest(const struct checkpoint *checkpoint)
{
    return &checkpoint->digest;
}

const struct checkpoint_config *checkpoint_config_of(const struct checkpoint *checkpoint)
{
    return &checkpoint->config;
}

const struct checkpoint_index *checkpoint_index_of(const struct checkpoint *checkpoint)
{
    return &checkpoint->index;
}

const struct volume_root *checkpoint_root_of(const struct checkpoint *checkpoint)
{
    return checkpoint->root;
}

const struct pack *checkpoint_packs_of(const struct checkpoint *checkpoint, size_t *ret_count)
{
    *ret_count = checkpoint->pack_count;
    return checkpoint->packs;
}

const uint32_t *checkpoint_list_packs(const struct checkpoint *checkpoint)
{
    return checkpoint->list_packs;
}

const struct pack_use *checkpoint_uses_of(const struct checkpoint *checkpoint)
{
    return checkpoint->pack_uses;
}
