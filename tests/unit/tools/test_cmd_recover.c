#include "cmd.h"

#include "cleanup.h"
#include "varve_call.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void call_with(const struct scratch *scratch, const char *items, const char *const *args,
                      struct varve_call *ret)
{
    char body[700];
    snprintf(body, sizeof body,
             "{\"id\":\"j-1\",\"state\":\"done\",\"result\":{\"plan\":false,\"items\":%s}}", items);
    const struct fake_answer answers[] = {{.status = 202, .body = "{\"job\":\"j-1\"}"},
                                          {.status = 200, .body = body}};
    const struct varve_call_setup setup = {.answers = answers, .answer_count = 2};
    varve_call(scratch, &setup, args, ret);
}

static void test_recover(void **state)
{
    struct varve_call call;
    call_with(*state, "[]", VARVE_ARGS("recover"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "everything is as it should be\n");
    assert_non_null(strstr(call.fake.requests[0], "POST /v1/recover HTTP"));
    assert_non_null(strstr(call.fake.requests[0], "\r\n\r\n{\"plan\":false}"));
    varve_call_free(&call);
    call_with(*state,
              "[{\"object\":\"run:r\",\"found\":\"not mounted\",\"action\":\"mount it again\","
              "\"failed\":false}]",
              VARVE_ARGS("recover", "--plan"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "OBJECT  FOUND        ACTION\n"
                                  "run:r   not mounted  mount it again\n");
    assert_non_null(strstr(call.fake.requests[0], "\r\n\r\n{\"plan\":true}"));
    varve_call_free(&call);
}

static void test_what_could_not_be_mended(void **state)
{
    static const char items[] = "[{\"object\":\"run:r\",\"found\":\"not mounted\","
                                "\"action\":\"not mounted again: x\",\"failed\":true}]";
    struct varve_call call;
    call_with(*state, items, VARVE_ARGS("recover"), &call);
    assert_int_equal(call.status, 1);
    assert_non_null(strstr(call.out, "not mounted again: x"));
    varve_call_free(&call);
    call_with(*state, items, VARVE_ARGS("--json", "recover"), &call);
    assert_int_equal(call.status, 1);
    assert_non_null(strstr(call.out, "\"failed\":true"));
    varve_call_free(&call);
    call_with(*state, "7", VARVE_ARGS("recover"), &call);
    varve_call_expect_error(&call, 1, "'items'");
    varve_call_free(&call);
    call_with(*state, "[]", VARVE_ARGS("recover", "r"), &call);
    varve_call_expect_error(&call, 2, "recover");
    varve_call_free(&call);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_recover), TEST(test_what_could_not_be_mended)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
