#include "oci_image.h"

#include <string.h>

/* Docker media types and their OCI equivalents; the bytes are the same. */
static const struct {
    const char *docker;
    const char *oci;
} equivalents[] = {
    {DOCKER_MEDIA_MANIFEST, OCI_MEDIA_MANIFEST},
    {DOCKER_MEDIA_LIST, OCI_MEDIA_INDEX},
    {DOCKER_MEDIA_CONFIG, OCI_MEDIA_CONFIG},
    {DOCKER_MEDIA_LAYER, OCI_MEDIA_LAYER_GZIP},
    {"application/vnd.docker.image.rootfs.diff.tar", OCI_MEDIA_LAYER},
    {"application/vnd.docker.image.rootfs.diff.tar.zstd", OCI_MEDIA_LAYER_ZSTD},
};

const char *oci_media_to_oci(const char *media_type)
{
    for (size_t i = 0; i < ARRAY_SIZE(equivalents); i++)
        if (strcmp(media_type, equivalents[i].docker) == 0)
            return equivalents[i].oci;
    return media_type;
}

bool oci_media_is_index(const char *media_type)
{
    return strcmp(oci_media_to_oci(media_type), OCI_MEDIA_INDEX) == 0;
}

bool oci_media_is_manifest(const char *media_type)
{
    return strcmp(oci_media_to_oci(media_type), OCI_MEDIA_MANIFEST) == 0;
}

const char *oci_media_known(const char *media_type)
{
    static const char *const known[] = {OCI_MEDIA_MANIFEST, OCI_MEDIA_INDEX, DOCKER_MEDIA_MANIFEST,
                                        DOCKER_MEDIA_LIST};
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (strcmp(media_type, known[i]) == 0)
            return known[i];
    return NULL;
}

bool oci_media_is_layer(const char *media_type)
{
    static const char *const types[] = {OCI_MEDIA_LAYER, OCI_MEDIA_LAYER_GZIP,
                                        OCI_MEDIA_LAYER_ZSTD};
    const char *type = oci_media_to_oci(media_type);
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}
