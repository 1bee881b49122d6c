#include "blobs.h"
#include "export_internal.h"

#include <string.h>

enum {
    BLOBS_MAX = OCI_LAYERS_MAX + 2, /* with config and manifest */
    BLOB_PATH_MAX = 96,
};

static int compare(const void *a, const void *b)
{
    const struct oci_descriptor *first = a;
    const struct oci_descriptor *second = b;
    return memcmp(first->digest.bytes, second->digest.bytes, DIGEST_BYTES);
}

/* Everything that the image is made of, each once, in the order of the digests. Media types are
 * borrowed from the image. */
static size_t list_blobs(const struct commit_image *image, struct oci_descriptor *ret)
{
    size_t count = 0;
    ret[count++] = (struct oci_descriptor){.media_type = image->manifest.media_type,
                                           .digest = image->digest,
                                           .size = (int64_t)image->manifest_text.len};
    ret[count++] = image->manifest.config;
    for (size_t i = 0; i < image->manifest.layer_count; i++)
        ret[count++] = image->manifest.layers[i];
    qsort(ret, count, sizeof *ret, compare);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || !digest_equal(&ret[i].digest, &ret[kept - 1].digest))
            ret[kept++] = ret[i];
    return kept;
}

static int add_blob(struct export *export, const struct oci_descriptor *blob, struct err *err)
{
    char path[BLOB_PATH_MAX];
    snprintf(path, sizeof path, "blobs/sha256/%s", digest_hex(&blob->digest).s);
    cleanup_fd int fd = export_open_blob(export, blob, err);
    if (fd < 0)
        return fd;
    char what[BLOB_PATH_MAX];
    snprintf(what, sizeof what, "blob %s", digest_format(&blob->digest).s);
    return export_copy(export, fd, (uint64_t)blob->size, path, &blob->digest, what, true, err);
}

/* index.json with the one image. */
static int add_index(struct export *export, struct err *err)
{
    const struct commit_image *image = &export->image;
    json_t *entry = blobs_index_entry(image->manifest.media_type, digest_format(&image->digest).s,
                                      (int64_t)image->manifest_text.len, export->name);
    cleanup_json json_t *index = json_pack("{s:i, s:s, s:[o]}", "schemaVersion", 2, "mediaType",
                                           OCI_MEDIA_INDEX, "manifests", entry);
    cleanup_free char *text = index ? json_doc_dump(index) : NULL;
    if (!text)
        return err_errno(err, ENOMEM, "cannot write index.json");
    return export_tar_bytes(&export->tar, "index.json", text, strlen(text), err);
}

int export_oci(struct export *export, struct err *err)
{
    static const char layout[] = "{\"imageLayoutVersion\":\"1.0.0\"}";
    struct oci_descriptor blobs[BLOBS_MAX];
    size_t count = list_blobs(&export->image, blobs);
    for (size_t i = 0; i < count; i++)
        export->total += (uint64_t)blobs[i].size;
    int rc = export_tar_dir(&export->tar, "blobs", err);
    if (rc == 0)
        rc = export_tar_dir(&export->tar, "blobs/sha256", err);
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = add_blob(export, &blobs[i], err);
    if (rc == 0)
        rc = add_index(export, err);
    if (rc == 0)
        rc = export_tar_bytes(&export->tar, "oci-layout", layout, strlen(layout), err);
    return rc;
}
