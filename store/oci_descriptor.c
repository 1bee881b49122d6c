#include "oci_image.h"

#include <string.h>

enum {
    MEDIA_TYPE_MAX = 255, /* RFC 6838, section 4.2: 127 + "/" + 127 */
};

void oci_descriptor_free(struct oci_descriptor *descriptor)
{
    free(descriptor->media_type);
    *descriptor = (struct oci_descriptor){.media_type = NULL};
}

void oci_descriptor_free_all(struct oci_descriptor *descriptors, size_t count)
{
    for (size_t i = 0; descriptors && i < count; i++)
        oci_descriptor_free(&descriptors[i]);
    free(descriptors);
}

/* type "/" subtype of RFC 6838's characters. The text goes into HTTP headers later, so nothing
 * else gets through. */
static bool is_media_type(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "!#$&^_.+-";
    size_t type = strspn(text, allowed);
    if (type == 0 || text[type] != '/')
        return false;
    size_t subtype = strspn(text + type + 1, allowed);
    size_t len = type + 1 + subtype;
    return subtype > 0 && text[len] == '\0' && len <= MEDIA_TYPE_MAX;
}

/* A digest inside a document: what is a wrong argument elsewhere is damage here. */
static int parse_digest(const char *text, const char *what, struct digest *ret, struct err *err)
{
    struct err cause = ERR_INIT;
    if (digest_parse(text, ret, &cause) == 0)
        return 0;
    enum err_code code = cause.code == ERR_INVALID ? ERR_DAMAGED : cause.code;
    return err_fail(err, code, "%s: %s", what, cause.text);
}

int oci_descriptor_parse(const json_t *object, const char *what, int64_t size_max,
                         struct oci_descriptor *ret, struct err *err)
{
    const char *media_type;
    const char *digest_text;
    struct oci_descriptor descriptor = {.media_type = NULL};
    int rc = json_doc_get_str(object, "mediaType", what, &media_type, err);
    if (rc == 0)
        rc = json_doc_get_str(object, "digest", what, &digest_text, err);
    if (rc == 0)
        rc = json_doc_get_int(object, "size", what, &descriptor.size, err);
    if (rc == 0)
        rc = parse_digest(digest_text, what, &descriptor.digest, err);
    if (rc < 0)
        return rc;
    if (!is_media_type(media_type))
        return err_fail(err, ERR_DAMAGED, "'%.80s' in %s is not a media type", media_type, what);
    if (descriptor.size < 0)
        return err_fail(err, ERR_DAMAGED, "'size' in %s is negative", what);
    if (descriptor.size > size_max)
        return err_fail(err, ERR_TOO_LARGE, "%s has %lld bytes, more than the limit of %lld", what,
                        (long long)descriptor.size, (long long)size_max);
    descriptor.media_type = strdup(media_type);
    if (!descriptor.media_type)
        return err_errno(err, ENOMEM, "cannot read %s", what);
    *ret = descriptor;
    return 0;
}

json_t *oci_descriptor_json(const struct oci_descriptor *descriptor)
{
    return json_pack("{s:s, s:s, s:I}", "mediaType", descriptor->media_type, "digest",
                     digest_format(&descriptor->digest).s, "size", (json_int_t)descriptor->size);
}
