#include "cmd.h"

#include "cleanup.h"
#include "varve_call.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Calls with a daemon whose job gives this result. */
static void call_with(const struct scratch *scratch, const char *result, const char *const *args,
                      struct varve_call *ret)
{
    char body[500];
    snprintf(body, sizeof body, "{\"id\":\"j-1\",\"state\":\"done\",\"result\":%s}", result);
    const struct fake_answer answers[] = {{.status = 202, .body = "{\"job\":\"j-1\"}"},
                                          {.status = 200, .body = body}};
    const struct varve_call_setup setup = {.answers = answers, .answer_count = 2};
    varve_call(scratch, &setup, args, ret);
}

static void test_reset(void **state)
{
    struct varve_call call;
    call_with(*state, "{\"id\":\"r\"}", VARVE_ARGS("run", "reset", "r"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "r is as its image is\n");
    assert_non_null(strstr(call.fake.requests[0], "POST /v1/runs/r/reset HTTP"));
    varve_call_free(&call);
    call_with(*state, "{}", VARVE_ARGS("run", "reset", "r", "--detach", "--key", "k"), &call);
    assert_string_equal(call.out, "j-1\n");
    assert_non_null(strstr(call.fake.requests[0], "Idempotency-Key: k"));
    varve_call_free(&call);
    call_with(*state, "{}", VARVE_ARGS("run", "reset"), &call);
    varve_call_expect_error(&call, 2, "needs ID");
    varve_call_free(&call);
}

static void test_rollback(void **state)
{
    struct varve_call call;
    call_with(*state,
              "{\"id\":\"r\",\"image\":\"sha256:0\",\"safety_snapshot\":\"s-1\",\"killed\":2}",
              VARVE_ARGS("run", "rollback", "r", "a:1", "--kill"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out,
                        "r  sha256:0\nwhat it was is kept for a day: varve run rollback r s-1\n");
    assert_non_null(strstr(call.err, "2 processes that used the run were ended"));
    assert_non_null(strstr(call.fake.requests[0], "POST /v1/runs/r/rollback HTTP"));
    assert_non_null(strstr(call.fake.requests[0], "\r\n\r\n{\"kill\":true,\"snapshot\":\"a:1\"}"));
    varve_call_free(&call);
    call_with(*state, "{\"id\":\"r\",\"image\":\"sha256:0\",\"safety_snapshot\":null,\"killed\":0}",
              VARVE_ARGS("run", "rollback", "r", "s-1"), &call);
    assert_string_equal(call.out, "r  sha256:0\n");
    assert_string_equal(call.err, "");
    assert_non_null(strstr(call.fake.requests[0], "\r\n\r\n{\"snapshot\":\"s-1\"}"));
    varve_call_free(&call);
    call_with(*state, "{\"id\":\"r\",\"killed\":1}",
              VARVE_ARGS("--json", "run", "rollback", "r", "s-1"), &call);
    assert_non_null(strstr(call.out, "\"killed\":1"));
    varve_call_free(&call);
    call_with(*state, "{}", VARVE_ARGS("run", "rollback", "r"), &call);
    varve_call_expect_error(&call, 2, "run rollback");
    varve_call_free(&call);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_reset), TEST(test_rollback)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
