#include "json_doc.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int parse(const char *text, json_t **ret, struct err *err)
{
    return json_doc_parse(text, strlen(text), "the manifest", ret, err);
}

static void test_bad_documents_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "{",
                                      "[1,]",
                                      "{\"a\":1,\"a\":2}",
                                      "{} x",
                                      "nul",
                                      "{\"a\":\"\\u0000\"}",
                                      "{\"a\":\"\xff\"}",
                                      "\"text\"",
                                      "12"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_t *json = NULL;
        struct err err = ERR_INIT;
        assert_int_equal(parse(bad[i], &json, &err), -EBADMSG);
        assert_memory_equal(err.text, "the manifest", 12);
        assert_null(json);
    }
}

static void nested(char *text, int depth)
{
    memset(text, '[', (size_t)depth);
    memset(text + depth, ']', (size_t)depth);
    text[2 * depth] = '\0';
}

static void test_depth_limit_at_max_and_max_plus_one(void **state)
{
    (void)state;
    char text[2 * JSON_DOC_DEPTH_MAX + 3];
    cleanup_json json_t *json = NULL;
    nested(text, JSON_DOC_DEPTH_MAX);
    assert_int_equal(parse(text, &json, NULL), 0);
    nested(text, JSON_DOC_DEPTH_MAX + 1);
    json_t *none = NULL;
    struct err err = ERR_INIT;
    assert_int_equal(parse(text, &none, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "nested deeper"));
}

static void test_brackets_in_strings_do_not_count(void **state)
{
    (void)state;
    cleanup_json json_t *json = NULL;
    assert_int_equal(
        parse("{\"a\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[ \\\" [[\"}", &json, NULL), 0);
}

static void test_a_million_brackets_do_not_crash(void **state)
{
    (void)state;
    size_t len = 1000000;
    cleanup_free char *text = malloc(len);
    memset(text, '[', len);
    json_t *json = NULL;
    assert_int_equal(json_doc_parse(text, len, "x", &json, NULL), -EBADMSG);
}

static void test_size_limit(void **state)
{
    (void)state;
    size_t len = JSON_DOC_BYTES_MAX + 1;
    cleanup_free char *text = malloc(len);
    memset(text, ' ', len);
    text[0] = '{';
    text[1] = '}';
    json_t *json = NULL;
    assert_int_equal(json_doc_parse(text, len, "x", &json, NULL), -EFBIG);
    cleanup_json json_t *fits = NULL;
    assert_int_equal(json_doc_parse(text, len - 1, "x", &fits, NULL), 0);
}

static void test_members(void **state)
{
    (void)state;
    cleanup_json json_t *json = NULL;
    assert_int_equal(
        parse("{\"s\":\"v\",\"i\":7,\"b\":true,\"n\":null,\"o\":{},\"a\":[]}", &json, NULL), 0);
    const char *s = NULL;
    int64_t i = 0;
    bool b = false;
    json_t *o = NULL;
    assert_int_equal(json_doc_get_str(json, "s", "doc", &s, NULL), 0);
    assert_string_equal(s, "v");
    assert_int_equal(json_doc_get_int(json, "i", "doc", &i, NULL), 0);
    assert_int_equal(i, 7);
    assert_int_equal(json_doc_opt_bool(json, "b", "doc", &b, NULL), 0);
    assert_true(b);
    assert_int_equal(json_doc_get_object(json, "o", "doc", &o, NULL), 0);
    assert_int_equal(json_doc_get_array(json, "a", "doc", &o, NULL), 0);
    s = "unchanged";
    assert_int_equal(json_doc_opt_str(json, "n", "doc", &s, NULL), 0);
    assert_int_equal(json_doc_opt_str(json, "missing", "doc", &s, NULL), 0);
    assert_string_equal(s, "unchanged");
}

static void test_wrong_members_are_named(void **state)
{
    (void)state;
    cleanup_json json_t *json = NULL;
    assert_int_equal(parse("{\"s\":1}", &json, NULL), 0);
    const char *s;
    struct err err = ERR_INIT;
    assert_int_equal(json_doc_get_str(json, "s", "the config", &s, &err), -EBADMSG);
    assert_string_equal(err.text, "'s' in the config is not a string");
    err_clear(&err);
    assert_int_equal(json_doc_get_str(json, "x", "the config", &s, &err), -EBADMSG);
    assert_string_equal(err.text, "the config lacks 'x'");
    err_clear(&err);
    assert_int_equal(json_doc_opt_str(json, "s", "the config", &s, &err), -EBADMSG);
    cleanup_json json_t *array = json_array();
    assert_int_equal(json_doc_get_str(array, "x", "y", &s, NULL), -EBADMSG);
}

static void test_dump_is_canonical(void **state)
{
    (void)state;
    cleanup_json json_t *json = NULL;
    assert_int_equal(parse("{ \"b\" : [1, 2],\n \"a\" : \"\xc3\xa4\" }", &json, NULL), 0);
    cleanup_free char *text = json_doc_dump(json);
    assert_string_equal(text, "{\"a\":\"\xc3\xa4\",\"b\":[1,2]}");
}

/* The reader's own words hold a piece of what it could not read. */
static void secrets_are_not_shown(void **state)
{
    (void)state;
    static const char *const bad[] = {"{\"a\":hunter2}",
                                      "{\"a\":\"hunter2}",
                                      "hunter2",
                                      "{\"hunter2\":1,\"hunter2\":2}",
                                      "{} hunter2",
                                      "{",
                                      ""};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        cleanup_json json_t *json = NULL;
        struct err err = ERR_INIT;
        assert_true(json_doc_parse_secret(bad[i], strlen(bad[i]), "FILE", &json, &err) < 0);
        assert_int_equal(err.code, ERR_DAMAGED);
        assert_null(json);
        assert_non_null(strstr(err.text, "FILE is not valid JSON (line "));
        assert_null(strstr(err.text, "hunter2"));
    }
    cleanup_json json_t *json = NULL;
    assert_int_equal(json_doc_parse_secret("{}", 2, "FILE", &json, NULL), 0);
    assert_non_null(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secrets_are_not_shown),
        cmocka_unit_test(test_bad_documents_are_refused),
        cmocka_unit_test(test_depth_limit_at_max_and_max_plus_one),
        cmocka_unit_test(test_brackets_in_strings_do_not_count),
        cmocka_unit_test(test_a_million_brackets_do_not_crash),
        cmocka_unit_test(test_size_limit),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_wrong_members_are_named),
        cmocka_unit_test(test_dump_is_canonical),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
