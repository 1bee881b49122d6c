/* Verbs that make jobs: waiting, detaching, keys, results. */
#include "cmd.h"

#include "cleanup.h"
#include "varve_call.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define JOB     "{\"job\":\"j-1\"}"
#define RUNNING "{\"id\":\"j-1\",\"state\":\"running\"}"

static void test_waits_and_gives_the_result(void **state)
{
    static const struct fake_answer answers[] = {
        {.status = 202, .body = JOB},
        {.status = 200, .body = RUNNING},
        {.status = 200,
         .body = "{\"id\":\"j-1\",\"state\":\"done\",\"result\":{\"id\":\"r\",\"a\":[1]}}"}};
    struct varve_call_setup setup = {.answers = answers, .answer_count = 3};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("run", "rm", "r", "--json"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "{\"a\":[1],\"id\":\"r\"}\n");
    assert_string_equal(call.err, ""); /* no progress where there is no terminal */
    assert_int_equal(call.fake.request_count, 3);
    assert_non_null(strstr(call.fake.requests[0], "DELETE /v1/runs/r HTTP"));
    assert_non_null(strstr(call.fake.requests[1], "GET /v1/jobs/j-1?wait="));
    varve_call_free(&call);
}

static void test_a_result_that_is_missing(void **state)
{
    static const struct fake_answer answers[] = {
        {.status = 202, .body = JOB},
        {.status = 200, .body = "{\"id\":\"j-1\",\"state\":\"done\",\"result\":null}"}};
    struct varve_call_setup setup = {.answers = answers, .answer_count = 2};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("run", "rm", "r", "--json"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "{\"id\":\"j-1\",\"result\":null,\"state\":\"done\"}\n");
    varve_call_free(&call);
}

static void test_detach_prints_the_job(void **state)
{
    static const struct fake_answer answer = {.status = 202, .body = JOB};
    struct varve_call_setup setup = {.answers = &answer, .answer_count = 1};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("run", "rm", "--detach", "r", "--key=k1"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "j-1\n");
    assert_int_equal(call.fake.request_count, 1);
    assert_non_null(strstr(call.fake.requests[0], "Idempotency-Key: k1\r\n"));
    varve_call_free(&call);
    varve_call(*state, &setup, VARVE_ARGS("run", "rm", "--detach", "r", "--json"), &call);
    assert_string_equal(call.out, "{\"job\":\"j-1\"}\n");
    assert_null(strstr(call.fake.requests[0], "Idempotency-Key"));
    varve_call_free(&call);
}

static void test_the_jobs_failure_is_the_commands(void **state)
{
    static const struct fake_answer answers[] = {
        {.status = 202, .body = JOB},
        {.status = 200,
         .body =
             "{\"id\":\"j-1\",\"state\":\"failed\",\"result\":null,\"error\":{"
             "\"code\":\"conflict\",\"message\":\"run r is in use\",\"hint\":\"stop pid 7\"}}"}};
    struct varve_call_setup setup = {.answers = answers, .answer_count = 2};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("run", "rm", "r"), &call);
    varve_call_expect_error(&call, 4, "varve: run r is in use; stop pid 7\n");
    varve_call_free(&call);
}

static void test_an_answer_without_a_job(void **state)
{
    static const struct fake_answer answer = {.status = 202, .body = "{\"job\":7}"};
    struct varve_call_setup setup = {.answers = &answer, .answer_count = 1};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("run", "rm", "r"), &call);
    varve_call_expect_error(&call, 1, "'job' in the answer of varved is not a string");
    varve_call_free(&call);
}

static void test_words_after_two_dashes_are_words(void **state)
{
    static const struct fake_answer answer = {.status = 202, .body = JOB};
    struct varve_call_setup setup = {.answers = &answer, .answer_count = 1};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("image", "rm", "--detach", "--", "--odd/name:1"), &call);
    assert_int_equal(call.status, 0);
    assert_non_null(strstr(call.fake.requests[0], "DELETE /v1/images/--odd/name:1 HTTP"));
    varve_call_free(&call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_waits_and_gives_the_result, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_a_result_that_is_missing, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_detach_prints_the_job, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_the_jobs_failure_is_the_commands, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_an_answer_without_a_job, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_words_after_two_dashes_are_words, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
