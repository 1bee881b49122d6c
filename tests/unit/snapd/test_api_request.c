#include "api_request.h"

#include "cleanup.h"
#include "site.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_paths(void **state)
{
    (void)state;
    struct api_path path = {0};
    assert_int_equal(api_path_parse("/v1/images/a%2Fb:1//%C3%a4", &path, NULL), 0);
    static const char *const segments[] = {"v1", "images", "a/b:1", "", "\u00e4"};
    assert_int_equal(path.count, ARRAY_SIZE(segments));
    for (size_t i = 0; i < path.count; i++)
        assert_string_equal(path.segments[i], segments[i]);
    api_path_free(&path);
    assert_int_equal(api_path_parse("/", &path, NULL), 0);
    assert_int_equal(path.count, 1);
    assert_string_equal(path.segments[0], "");
    api_path_free(&path);
    static const char *const wrong[] = {"",      "v1",      "/%",      "/%0",   "/a%0g", "/%00",
                                        "/a%00", "/%ff%fe", "/%c0%af", "/\xff", "/%%20", "/%u00e4"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct err err = ERR_INIT;
        assert_int_equal(api_path_parse(wrong[i], &path, &err), -EINVAL);
        assert_null(path.storage);
    }
    char many[2 * API_SEGMENTS_MAX + 3];
    for (size_t i = 0; i < sizeof many - 1; i++)
        many[i] = i % 2 == 0 ? '/' : 'a';
    many[2 * API_SEGMENTS_MAX] = '\0';
    assert_int_equal(api_path_parse(many, &path, NULL), 0);
    assert_int_equal(path.count, API_SEGMENTS_MAX);
    api_path_free(&path);
    many[2 * API_SEGMENTS_MAX] = '/';
    many[2 * API_SEGMENTS_MAX + 1] = '\0';
    assert_int_equal(api_path_parse(many, &path, NULL), -EINVAL);
}

static const struct api_member members[] = {{"text", API_STRING, true, 4},
                                            {"flag", API_BOOL, false, 0},
                                            {"number", API_INTEGER, false, 0},
                                            {"labels", API_LABELS, false, 0}};

/* The members of a body as the handlers get them, as text; caller frees. NULL when refused. */
static char *take(const char *body, struct err *err)
{
    struct api_request request = {0};
    json_t *params = NULL;
    int rc = api_request_set_body(&request, body, strlen(body), err);
    if (rc == 0)
        rc = api_request_params(&request, members, ARRAY_SIZE(members), &params, err);
    api_request_free(&request);
    char *text = params ? json_doc_dump(params) : NULL;
    assert_true((rc == 0) == (text != NULL));
    json_decref(params);
    return text;
}

static void test_members(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        const char *params;
    } good[] = {
        {"{\"text\":\"a\"}", "{\"text\":\"a\"}"},
        {"{\"flag\":null,\"text\":\"abcd\"}", "{\"text\":\"abcd\"}"},
        {"{\"text\":\"\",\"flag\":false,\"number\":0,\"labels\":{}}",
         "{\"flag\":false,\"labels\":{},\"number\":0,\"text\":\"\"}"},
        {"{\"text\":\"a\",\"number\":9223372036854775807,\"labels\":{\"a\":\"b\"}}",
         "{\"labels\":{\"a\":\"b\"},\"number\":9223372036854775807,\"text\":\"a\"}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct err err = ERR_INIT;
        cleanup_free char *params = take(good[i].body, &err);
        if (!params)
            fail_msg("%s: %s", good[i].body, err.text);
        assert_string_equal(params, good[i].params);
    }
    static const struct {
        const char *body;
        const char *word;
    } wrong[] = {
        {"{}", "'text'"},
        {"{\"text\":null}", "'text'"},
        {"{\"text\":\"abcde\"}", "limit of 4"},
        {"{\"text\":true}", "'text'"},
        {"{\"text\":\"a\",\"flag\":1}", "'flag'"},
        {"{\"text\":\"a\",\"flag\":\"true\"}", "'flag'"},
        {"{\"text\":\"a\",\"number\":-1}", "'number'"},
        {"{\"text\":\"a\",\"number\":1.0}", "'number'"},
        {"{\"text\":\"a\",\"number\":\"1\"}", "'number'"},
        {"{\"text\":\"a\",\"number\":9223372036854775808}", "JSON"},
        {"{\"text\":\"a\",\"labels\":[]}", "'labels'"},
        {"{\"text\":\"a\",\"labels\":{\"a\":1}}", "'a'"},
        {"{\"text\":\"a\",\"labels\":{\"\":\"1\"}}", "empty"},
        {"{\"text\":\"a\",\"other\":null}", "'other'"},
        {"{\"Text\":\"a\"}", "'Text'"},
        {"null", "object"},
        {"\"a\"", "object"},
        {"", "JSON"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct err err = ERR_INIT;
        cleanup_free char *params = take(wrong[i].body, &err);
        if (params || err.code != ERR_INVALID ||
            (!strstr(err.text, wrong[i].word) && strcmp(wrong[i].word, "object") != 0))
            fail_msg("%s: %s", wrong[i].body, err.text);
    }
    struct err err = ERR_INIT;
    assert_null(take("{\"x\":1}", &err));
    assert_non_null(strstr(err.hint, "text, flag, number, labels"));
}

/* A body with `count` labels whose names have `key` bytes and whose values have `value` bytes. */
static char *with_labels(int count, int key, int value)
{
    struct buf text = BUF_INIT(1 << 20);
    assert_int_equal(buf_addf(&text, NULL, "{\"text\":\"a\",\"labels\":{"), 0);
    for (int i = 0; i < count; i++)
        assert_int_equal(
            buf_addf(&text, NULL, "%s\"%0*d\":\"%0*d\"", i > 0 ? "," : "", key, i, value, 1), 0);
    assert_int_equal(buf_addf(&text, NULL, "}}"), 0);
    return buf_steal(&text);
}

static void test_limits_of_labels(void **state)
{
    (void)state;
    static const struct {
        int count;
        int key;
        int value;
        bool good;
    } cases[] = {
        {API_LABELS_MAX, API_LABEL_KEY_MAX, API_LABEL_VALUE_MAX, true},
        {API_LABELS_MAX + 1, 4, 1, false},
        {1, API_LABEL_KEY_MAX + 1, 1, false},
        {1, 1, API_LABEL_VALUE_MAX + 1, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *body = with_labels(cases[i].count, cases[i].key, cases[i].value);
        struct err err = ERR_INIT;
        cleanup_free char *params = take(body, &err);
        assert_int_equal(params != NULL, cases[i].good);
        assert_int_equal(err.code, cases[i].good ? ERR_NONE : ERR_INVALID);
    }
}

static void test_escapes_in_the_path(void **state)
{
    const struct site *site = *state;
    static const struct {
        const char *path;
        const char *word;
    } wrong[] = {{"/v1/runs/%", "hex"},     {"/v1/runs/%4", "hex"},    {"/v1/runs/%zz", "hex"},
                 {"/v1/runs/a%00b", "NUL"}, {"/v1/runs/%ff", "UTF-8"}, {"/v1/runs/a%2Fb", "a/b"},
                 {"/v1/runs/%2e%2e", ".."}, {"/v1/jobs/a%20b", "a b"}};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        site_refused(site, 400, "invalid", wrong[i].word, "GET", wrong[i].path, NULL);
    site_refused(site, 404, "not_found", "abc", "GET", "/v1/runs/%61b%63", NULL);
    site_refused(site, 404, "not_found", "abc", "GET", "/%761/r%75ns/abc", NULL);
}

static void test_queries(void **state)
{
    const struct site *site = *state;
    static const char *const wrong[] = {
        "/healthz?x=1",        "/v1/runs?wait=1",         "/v1/jobs/j?wait=",
        "/v1/jobs/j?wait",     "/v1/jobs/j?wait=-1",      "/v1/jobs/j?wait=1.5",
        "/v1/jobs/j?wait=abc", "/v1/jobs/j?wait=1x",      "/v1/jobs/j?wait=1&x=2",
        "/v1/jobs/j?wait=%31", "/v1/jobs/j?wait=9999999", "/v1/jobs/j?Wait=1"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        site_refused(site, 400, "invalid", "", "GET", wrong[i], NULL);
    site_refused(site, 404, "not_found", "j-none", "GET", "/v1/jobs/j-none?wait=999999", NULL);
    site_refused(site, 404, "not_found", "j-none", "GET", "/v1/jobs/j-none?wait=0", NULL);
    site_refused(site, 404, "not_found", "j-none", "GET", "/v1/jobs/j-none?", NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, site_setup, site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_limits_of_labels),
        TEST(test_escapes_in_the_path),
        TEST(test_queries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
