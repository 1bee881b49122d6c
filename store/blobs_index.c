#include "blobs_layout.h"
#include "fdio.h"

#include <string.h>

static const char ref_name_key[] = "org.opencontainers.image.ref.name";
static const char index_type[] = "application/vnd.oci.image.index.v1+json";

void blobs_ref_free(struct blobs_ref *ref)
{
    free(ref->name);
    free(ref->digest);
    free(ref->media_type);
    *ref = (struct blobs_ref){.name = NULL};
}

/* "algorithm:encoded" (OCI image-spec, descriptor.md, "Digests"), of any algorithm: entries that
 * this program can't use are kept all the same. */
static bool looks_like_digest(const char *text)
{
    const char *colon = strchr(text, ':');
    if (!colon || colon == text || strlen(text) > 255)
        return false;
    size_t algorithm = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789+._-");
    size_t encoded =
        strspn(colon + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789=_-");
    return text + algorithm == colon && encoded > 0 && colon[1 + encoded] == '\0';
}

static int check_annotations(const json_t *entry, const char *what, struct err *err)
{
    json_t *annotations = NULL;
    int rc = json_doc_opt_object(entry, "annotations", what, &annotations, err);
    if (rc < 0)
        return rc;
    const char *key;
    json_t *value;
    json_object_foreach (annotations, key, value) {
        if (!json_is_string(value))
            return err_fail(err, ERR_DAMAGED, "annotation '%.80s' of %s is not a string", key,
                            what);
    }
    return 0;
}

static int check_entry(const json_t *entry, size_t number, struct err *err)
{
    char what[64];
    snprintf(what, sizeof what, "entry %zu of index.json", number);
    const char *text;
    int64_t size = 0;
    int rc = json_doc_get_str(entry, "mediaType", what, &text, err);
    if (rc == 0)
        rc = json_doc_get_int(entry, "size", what, &size, err);
    if (rc == 0)
        rc = json_doc_get_str(entry, "digest", what, &text, err);
    if (rc < 0)
        return rc;
    if (!looks_like_digest(text))
        return err_fail(err, ERR_DAMAGED, "'%.80s' in %s is not a digest", text, what);
    if (size < 0)
        return err_fail(err, ERR_DAMAGED, "'size' in %s is negative", what);
    return check_annotations(entry, what, err);
}

static int check_index(const json_t *index, struct err *err)
{
    static const char what[] = "index.json";
    int64_t version;
    const char *type = index_type;
    json_t *manifests;
    int rc = json_doc_get_int(index, "schemaVersion", what, &version, err);
    if (rc == 0)
        rc = json_doc_opt_str(index, "mediaType", what, &type, err);
    if (rc == 0)
        rc = json_doc_get_array(index, "manifests", what, &manifests, err);
    if (rc < 0)
        return rc;
    if (version != 2)
        return err_fail(err, ERR_UNSUPPORTED, "index.json has schema version %lld, not 2",
                        (long long)version);
    if (strcmp(type, index_type) != 0)
        return err_fail(err, ERR_DAMAGED, "index.json says that it is '%.80s'", type);
    size_t number;
    json_t *entry;
    json_array_foreach (manifests, number, entry) {
        rc = check_entry(entry, number, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int blobs_index_load(struct blobs *blobs, json_t **ret, struct err *err)
{
    cleanup_buf struct buf bytes = BUF_INIT(JSON_DOC_BYTES_MAX);
    cleanup_json json_t *index = NULL;
    int rc = fdio_read_file(blobs->dir_fd, "index.json", &bytes, err);
    if (rc == 0)
        rc = json_doc_parse(buf_str(&bytes), bytes.len, "index.json", &index, err);
    if (rc == 0)
        rc = check_index(index, err);
    if (rc < 0) {
        err_hint(err, "mend %s/index.json, or put back a copy of it; nothing was changed",
                 blobs->path);
        return err_wrap(err, rc, "the image layout %s cannot be read", blobs->path);
    }
    *ret = steal_ptr(index);
    return 0;
}

int blobs_index_store(struct blobs *blobs, const json_t *index, struct err *err)
{
    cleanup_free char *text = json_doc_dump(index);
    if (!text)
        return err_errno(err, ENOMEM, "cannot write %s/index.json", blobs->path);
    size_t len = strlen(text);
    if (len > JSON_DOC_BYTES_MAX) {
        int rc = err_fail(err, ERR_TOO_LARGE,
                          "%s/index.json would have %zu bytes, more than the limit of %d",
                          blobs->path, len, JSON_DOC_BYTES_MAX);
        err_hint(err, "remove images that are not needed any more, or use a registry");
        return rc;
    }
    return blobs_layout_publish(blobs, "index.json", text, len, PUBLISH_REPLACE, err);
}

const char *blobs_index_name(const json_t *entry)
{
    return json_string_value(json_object_get(json_object_get(entry, "annotations"), ref_name_key));
}

json_t *blobs_index_entry(const char *media_type, const char *digest, int64_t size,
                          const char *name)
{
    json_t *entry = json_pack("{s:s, s:s, s:I}", "mediaType", media_type, "digest", digest, "size",
                              (json_int_t)size);
    if (entry && name &&
        json_object_set_new(entry, "annotations", json_pack("{s:s}", ref_name_key, name)) < 0) {
        json_decref(entry);
        return NULL;
    }
    return entry;
}

static void free_refs(struct blobs_ref *refs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        blobs_ref_free(&refs[i]);
    free(refs);
}

/* Copies a checked entry. */
static int copy_ref(const json_t *entry, struct blobs_ref *ret)
{
    const char *name = blobs_index_name(entry);
    *ret = (struct blobs_ref){
        .name = name ? strdup(name) : NULL,
        .digest = strdup(json_string_value(json_object_get(entry, "digest"))),
        .media_type = strdup(json_string_value(json_object_get(entry, "mediaType"))),
        .size = json_integer_value(json_object_get(entry, "size")),
    };
    return (name && !ret->name) || !ret->digest || !ret->media_type ? -ENOMEM : 0;
}

int blobs_index_read(struct blobs *blobs, struct blobs_ref **ret, size_t *ret_count,
                     struct err *err)
{
    cleanup_json json_t *index = NULL;
    int rc = blobs_index_load(blobs, &index, err);
    if (rc < 0)
        return rc;
    const json_t *manifests = json_object_get(index, "manifests");
    size_t count = json_array_size(manifests);
    struct blobs_ref *refs = calloc(count + 1, sizeof *refs);
    for (size_t i = 0; refs && i < count; i++) {
        if (copy_ref(json_array_get(manifests, i), &refs[i]) == 0)
            continue;
        free_refs(refs, count);
        refs = NULL;
    }
    if (!refs)
        return err_errno(err, ENOMEM, "cannot read %s/index.json", blobs->path);
    *ret = refs;
    *ret_count = count;
    return 0;
}

static int compare_refs(const void *a, const void *b)
{
    const struct blobs_ref *left = *(const struct blobs_ref *const *)a;
    const struct blobs_ref *right = *(const struct blobs_ref *const *)b;
    int by_name = strcmp(left->name ? left->name : "", right->name ? right->name : "");
    return by_name ? by_name : strcmp(left->digest, right->digest);
}

/* The document for `count` lines, or NULL without memory (or with text that is not UTF-8). */
static json_t *index_from(const struct blobs_ref **sorted, size_t count)
{
    cleanup_json json_t *manifests = json_array();
    for (size_t i = 0; i < count; i++) {
        const struct blobs_ref *ref = sorted[i];
        json_t *entry = blobs_index_entry(ref->media_type, ref->digest, ref->size, ref->name);
        if (json_array_append_new(manifests, entry) < 0)
            return NULL;
    }
    return json_pack("{s:i, s:s, s:O}", "schemaVersion", 2, "mediaType", index_type, "manifests",
                     manifests);
}

int blobs_index_write(struct blobs *blobs, const struct blobs_ref *refs, size_t count,
                      struct err *err)
{
    cleanup_free const struct blobs_ref **sorted = calloc(count + 1, sizeof *sorted);
    cleanup_json json_t *index = NULL;
    if (sorted) {
        for (size_t i = 0; i < count; i++)
            sorted[i] = &refs[i];
        qsort(sorted, count, sizeof *sorted, compare_refs);
        index = index_from(sorted, count);
    }
    if (!index)
        return err_errno(err, ENOMEM, "cannot write %s/index.json", blobs->path);
    return blobs_index_store(blobs, index, err);
}
