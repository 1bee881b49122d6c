/* Any lines as the header of a registry's answer, and what is made of the values: where a list goes
 * on, which bytes of a blob come (Content-Range), how much of an upload there is (Range).
 *
 * Input: a line a header; an empty line ends an answer. Each answer with a Range is the next one of
 * an upload.
 */
#include "registry_head.h"

#include "cleanup.h"
#include "fuzz_check.h"
#include "registry_link.h"
#include "registry_offset.h"
#include "registry_url.h"

#include <inttypes.h>

enum {
    CHUNK = 1000,       /* bytes of a body of the upload */
    END = 1000 * CHUNK, /* where the upload ends at the latest */
};

static void check_value(const char *value, size_t max)
{
    CHECK(!value || (strlen(value) < max && fuzz_is_plain(value)));
}

static void check_kept(const struct registry_http_response *response)
{
    check_value(response->location, REGISTRY_HTTP_LOCATION_MAX);
    check_value(response->content_type, REGISTRY_HTTP_VALUE_MAX);
    check_value(response->content_digest, REGISTRY_HTTP_VALUE_MAX);
    check_value(response->retry_after, REGISTRY_HTTP_VALUE_MAX);
    check_value(response->range, REGISTRY_HTTP_VALUE_MAX);
    check_value(response->content_range, REGISTRY_HTTP_VALUE_MAX);
    check_value(response->chunk_min_length, REGISTRY_HTTP_VALUE_MAX);
    check_value(response->oci_subject, REGISTRY_HTTP_VALUE_MAX);
    check_value(response->link, REGISTRY_HTTP_LINK_MAX);
    CHECK(!response->challenges || strlen(response->challenges) < REGISTRY_HTTP_CHALLENGES_MAX);
}

static void check_content_range(const char *value)
{
    struct registry_head_range range;
    struct registry_head_range again;
    struct err err = ERR_INIT;
    int rc = registry_head_range(value, &range, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        return;
    }
    CHECK(range.first <= range.last && range.last < range.total);
    char text[128];
    char total[32] = "*";
    if (range.total != UINT64_MAX)
        snprintf(total, sizeof total, "%" PRIu64, range.total);
    snprintf(text, sizeof text, "bytes %" PRIu64 "-%" PRIu64 "/%s", range.first, range.last, total);
    CHECK(registry_head_range(text, &again, NULL) == 0);
    CHECK(again.first == range.first && again.last == range.last && again.total == range.total);
}

static void check_link(const char *value)
{
    static const char page[] = "https://registry.example/v2/a/tags/list?n=5";
    cleanup_free char *target = NULL;
    cleanup_free char *next = NULL;
    struct err err = ERR_INIT;
    int rc = registry_link_next(value, &target, &err);
    if (rc == 0 && target)
        rc = registry_link_follow(page, target, &next, &err);
    if (rc < 0)
        fuzz_check_failure(rc, &err);
    CHECK(!next || (rc == 0 && registry_url_same_origin(page, next)));
}

static void check_parsed(const char *range)
{
    uint64_t offset;
    uint64_t again;
    struct err err = ERR_INIT;
    int rc = registry_offset_parse(range, false, &offset, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        return;
    }
    char text[64];
    snprintf(text, sizeof text, "0-%" PRIu64, offset > 0 ? offset - 1 : 0);
    CHECK(registry_offset_parse(text, offset == 1, &again, NULL) == 0 && again == offset);
}

/* One upload, whose bytes before `first` cannot be sent again. */
struct upload {
    struct registry_offset offset;
    uint64_t first;
    unsigned step;
};

static void begin(struct upload *upload)
{
    registry_offset_begin(&upload->offset);
    upload->first = 0;
}

/* The registry said something about a chunk, or was asked. */
static void answer(struct upload *upload, const char *range)
{
    struct registry_offset *offset = &upload->offset;
    struct err why = ERR_INIT;
    uint64_t at = offset->at;
    uint64_t end = at + CHUNK < END ? at + CHUNK : END;
    bool known;
    if (upload->step++ % 3 == 0) {
        registry_offset_send(offset, end);
        known = registry_offset_took(offset, end, range, &why) == 1;
        CHECK(known ? offset->at == end : offset->at == at && why.code != ERR_NONE);
        return;
    }
    if (upload->step % 3 == 0) {
        registry_offset_send(offset, end);
        registry_offset_break(offset);
    }
    known = registry_offset_told(offset, range, &why) == 1;
    if (known && offset->at < upload->first)
        known = registry_offset_count(offset, upload->first);
    else if (known && offset->at == at && registry_offset_deny(offset, upload->first))
        CHECK(offset->at != at);
    if (!known)
        begin(upload);
    else if (offset->counted && offset->at == offset->taken)
        upload->first = offset->at; /* as a stream drops what was taken */
}

static void check_upload(struct upload *upload, const char *range)
{
    answer(upload, range);
    const struct registry_offset *offset = &upload->offset;
    CHECK(offset->at >= upload->first && offset->at <= offset->reach);
    CHECK(offset->best <= offset->reach && offset->reach <= END);
    CHECK(!offset->counted || offset->taken <= offset->reach);
}

static void check_answer(struct registry_http_response *response, struct upload *upload)
{
    check_kept(response);
    if (response->content_range)
        check_content_range(response->content_range);
    if (response->link)
        check_link(response->link);
    if (response->range) {
        check_parsed(response->range);
        check_upload(upload, response->range);
    }
    registry_head_forget(response);
    CHECK(!response->range && !response->link && !response->challenges && !response->location);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    cleanup_free char *text = fuzz_text(bytes, len);
    cleanup_http_response struct registry_http_response response = {0};
    struct upload upload = {.first = 0};
    for (char *rest = text; rest;) {
        const char *line = fuzz_line(&rest);
        struct err err = ERR_INIT;
        int rc = registry_head_take(&response, line, strlen(line), &err);
        if (rc < 0)
            fuzz_check_failure(rc, &err);
        if (!*line)
            check_answer(&response, &upload);
    }
    check_answer(&response, &upload);
    return 0;
}
