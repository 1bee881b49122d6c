#include "buf.h"
#include "oci_image.h"

#include <string.h>

enum {
    PLATFORMS_TEXT_MAX = 600, /* bytes of the list of platforms in a message */
};

struct platform {
    const char *os; /* "" when the entry has no platform; borrowed from the document */
    const char *architecture;
    const char *variant;
};

static int read_platform(const json_t *entry, const char *what, struct platform *ret,
                         struct err *err)
{
    struct platform platform = {.os = "", .architecture = "", .variant = ""};
    json_t *object = NULL;
    int rc = json_doc_opt_object(entry, "platform", what, &object, err);
    if (rc == 0 && object)
        rc = json_doc_opt_str(object, "os", what, &platform.os, err);
    if (rc == 0 && object)
        rc = json_doc_opt_str(object, "architecture", what, &platform.architecture, err);
    if (rc == 0 && object)
        rc = json_doc_opt_str(object, "variant", what, &platform.variant, err);
    if (rc == 0)
        *ret = platform;
    return rc;
}

static bool has_platform(const struct platform *platform)
{
    return platform->os[0] != '\0' || platform->architecture[0] != '\0';
}

/* Build tools put signatures and provenance beside the images, as manifests for "unknown". */
static bool is_attestation(const json_t *entry, const struct platform *platform)
{
    const json_t *annotations = json_object_get(entry, "annotations");
    const char *type = json_string_value(json_object_get(annotations, "vnd.docker.reference.type"));
    return (type && strcmp(type, "attestation-manifest") == 0) ||
           (strcmp(platform->os, "unknown") == 0 && strcmp(platform->architecture, "unknown") == 0);
}

/* The text in messages; `buf` may be full, which only shortens the list. */
static void list_platform(struct buf *buf, const struct platform *platform)
{
    const char *separator = buf->len > 0 ? ", " : "";
    if (!has_platform(platform))
        (void)buf_addf(buf, NULL, "%sone without a platform", separator);
    else
        (void)buf_addf(buf, NULL, "%s%.30s/%.30s%s%.30s", separator, platform->os,
                       platform->architecture, platform->variant[0] ? "/" : "", platform->variant);
}

/* What the walk over the entries has found so far. */
struct choice {
    struct oci_descriptor best; /* owned */
    int best_fit;
    struct oci_descriptor bare; /* the first one without a platform; owned */
    size_t images;
    struct buf platforms;
};

static void choice_free(struct choice *choice)
{
    oci_descriptor_free(&choice->best);
    oci_descriptor_free(&choice->bare);
    buf_free(&choice->platforms);
}

static int consider(const json_t *entry, size_t number, struct choice *choice, struct err *err)
{
    char what[48];
    snprintf(what, sizeof what, "entry %zu of the index", number);
    struct oci_descriptor descriptor;
    struct platform platform = {.os = ""};
    int rc = read_platform(entry, what, &platform, err);
    if (rc == 0)
        rc = oci_descriptor_parse(entry, what, JSON_DOC_BYTES_MAX, &descriptor, err);
    if (rc < 0)
        return rc;
    bool image =
        oci_media_is_manifest(descriptor.media_type) || oci_media_is_index(descriptor.media_type);
    if (!image || is_attestation(entry, &platform)) {
        oci_descriptor_free(&descriptor);
        return 0;
    }
    choice->images++;
    list_platform(&choice->platforms, &platform);
    int fit = oci_host_fit(platform.os, platform.architecture, platform.variant);
    struct oci_descriptor *place = NULL;
    if (fit > choice->best_fit)
        place = &choice->best;
    else if (!has_platform(&platform) && !choice->bare.media_type)
        place = &choice->bare;
    if (!place) {
        oci_descriptor_free(&descriptor);
        return 0;
    }
    choice->best_fit = place == &choice->best ? fit : choice->best_fit;
    oci_descriptor_free(place);
    *place = descriptor;
    return 0;
}

static int choose(struct choice *choice, struct oci_descriptor *ret, struct err *err)
{
    struct oci_descriptor *chosen = NULL;
    if (choice->best_fit > 0)
        chosen = &choice->best;
    else if (choice->images == 1 && choice->bare.media_type)
        chosen = &choice->bare;
    if (!chosen)
        return err_fail(err, ERR_NOT_FOUND, "the index has no image for linux/%s; it has %s",
                        oci_host_architecture(),
                        choice->images > 0 ? buf_str(&choice->platforms) : "no image at all");
    *ret = *chosen;
    *chosen = (struct oci_descriptor){.media_type = NULL};
    return 0;
}

/* The entries, which belong to *ret_document. */
static int load_entries(const char *bytes, size_t len, json_t **ret_document, json_t **ret,
                        struct err *err)
{
    const char *type;
    int rc = oci_document_load(bytes, len, NULL, ret_document, &type, err);
    if (rc < 0)
        return rc;
    if (!oci_media_is_index(type))
        return err_fail(err, ERR_DAMAGED, "this is one image, not an index of images");
    return json_doc_get_array(*ret_document, "manifests", "the index", ret, err);
}

int oci_index_select(const char *bytes, size_t len, struct oci_descriptor *ret, struct err *err)
{
    cleanup_json json_t *document = NULL;
    json_t *manifests;
    int rc = load_entries(bytes, len, &document, &manifests, err);
    if (rc < 0)
        return rc;
    cleanup_with(choice_free) struct choice choice = {.platforms = BUF_INIT(PLATFORMS_TEXT_MAX)};
    size_t number;
    json_t *entry;
    json_array_foreach (manifests, number, entry) {
        rc = consider(entry, number, &choice, err);
        if (rc < 0)
            return rc;
    }
    return choose(&choice, ret, err);
}

/* 1 when the entry is an index without a platform. */
static int take_nested(const json_t *entry, size_t number, struct oci_descriptor *ret,
                       struct err *err)
{
    char what[48];
    snprintf(what, sizeof what, "entry %zu of the index", number);
    struct platform platform = {.os = ""};
    struct oci_descriptor descriptor;
    int rc = read_platform(entry, what, &platform, err);
    if (rc == 0)
        rc = oci_descriptor_parse(entry, what, JSON_DOC_BYTES_MAX, &descriptor, err);
    if (rc < 0)
        return rc;
    if (oci_media_is_index(descriptor.media_type) && !has_platform(&platform)) {
        *ret = descriptor;
        return 1;
    }
    oci_descriptor_free(&descriptor);
    return 0;
}

int oci_index_nested(const char *bytes, size_t len, size_t n, struct oci_descriptor *ret,
                     struct err *err)
{
    cleanup_json json_t *document = NULL;
    json_t *manifests = NULL;
    int rc = load_entries(bytes, len, &document, &manifests, err);
    size_t number;
    json_t *entry;
    json_array_foreach (manifests, number, entry) {
        struct oci_descriptor found;
        rc = take_nested(entry, number, &found, err);
        if (rc < 0)
            return rc;
        if (rc == 1 && n-- == 0) {
            *ret = found;
            return 1;
        }
        if (rc == 1)
            oci_descriptor_free(&found);
        rc = 0;
    }
    return rc;
}
