#include "api_reply.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_statuses(void **state)
{
    (void)state;
    static const struct {
        enum err_code code;
        int status;
    } cases[] = {{ERR_INVALID, 400},     {ERR_DENIED, 403},      {ERR_NOT_FOUND, 404},
                 {ERR_EXISTS, 409},      {ERR_CONFLICT, 409},    {ERR_TOO_LARGE, 413},
                 {ERR_UNSUPPORTED, 501}, {ERR_UNREACHABLE, 502}, {ERR_NO_SPACE, 507},
                 {ERR_DAMAGED, 500},     {ERR_DIGEST, 500},      {ERR_REFUSED, 500},
                 {ERR_IO, 500},          {ERR_INTERNAL, 500},    {ERR_TOO_NEW, 500}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(api_status(cases[i].code), cases[i].status);
}

static void test_errors(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    err_fail(&err, ERR_NOT_FOUND, "there is no \"run\" x\\y");
    struct api_reply reply = {0};
    api_reply_fail(&reply, &err);
    assert_int_equal(reply.status, 404);
    cleanup_free char *text = json_doc_dump(reply.body);
    assert_string_equal(text,
                        "{\"error\":{\"code\":\"not_found\",\"hint\":null,\"message\":\"there "
                        "is no \\\"run\\\" x\\\\y\"}}");
    err_hint(&err, "look");
    reply.status = 405; /* what is set stays */
    api_reply_fail(&reply, &err);
    assert_int_equal(reply.status, 405);
    const json_t *error = json_object_get(reply.body, "error");
    assert_string_equal(json_string_value(json_object_get(error, "hint")), "look");
    api_reply_free(&reply);
}

/* Messages name files, and files have names of any bytes. */
static void test_text_that_is_not_utf8(void **state)
{
    (void)state;
    cleanup_json json_t *odd = api_text("caf\xe9/\xc3\xa4");
    assert_string_equal(json_string_value(odd), "caf?/??");
    cleanup_json json_t *good = api_text("\xc3\xa4");
    assert_string_equal(json_string_value(good), "\xc3\xa4");
    cleanup_json json_t *none = api_text(NULL);
    assert_true(json_is_null(none));
    struct err err = ERR_INIT;
    err_fail(&err, ERR_IO, "cannot read \xff\xfe");
    struct api_reply reply = {0};
    api_reply_fail(&reply, &err);
    assert_non_null(reply.body);
    api_reply_free(&reply);
}

static void test_times(void **state)
{
    (void)state;
    cleanup_json json_t *none = api_time(0);
    assert_true(json_is_null(none));
    cleanup_json json_t *some = api_time(INT64_C(1795970336000000000));
    assert_string_equal(json_string_value(some), "2026-11-29T16:38:56Z");
}

static void test_no_memory_is_a_failure(void **state)
{
    (void)state;
    struct api_reply reply = {0};
    struct err err = ERR_INIT;
    assert_true(api_reply_set(&reply, 200, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_INTERNAL);
    assert_int_equal(api_reply_set(&reply, 200, json_object(), NULL), 0);
    assert_int_equal(api_reply_set(&reply, 202, json_object(), NULL), 0);
    assert_int_equal(reply.status, 202);
    api_reply_free(&reply);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statuses),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_text_that_is_not_utf8),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_no_memory_is_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
