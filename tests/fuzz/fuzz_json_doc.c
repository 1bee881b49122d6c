/* Any bytes as a JSON document, and every member of it asked for as every type. */
#include "json_doc.h"

#include "fuzz_check.h"

static int depth_of(const json_t *json)
{
    int deepest = 0;
    const char *key;
    size_t index;
    json_t *value;
    json_object_foreach ((json_t *)json, key, value) {
        int depth = depth_of(value);
        deepest = depth > deepest ? depth : deepest;
    }
    json_array_foreach (json, index, value) {
        int depth = depth_of(value);
        deepest = depth > deepest ? depth : deepest;
    }
    return deepest + (json_is_object(json) || json_is_array(json));
}

/* Required and optional readers agree on the type; what fails writes nothing. */
static void check_texts(const json_t *object, const char *key, const json_t *member)
{
    static const char mark[] = "untouched";
    const char *must = mark;
    const char *may = mark;
    int rc_must = json_doc_get_str(object, key, "it", &must, NULL);
    int rc_may = json_doc_opt_str(object, key, "it", &may, NULL);
    const char *text = json_string_value(member);
    CHECK((rc_must == 0) == (text != NULL) && must == (text ? text : mark));
    CHECK((rc_may == 0) == (text || !member || json_is_null(member)));
    CHECK(may == (text ? text : mark));
}

static void check_numbers(const json_t *object, const char *key, const json_t *member)
{
    int64_t must = 42;
    int64_t may = 42;
    bool flag = true;
    int rc_must = json_doc_get_int(object, key, "it", &must, NULL);
    int rc_may = json_doc_opt_int(object, key, "it", &may, NULL);
    int rc_flag = json_doc_opt_bool(object, key, "it", &flag, NULL);
    bool fits = json_is_integer(member);
    bool none = !member || json_is_null(member);
    CHECK((rc_must == 0) == fits && must == (fits ? json_integer_value(member) : 42));
    CHECK((rc_may == 0) == (fits || none) && may == (fits ? json_integer_value(member) : 42));
    CHECK((rc_flag == 0) == (json_is_boolean(member) || none));
    CHECK(flag == !json_is_false(member));
}

static void check_inner(const json_t *object, const char *key, json_t *member)
{
    json_t *array = NULL;
    json_t *must = NULL;
    json_t *may = NULL;
    struct err err = ERR_INIT;
    bool none = !member || json_is_null(member);
    int rc = json_doc_get_array(object, key, "it", &array, &err);
    CHECK((rc == 0) == json_is_array(member) && array == (rc == 0 ? member : NULL));
    if (rc < 0)
        fuzz_check_failure(rc, &err);
    rc = json_doc_get_object(object, key, "it", &must, NULL);
    CHECK((rc == 0) == json_is_object(member) && must == (rc == 0 ? member : NULL));
    rc = json_doc_opt_object(object, key, "it", &may, NULL);
    CHECK((rc == 0) == (json_is_object(member) || none));
    CHECK(may == (json_is_object(member) ? member : NULL));
}

static void check_members(const json_t *json)
{
    const char *key;
    size_t index;
    json_t *value;
    json_object_foreach ((json_t *)json, key, value) {
        check_texts(json, key, value);
        check_numbers(json, key, value);
        check_inner(json, key, value);
        check_members(value);
    }
    json_array_foreach (json, index, value)
        check_members(value);
    if (!json_is_object(json))
        return;
    key = "no such member";
    check_texts(json, key, json_object_get(json, key));
    check_numbers(json, key, json_object_get(json, key));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    cleanup_json json_t *json = NULL;
    struct err err = ERR_INIT;
    int rc = json_doc_parse((const char *)bytes, len, "the document", &json, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(!json && (err.code == ERR_DAMAGED || err.code == ERR_TOO_LARGE));
        cleanup_json json_t *any =
            json_loadb((const char *)bytes, len, JSON_REJECT_DUPLICATES, NULL);
        CHECK(!any || depth_of(any) > JSON_DOC_DEPTH_MAX); /* nothing else is sound and refused */
        return 0;
    }
    CHECK(json_is_object(json) || json_is_array(json));
    CHECK(depth_of(json) <= JSON_DOC_DEPTH_MAX);
    if (json_is_object(json))
        check_members(json);
    cleanup_free char *text = json_doc_dump(json);
    CHECK(text);
    cleanup_json json_t *again = NULL;
    CHECK(json_doc_parse(text, strlen(text), "its text", &again, NULL) == 0);
    CHECK(json_equal(json, again));
    cleanup_free char *text_again = json_doc_dump(again);
    CHECK(text_again && strcmp(text, text_again) == 0);
    return 0;
}
