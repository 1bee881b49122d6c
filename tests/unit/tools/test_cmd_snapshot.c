#include "cmd.h"

#include "cleanup.h"
#include "varve_call.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define DONE_BEGIN                                                                                 \
    "{\"id\":\"j-1\",\"state\":\"done\",\"result\":{\"id\":\"s-1\",\"name\":\"a:1\","              \
    "\"image\":\"h/a@sha256:ab\",\"entries\":12,\"bytes_new\":2048,\"bytes_total\":3145728,"       \
    "\"durability\":\"local\",\"skipped\":["
#define DONE_END "]}}"

static struct fake_answer job_answers[] = {{.status = 202, .body = "{\"job\":\"j-1\"}"},
                                           {.status = 200, .body = DONE_BEGIN DONE_END}};
static const struct varve_call_setup job_setup = {.answers = job_answers, .answer_count = 2};

static void test_create(void **state)
{
    struct varve_call call;
    varve_call(*state, &job_setup,
               VARVE_ARGS("snapshot", "create", "--run", "r", "--name", "a:1", "--label", "k=v=w",
                          "--comment", "two\nlines", "--label=e="),
               &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "s-1  a:1  12 entries, 2.0 KiB new of 3.0 MiB  local\n");
    assert_string_equal(call.err, "");
    assert_non_null(strstr(call.fake.requests[0], "POST /v1/snapshots HTTP"));
    assert_non_null(strstr(call.fake.requests[0],
                           "\r\n\r\n{\"comment\":\"two\\nlines\",\"labels\":{\"e\":\"\","
                           "\"k\":\"v=w\"},\"name\":\"a:1\",\"run\":\"r\"}"));
    varve_call_free(&call);
}

static void test_create_says_what_is_missing(void **state)
{
    static const struct {
        const char *args[8];
        const char *says;
    } cases[] = {
        {{"snapshot", "create"}, "needs --run ID"},
        {{"snapshot", "create", "r"}, "unexpected word 'r'"},
        {{"snapshot", "create", "--run", "r", "--label", "novalue"}, "'novalue' is no value"},
        {{"snapshot", "create", "--run", "r", "--label", "=v"}, "'=v' is no value for --label"},
        {{"snapshot", "create", "--run", "r", "--label=k=1", "--label=k=2"},
         "label 'k' is given twice"},
        {{"snapshot", "create", "--run", "r", "--label=k=\xff"}, "label 'k' is not UTF-8"},
        {{"snapshot", "create", "--run", "r", "--comment", "\xff"}, "is not UTF-8"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct varve_call call;
        varve_call(*state, &job_setup, cases[i].args, &call);
        varve_call_expect_error(&call, 2, cases[i].says);
        assert_int_equal(call.fake.request_count, 0);
        varve_call_free(&call);
    }
}

static void test_what_was_left_out_is_said(void **state)
{
    char body[8192];
    int len = snprintf(body, sizeof body, "%s", DONE_BEGIN);
    for (int i = 0; i < 25; i++)
        len += snprintf(body + len, sizeof body - (size_t)len,
                        "%s{\"path\":\"run/s%d\\n\",\"reason\":\"a socket\"}", i ? "," : "", i);
    snprintf(body + len, sizeof body - (size_t)len, "%s", DONE_END);
    struct fake_answer answers[] = {job_answers[0], {.status = 200, .body = body}};
    struct varve_call_setup setup = {.answers = answers, .answer_count = 2};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("snapshot", "create", "--run", "r"), &call);
    assert_int_equal(call.status, 0);
    assert_non_null(strstr(call.err, "varve: warning: left out run/s0\\x0a: a socket\n"));
    assert_non_null(strstr(call.err, "left out run/s19\\x0a"));
    assert_null(strstr(call.err, "left out run/s20\\x0a"));
    assert_non_null(strstr(call.err, "5 more were left out"));
    varve_call_free(&call);
    varve_call(*state, &setup, VARVE_ARGS("--json", "snapshot", "create", "--run", "r"), &call);
    assert_string_equal(call.err, "");
    assert_non_null(strstr(call.out, "run/s24"));
    varve_call_free(&call);
}

static void test_push(void **state)
{
    struct varve_call call;
    varve_call(*state, &job_setup, VARVE_ARGS("snapshot", "push", "s-1"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "s-1  h/a@sha256:ab  local  0 B sent, 0 B were there\n");
    assert_non_null(strstr(call.fake.requests[0], "POST /v1/snapshots/s-1/push HTTP"));
    varve_call_free(&call);
    varve_call(*state, &job_setup,
               VARVE_ARGS("snapshot", "push", "--durability", "verified", "s-1"), &call);
    assert_int_equal(call.status, 0);
    assert_non_null(strstr(call.fake.requests[0], "{\"durability\":\"verified\"}"));
    varve_call_free(&call);
}

/* Only the ID is sent where a job is made. */
static void test_push_and_rm_take_a_name(void **state)
{
    static const struct {
        const char *args[4];
        const char *looks;
        const char *sends;
        const char *says;
    } cases[] = {
        {{"snapshot", "push", "a:1"},
         "GET /v1/snapshots/a:1 HTTP",
         "POST /v1/snapshots/s-1/push HTTP",
         "s-1  h/a@sha256:ab  local  0 B sent, 0 B were there\n"},
        {{"snapshot", "rm", "images/a:1"},
         "GET /v1/snapshots/images/a:1 HTTP",
         "DELETE /v1/snapshots/s-1 HTTP",
         "removed images/a:1\n"},
    };
    struct fake_answer answers[] = {
        {.status = 200, .body = "{\"id\":\"s-1\"}"}, job_answers[0], job_answers[1]};
    struct varve_call_setup setup = {.answers = answers, .answer_count = 3};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct varve_call call;
        varve_call(*state, &setup, cases[i].args, &call);
        assert_int_equal(call.status, 0);
        assert_string_equal(call.out, cases[i].says);
        assert_non_null(strstr(call.fake.requests[0], cases[i].looks));
        assert_non_null(strstr(call.fake.requests[1], cases[i].sends));
        varve_call_free(&call);
    }
}

static void test_rm_says_what_stays(void **state)
{
    struct fake_answer answers[] = {
        {.status = 200, .body = "{\"id\":\"s-1\"}"},
        job_answers[0],
        {.status = 200,
         .body = "{\"id\":\"j-1\",\"state\":\"done\",\"result\":{\"id\":\"s-1\","
                 "\"remote\":{\"state\":\"refused\",\"message\":\"asked, refused\"},"
                 "\"image\":{\"state\":\"removed\",\"message\":null}}}"}};
    struct varve_call_setup setup = {.answers = answers, .answer_count = 3};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("snapshot", "rm", "a:1"), &call);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.out, "removed a:1\n");
    assert_string_equal(call.err, "varve: warning: the copy in the remote stays: asked, refused\n");
    varve_call_free(&call);
}

static void test_a_name_of_no_snapshot(void **state)
{
    static const struct fake_answer answer = {
        .status = 404,
        .body = "{\"error\":{\"code\":\"not_found\",\"message\":\"there is no snapshot a:1\","
                "\"hint\":null}}"};
    struct varve_call_setup setup = {.answers = &answer, .answer_count = 1};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("snapshot", "rm", "a:1"), &call);
    varve_call_expect_error(&call, 3, "there is no snapshot a:1");
    assert_int_equal(call.fake.request_count, 1);
    varve_call_free(&call);
}

static void test_ls(void **state)
{
    static const struct fake_answer answer = {
        .status = 200,
        .body =
            "{\"snapshots\":[{\"id\":\"s-1\",\"name\":\"a:1\",\"run\":\"r\",\"bytes_new\":1,"
            "\"bytes_total\":2,\"durability\":\"pushed\",\"created\":null,\"comment\":\"x\"}]}"};
    struct varve_call_setup setup = {.answers = &answer, .answer_count = 1};
    struct varve_call call;
    varve_call(*state, &setup, VARVE_ARGS("snapshot", "ls"), &call);
    assert_string_equal(call.out, "ID   NAME  RUN  NEW  TOTAL  DURABILITY  AGE  COMMENT\n"
                                  "s-1  a:1   r    1 B  2 B    pushed      -    x\n");
    varve_call_free(&call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_create, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_create_says_what_is_missing, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_what_was_left_out_is_said, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_push, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_push_and_rm_take_a_name, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_rm_says_what_stays, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_a_name_of_no_snapshot, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_ls, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
