#include "oci_image.h"

#include <string.h>

void oci_manifest_free(struct oci_manifest *manifest)
{
    free(manifest->media_type);
    oci_descriptor_free(&manifest->config);
    oci_descriptor_free_all(manifest->layers, manifest->layer_count);
    *manifest = (struct oci_manifest){.media_type = NULL};
}

static int parse_config(const json_t *document, struct oci_manifest *manifest, struct err *err)
{
    json_t *config;
    int rc = json_doc_get_object(document, "config", "the manifest", &config, err);
    if (rc == 0)
        rc = oci_descriptor_parse(config, "the image config", JSON_DOC_BYTES_MAX, &manifest->config,
                                  err);
    if (rc < 0)
        return rc;
    const char *type = manifest->config.media_type;
    if (strcmp(oci_media_to_oci(type), OCI_MEDIA_CONFIG) == 0)
        return 0;
    const char *artifact = NULL;
    rc = json_doc_opt_str(document, "artifactType", "the manifest", &artifact, err);
    if (rc < 0)
        return rc;
    return err_fail(err, ERR_UNSUPPORTED, "this is not an image but an artifact of type '%.100s'",
                    artifact ? artifact : type);
}

/* Says why a layer of this type is of no use. */
static int refuse_layer(const char *what, const char *type, struct err *err)
{
    if (strstr(type, "nondistributable") || strstr(type, ".foreign."))
        return err_fail(err, ERR_UNSUPPORTED,
                        "%s is a foreign layer ('%.100s'), whose bytes are in no registry", what,
                        type);
    if (strstr(type, "+encrypted"))
        return err_fail(err, ERR_UNSUPPORTED, "%s is encrypted ('%.100s')", what, type);
    return err_fail(err, ERR_UNSUPPORTED, "%s has the unknown media type '%.100s'", what, type);
}

static int parse_layer(const json_t *member, size_t number, struct oci_descriptor *ret,
                       struct err *err)
{
    char what[32];
    snprintf(what, sizeof what, "layer %zu", number);
    int rc = oci_descriptor_parse(member, what, OCI_BLOB_BYTES_MAX, ret, err);
    if (rc == 0 && !oci_media_is_layer(ret->media_type))
        rc = refuse_layer(what, ret->media_type, err);
    return rc;
}

static int parse_layers(const json_t *document, struct oci_manifest *manifest, struct err *err)
{
    json_t *layers;
    int rc = json_doc_get_array(document, "layers", "the manifest", &layers, err);
    if (rc < 0)
        return rc;
    size_t count = json_array_size(layers);
    if (count == 0)
        return err_fail(err, ERR_UNSUPPORTED, "the image has no layers");
    if (count > OCI_LAYERS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the image has %zu layers, more than the limit of %d",
                        count, OCI_LAYERS_MAX);
    manifest->layers = calloc(count, sizeof *manifest->layers);
    if (!manifest->layers)
        return err_errno(err, ENOMEM, "cannot read the manifest");
    manifest->layer_count = count;
    for (size_t i = 0; i < count; i++) {
        rc = parse_layer(json_array_get(layers, i), i, &manifest->layers[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int oci_manifest_parse(const char *bytes, size_t len, const char *media_type,
                       struct oci_manifest *ret, struct err *err)
{
    cleanup_json json_t *document = NULL;
    cleanup_oci_manifest struct oci_manifest manifest = {.media_type = NULL};
    const char *type;
    int rc = oci_document_load(bytes, len, media_type, &document, &type, err);
    if (rc < 0)
        return rc;
    if (oci_media_is_index(type))
        return err_fail(err, ERR_UNSUPPORTED, "this is an index of images, not one image");
    manifest.media_type = strdup(type);
    if (!manifest.media_type)
        return err_errno(err, ENOMEM, "cannot read the manifest");
    rc = parse_config(document, &manifest, err);
    if (rc == 0)
        rc = parse_layers(document, &manifest, err);
    if (rc < 0)
        return rc;
    *ret = manifest;
    manifest = (struct oci_manifest){.media_type = NULL};
    return 0;
}

static json_t *descriptor_as_oci(const struct oci_descriptor *descriptor)
{
    json_t *json = oci_descriptor_json(descriptor);
    const char *type = oci_media_to_oci(descriptor->media_type);
    if (json && json_object_set_new(json, "mediaType", json_string(type)) < 0) {
        json_decref(json);
        return NULL;
    }
    return json;
}

static json_t *layers_json(const struct oci_descriptor *layers, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < count; i++) {
        if (json_array_append_new(array, descriptor_as_oci(&layers[i])) == 0)
            continue;
        json_decref(array);
        return NULL;
    }
    return array;
}

static int check_annotations(const json_t *annotations, struct err *err)
{
    const char *key;
    json_t *value;
    if (annotations && !json_is_object(annotations))
        return err_fail(err, ERR_INTERNAL, "annotations are not an object");
    json_object_foreach ((json_t *)annotations, key, value) {
        if (!json_is_string(value))
            return err_fail(err, ERR_INTERNAL, "annotation '%.80s' is not a string", key);
    }
    return 0;
}

int oci_manifest_new(const struct oci_descriptor *config, const struct oci_descriptor *layers,
                     size_t layer_count, const json_t *annotations, char **ret, struct err *err)
{
    if (layer_count > OCI_LAYERS_MAX)
        return err_fail(err, ERR_TOO_LARGE,
                        "the image would have %zu layers, more than the limit of %d", layer_count,
                        OCI_LAYERS_MAX);
    int rc = check_annotations(annotations, err);
    if (rc < 0)
        return rc;
    cleanup_json json_t *manifest =
        json_pack("{s:i, s:s, s:o, s:o}", "schemaVersion", 2, "mediaType", OCI_MEDIA_MANIFEST,
                  "config", descriptor_as_oci(config), "layers", layers_json(layers, layer_count));
    bool good = manifest != NULL;
    if (good && annotations && json_object_size(annotations) > 0)
        good = json_object_set(manifest, "annotations", (json_t *)annotations) == 0;
    char *text = good ? json_doc_dump(manifest) : NULL;
    if (!text)
        return err_errno(err, ENOMEM, "cannot make a manifest");
    *ret = text;
    return 0;
}
