/* The index and the root manifest; pack lists have checkpoint_manifest_packs.c. */
#include "checkpoint_manifest.h"

#include "checkpoint_manifest_parts.h"
#include "cleanup.h"
#include "volume_index.h"
#include "volume_names.h"

#include <inttypes.h>
#include <string.h>

static const char what[] = "the index of the checkpoint";
#define ANNOTATION "vnd.varve."

void checkpoint_index_free(struct checkpoint_index *index)
{
    free(steal_ptr(index->lists));
    index->list_count = 0;
}

/* What all documents of a checkpoint have in common */

int checkpoint_manifest_load(const char *bytes, size_t len, const char *media_type,
                             const char *artifact_type, json_t **ret, struct err *err)
{
    cleanup_json json_t *json = NULL;
    const char *type = NULL;
    const char *artifact = NULL;
    if (len > CHECKPOINT_MANIFEST_BYTES_MAX)
        return err_fail(err, ERR_TOO_LARGE, "a manifest of %zu bytes is none of a checkpoint", len);
    int rc = oci_document_load(bytes, len, NULL, &json, &type, err);
    if (rc == 0)
        rc = json_doc_opt_str(json, "artifactType", "the manifest", &artifact, err);
    if (rc < 0)
        return rc;
    if (strcmp(type, media_type) != 0 || !artifact)
        return err_fail(err, ERR_UNSUPPORTED, "it is nothing of a checkpoint (%s)", type);
    size_t version_at = strlen(artifact_type) - 1;
    if (strncmp(artifact, artifact_type, version_at) == 0 && strcmp(artifact, artifact_type) != 0) {
        rc = err_fail(err, ERR_TOO_NEW, "it is of a later version (%.100s)", artifact);
        err_hint(err, "install the version of varve that made it, or a later one");
        return rc;
    }
    if (strcmp(artifact, artifact_type) != 0)
        return err_fail(err, ERR_UNSUPPORTED, "it is '%.100s' and not '%s'", artifact,
                        artifact_type);
    *ret = steal_ptr(json);
    return 0;
}

int checkpoint_manifest_blob(const json_t *object, const char *name, const char *media_type,
                             uint64_t least, uint64_t most, struct checkpoint_blob *ret,
                             struct err *err)
{
    struct oci_descriptor descriptor;
    int rc = oci_descriptor_parse(object, name, (int64_t)most, &descriptor, err);
    if (rc < 0)
        return rc;
    if (strcmp(descriptor.media_type, media_type) != 0)
        rc = err_fail(err, ERR_DAMAGED, "%s is '%.100s' and not '%s'", name, descriptor.media_type,
                      media_type);
    else if ((uint64_t)descriptor.size < least)
        rc = err_fail(err, ERR_DAMAGED, "%s cannot have %" PRId64 " bytes", name, descriptor.size);
    else
        *ret = (struct checkpoint_blob){.digest = descriptor.digest,
                                        .size = (uint64_t)descriptor.size};
    oci_descriptor_free(&descriptor);
    return rc;
}

json_t *checkpoint_manifest_descriptor(const struct digest *digest, uint64_t size,
                                       const char *media_type)
{
    return json_pack("{s:s, s:s, s:I}", "mediaType", media_type, "digest", digest_format(digest).s,
                     "size", (json_int_t)size);
}

int checkpoint_manifest_dump(const json_t *json, char **ret, size_t *ret_len, struct err *err)
{
    cleanup_free char *text = json ? json_doc_dump(json) : NULL;
    if (!text)
        return err_errno(err, ENOMEM, "cannot write a manifest of a checkpoint");
    *ret_len = strlen(text);
    *ret = steal_ptr(text);
    return 0;
}

/* The index: writing */

/* A manifest that the index names; its artifact type lets others see what it is. */
static json_t *entry_json(const struct checkpoint_blob *blob, const char *artifact_type)
{
    json_t *json = checkpoint_manifest_descriptor(&blob->digest, blob->size, OCI_MEDIA_MANIFEST);
    if (json && json_object_set_new(json, "artifactType", json_string(artifact_type)) == 0)
        return json;
    json_decref(json);
    return NULL;
}

static json_t *entries_json(const struct checkpoint_index *index)
{
    cleanup_json json_t *array = json_array();
    if (!array ||
        json_array_append_new(array, entry_json(&index->root_manifest, CHECKPOINT_ARTIFACT)) < 0)
        return NULL;
    for (size_t i = 0; i < index->list_count; i++)
        if (json_array_append_new(array, entry_json(&index->lists[i], CHECKPOINT_PACKS)) < 0)
            return NULL;
    return steal_ptr(array);
}

static json_t *annotations_json(const struct checkpoint_index *index)
{
    char generation[24];
    char token[24];
    snprintf(generation, sizeof generation, "%" PRIu64, index->generation);
    snprintf(token, sizeof token, "%" PRIu64, index->token);
    cleanup_json json_t *json =
        json_pack("{s:s, s:s, s:s, s:s}", ANNOTATION "volume", index->volume, ANNOTATION "node",
                  index->node, ANNOTATION "generation", generation, ANNOTATION "token", token);
    if (json && index->has_parent &&
        json_object_set_new(json, ANNOTATION "parent",
                            json_string(digest_format(&index->parent).s)) < 0)
        return NULL;
    return steal_ptr(json);
}

/* Annotations are strings: what they hold is checked when it is read. */
static int check_index(const struct checkpoint_index *index, struct err *err)
{
    if (!volume_names_is_id(index->volume) || index->node[0] == '\0')
        return err_fail(err, ERR_DAMAGED, "%s names no volume or no node", what);
    if (index->generation < 1 || index->generation > INT64_MAX || index->token > INT64_MAX)
        return err_fail(err, ERR_DAMAGED, "%s has a generation or token that cannot be", what);
    if (index->list_count > CHECKPOINT_LISTS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "%s has %zu pack lists, at most %d are read", what,
                        index->list_count, CHECKPOINT_LISTS_MAX);
    for (size_t i = 0; i < index->list_count; i++) {
        bool twice = digest_equal(&index->lists[i].digest, &index->root_manifest.digest);
        for (size_t j = 0; j < i && !twice; j++)
            twice = digest_equal(&index->lists[i].digest, &index->lists[j].digest);
        if (twice)
            return err_fail(err, ERR_DAMAGED, "%s names the manifest %s twice", what,
                            digest_format(&index->lists[i].digest).s);
    }
    return 0;
}

int checkpoint_index_encode(const struct checkpoint_index *index, char **ret, size_t *ret_len,
                            struct err *err)
{
    struct err wrong = ERR_INIT;
    if (check_index(index, &wrong) < 0)
        return err_fail(err, wrong.code == ERR_TOO_LARGE ? ERR_TOO_LARGE : ERR_INTERNAL,
                        "cannot write a checkpoint: %s", wrong.text);
    cleanup_json json_t *json =
        json_pack("{s:i, s:s, s:s, s:o, s:o}", "schemaVersion", 2, "mediaType", OCI_MEDIA_INDEX,
                  "artifactType", CHECKPOINT_ARTIFACT, "manifests", entries_json(index),
                  "annotations", annotations_json(index));
    return checkpoint_manifest_dump(json, ret, ret_len, err);
}

/* The index: reading */

static int read_entry(const json_t *object, size_t number, struct checkpoint_blob *ret,
                      struct err *err)
{
    char name[48];
    const char *artifact = NULL;
    snprintf(name, sizeof name, "entry %zu of the index", number);
    int rc = checkpoint_manifest_blob(object, name, OCI_MEDIA_MANIFEST, 1,
                                      CHECKPOINT_MANIFEST_BYTES_MAX, ret, err);
    if (rc == 0)
        rc = json_doc_get_str(object, "artifactType", name, &artifact, err);
    if (rc < 0)
        return rc;
    const char *wanted = number == 0 ? CHECKPOINT_ARTIFACT : CHECKPOINT_PACKS;
    if (strcmp(artifact, wanted) != 0)
        return err_fail(err, ERR_DAMAGED, "%s is '%.100s' and not '%s'", name, artifact, wanted);
    return 0;
}

static int read_entries(const json_t *json, struct checkpoint_index *ret, struct err *err)
{
    json_t *array = NULL;
    int rc = json_doc_get_array(json, "manifests", what, &array, err);
    if (rc < 0)
        return rc;
    size_t count = json_array_size(array);
    if (count < 1)
        return err_fail(err, ERR_DAMAGED, "%s is empty", what);
    if (count - 1 > CHECKPOINT_LISTS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "%s has %zu pack lists, at most %d are read", what,
                        count - 1, CHECKPOINT_LISTS_MAX);
    if (count > 1) {
        ret->lists = calloc(count - 1, sizeof *ret->lists);
        if (!ret->lists)
            return err_errno(err, ENOMEM, "cannot read %s", what);
    }
    rc = read_entry(json_array_get(array, 0), 0, &ret->root_manifest, err);
    for (size_t i = 1; rc == 0 && i < count; i++)
        rc = read_entry(json_array_get(array, i), i, &ret->lists[i - 1], err);
    ret->list_count = count - 1;
    return rc;
}

/* A number as this program writes it: no sign, no zeros before it. */
static int read_decimal(const json_t *annotations, const char *key, uint64_t *ret, struct err *err)
{
    const char *text = NULL;
    int rc = json_doc_get_str(annotations, key, what, &text, err);
    if (rc < 0)
        return rc;
    size_t len = strspn(text, "0123456789");
    if (len < 1 || len > 19 || text[len] != '\0' || (text[0] == '0' && len > 1))
        return err_fail(err, ERR_DAMAGED, "'%s' in %s is no number", key, what);
    *ret = strtoull(text, NULL, 10);
    return 0;
}

static int read_name(const json_t *annotations, const char *key, char *ret, size_t room,
                     struct err *err)
{
    const char *text = NULL;
    int rc = json_doc_get_str(annotations, key, what, &text, err);
    if (rc < 0)
        return rc;
    size_t len = strlen(text);
    if (len >= room)
        return err_fail(err, ERR_DAMAGED, "'%s' in %s is longer than %zu bytes", key, what,
                        room - 1);
    memcpy(ret, text, len + 1);
    return 0;
}

static int read_parent(const json_t *annotations, struct checkpoint_index *ret, struct err *err)
{
    const char *text = NULL;
    struct err cause = ERR_INIT;
    int rc = json_doc_opt_str(annotations, ANNOTATION "parent", what, &text, err);
    if (rc < 0 || !text)
        return rc;
    if (digest_parse(text, &ret->parent, &cause) < 0)
        return err_fail(err, ERR_DAMAGED, "the parent in %s: %s", what, cause.text);
    ret->has_parent = true;
    return 0;
}

static int read_annotations(const json_t *json, struct checkpoint_index *ret, struct err *err)
{
    json_t *annotations = NULL;
    int rc = json_doc_get_object(json, "annotations", what, &annotations, err);
    if (rc == 0)
        rc = read_name(annotations, ANNOTATION "volume", ret->volume, sizeof ret->volume, err);
    if (rc == 0)
        rc = read_name(annotations, ANNOTATION "node", ret->node, sizeof ret->node, err);
    if (rc == 0)
        rc = read_decimal(annotations, ANNOTATION "generation", &ret->generation, err);
    if (rc == 0)
        rc = read_decimal(annotations, ANNOTATION "token", &ret->token, err);
    return rc == 0 ? read_parent(annotations, ret, err) : rc;
}

int checkpoint_index_decode(const char *bytes, size_t len, struct checkpoint_index *ret,
                            struct err *err)
{
    cleanup_json json_t *json = NULL;
    cleanup_checkpoint_index struct checkpoint_index index = {.lists = NULL};
    int rc = checkpoint_manifest_load(bytes, len, OCI_MEDIA_INDEX, CHECKPOINT_ARTIFACT, &json, err);
    if (rc == 0)
        rc = read_entries(json, &index, err);
    if (rc == 0)
        rc = read_annotations(json, &index, err);
    if (rc == 0)
        rc = check_index(&index, err);
    if (rc < 0)
        return rc;
    *ret = index;
    index.lists = NULL;
    return 0;
}

/* The root manifest */

int checkpoint_root_encode(const struct checkpoint_root_manifest *manifest, char **ret,
                           size_t *ret_len, struct err *err)
{
    cleanup_json json_t *json =
        json_pack("{s:i, s:s, s:s, s:o, s:[o]}", "schemaVersion", 2, "mediaType",
                  OCI_MEDIA_MANIFEST, "artifactType", CHECKPOINT_ARTIFACT, "config",
                  checkpoint_manifest_descriptor(&manifest->config.digest, manifest->config.size,
                                                 CHECKPOINT_MEDIA_CONFIG),
                  "layers",
                  checkpoint_manifest_descriptor(&manifest->root.digest, manifest->root.size,
                                                 CHECKPOINT_MEDIA_ROOT));
    return checkpoint_manifest_dump(json, ret, ret_len, err);
}

int checkpoint_root_decode(const char *bytes, size_t len, struct checkpoint_root_manifest *ret,
                           struct err *err)
{
    static const char name[] = "the root manifest of the checkpoint";
    cleanup_json json_t *json = NULL;
    json_t *layers = NULL;
    struct checkpoint_root_manifest manifest;
    int rc =
        checkpoint_manifest_load(bytes, len, OCI_MEDIA_MANIFEST, CHECKPOINT_ARTIFACT, &json, err);
    if (rc == 0)
        rc = json_doc_get_array(json, "layers", name, &layers, err);
    if (rc == 0 && json_array_size(layers) != 1)
        rc = err_fail(err, ERR_DAMAGED, "%s has %zu layers and not one", name,
                      json_array_size(layers));
    if (rc == 0)
        rc = checkpoint_manifest_blob(json_object_get(json, "config"), "the config's descriptor",
                                      CHECKPOINT_MEDIA_CONFIG, 2, CHECKPOINT_CONFIG_BYTES_MAX,
                                      &manifest.config, err);
    if (rc == 0)
        rc = checkpoint_manifest_blob(json_array_get(layers, 0), "the root's descriptor",
                                      CHECKPOINT_MEDIA_ROOT, VOLUME_ROOT_HEAD + VOLUME_ENTRY_BYTES,
                                      CHECKPOINT_ROOT_BYTES_MAX, &manifest.root, err);
    if (rc == 0)
        *ret = manifest;
    return rc;
}
