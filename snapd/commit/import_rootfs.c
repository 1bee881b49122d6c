#include "import_internal.h"

#include "commit_layer.h"
#include "elf_arch.h"

#include <string.h>

/* Stores config and manifest of an image of this one layer. */
static int make_image(struct import *import, const struct capture_result *layer,
                      const char *architecture, struct err *err)
{
    const struct oci_new_layer new_layer = {
        .digest = layer->digest,
        .size = (int64_t)layer->size,
        .media_type = OCI_MEDIA_LAYER_ZSTD,
        .diff_id = layer->diff_id,
        .created_by = "varve image import",
    };
    cleanup_free char *config = NULL;
    cleanup_free char *manifest = NULL;
    struct oci_descriptor config_ref = {.media_type = (char *)OCI_MEDIA_CONFIG};
    struct oci_descriptor layer_ref = {.media_type = (char *)OCI_MEDIA_LAYER_ZSTD,
                                       .digest = layer->digest,
                                       .size = (int64_t)layer->size};
    struct digest digest;
    int rc = oci_config_new(architecture, &new_layer, &config, err);
    if (rc == 0)
        rc = commit_blobs_put(import->job, config, strlen(config), &config_ref.digest, err);
    if (rc < 0)
        return rc;
    config_ref.size = (int64_t)strlen(config);
    rc = oci_manifest_new(&config_ref, &layer_ref, 1, NULL, &manifest, err);
    if (rc == 0)
        rc = commit_blobs_put(import->job, manifest, strlen(manifest), &digest, err);
    return rc == 0 ? commit_image_set(&import->image, manifest, config, err) : rc;
}

int import_rootfs(struct import *import, int root_fd, struct err *err)
{
    cleanup_capture_result struct capture_result layer = {.skipped = NULL};
    int rc = job_step(import->job, "capture", err);
    if (rc == 0)
        rc = commit_layer_capture(import->job, root_fd, CAPTURE_ROOTFS, &layer, err);
    if (rc < 0)
        return rc;
    return make_image(import, &layer, elf_arch_of_tree(root_fd), err);
}
