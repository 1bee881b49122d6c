#include "cmd.h"

#include "cleanup.h"
#include "varve_call.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_wait(void **state)
{
    static const struct fake_answer answers[] = {
        {.status = 200, .body = "{\"id\":\"j-1\",\"state\":\"running\"}"},
        {.status = 200, .body = "{\"id\":\"j-1\",\"state\":\"done\",\"kind\":\"run.rm\"}"}};
    struct varve_call_setup setup = {.answers = answers, .answer_count = 2};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("job", "wait", "j-1"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "j-1  run.rm  done\n");
    varve_call_free(&call);
}

static void test_wait_for_a_failed_job(void **state)
{
    static const struct fake_answer answer = {
        .status = 200,
        .body = "{\"id\":\"j-1\",\"state\":\"failed\",\"error\":{\"code\":\"not_found\","
                "\"message\":\"no image\",\"hint\":null}}"};
    struct varve_call_setup setup = {.answers = &answer, .answer_count = 1};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("job", "wait", "j-1"), &call);
    varve_call_expect_error(&call, 3, "varve: no image\n");
    varve_call_free(&call);
    varve_call(*state, &setup, VARVE_ARGS("job", "wait", "j-1", "--json"), &call);
    assert_int_equal(call.status, 3);
    assert_non_null(strstr(call.out, "\"state\":\"failed\""));
    varve_call_free(&call);
}

static void test_show_and_ls(void **state)
{
    static const struct fake_answer one = {
        .status = 200, .body = "{\"id\":\"j-1\",\"progress\":{\"done\":1,\"unit\":\"bytes\"}}"};
    struct varve_call_setup setup = {.answers = &one, .answer_count = 1};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("job", "show", "j-1"), &call);
    assert_string_equal(call.out, "id        j-1\nprogress  done  1\n          unit  bytes\n");
    varve_call_free(&call);
    static const struct fake_answer list = {
        .status = 200,
        .body = "{\"jobs\":[{\"id\":\"j-1\",\"kind\":\"run.rm\",\"object\":null,"
                "\"state\":\"failed\",\"step\":\"unmount\",\"error\":{\"code\":\"conflict\"},"
                "\"created\":null}]}"};
    setup.answers = &list;
    varve_call(*state, &setup, VARVE_ARGS("job", "ls"), &call);
    assert_string_equal(call.out, "ID   KIND    OBJECT  STATE   STEP     ERROR     AGE\n"
                                  "j-1  run.rm  -       failed  unmount  conflict  -\n");
    varve_call_free(&call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_wait, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_wait_for_a_failed_job, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_show_and_ls, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
