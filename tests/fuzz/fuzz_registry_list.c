/* Any bytes as a page of a list: its Link header (the first line) and its document, as a page of
 * tags and as a list of referrers.
 */
#include "registry_link.h"

#include "fuzz_check.h"
#include "oci_image.h"
#include "reference.h"
#include "registry_tags.h"
#include "registry_url.h"
#include "remote_referrers.h"

static void check_follow(const char *page, const char *target)
{
    cleanup_free char *next = NULL;
    struct err err = ERR_INIT;
    int rc = registry_link_follow(page, target, &next, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(!next);
        return;
    }
    CHECK(registry_url_same_origin(page, next) && !strchr(next, '#'));
}

static void check_link(const char *value)
{
    cleanup_free char *target = NULL;
    struct err err = ERR_INIT;
    int rc = registry_link_next(value, &target, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(!target);
        return;
    }
    if (!target)
        return;
    CHECK(strstr(value, target) && !strchr(target, '>'));
    check_follow("https://registry.example/v2/a/tags/list?n=5", target);
    check_follow("http://registry.example:5000/v2/a/tags/list", target);
}

static void check_tags(const char *bytes, size_t len)
{
    cleanup_json json_t *seen = json_object();
    cleanup_registry_tags_page struct registry_tags_page page = {.count = 0};
    struct err err = ERR_INIT;
    CHECK(seen);
    int rc = registry_tags_page_read(bytes, len, seen, &page, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(!page.last);
        return;
    }
    CHECK(page.fresh == json_object_size(seen) && page.fresh <= page.count);
    CHECK((page.last != NULL) == (page.count > 0));
    CHECK(!page.last || json_object_get(seen, page.last));
    const char *tag;
    json_t *value;
    json_object_foreach (seen, tag, value)
        CHECK(reference_tag_is_valid(tag));
    /* The same page once more has nothing new. */
    cleanup_registry_tags_page struct registry_tags_page again = {.count = 0};
    CHECK(registry_tags_page_read(bytes, len, seen, &again, &err) == 0);
    CHECK(again.fresh == 0 && again.count == page.count);
}

/* An index that a manifest was added to still has all that was in it, and the manifest. */
static void check_extended(const char *bytes, size_t len, size_t count)
{
    static const char text[] = "{\"schemaVersion\":2,\"mediaType\":\"" OCI_MEDIA_MANIFEST
                               "\",\"artifactType\":\"a/b\",\"layers\":[]}";
    struct remote_manifest manifest = {
        .bytes = (char *)text, .len = sizeof text - 1, .media_type = (char *)OCI_MEDIA_MANIFEST};
    const struct remote_manifest index = {.bytes = (char *)bytes, .len = len};
    cleanup_free char *longer = NULL;
    struct err err = ERR_INIT;
    CHECK(digest_bytes(text, sizeof text - 1, &manifest.digest, NULL) == 0);
    int rc = remote_referrers_extend(&index, &manifest, &longer, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        return;
    }
    cleanup_remote_referrers struct remote_referrers all = {.list = NULL};
    if (longer && remote_referrers_add_index(&all, longer, strlen(longer), NULL) == 0)
        CHECK(all.count == count + 1);
}

static void check_referrers(const char *bytes, size_t len)
{
    cleanup_remote_referrers struct remote_referrers found = {.list = NULL};
    struct err err = ERR_INIT;
    struct digest subject;
    int rc = remote_referrers_add_index(&found, bytes, len, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        err_clear(&err);
    } else {
        check_extended(bytes, len, found.count);
    }
    for (size_t i = 0; i < found.count; i++)
        CHECK(found.list[i].descriptor.media_type && found.list[i].descriptor.size >= 0);
    rc = remote_referrers_subject(bytes, len, &subject, &err);
    if (rc < 0)
        fuzz_check_failure(rc, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    cleanup_free char *text = fuzz_text(bytes, len);
    const char *end = memchr(text, '\n', len);
    const char *document = end ? end + 1 : text;
    size_t document_len = len - (size_t)(document - text);
    check_tags(document, document_len);
    check_referrers(document, document_len);
    if (end)
        text[end - text] = '\0';
    check_link(text);
    return 0;
}
