#include "remote_referrers.h"

#include "remote_internal.h"

#include <string.h>

static const char what[] = "the list of referrers";

static void free_one(struct remote_referrer *referrer)
{
    oci_descriptor_free(&referrer->descriptor);
    free(referrer->artifact_type);
}

void remote_referrers_free(struct remote_referrers *referrers)
{
    for (size_t i = 0; i < referrers->count; i++)
        free_one(&referrers->list[i]);
    free(referrers->list);
    *referrers = (struct remote_referrers){.list = NULL};
}

static bool has(const struct remote_referrers *referrers, const struct digest *digest)
{
    for (size_t i = 0; i < referrers->count; i++)
        if (digest_equal(&referrers->list[i].descriptor.digest, digest))
            return true;
    return false;
}

/* Takes what it is given, also when it fails. */
static int add(struct remote_referrers *referrers, struct remote_referrer *one, struct err *err)
{
    struct remote_referrer *longer = NULL;
    int rc = 0;
    if (has(referrers, &one->descriptor.digest)) {
        free_one(one);
        return 0;
    }
    if (referrers->count == REMOTE_REFERRERS_MAX)
        rc = err_fail(err, ERR_TOO_LARGE, "more than %d manifests refer to it",
                      REMOTE_REFERRERS_MAX);
    if (rc == 0) {
        longer = realloc(referrers->list, (referrers->count + 1) * sizeof *longer);
        if (!longer)
            rc = err_errno(err, ENOMEM, "cannot list referrers");
    }
    if (rc < 0) {
        free_one(one);
        return rc;
    }
    referrers->list = longer;
    referrers->list[referrers->count++] = *one;
    return 0;
}

/* Reads one entry of an index. */
static int add_entry(struct remote_referrers *referrers, const json_t *entry, size_t number,
                     struct err *err)
{
    char name[48];
    snprintf(name, sizeof name, "entry %zu of %s", number, what);
    struct remote_referrer one = {.artifact_type = NULL};
    const char *type = NULL;
    int rc = json_doc_opt_str(entry, "artifactType", name, &type, err);
    if (rc == 0)
        rc = oci_descriptor_parse(entry, name, JSON_DOC_BYTES_MAX, &one.descriptor, err);
    if (rc < 0)
        return rc;
    one.artifact_type = type ? strdup(type) : NULL;
    if (type && !one.artifact_type) {
        free_one(&one);
        return err_errno(err, ENOMEM, "cannot list referrers");
    }
    return add(referrers, &one, err);
}

/* Loads an index, or says that this is none. */
static int load_index(const char *bytes, size_t len, json_t **ret, json_t **ret_manifests,
                      struct err *err)
{
    cleanup_json json_t *document = NULL;
    const char *type;
    int rc = oci_document_load(bytes, len, NULL, &document, &type, err);
    if (rc == 0 && !oci_media_is_index(type))
        rc = err_fail(err, ERR_DAMAGED, "%s is not an index but '%s'", what, type);
    if (rc == 0)
        rc = json_doc_get_array(document, "manifests", what, ret_manifests, err);
    if (rc == 0)
        *ret = steal_ptr(document);
    return rc;
}

int remote_referrers_add_index(struct remote_referrers *referrers, const char *bytes, size_t len,
                               struct err *err)
{
    cleanup_json json_t *index = NULL;
    json_t *manifests = NULL;
    int rc = load_index(bytes, len, &index, &manifests, err);
    for (size_t i = 0; rc == 0 && i < json_array_size(manifests); i++)
        rc = add_entry(referrers, json_array_get(manifests, i), i, err);
    return rc;
}

static int subject_of(const json_t *document, struct digest *ret, struct err *err)
{
    json_t *subject = NULL;
    struct oci_descriptor descriptor;
    int rc = json_doc_opt_object(document, "subject", "the manifest", &subject, err);
    if (rc < 0 || !subject)
        return rc;
    rc = oci_descriptor_parse(subject, "the subject", OCI_BLOB_BYTES_MAX, &descriptor, err);
    if (rc < 0)
        return rc;
    *ret = descriptor.digest;
    oci_descriptor_free(&descriptor);
    return 1;
}

int remote_referrers_subject(const char *bytes, size_t len, struct digest *ret, struct err *err)
{
    cleanup_json json_t *document = NULL;
    const char *type;
    int rc = oci_document_load(bytes, len, NULL, &document, &type, err);
    return rc < 0 ? rc : subject_of(document, ret, err);
}

/* What a manifest is for: its artifactType, else the media type of its config (distribution-spec,
 * "Listing Referrers"). NULL for an index without one. */
static const char *artifact_type(const json_t *document)
{
    const char *type = json_string_value(json_object_get(document, "artifactType"));
    const json_t *config = json_object_get(document, "config");
    return type && *type ? type : json_string_value(json_object_get(config, "mediaType"));
}

/* The entry of a manifest in a list of referrers; caller owns it. NULL without memory. */
static json_t *make_entry(const struct remote_manifest *manifest, const json_t *document)
{
    const json_t *annotations = json_object_get(document, "annotations");
    return json_pack("{s:s, s:s, s:I, s:s*, s:O*}", "mediaType", manifest->media_type, "digest",
                     digest_format(&manifest->digest).s, "size", (json_int_t)manifest->len,
                     "artifactType", artifact_type(document), "annotations",
                     json_is_object(annotations) ? annotations : NULL);
}

int remote_referrers_add_if(struct remote_referrers *referrers,
                            const struct remote_manifest *manifest, const struct digest *subject,
                            struct err *err)
{
    cleanup_json json_t *document = NULL;
    const char *type;
    struct digest found;
    int rc = oci_document_load(manifest->bytes, manifest->len, manifest->media_type, &document,
                               &type, err);
    if (rc == 0)
        rc = subject_of(document, &found, err);
    if (rc <= 0 || !digest_equal(&found, subject))
        return rc < 0 ? rc : 0;
    cleanup_json json_t *entry = make_entry(manifest, document);
    if (!entry)
        return err_errno(err, ENOMEM, "cannot list referrers");
    return add_entry(referrers, entry, referrers->count, err);
}

static bool lists(const json_t *manifests, const char *digest)
{
    size_t i;
    json_t *entry;
    json_array_foreach (manifests, i, entry) {
        const char *have = json_string_value(json_object_get(entry, "digest"));
        if (have && strcmp(have, digest) == 0)
            return true;
    }
    return false;
}

static int extend(json_t *index, json_t *manifests, const struct remote_manifest *manifest,
                  char **ret, struct err *err)
{
    cleanup_json json_t *document = NULL;
    const char *type;
    int rc = oci_document_load(manifest->bytes, manifest->len, manifest->media_type, &document,
                               &type, err);
    if (rc < 0)
        return rc;
    if (json_array_append_new(manifests, make_entry(manifest, document)) < 0)
        return err_errno(err, ENOMEM, "cannot list referrers");
    char *text = json_doc_dump(index);
    if (!text)
        return err_errno(err, ENOMEM, "cannot list referrers");
    if (strlen(text) > REMOTE_MANIFEST_MAX) {
        free(text);
        return err_fail(err, ERR_TOO_LARGE, "%s would have more than %d bytes", what,
                        REMOTE_MANIFEST_MAX);
    }
    *ret = text;
    return 0;
}

int remote_referrers_extend(const struct remote_manifest *index,
                            const struct remote_manifest *manifest, char **ret, struct err *err)
{
    cleanup_json json_t *document = NULL;
    json_t *manifests = NULL;
    int rc = 0;
    if (index) {
        rc = load_index(index->bytes, index->len, &document, &manifests, err);
    } else {
        document = json_pack("{s:i, s:s, s:[]}", "schemaVersion", 2, "mediaType", OCI_MEDIA_INDEX,
                             "manifests");
        manifests = json_object_get(document, "manifests");
        if (!manifests)
            rc = err_errno(err, ENOMEM, "cannot list referrers");
    }
    if (rc < 0)
        return rc;
    if (lists(manifests, digest_format(&manifest->digest).s)) {
        *ret = NULL;
        return 0;
    }
    return extend(document, manifests, manifest, ret, err);
}

int remote_referrers_list(struct remote *remote, const char *repository,
                          const struct digest *subject, const char *artifact_type_wanted,
                          remote_progress progress, void *arg, struct remote_referrers *ret,
                          struct err *err)
{
    cleanup_remote_referrers struct remote_referrers all = {.list = NULL};
    int rc = remote_check_repository(repository, err);
    if (rc == 0)
        rc = remote->ops->referrers_list(remote, repository, subject, progress, arg, &all, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot list what refers to %s of %s in %s",
                        digest_format(subject).s, repository, remote->url);
    size_t kept = 0;
    for (size_t i = 0; i < all.count; i++) {
        const char *type = all.list[i].artifact_type;
        if (!artifact_type_wanted || (type && strcmp(type, artifact_type_wanted) == 0))
            all.list[kept++] = all.list[i];
        else
            free_one(&all.list[i]);
    }
    *ret = (struct remote_referrers){.list = all.list, .count = kept};
    all = (struct remote_referrers){.list = NULL};
    return 0;
}
