#include "commit_image.h"

#include "log.h"
#include "remote.h"

#include <string.h>

void commit_image_init(struct commit_image *image)
{
    *image = (struct commit_image){
        .manifest_text = BUF_INIT(REMOTE_MANIFEST_MAX),
        .config_text = BUF_INIT(JSON_DOC_BYTES_MAX),
    };
}

void commit_image_free(struct commit_image *image)
{
    buf_free(&image->manifest_text);
    buf_free(&image->config_text);
    oci_manifest_free(&image->manifest);
    oci_config_free(&image->config);
    *image = (struct commit_image){0};
}

/* Reads a document and compares its size with what its descriptor says. */
static int read_document(struct blobs *blobs, const struct digest *digest, int64_t size,
                         struct buf *ret, struct err *err)
{
    ret->len = 0;
    int rc = blobs_read(blobs, digest, ret, err);
    if (rc == 0 && (size < 0 || (uint64_t)size != ret->len))
        rc = err_fail(err, ERR_DIGEST, "%s has %zu bytes, but its descriptor says %lld",
                      digest_format(digest).s, ret->len, (long long)size);
    return rc;
}

static int parse_config(struct commit_image *image, struct err *err)
{
    return oci_config_parse(buf_str(&image->config_text), image->config_text.len,
                            image->manifest.layer_count, &image->config, err);
}

int commit_image_read(struct blobs *blobs, const struct oci_descriptor *descriptor,
                      struct commit_image *ret, struct err *err)
{
    int rc = read_document(blobs, &descriptor->digest, descriptor->size, &ret->manifest_text, err);
    if (rc == 0)
        rc = oci_manifest_parse(buf_str(&ret->manifest_text), ret->manifest_text.len,
                                descriptor->media_type, &ret->manifest, err);
    if (rc == 0)
        rc = read_document(blobs, &ret->manifest.config.digest, ret->manifest.config.size,
                           &ret->config_text, err);
    if (rc == 0)
        rc = parse_config(ret, err);
    ret->digest = descriptor->digest;
    return rc;
}

int commit_image_of_catalog(struct blobs *blobs, const struct catalog_image *record,
                            struct commit_image *ret, struct err *err)
{
    struct oci_descriptor descriptor = {.media_type = record->media_type, .size = record->size};
    int rc = digest_parse(record->digest, &descriptor.digest, err);
    if (rc == 0)
        rc = commit_image_read(blobs, &descriptor, ret, err);
    return rc < 0 ? err_wrap(err, rc, "cannot read image %.19s", record->digest) : 0;
}

int commit_image_set(struct commit_image *image, const char *manifest, const char *config,
                     struct err *err)
{
    image->manifest_text.len = 0;
    image->config_text.len = 0;
    int rc = buf_add(&image->manifest_text, manifest, strlen(manifest), "the manifest", err);
    if (rc == 0)
        rc = buf_add(&image->config_text, config, strlen(config), "the config", err);
    if (rc == 0)
        rc = digest_bytes(manifest, strlen(manifest), &image->digest, err);
    if (rc == 0)
        rc = oci_manifest_parse(manifest, strlen(manifest), OCI_MEDIA_MANIFEST, &image->manifest,
                                err);
    return rc == 0 ? parse_config(image, err) : rc;
}

static int copy_text(const char *text, char **ret, struct err *err)
{
    *ret = strdup(text);
    return *ret ? 0 : err_errno(err, ENOMEM, "cannot record an image");
}

static int record_layers(const struct commit_image *image, struct catalog_image *ret,
                         struct err *err)
{
    size_t count = image->manifest.layer_count;
    cleanup_free struct digest *chain = calloc(count, sizeof *chain);
    ret->layers = calloc(count, sizeof *ret->layers);
    if (!chain || !ret->layers)
        return err_errno(err, ENOMEM, "cannot record an image");
    ret->layer_count = count;
    int rc = oci_chain_ids(image->config.diff_ids, count, chain, err);
    for (size_t i = 0; i < count && rc == 0; i++) {
        const struct oci_descriptor *layer = &image->manifest.layers[i];
        struct catalog_layer *row = &ret->layers[i];
        row->size = layer->size;
        rc = copy_text(digest_format(&layer->digest).s, &row->digest, err);
        if (rc == 0)
            rc = copy_text(layer->media_type, &row->media_type, err);
        if (rc == 0)
            rc = copy_text(digest_format(&image->config.diff_ids[i]).s, &row->diff_id, err);
        if (rc == 0)
            rc = copy_text(digest_format(&chain[i]).s, &row->chain_id, err);
    }
    return rc;
}

static int record_platform(const struct oci_config *config, struct catalog_image *ret,
                           struct err *err)
{
    if (!config->os || !config->architecture)
        return 0;
    if (asprintf(&ret->platform, "%s/%s", config->os, config->architecture) >= 0)
        return 0;
    ret->platform = NULL;
    return err_errno(err, ENOMEM, "cannot record an image");
}

int commit_image_record(const struct commit_image *image, const char *origin,
                        struct catalog_image *ret, struct err *err)
{
    cleanup_catalog_image struct catalog_image record = {
        .size = (int64_t)image->manifest_text.len,
        .config_size = image->manifest.config.size,
    };
    int rc = copy_text(digest_format(&image->digest).s, &record.digest, err);
    if (rc == 0)
        rc = copy_text(image->manifest.media_type, &record.media_type, err);
    if (rc == 0)
        rc = copy_text(digest_format(&image->manifest.config.digest).s, &record.config_digest, err);
    if (rc == 0)
        rc = copy_text(origin, &record.origin, err);
    if (rc == 0)
        rc = record_platform(&image->config, &record, err);
    if (rc == 0)
        rc = record_layers(image, &record, err);
    if (rc < 0)
        return rc;
    *ret = record;
    record = (struct catalog_image){0};
    return 0;
}

/* Fails when the name stands for another image; *ret says whether it stands for this one. */
static int check_name(struct catalog *catalog, const char *name, const struct digest *digest,
                      bool *ret, struct err *err)
{
    cleanup_free char *have = NULL;
    struct err failure = ERR_INIT;
    int rc = err_found(err, catalog_image_name_get(catalog, name, &have, &failure), &failure);
    if (rc < 0)
        return rc;
    *ret = rc == 1;
    if (rc == 0 || strcmp(have, digest_format(digest).s) == 0)
        return 0;
    rc = err_fail(err, ERR_EXISTS, "the name %s stands for another image (%.19s)", name, have);
    err_hint(err, "choose another name, or remove that one: varve image rm %s", name);
    return rc;
}

int commit_image_check_name(struct catalog *catalog, const char *name, const struct digest *digest,
                            struct err *err)
{
    bool named;
    return check_name(catalog, name, digest, &named, err);
}

/* Whether the catalog has the image. */
static int is_known(struct catalog *catalog, const char *digest, bool *ret, struct err *err)
{
    cleanup_catalog_image struct catalog_image image = {0};
    struct err failure = ERR_INIT;
    int rc = err_found(err, catalog_image_get(catalog, digest, &image, &failure), &failure);
    if (rc < 0)
        return rc;
    *ret = rc == 1;
    return 0;
}

int commit_image_put(struct catalog *catalog, const struct commit_image *image, const char *origin,
                     const char *name, struct commit_added *ret, struct err *err)
{
    cleanup_catalog_image struct catalog_image record = {0};
    bool known = false;
    bool named = false;
    int rc = commit_image_record(image, origin, &record, err);
    if (rc == 0)
        rc = is_known(catalog, record.digest, &known, err);
    if (rc == 0)
        rc = check_name(catalog, name, &image->digest, &named, err);
    if (rc == 0)
        rc = catalog_image_put(catalog, &record, err);
    if (rc == 0)
        rc = catalog_image_name_set(catalog, name, record.digest, false, err);
    if (rc == 0)
        *ret = (struct commit_added){.image = !known, .name = !named};
    return rc;
}

/* What is not there was not recorded: a failed commit leaves it open. */
void commit_image_take_back(struct catalog *catalog, const struct commit_image *image,
                            const char *name, const struct commit_added *added)
{
    struct digest_text digest = digest_format(&image->digest);
    struct err failure = ERR_INIT;
    int rc = added->image ? catalog_image_remove(catalog, digest.s, &failure) : 0;
    if (rc == 0 && added->name && !added->image)
        rc = catalog_image_name_remove(catalog, name, &failure);
    if (rc < 0 && failure.code != ERR_NOT_FOUND)
        log_event(LOG_WARN, "image-not-taken-back", "image", digest.s, "error", failure.text, NULL);
}

int64_t commit_image_layer_bytes(const struct commit_image *image)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < image->manifest.layer_count; i++)
        bytes += image->manifest.layers[i].size;
    return bytes;
}

int64_t commit_image_bytes(const struct commit_image *image)
{
    return commit_image_layer_bytes(image) + (int64_t)image->manifest_text.len +
           image->manifest.config.size;
}
