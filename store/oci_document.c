#include "oci_image.h"

#include <string.h>

static const char what[] = "the manifest";

static int refuse_schema1(struct err *err)
{
    int rc =
        err_fail(err, ERR_UNSUPPORTED,
                 "the image has a Docker schema 1 manifest, a format that was given up in 2016");
    err_hint(err, "push the image again with a current tool, for example skopeo copy");
    return rc;
}

static bool has(const json_t *document, const char *key)
{
    const json_t *member = json_object_get(document, key);
    return member && !json_is_null(member);
}

/* Decides the media type from what was announced, what the document says and what it looks like,
 * all of which must agree. */
static int decide_type(const json_t *document, const char *announced, const char **ret,
                       struct err *err)
{
    const char *own = NULL;
    int rc = json_doc_opt_str(document, "mediaType", what, &own, err);
    if (rc < 0)
        return rc;
    if (own && announced && strcmp(own, announced) != 0)
        return err_fail(err, ERR_DAMAGED,
                        "%s was announced as '%.100s' but says that it is '%.100s'", what,
                        announced, own);
    bool looks_like_index = has(document, "manifests");
    const char *type = own ? own : announced;
    if (!type)
        type = looks_like_index ? OCI_MEDIA_INDEX : OCI_MEDIA_MANIFEST;
    const char *known = oci_media_known(type);
    if (!known)
        return err_fail(err, ERR_UNSUPPORTED,
                        "'%.100s' is neither an image manifest nor an image index", type);
    if (oci_media_is_index(known) != looks_like_index)
        return err_fail(err, ERR_DAMAGED, "%s is announced as '%s' but %s 'manifests'", what, known,
                        looks_like_index ? "has" : "lacks");
    *ret = known;
    return 0;
}

int oci_document_load(const char *bytes, size_t len, const char *media_type, json_t **ret,
                      const char **ret_type, struct err *err)
{
    static const char schema1[] = "application/vnd.docker.distribution.manifest.v1+";
    if (media_type && strncmp(media_type, schema1, sizeof schema1 - 1) == 0)
        return refuse_schema1(err);
    cleanup_json json_t *document = NULL;
    int64_t version;
    int rc = json_doc_parse(bytes, len, what, &document, err);
    if (rc == 0)
        rc = json_doc_get_int(document, "schemaVersion", what, &version, err);
    if (rc < 0)
        return rc;
    if (version == 1)
        return refuse_schema1(err);
    if (version != 2)
        return err_fail(err, ERR_UNSUPPORTED, "%s has schema version %lld, not 2", what,
                        (long long)version);
    if (has(document, "manifests") && (has(document, "layers") || has(document, "config")))
        return err_fail(err, ERR_DAMAGED, "%s is an image and an index at once", what);
    rc = decide_type(document, media_type, ret_type, err);
    if (rc < 0)
        return rc;
    *ret = steal_ptr(document);
    return 0;
}

/* Adds the members of an array of descriptors, if there is one. */
static int add_array(const json_t *document, const char *key, int64_t size_max,
                     struct oci_descriptor *list, size_t *count, struct err *err)
{
    if (!has(document, key))
        return 0;
    json_t *array;
    int rc = json_doc_get_array(document, key, what, &array, err);
    if (rc < 0)
        return rc;
    size_t number;
    json_t *member;
    json_array_foreach (array, number, member) {
        char name[64];
        snprintf(name, sizeof name, "entry %zu of '%s' in %s", number, key, what);
        rc = oci_descriptor_parse(member, name, size_max, &list[*count], err);
        if (rc < 0)
            return rc;
        (*count)++;
    }
    return 0;
}

static int add_all(const json_t *document, struct oci_descriptor *list, size_t *count,
                   struct err *err)
{
    int rc = 0;
    if (has(document, "config")) {
        rc = oci_descriptor_parse(json_object_get(document, "config"), "the config's descriptor",
                                  OCI_BLOB_BYTES_MAX, &list[0], err);
        *count = rc == 0;
    }
    if (rc == 0)
        rc = add_array(document, "layers", OCI_BLOB_BYTES_MAX, list, count, err);
    if (rc == 0)
        rc = add_array(document, "manifests", JSON_DOC_BYTES_MAX, list, count, err);
    return rc;
}

int oci_document_references(const json_t *document, struct oci_descriptor **ret, size_t *ret_count,
                            struct err *err)
{
    size_t room = 1 + json_array_size(json_object_get(document, "layers")) +
                  json_array_size(json_object_get(document, "manifests"));
    struct oci_descriptor *list = calloc(room, sizeof *list);
    if (!list)
        return err_errno(err, ENOMEM, "cannot read %s", what);
    size_t count = 0;
    int rc = add_all(document, list, &count, err);
    if (rc < 0) {
        oci_descriptor_free_all(list, count);
        return rc;
    }
    *ret = list;
    *ret_count = count;
    return 0;
}
