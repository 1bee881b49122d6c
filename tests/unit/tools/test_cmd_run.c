#include "cmd.h"

#include "cleanup.h"
#include "varve_call.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct fake_answer job_answers[] = {
    {.status = 202, .body = "{\"job\":\"j-1\"}"},
    {.status = 200,
     .body = "{\"id\":\"j-1\",\"state\":\"done\",\"result\":{\"id\":\"r-1\",\"rootfs\":\"/r\"}}"}};
static const struct varve_call_setup job_setup = {.answers = job_answers, .answer_count = 2};

static void test_create_sends_what_was_said(void **state)
{
    static const struct {
        const char *args[10];
        const char *body;
    } cases[] = {
        {{"run", "create", "a:1"}, "{\"image\":\"a:1\"}"},
        {{"run", "create", "a:1", "--plain-upper", "--id", "x"},
         "{\"id\":\"x\",\"image\":\"a:1\",\"plain_upper\":true}"},
        {{"run", "create", "a:1", "--size", "2G"}, "{\"image\":\"a:1\",\"size\":2147483648}"},
        {{"run", "create", "--token", "0", "a:1"}, "{\"image\":\"a:1\",\"token\":0}"},
        {{"run", "create", "--token=9223372036854775807", "a:1"},
         "{\"image\":\"a:1\",\"token\":9223372036854775807}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct varve_call call;
        char body[200];
        varve_call(*state, &job_setup, cases[i].args, &call);
        assert_int_equal(call.status, 0);
        assert_string_equal(call.out, "r-1  /r\n");
        snprintf(body, sizeof body, "\r\n\r\n%s", cases[i].body);
        assert_non_null(strstr(call.fake.requests[0], "POST /v1/runs HTTP"));
        assert_non_null(strstr(call.fake.requests[0], body));
        varve_call_free(&call);
    }
}

static void test_an_image_that_is_nowhere(void **state)
{
    static const struct fake_answer answers[] = {
        {.status = 202, .body = "{\"job\":\"j-1\"}"},
        {.status = 200,
         .body = "{\"id\":\"j-1\",\"state\":\"failed\",\"error\":{\"code\":\"not_found\","
                 "\"message\":\"cannot pull a\",\"hint\":null}}"}};
    struct varve_call_setup setup = {.answers = answers, .answer_count = 2};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("run", "create", "a"), &call);
    varve_call_expect_error(&call, 3, "cannot pull a; `varve image ls` lists the images");
    varve_call_free(&call);
}

static void test_tokens_that_are_none(void **state)
{
    static const char *const tokens[] = {"many", "", "-1", "1x", " 1", "+1", "9223372036854775808",
                                         "1.5"};
    for (size_t i = 0; i < ARRAY_SIZE(tokens); i++) {
        struct varve_call call;
        varve_call(*state, &job_setup, VARVE_ARGS("run", "create", "a:1", "--token", tokens[i]),
                   &call);
        varve_call_expect_error(&call, 2, "is no value for --token; a token is a whole number");
        assert_int_equal(call.fake.request_count, 0);
        varve_call_free(&call);
    }
}

static void test_ls(void **state)
{
    static const struct fake_answer answer = {
        .status = 200,
        .body = "{\"runs\":[{\"id\":\"r-1\",\"state\":\"ready\",\"mounted\":true,"
                "\"image_name\":\"a:1\",\"image\":\"sha256:0123456789abcdef\",\"created\":null,"
                "\"upper\":\"volume\",\"volume\":{\"size\":1073741824,\"filesystem\":{\"used\":"
                "1048576}}},{\"id\":\"r-3\",\"state\":\"ready\",\"mounted\":true,"
                "\"image_name\":\"a:1\",\"image\":\"sha256:0123456789abcdef\",\"created\":null,"
                "\"upper\":\"plain\",\"volume\":null},"
                "{\"id\":\"r-2\",\"state\":\"broken\",\"error\":{}}]}"};
    struct varve_call_setup setup = {.answers = &answer, .answer_count = 1};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("run", "ls"), &call);
    assert_string_equal(call.out,
                        "ID   STATE   MOUNTED  UPPER   SIZE     USED     IMAGE  DIGEST        AGE\n"
                        "r-1  ready   yes      volume  1.0 GiB  1.0 MiB  a:1    0123456789ab  -\n"
                        "r-3  ready   yes      plain   -        -        a:1    0123456789ab  -\n"
                        "r-2  broken  -        -       -        -        -      -             -\n");
    varve_call_free(&call);
}

static void test_an_id_is_one_part_of_the_path(void **state)
{
    static const struct fake_answer answer = {.status = 200, .body = "{}"};
    struct varve_call_setup setup = {.answers = &answer, .answer_count = 1};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("run", "inspect", "../images/a?x"), &call);
    assert_non_null(strstr(call.fake.requests[0], "GET /v1/runs/..%2Fimages%2Fa%3Fx HTTP"));
    varve_call_free(&call);
}

static void test_rm(void **state)
{
    struct varve_call call;
    varve_call(*state, &job_setup, VARVE_ARGS("run", "rm", "r-1"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "removed r-1\n");
    varve_call_free(&call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_create_sends_what_was_said, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_an_image_that_is_nowhere, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_tokens_that_are_none, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_ls, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_an_id_is_one_part_of_the_path, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_rm, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
