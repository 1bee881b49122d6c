#include "convert.h"
#include "export_internal.h"
#include "publish.h"

#include <string.h>
#include <sys/stat.h>

enum {
    NAME_MAX_LEN = 128, /* room for "<hex>/layer.tar" */
};

/* A file in the archive beside manifest.json. */
struct member {
    char hex[DIGEST_HEX_LEN + 1];
    bool is_config;
    size_t layer; /* index of the first layer with these bytes */
};

static int compare(const void *a, const void *b)
{
    const struct member *first = a;
    const struct member *second = b;
    return strcmp(first->hex, second->hex);
}

/* Config and layers, each once, in the order of their names. */
static size_t list_members(const struct commit_image *image, struct member *ret)
{
    size_t count = 0;
    for (size_t i = 0; i < image->manifest.layer_count; i++) {
        const struct digest *diff_id = &image->config.diff_ids[i];
        bool seen = false;
        for (size_t j = 0; j < i && !seen; j++)
            seen = digest_equal(diff_id, &image->config.diff_ids[j]);
        if (seen)
            continue;
        memcpy(ret[count].hex, digest_hex(diff_id).s, sizeof ret[count].hex);
        ret[count].is_config = false;
        ret[count++].layer = i;
    }
    memcpy(ret[count].hex, digest_hex(&image->manifest.config.digest).s, sizeof ret[count].hex);
    ret[count].is_config = true;
    ret[count++].layer = 0;
    qsort(ret, count, sizeof *ret, compare);
    return count;
}

/* The daemon's stop ends a conversion too. */
static int on_tick(void *arg, struct err *err)
{
    const struct export *export = arg;
    return job_progress(export->job, export->done, export->total, "bytes", err);
}

/* Unpacks a blob into `target_fd`, in a confined child: what is in it is anybody's. */
static int unpack(struct export *export, const struct oci_descriptor *layer,
                  const struct digest *diff_id, int target_fd, uint64_t *ret_size, struct err *err)
{
    cleanup_fd int blob_fd = export_open_blob(export, layer, err);
    if (blob_fd < 0)
        return blob_fd;
    const struct convert_request request = {.blob_fd = blob_fd,
                                            .target_fd = target_fd,
                                            .mode = CONVERT_TAR,
                                            .diff_id = diff_id,
                                            .blob_size = (uint64_t)layer->size};
    struct convert_result result = {0};
    int rc = convert_file(&request, on_tick, export, &result, err);
    if (rc < 0 && err->code == ERR_DAMAGED)
        err_hint(err, "remove the image and pull or import it again");
    if (rc < 0)
        return err_wrap(err, rc, "cannot unpack layer %s", digest_format(&layer->digest).s);
    *ret_size = result.tar_bytes;
    convert_result_free(&result);
    return 0;
}

/* The header needs the size, which is known when the layer is unpacked. */
static int add_layer(struct export *export, const struct member *member, struct err *err)
{
    const struct oci_descriptor *layer = &export->image.manifest.layers[member->layer];
    const struct digest *diff_id = &export->image.config.diff_ids[member->layer];
    cleanup_publish struct publish unpacked = PUBLISH_INIT;
    uint64_t size = 0;
    int rc = publish_begin(export->node->temp_fd, 0600, &unpacked, err);
    if (rc == 0)
        rc = unpack(export, layer, diff_id, unpacked.fd, &size, err);
    if (rc < 0)
        return rc;
    if (lseek(unpacked.fd, 0, SEEK_SET) < 0)
        return err_errno(err, errno, "cannot read an unpacked layer");
    char path[NAME_MAX_LEN];
    snprintf(path, sizeof path, "%.64s", member->hex);
    rc = export_tar_dir(&export->tar, path, err);
    if (rc < 0)
        return rc;
    snprintf(path, sizeof path, "%.64s/layer.tar", member->hex);
    rc = export_copy(export, unpacked.fd, size, path, diff_id, "an unpacked layer", false, err);
    export->done += (uint64_t)layer->size;
    return rc;
}

static int add_config(struct export *export, const struct member *member, struct err *err)
{
    const struct buf *text = &export->image.config_text;
    char path[NAME_MAX_LEN];
    snprintf(path, sizeof path, "%.64s.json", member->hex);
    export->done += text->len;
    return export_tar_bytes(&export->tar, path, buf_str(text), text->len, err);
}

static int add_manifest(struct export *export, struct err *err)
{
    const struct commit_image *image = &export->image;
    cleanup_json json_t *layers = json_array();
    char path[NAME_MAX_LEN];
    for (size_t i = 0; i < image->manifest.layer_count; i++) {
        snprintf(path, sizeof path, "%s/layer.tar", digest_hex(&image->config.diff_ids[i]).s);
        if (json_array_append_new(layers, json_string(path)) < 0)
            return err_errno(err, ENOMEM, "cannot write manifest.json");
    }
    snprintf(path, sizeof path, "%s.json", digest_hex(&image->manifest.config.digest).s);
    json_t *tags = export->name ? json_pack("[s]", export->name) : json_null();
    cleanup_json json_t *manifest =
        json_pack("[{s:s, s:o, s:O}]", "Config", path, "RepoTags", tags, "Layers", layers);
    cleanup_free char *text = manifest ? json_doc_dump(manifest) : NULL;
    if (!text)
        return err_errno(err, ENOMEM, "cannot write manifest.json");
    return export_tar_bytes(&export->tar, "manifest.json", text, strlen(text), err);
}

int export_docker(struct export *export, struct err *err)
{
    struct member members[OCI_LAYERS_MAX + 1];
    const struct commit_image *image = &export->image;
    size_t count = list_members(image, members);
    export->total = image->config_text.len;
    for (size_t i = 0; i < count; i++)
        if (!members[i].is_config)
            export->total += (uint64_t)image->manifest.layers[members[i].layer].size;
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = members[i].is_config ? add_config(export, &members[i], err)
                                  : add_layer(export, &members[i], err);
    return rc == 0 ? add_manifest(export, err) : rc;
}
