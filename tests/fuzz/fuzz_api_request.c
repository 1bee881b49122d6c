/* Any bytes as each part of a request: path, body, query, Idempotency-Key. */
#include "api_request.h"

#include "buf.h"
#include "fuzz_check.h"
#include "server.h"

/* Whatever failed, there is an answer that says so. */
static void check_refusal(int rc, const struct err *err)
{
    fuzz_check_failure(rc, err);
    struct api_reply reply = {.status = 0};
    api_reply_fail(&reply, err);
    CHECK(reply.body && reply.status == 400 + 13 * (err->code == ERR_TOO_LARGE));
    cleanup_free char *text = json_doc_dump(reply.body);
    CHECK(text);
    api_reply_free(&reply);
}

static void check_path(const char *raw)
{
    struct err err = ERR_INIT;
    cleanup_api_path struct api_path path = {.count = 42};
    int rc = api_path_parse(raw, &path, &err);
    if (rc < 0) {
        check_refusal(rc, &err);
        CHECK(!path.storage && path.count == 42);
        return;
    }
    CHECK(path.count >= 1 && path.count <= API_SEGMENTS_MAX);
    /* The same parts, with every byte escaped, are the same path. */
    cleanup_buf struct buf escaped = BUF_INIT(1 << 20);
    for (size_t i = 0; i < path.count; i++) {
        CHECK(buf_addf(&escaped, NULL, "/") == 0);
        cleanup_json json_t *utf8 = json_string(path.segments[i]);
        CHECK(utf8);
        for (const char *p = path.segments[i]; *p; p++)
            CHECK(buf_addf(&escaped, NULL, "%%%02x", (unsigned char)*p) == 0);
    }
    cleanup_api_path struct api_path again = {.count = 0};
    CHECK(api_path_parse(buf_str(&escaped), &again, NULL) == 0 && again.count == path.count);
    for (size_t i = 0; i < path.count; i++)
        CHECK(strcmp(path.segments[i], again.segments[i]) == 0);
}

/* One table with every type that a route can ask for. */
static const struct api_member members[] = {
    {"image", API_STRING, true, 1024}, {"id", API_STRING, false, 63},
    {"name", API_STRING, false, 0},    {"comment", API_STRING, false, API_COMMENT_MAX},
    {"plain", API_BOOL, false, 0},     {"count", API_INTEGER, false, 0},
    {"labels", API_LABELS, false, 0},  {"args", API_STRINGS, false, 0},
};

static void check_value(const struct api_member *member, const json_t *value)
{
    CHECK(json_typeof(value) != JSON_NULL);
    switch (member->type) {
    case API_STRING:
        CHECK(json_is_string(value));
        CHECK(member->max == 0 || json_string_length(value) <= member->max);
        return;
    case API_BOOL:
        CHECK(json_is_boolean(value));
        return;
    case API_INTEGER:
        CHECK(json_is_integer(value) && json_integer_value(value) >= 0);
        return;
    case API_LABELS:
        CHECK(json_is_object(value) && json_object_size(value) <= API_LABELS_MAX);
        return;
    case API_STRINGS: {
        size_t i;
        json_t *text;
        CHECK(json_is_array(value) && json_array_size(value) <= API_STRINGS_MAX);
        json_array_foreach (value, i, text)
            CHECK(json_is_string(text));
        return;
    }
    }
    CHECK(!"a member without a type");
}

/* A known member that is null is the same as one that is not there. */
static void check_nulls(const struct api_request *request, int rc, const json_t *params)
{
    cleanup_json json_t *body = json_copy(request->body);
    CHECK(body);
    for (size_t i = 0; i < ARRAY_SIZE(members); i++)
        if (json_is_null(json_object_get(body, members[i].name)))
            json_object_del(body, members[i].name);
    const struct api_request without = {.body = body};
    cleanup_json json_t *again = NULL;
    CHECK(api_request_params(&without, members, ARRAY_SIZE(members), &again, NULL) == rc);
    CHECK(rc < 0 || json_equal(params, again));
}

static void check_params(const struct api_request *request)
{
    struct err err = ERR_INIT;
    cleanup_json json_t *params = NULL;
    int rc = api_request_params(request, members, ARRAY_SIZE(members), &params, &err);
    check_nulls(request, rc, params);
    if (rc < 0) {
        check_refusal(rc, &err);
        CHECK(!params);
        return;
    }
    size_t known = 0;
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        const json_t *value = json_object_get(params, members[i].name);
        CHECK(value || !members[i].required);
        if (value)
            check_value(&members[i], value);
        known += value != NULL;
    }
    CHECK(known == json_object_size(params));
}

static void check_body(const char *bytes, size_t len)
{
    struct api_request request = {.body = NULL};
    struct err err = ERR_INIT;
    int rc = api_request_set_body(&request, bytes, len, &err);
    if (rc < 0) {
        check_refusal(rc, &err);
        CHECK(!request.body);
    } else {
        CHECK(json_is_object(request.body));
        check_params(&request);
    }
    api_request_free(&request);
}

static void check_query_and_key(const char *text)
{
    struct api_request request = {.wait_s = -1};
    struct err err = ERR_INIT;
    int rc = api_request_set_query(&request, "wait", text, true, &err);
    if (rc < 0)
        check_refusal(rc, &err);
    CHECK(rc < 0 ? request.wait_s == -1
                 : request.wait_s >= 0 && request.wait_s <= SERVER_WAIT_MAX_S);
    err_clear(&err);
    rc = api_request_set_query(&request, text, "1", true, &err);
    CHECK((rc == 0) == (strcmp(text, "wait") == 0));
    if (rc < 0)
        check_refusal(rc, &err);
    err_clear(&err);
    rc = api_request_set_key(&request, text, &err);
    if (rc < 0)
        check_refusal(rc, &err);
    CHECK(request.key == (rc == 0 ? text : NULL));
    CHECK(rc < 0 || (strlen(text) <= API_KEY_MAX && fuzz_is_plain(text)));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    cleanup_free char *text = fuzz_text(bytes, len);
    check_path(text);
    check_body((const char *)bytes, len);
    check_query_and_key(text);
    return 0;
}
