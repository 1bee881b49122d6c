/* Any bytes as a manifest and as an index of images. */
#include "oci_image.h"

#include "fuzz_check.h"

static void check_descriptor(const struct oci_descriptor *descriptor, int64_t size_max)
{
    CHECK(descriptor->media_type && descriptor->size >= 0 && descriptor->size <= size_max);
    cleanup_json json_t *json = oci_descriptor_json(descriptor);
    CHECK(json);
    struct oci_descriptor again;
    CHECK(oci_descriptor_parse(json, "it", size_max, &again, NULL) == 0);
    CHECK(strcmp(again.media_type, descriptor->media_type) == 0);
    CHECK(digest_equal(&again.digest, &descriptor->digest) && again.size == descriptor->size);
    oci_descriptor_free(&again);
}

/* A new manifest of the same parts is one that can be read, with the same parts. */
static void check_rewritten(const struct oci_manifest *manifest)
{
    cleanup_free char *text = NULL;
    CHECK(oci_manifest_new(&manifest->config, manifest->layers, manifest->layer_count, NULL, &text,
                           NULL) == 0);
    cleanup_oci_manifest struct oci_manifest again = {.media_type = NULL};
    CHECK(oci_manifest_parse(text, strlen(text), OCI_MEDIA_MANIFEST, &again, NULL) == 0);
    CHECK(again.layer_count == manifest->layer_count);
    for (size_t i = 0; i < again.layer_count; i++) {
        CHECK(digest_equal(&again.layers[i].digest, &manifest->layers[i].digest));
        CHECK(again.layers[i].size == manifest->layers[i].size);
        CHECK(strcmp(again.layers[i].media_type,
                     oci_media_to_oci(manifest->layers[i].media_type)) == 0);
    }
    CHECK(digest_equal(&again.config.digest, &manifest->config.digest));
}

/* Returns whether the bytes are a manifest under this media type. */
static bool check_manifest(const char *bytes, size_t len, const char *media_type)
{
    struct oci_manifest manifest;
    memset(&manifest, 0xA5, sizeof manifest);
    struct oci_manifest untouched;
    memcpy(&untouched, &manifest, sizeof untouched);
    struct err err = ERR_INIT;
    int rc = oci_manifest_parse(bytes, len, media_type, &manifest, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(memcmp(&manifest, &untouched, sizeof manifest) == 0);
        return false;
    }
    CHECK(oci_media_is_manifest(manifest.media_type));
    CHECK(!media_type || strcmp(media_type, manifest.media_type) == 0);
    CHECK(manifest.layer_count >= 1 && manifest.layer_count <= OCI_LAYERS_MAX);
    check_descriptor(&manifest.config, OCI_BLOB_BYTES_MAX);
    for (size_t i = 0; i < manifest.layer_count; i++) {
        check_descriptor(&manifest.layers[i], OCI_BLOB_BYTES_MAX);
        CHECK(oci_media_is_layer(manifest.layers[i].media_type));
    }
    check_rewritten(&manifest);
    oci_manifest_free(&manifest);
    return true;
}

static bool lacks(const json_t *document, const char *key)
{
    const json_t *member = json_object_get(document, key);
    return !member || json_is_null(member);
}

/* Returns whether something was picked. */
static bool check_index(const char *bytes, size_t len)
{
    struct oci_descriptor descriptor;
    memset(&descriptor, 0xA5, sizeof descriptor);
    struct oci_descriptor untouched;
    memcpy(&untouched, &descriptor, sizeof untouched);
    struct err err = ERR_INIT;
    int rc = oci_index_select(bytes, len, &descriptor, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(memcmp(&descriptor, &untouched, sizeof descriptor) == 0);
        return false;
    }
    cleanup_json json_t *document = json_loadb(bytes, len, 0, NULL);
    CHECK(lacks(document, "layers") && lacks(document, "config"));
    CHECK(oci_media_is_manifest(descriptor.media_type) ||
          oci_media_is_index(descriptor.media_type));
    check_descriptor(&descriptor, JSON_DOC_BYTES_MAX);
    oci_descriptor_free(&descriptor);
    return true;
}

/* What every manifest and index names; images among them have all that the parsers found. */
static void check_references(const char *bytes, size_t len, bool is_manifest)
{
    cleanup_json json_t *document = NULL;
    const char *type = NULL;
    struct err err = ERR_INIT;
    int rc = oci_document_load(bytes, len, NULL, &document, &type, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(!document && !is_manifest);
        return;
    }
    CHECK(oci_media_is_manifest(type) != oci_media_is_index(type));
    struct oci_descriptor *list = NULL;
    size_t count = 42;
    rc = oci_document_references(document, &list, &count, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(!list && count == 42 && !is_manifest);
        return;
    }
    for (size_t i = 0; i < count; i++)
        check_descriptor(&list[i], OCI_BLOB_BYTES_MAX);
    CHECK(!is_manifest || count == 1 + json_array_size(json_object_get(document, "layers")));
    oci_descriptor_free_all(list, count);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    const char *text = (const char *)bytes;
    bool is_manifest = check_manifest(text, len, NULL);
    check_manifest(text, len, OCI_MEDIA_MANIFEST);
    check_manifest(text, len, DOCKER_MEDIA_MANIFEST);
    CHECK(!check_manifest(text, len, OCI_MEDIA_INDEX));
    bool is_index = check_index(text, len);
    CHECK(!is_manifest || !is_index); /* one digest, one meaning */
    check_references(text, len, is_manifest);
    return 0;
}
